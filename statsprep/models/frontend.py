"""Log-mel features of a batch of utterances."""

import functools
import inspect
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from statsprep.data.verdicts import UtteranceError, Verdict
from statsprep.errors import ConfigError, nearest

# 256 frames of 256 to 512 samples and their spectra fit into a core's second-level cache.
_FRAMES_AT_ONCE = 256
_WINDOWS = {
    "hann": torch.hann_window,
    "hamming": torch.hamming_window,
    "blackman": torch.blackman_window,
}


class LogMel(torch.nn.Module):
    """Natural logarithm of mel-scaled power spectra, as librosa computes them.

    `log(max(power @ mel, log_floor))` with the filters of `librosa.filters.mel` (Slaney's area normalisation)
    and a periodic window, centred in the FFT. An utterance has the same features alone and in a padded batch:
    its reflection begins at its own end. The transform is computed in float64, like librosa's: in float32 the
    quiet bins of loud frames are off by 0.003 and more.

    Args:
        sample_rate_hz: rate of the audio, which is not resampled here.
        n_fft: samples of a frame.
        win_length: samples under the window; None means n_fft.
        hop_length: samples from one frame to the next.
        n_mels: features of a frame.
        fmin: lower edge of the filters in Hz.
        fmax: upper edge in Hz; None means half the rate.
        htk: HTK's mel scale instead of Slaney's.
        window: hann, hamming or blackman.
        center: frame t is centred at sample t * hop_length, with the signal reflected at both ends.
        log_floor: smallest mel power.
    """

    # Raised whenever the same input and options give other numbers.
    results_version = 1
    mel: torch.Tensor
    window: torch.Tensor

    def __init__(
        self,
        sample_rate_hz: int = 16000,
        n_fft: int = 512,
        win_length: int | None = None,
        hop_length: int = 128,
        n_mels: int = 80,
        fmin: float = 0.0,
        fmax: float | None = None,
        htk: bool = False,
        window: Literal["hann", "hamming", "blackman"] = "hann",
        center: bool = True,
        log_floor: float = 1e-10,
    ) -> None:
        super().__init__()
        counts = {
            "sample_rate_hz": sample_rate_hz,
            "n_fft": n_fft,
            "hop_length": hop_length,
            "n_mels": n_mels,
        }
        for name, value in counts.items():
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ConfigError(f"frontend.{name}: is {value!r}; expected an integer of at least 1")
        win_length = n_fft if win_length is None else win_length
        fmax = sample_rate_hz / 2 if fmax is None else fmax
        if not 1 <= win_length <= n_fft:
            raise ConfigError(f"frontend.win_length: is {win_length}; expected 1 to n_fft, which is {n_fft}")
        if not 0 <= fmin < fmax <= sample_rate_hz / 2:
            raise ConfigError(
                f"frontend: fmin is {fmin:g} and fmax is {fmax:g}; "
                f"expected 0 <= fmin < fmax <= {sample_rate_hz / 2:g} (half of sample_rate_hz)"
            )
        if window not in _WINDOWS:
            raise ConfigError(
                f"frontend.window: is {window!r}{nearest(str(window), _WINDOWS)}; "
                f"expected one of {', '.join(_WINDOWS)}"
            )
        if not log_floor > 0:
            raise ConfigError(f"frontend.log_floor: is {log_floor!r}; expected a number above 0")
        self.sample_rate_hz = sample_rate_hz
        self.n_fft = n_fft
        self.hop_length = hop_length
        self.center = center
        self.log_floor = log_floor
        mel = torch.tensor(_mel_filters(sample_rate_hz, n_fft, n_mels, fmin, fmax, htk)).T
        self.register_buffer("mel", mel, persistent=False)
        left = (n_fft - win_length) // 2
        shape = _WINDOWS[window](win_length, dtype=torch.float64)
        padded = torch.nn.functional.pad(shape, (left, n_fft - win_length - left))
        self.register_buffer("window", padded, persistent=False)

    @property
    def min_samples(self) -> int:
        """The shortest utterance that has features."""
        return self.n_fft // 2 + 1 if self.center else self.n_fft

    @torch.no_grad()
    def forward(self, speech: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute features; no gradient flows to the audio.

        Args:
            speech: float32 (batch, samples), padded at the end.
            lengths: int64 (batch,), samples.

        Returns:
            feats: float32 (batch, frames, n_mels), zero after each utterance's end.
            frame lengths: int64 (batch,), on the CPU; 1 + samples // hop_length with `center` and even n_fft.

        Raises:
            UtteranceError: an utterance is shorter than half a frame (a frame without `center`).
        """
        sample_counts: list[int] = lengths.tolist()
        shortest, longest = min(sample_counts), max(sample_counts)
        if shortest < self.min_samples:
            raise UtteranceError(
                f"{shortest} samples are too few for the log-mel front end; "
                f"expected at least {self.min_samples} (n_fft {self.n_fft})",
                kind=Verdict.TOO_SHORT,
            )
        if longest != speech.shape[1]:
            speech = speech[:, :longest]
        if self.center:
            speech = _reflect_ends(speech, lengths, self.n_fft // 2, is_padded=shortest != longest)
        frames = speech.double().unfold(1, self.n_fft, self.hop_length)
        # In parts that stay in the processor's cache; a part begins at the same frame whatever the batch.
        parts = [self._filter(part) for part in torch.split(frames, _FRAMES_AT_ONCE, dim=1)]
        feats = (parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)).clamp_(min=self.log_floor).log_()
        outside = self.n_fft - 2 * (self.n_fft // 2) if self.center else self.n_fft
        frame_counts = torch.tensor([(count - outside) // self.hop_length + 1 for count in sample_counts])
        if shortest != longest:
            positions = torch.arange(feats.shape[1], device=feats.device)
            feats.masked_fill_((positions >= frame_counts.to(feats.device)[:, None])[..., None], 0.0)
        return feats, frame_counts

    def _filter(self, frames: torch.Tensor) -> torch.Tensor:
        """Mel power, float32 (batch, frames, n_mels), of frames float64 (batch, frames, n_fft)."""
        squares = torch.view_as_real(torch.fft.rfft(frames * self.window)).float().square_()
        return torch.matmul(squares[..., 0] + squares[..., 1], self.mel)


def _reflect_ends(
    speech: torch.Tensor, lengths: torch.Tensor, width: int, *, is_padded: bool
) -> torch.Tensor:
    """Mirror `width` samples beyond both ends of each utterance, without repeating the edge."""
    if width == 0:
        return speech
    if not is_padded:
        end = speech.shape[1] - 1
        return torch.cat(
            [speech[:, 1 : width + 1].flip(1), speech, speech[:, end - width : end].flip(1)], dim=1
        )
    positions = torch.arange(-width, speech.shape[1] + width, device=speech.device).abs()
    last = lengths.to(speech.device)[:, None] - 1
    # Far beyond an utterance's end the mirrored position is negative; no frame that is kept reaches there.
    mirrored = torch.where(positions > last, 2 * last - positions, positions).clamp_(min=0)
    return speech.gather(1, mirrored)


@functools.cache
def _mel_filters(
    sample_rate_hz: int, n_fft: int, n_mels: int, fmin: float, fmax: float, htk: bool
) -> NDArray[np.float32]:
    """float32 (n_mels, 1 + n_fft // 2). Computed once in a process."""
    from librosa.filters import mel

    filters: NDArray[np.float32] = mel(
        sr=sample_rate_hz, n_fft=n_fft, n_mels=n_mels, fmin=fmin, fmax=fmax, htk=htk, dtype=np.float32
    )
    return filters


def frontend_options(options: dict[str, Any], *, where: str) -> dict[str, Any]:
    """All options of `LogMel`, defaults filled in, and what `None` stands for written out.

    Raises:
        ConfigError: an option is unknown.
    """
    defaults = {name: parameter.default for name, parameter in inspect.signature(LogMel).parameters.items()}
    for name in options:
        if name not in defaults:
            raise ConfigError(
                f"{where}.{name}: unknown key{nearest(name, defaults)}; expected one of {', '.join(defaults)}"
            )
    full = defaults | options
    if full["win_length"] is None:
        full["win_length"] = full["n_fft"]
    if full["fmax"] is None and isinstance(full["sample_rate_hz"], int):
        full["fmax"] = full["sample_rate_hz"] / 2
    return full
