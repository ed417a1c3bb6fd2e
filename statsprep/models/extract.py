"""Feature extractors of the preparation: a signal goes in, a matrix comes out, float32 or complex64
(frames, dim).

An extractor of a recipe's own is any callable `extract(audio, sample_rate_hz)` with audio float32 (samples,).
"""

import functools
from typing import Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from statsprep.data.verdicts import UtteranceError, Verdict
from statsprep.errors import ConfigError, nearest

Backend = Literal["torch", "librosa"]
Value = Literal["magnitude", "power", "complex"]


class Extractor(Protocol):
    """`extract(audio, sample_rate_hz)`."""

    def __call__(self, audio: NDArray[np.float32], sample_rate_hz: int, /) -> NDArray[Any]: ...


class LogMelFeatures:
    """Log-mel features: those of `statsprep.models.frontend.LogMel`, or the same through librosa's STFT.

    The two agree to about 1e-5.

    Args:
        backend: torch or librosa.
        **frontend: options of `LogMel`: sample_rate_hz, n_fft, win_length, hop_length, n_mels, fmin, fmax,
            htk, window, center, log_floor.

    Raises:
        ConfigError: an option is unknown or out of its range.
    """

    results_version = 1

    def __init__(self, backend: Backend = "torch", **frontend: Any) -> None:
        from statsprep.models.frontend import LogMel, frontend_options

        _check_choice("backend", backend, get_args(Backend))
        self.options = frontend_options(frontend, where="features")
        self._frontend = LogMel(**self.options)
        self._extract = self._by_torch if backend == "torch" else self._by_librosa

    @classmethod
    def filled_config(cls, config: dict[str, Any]) -> dict[str, Any]:
        """A `features:` section with the options of `LogMel` written out."""
        from statsprep.models.frontend import frontend_options

        frontend = {key: value for key, value in config.items() if key != "backend"}
        backend = {"backend": config.get("backend", "torch")}
        return {**backend, **frontend_options(frontend, where="features")}

    def __call__(self, audio: NDArray[np.float32], sample_rate_hz: int) -> NDArray[np.float32]:
        if sample_rate_hz != self._frontend.sample_rate_hz:
            expected = self._frontend.sample_rate_hz
            raise UtteranceError(
                f"the audio has {sample_rate_hz} Hz, the features expect {expected}; set "
                f"prepare.sample_rate_hz: {expected} to resample, or change the features'",
                kind=Verdict.HEADER_MISMATCH,
            )
        return self._extract(audio)

    def _by_torch(self, audio: NDArray[np.float32]) -> NDArray[np.float32]:
        import torch

        feats, _ = self._frontend(torch.from_numpy(audio)[None], torch.tensor([len(audio)]))
        found: NDArray[np.float32] = feats[0].numpy()
        return found

    def _by_librosa(self, audio: NDArray[np.float32]) -> NDArray[np.float32]:
        _check_length(audio, self._frontend.min_samples)
        options = {
            key: self.options[key] for key in ("n_fft", "hop_length", "win_length", "window", "center")
        }
        power = np.square(np.abs(_librosa_stft(audio, **options)))
        mel = power @ self._frontend.mel.numpy()
        found: NDArray[np.float32] = np.log(np.maximum(mel, np.float32(self.options["log_floor"])))
        return found


class StftFeatures:
    """Short-time Fourier transform, (frames, 1 + n_fft // 2), its ends reflected as `LogMel` does.

    Args:
        value: magnitude or power, float32; or complex, complex64.
        backend: torch or librosa.
        n_fft: samples of a frame.
        hop_length: samples from one frame to the next.
        win_length: samples under the window; None means n_fft.
        window: hann, hamming or blackman.
        center: frame t is centred at sample t * hop_length.

    Raises:
        ConfigError: an option is out of its range.
    """

    results_version = 1

    def __init__(
        self,
        value: Value = "magnitude",
        backend: Backend = "torch",
        n_fft: int = 512,
        hop_length: int = 128,
        win_length: int | None = None,
        window: Literal["hann", "hamming", "blackman"] = "hann",
        center: bool = True,
    ) -> None:
        _check_choice("value", value, get_args(Value))
        _check_choice("backend", backend, get_args(Backend))
        _check_choice("window", window, ("hann", "hamming", "blackman"))
        win_length = n_fft if win_length is None else win_length
        for name, number in (("n_fft", n_fft), ("hop_length", hop_length), ("win_length", win_length)):
            if isinstance(number, bool) or not isinstance(number, int) or number < 1:
                raise ConfigError(f"{name}: is {number!r}; expected an integer of at least 1")
        if win_length > n_fft:
            raise ConfigError(f"win_length: is {win_length}; expected at most n_fft, which is {n_fft}")
        self.value = value
        self._min_samples = n_fft // 2 + 1 if center else n_fft
        stft = _torch_stft if backend == "torch" else _librosa_stft
        self._stft = functools.partial(
            stft, n_fft=n_fft, hop_length=hop_length, win_length=win_length, window=window, center=center
        )

    def __call__(self, audio: NDArray[np.float32], sample_rate_hz: int) -> NDArray[Any]:
        _check_length(audio, self._min_samples)
        spectrum = self._stft(audio)
        if self.value == "complex":
            return spectrum
        magnitude: NDArray[np.float32] = np.abs(spectrum)
        return magnitude if self.value == "magnitude" else np.square(magnitude)


def _torch_stft(
    audio: NDArray[np.float32], *, n_fft: int, hop_length: int, win_length: int, window: str, center: bool
) -> NDArray[np.complex64]:
    """complex64 (frames, bins), computed in float64 as librosa does."""
    import torch

    shape = getattr(torch, f"{window}_window")(win_length, dtype=torch.float64)
    spectrum = torch.stft(
        torch.from_numpy(audio).double(), n_fft, hop_length, win_length, shape, center=center,
        pad_mode="reflect", return_complex=True,
    )  # fmt: skip
    found: NDArray[np.complex64] = spectrum.T.to(torch.complex64).contiguous().numpy()
    return found


def _librosa_stft(
    audio: NDArray[np.float32], *, n_fft: int, hop_length: int, win_length: int, window: str, center: bool
) -> NDArray[np.complex64]:
    import librosa

    spectrum = librosa.stft(
        audio, n_fft=n_fft, hop_length=hop_length, win_length=win_length, window=window, center=center,
        pad_mode="reflect",
    )  # fmt: skip
    return np.ascontiguousarray(spectrum.T)


def _check_length(audio: NDArray[np.float32], min_samples: int) -> None:
    if len(audio) < min_samples:
        raise UtteranceError(
            f"{len(audio)} samples are too few for one frame; expected at least {min_samples}; use a smaller "
            "n_fft, or leave such recordings out",
            kind=Verdict.TOO_SHORT,
        )


def _check_choice(name: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        hint = nearest(str(value), known)
        raise ConfigError(f"{name}: is {value!r}{hint}; expected one of {', '.join(known)}")
