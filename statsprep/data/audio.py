"""Read audio files, and say exactly what is wrong with those that cannot be used.

Nothing is padded or cut: `read_audio` returns what the file holds, or an `UtteranceError` tells why not.
libsndfile repairs a WAV file that ends early without a word, so its header is compared with the file size
here.
"""

import errno
import math
import os
import stat
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from statsprep.data.commands import AudioCommand
from statsprep.data.verdicts import UtteranceError, Verdict
from statsprep.errors import ConfigError
from statsprep.storage.stores import StorePath, is_url, read_bytes, read_head

if TYPE_CHECKING:
    import soundfile

Channel = int | Literal["mean"]
AudioPath = str | os.PathLike[str] | AudioCommand

# A claimed length is text that someone rounded, often to 1/100 s.
CLAIM_TOLERANCE_S = 0.01
# How far beyond the end of its file a part may end whose times were rounded to 1/100 s.
_ROUNDED_S = 0.005
# What ffmpeg and sox write for samples whose number they did not know, because they wrote to a pipe.
_UNKNOWN_SIZES = frozenset({0, 0x7FFFF000, 0x7FFFFFFF, 0xFFFFFFFF})
_HEADER_BYTES = 64
_REMOTE_HEAD_BYTES = 1 << 16
# FLAC says 65,535 equal samples in ten bytes; Ogg and MP3 say fewer.
_MOST_SAMPLES_PER_BYTE = 8192
_LOWEST_RATE_HZ = 1000
# What is read at once: the file decides how much memory its samples get, not its header.
_BLOCK_SAMPLES = 1 << 22
_PCM_16_STEP = np.float32(2.0**-15)


def read_audio(
    path: AudioPath,
    *,
    sample_rate_hz: int | None = None,
    start_s: float = 0.0,
    duration_s: float | None = None,
    claimed_s: float | None = None,
    tolerance_s: float = CLAIM_TOLERANCE_S,
    channel: Channel | None = None,
) -> tuple[NDArray[np.float32], int]:
    """Read one mono signal from a WAV, FLAC, OGG or MP3 file.

    Args:
        path: the file.
        sample_rate_hz: resample (soxr HQ) where the file has another rate; None keeps the file's.
        start_s: where the part to read begins, in seconds.
        duration_s: length of that part; None reads to the end.
        claimed_s: what a manifest says the whole file lasts; more than `tolerance_s` off is an error.
        tolerance_s: see there.
        channel: which channel of several, counted from 0, or "mean" of all; None expects a mono file.

    Returns:
        Samples, float32 (samples,) in [-1, 1] for integer formats, and their rate in Hz.

    Raises:
        UtteranceError: the file is missing, broken, empty, shorter than it claims, or holds NaN or Inf.
    """
    with _open_sound(path) as sound:
        file_rate_hz = sound.samplerate
        start, stop = _find_part(
            path, sound.frames, file_rate_hz, start_s, duration_s, claimed_s, tolerance_s
        )
        expected = _resampled_length(path, stop - start, file_rate_hz, sample_rate_hz)
        _check_channel(path, sound.channels, channel)
        samples = _read_part(path, sound, start, stop)
        may_be_infinite = not sound.subtype.startswith("PCM_")
    if samples.ndim == 2:
        samples = samples.mean(axis=1) if channel == "mean" else samples[:, channel]
    # Cheaper than a mask: NaN goes through both.
    if may_be_infinite and not (math.isfinite(samples.max()) and math.isfinite(samples.min())):
        first = start + int(np.flatnonzero(~np.isfinite(samples))[0])
        raise UtteranceError(
            f"{path}: sample {first} is NaN or infinite; export the file again from its source",
            kind=Verdict.NON_FINITE,
        )
    if sample_rate_hz is None or sample_rate_hz == file_rate_hz:
        return samples, file_rate_hz
    resampled = resample(samples, file_rate_hz, sample_rate_hz)
    if len(resampled) != expected:
        raise AssertionError(
            f"soxr returned {len(resampled)} samples where {expected} follow from the header"
        )
    return resampled, sample_rate_hz


def resample(samples: NDArray[np.float32], from_hz: int, to_hz: int) -> NDArray[np.float32]:
    """float32 (samples,) at another rate, by soxr's HQ."""
    import soxr

    resampled: NDArray[np.float32] = soxr.resample(
        np.ascontiguousarray(samples), from_hz, to_hz, quality="HQ"
    )
    return resampled


def num_samples(
    path: AudioPath,
    *,
    sample_rate_hz: int | None = None,
    start_s: float = 0.0,
    duration_s: float | None = None,
    claimed_s: float | None = None,
    tolerance_s: float = CLAIM_TOLERANCE_S,
    channel: Channel | None = None,
) -> int:
    """The number of samples that `read_audio` returns for the same arguments, from the file's header alone.

    Raises:
        UtteranceError: as `read_audio`, as far as the header shows it.
    """
    with _open_sound(path, header_only=True) as sound:
        start, stop = _find_part(
            path, sound.frames, sound.samplerate, start_s, duration_s, claimed_s, tolerance_s
        )
        _check_channel(path, sound.channels, channel)
        return _resampled_length(path, stop - start, sound.samplerate, sample_rate_hz)


@contextmanager
def _open_sound(path: AudioPath, *, header_only: bool = False) -> "Iterator[soundfile.SoundFile]":
    """Open the file once, for the header check and for libsndfile, so that a missing file says so."""
    import soundfile

    try:
        descriptor = _open_descriptor(path, header_only)
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from error
    try:
        _check_riff(path, descriptor)
        with soundfile.SoundFile(descriptor, closefd=False) as sound:
            _check_claims(path, sound, os.fstat(descriptor).st_size)
            yield sound
    except soundfile.LibsndfileError as error:
        raise _unreadable(path, error.error_string.strip().rstrip(".")) from None
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from error
    finally:
        os.close(descriptor)


def _open_descriptor(path: AudioPath, header_only: bool) -> int:
    """A file to read from; what lies elsewhere comes as one in memory."""
    if isinstance(path, AudioCommand):
        return path.open_descriptor()
    if not is_url(path):
        return open_regular(path)
    url = os.fspath(path)
    size_bytes, content = 0, b""
    if header_only:
        size_bytes, content = read_head(url, _REMOTE_HEAD_BYTES)
    if not _is_whole_header(content):
        content = read_bytes(url)
    with tempfile.TemporaryFile() as stream:
        stream.write(content)
        # The rest is a hole: whoever reads a header only asks for the file's size.
        stream.truncate(max(size_bytes, len(content)))
        stream.seek(0)
        return os.dup(stream.fileno())


def open_regular(path: StorePath) -> int:
    """A descriptor of a file. Opening a FIFO would wait for whoever writes to it, and a device has no end.

    Raises:
        OSError: it cannot be opened, or is something else than a file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    raise OSError(errno.EINVAL, "is no regular file", path)


def _is_whole_header(head: bytes) -> bool:
    """Whether the length follows from a file's first bytes, as it does for most WAV and FLAC files."""
    return head.startswith(b"fLaC") or (head.startswith((b"RIFF", b"RF64")) and b"data" in head)


def _unreadable(path: AudioPath, reason: str) -> UtteranceError:
    return UtteranceError(
        f"{path}: cannot be read ({reason}); expected a WAV, FLAC, OGG or MP3 file; "
        "correct the path or replace the file",
        kind=Verdict.UNREADABLE,
    )


def _check_riff(path: AudioPath, descriptor: int) -> None:
    """Compare the size that a WAV header gives for its samples with the bytes that follow it."""
    file_bytes = os.fstat(descriptor).st_size
    head = os.pread(descriptor, _HEADER_BYTES, 0)
    if not head and file_bytes == 0:
        raise UtteranceError(f"{path}: has no bytes; record it again or remove it", kind=Verdict.EMPTY)
    if head[:4] not in (b"RIFF", b"RF64") or head[8:12] != b"WAVE":
        return
    position, long_data_bytes = 12, None
    while True:
        chunk = head[position : position + 8]
        if len(chunk) < 8:
            chunk = os.pread(descriptor, 8, position)
        if len(chunk) < 8:
            raise UtteranceError(
                f"{path}: ends at byte {file_bytes}, before its samples begin; copy the file again",
                kind=Verdict.TRUNCATED,
            )
        name, size = struct.unpack("<4sI", chunk)
        if name == b"data":
            break
        if name == b"ds64":
            long_data_bytes = struct.unpack("<8xQ", os.pread(descriptor, 16, position + 8))[0]
        position += 8 + size + size % 2
    if size in _UNKNOWN_SIZES and long_data_bytes is not None:
        size = long_data_bytes
    present_bytes = file_bytes - position - 8
    if size not in _UNKNOWN_SIZES and size > present_bytes:
        raise UtteranceError(
            f"{path}: holds {present_bytes} bytes of samples, its header says {size}; copy the file again",
            kind=Verdict.TRUNCATED,
        )


def _check_claims(path: AudioPath, sound: "soundfile.SoundFile", file_bytes: int) -> None:
    """A header's word is not enough to allocate gigabytes, or to make some by resampling."""
    if sound.frames > _MOST_SAMPLES_PER_BYTE * file_bytes:
        raise UtteranceError(
            f"{path}: its header claims {sound.frames:,} samples, more than {file_bytes:,} bytes hold; "
            "copy the file again",
            kind=Verdict.TRUNCATED,
        )
    if sound.samplerate < _LOWEST_RATE_HZ:
        raise UtteranceError(
            f"{path}: has a rate of {sound.samplerate} Hz; expected at least {_LOWEST_RATE_HZ}; replace it",
            kind=Verdict.HEADER_MISMATCH,
        )


def _find_part(
    path: AudioPath,
    total: int,
    rate_hz: int,
    start_s: float,
    duration_s: float | None,
    claimed_s: float | None,
    tolerance_s: float,
) -> tuple[int, int]:
    """First and one past the last sample to read, at the file's rate."""
    if total <= 0:
        raise UtteranceError(f"{path}: has no samples; record it again or remove it", kind=Verdict.EMPTY)
    if claimed_s is not None and abs(claimed_s - total / rate_hz) > tolerance_s:
        raise UtteranceError(
            f"{path}: lasts {total / rate_hz:.3f} s, but duration_s is {claimed_s:g}; "
            "correct duration_s, or add start_s to read a part of the file",
            kind=Verdict.HEADER_MISMATCH,
        )
    if start_s == 0.0 and duration_s is None:
        return 0, total
    start = round(start_s * rate_hz)
    stop = total if duration_s is None else start + round(duration_s * rate_hz)
    if total < stop <= total + 1 + int(_ROUNDED_S * rate_hz):
        stop = total
    if not 0 <= start < total or stop > total:
        end = "its end" if duration_s is None else f"{start_s + duration_s:g} s"
        raise UtteranceError(
            f"{path}: lasts {total / rate_hz:.3f} s, but {start_s:g} s to {end} was asked for; "
            "correct start_s and duration_s",
            kind=Verdict.HEADER_MISMATCH,
        )
    if stop <= start:
        raise UtteranceError(
            f"{path}: {duration_s:g} s at {rate_hz} Hz is no sample; correct duration_s", kind=Verdict.EMPTY
        )
    return start, stop


def _resampled_length(path: AudioPath, length: int, file_rate_hz: int, sample_rate_hz: int | None) -> int:
    if sample_rate_hz is None or sample_rate_hz == file_rate_hz:
        return length
    # soxr's own expression: at a half, an exact one rounds 480 samples from 48000 to 22050 Hz up, soxr down.
    resampled = int(length / (file_rate_hz / sample_rate_hz) + 0.5)
    if resampled == 0:
        raise UtteranceError(
            f"{path}: {length} samples at {file_rate_hz} Hz are none at {sample_rate_hz} Hz; remove it",
            kind=Verdict.EMPTY,
        )
    return resampled


def _check_channel(path: AudioPath, num_channels: int, channel: Channel | None) -> None:
    if channel is None:
        if num_channels != 1:
            raise UtteranceError(
                f"{path}: has {num_channels} channels, expected 1; set channel to 0 to {num_channels - 1} "
                "or to mean",
                kind=Verdict.HEADER_MISMATCH,
            )
    elif channel != "mean" and channel >= num_channels:
        raise UtteranceError(
            f"{path}: has {num_channels} channel(s), but channel {channel} (counted from 0) was asked for",
            kind=Verdict.HEADER_MISMATCH,
        )


def _read_part(path: AudioPath, sound: "soundfile.SoundFile", start: int, stop: int) -> NDArray[np.float32]:
    """Decode the samples; a decoder that stops early has met the end of a file that was cut off."""
    import soundfile

    try:
        if start:
            sound.seek(start)
        blocks: list[NDArray[np.float32]] = []
        for begin in range(start, stop, _BLOCK_SAMPLES):
            length = min(_BLOCK_SAMPLES, stop - begin)
            blocks.append(_read_block(sound, length))
            if len(blocks[-1]) < length:
                break
        samples = blocks[0] if len(blocks) == 1 else np.concatenate(blocks)
        decoded, reason = len(samples), ""
    except soundfile.LibsndfileError as error:
        decoded, reason = 0, f" ({error.error_string.strip().rstrip('.')})"
    if decoded != stop - start:
        raise UtteranceError(
            f"{path}: {decoded} of {stop - start} samples could be decoded{reason}; copy the file again",
            kind=Verdict.TRUNCATED,
        )
    return samples


def _read_block(sound: "soundfile.SoundFile", length: int) -> NDArray[np.float32]:
    samples: NDArray[np.float32]
    if sound.subtype == "PCM_16":
        # The same numbers as libsndfile's own conversion, in half the time.
        samples = sound.read(length, dtype="int16") * _PCM_16_STEP
    else:
        samples = sound.read(length, dtype="float32")
    return samples


def check_reading_options(sample_rate_hz: object, channel: object, *, where: str) -> None:
    """Refuse a rate or a channel that no file could satisfy.

    Raises:
        ConfigError: names the option, what was seen and what was expected.
    """
    is_rate = isinstance(sample_rate_hz, int) and not isinstance(sample_rate_hz, bool) and sample_rate_hz > 0
    if sample_rate_hz is not None and not is_rate:
        raise ConfigError(f"{where}: sample_rate_hz is {sample_rate_hz!r}; expected a positive integer")
    is_channel = isinstance(channel, int) and not isinstance(channel, bool) and channel >= 0
    if channel is not None and channel != "mean" and not is_channel:
        raise ConfigError(f"{where}: channel is {channel!r}; expected an integer from 0, or mean")
