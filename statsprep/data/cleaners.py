"""Cleaners: callables that take a sample and return it, changed or not, or a Dropped that says why it is
left out.

They stand in `prepare.cleaner`, and wherever else a transform may stand. A cleaner of a recipe's own is any
callable: a class, or a function with `_partial_: true` beside its `_target_`. Where it returns None instead
of a Dropped, its name is the step. What a cleaner depends on besides its arguments, such as the content of a
file, it says by a method `fingerprint() -> dict`.
"""

import math
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from statsprep.data.verdicts import Dropped, UtteranceError, Verdict
from statsprep.errors import ConfigError, listed, nearest

Sample = dict[str, Any]

# What no recording gets below: 16 bit end at -96 dBFS, 20 bit at -120.
_LOWEST_DBFS = -120.0


class Cleaner(Protocol):
    """`cleaner(sample)`; None drops it without a reason."""

    def __call__(self, sample: Sample, /) -> Sample | Dropped | None: ...


class DurationBounds:
    """Leaves out what is shorter than `min_s` or longer than `max_s` seconds; both bounds are included.

    Args:
        min_s: shortest duration that stays; None for any.
        max_s: longest duration that stays; None for any.
        audio_key: the audio's name in a sample.

    Raises:
        ConfigError: a bound is no positive number, or there is none.
    """

    results_version = 1

    def __init__(
        self, min_s: float | None = None, max_s: float | None = None, audio_key: str = "speech"
    ) -> None:
        for name, bound in (("min_s", min_s), ("max_s", max_s)):
            if bound is not None:
                _check_number(name, bound, 0.0, math.inf)
        if min_s is None and max_s is None:
            raise ConfigError("min_s and max_s are both missing; expected at least one, such as min_s: 0.3")
        if min_s is not None and max_s is not None and min_s > max_s:
            raise ConfigError(f"min_s {min_s:g} is above max_s {max_s:g}; nothing would stay; swap them")
        self.min_s = min_s
        self.max_s = max_s
        self.audio_key = audio_key

    def __call__(self, sample: Sample) -> Sample | Dropped:
        duration_s = len(audio_of(sample, self.audio_key)) / sample_rate_of(sample)
        if self.min_s is not None and duration_s < self.min_s:
            return Dropped("duration", round(duration_s, 4), f"min_s {self.min_s:g}")
        if self.max_s is not None and duration_s > self.max_s:
            return Dropped("duration", round(duration_s, 4), f"max_s {self.max_s:g}")
        return sample


class SilenceBounds:
    """Leaves out digital silence: too low a level, or too many samples that are exactly zero.

    The level is the root mean square of all samples in dB, where 0 dBFS is a square wave at full scale, so
    that a full sine has -3. Nothing is said to be below -120 dBFS.

    Args:
        min_dbfs: lowest level that stays.
        max_zero_share: largest share of samples equal to zero that stays; 1 for any.
        audio_key: the audio's name in a sample.

    Raises:
        ConfigError: `min_dbfs` is not between -120 and 0, or the share not between 0 and 1.
    """

    results_version = 1

    def __init__(
        self, min_dbfs: float = -60.0, max_zero_share: float = 0.9, audio_key: str = "speech"
    ) -> None:
        _check_number("min_dbfs", min_dbfs, _LOWEST_DBFS, 0.0)
        _check_number("max_zero_share", max_zero_share, 0.0, 1.0)
        self.min_dbfs = min_dbfs
        self.max_zero_share = max_zero_share
        self.audio_key = audio_key

    def __call__(self, sample: Sample) -> Sample | Dropped:
        audio = audio_of(sample, self.audio_key)
        level_dbfs = level_of(audio)
        if level_dbfs < self.min_dbfs:
            return Dropped("silence", round(level_dbfs, 2), f"min_dbfs {self.min_dbfs:g}")
        zero_share = 1.0 - np.count_nonzero(audio) / len(audio)
        if zero_share > self.max_zero_share:
            return Dropped("silence", round(zero_share, 4), f"max_zero_share {self.max_zero_share:g}")
        return sample


class ClippingBounds:
    """Leaves out what was recorded too loud: too many samples at full scale.

    Args:
        max_share: largest share of samples at full scale that stays.
        full_scale: from which absolute value on a sample counts; 1 is the largest that 16 bit hold.
        audio_key: the audio's name in a sample.

    Raises:
        ConfigError: an argument is not between 0 and 1.
    """

    results_version = 1

    def __init__(
        self, max_share: float = 0.001, full_scale: float = 0.999, audio_key: str = "speech"
    ) -> None:
        _check_number("max_share", max_share, 0.0, 1.0)
        _check_number("full_scale", full_scale, 0.0, 1.0)
        self.max_share = max_share
        self.full_scale = full_scale
        self.audio_key = audio_key

    def __call__(self, sample: Sample) -> Sample | Dropped:
        audio = audio_of(sample, self.audio_key)
        share = np.count_nonzero(np.abs(audio) >= self.full_scale) / len(audio)
        if share > self.max_share:
            return Dropped("clipping", round(share, 6), f"max_share {self.max_share:g}")
        return sample


class NonEmptyText:
    """Leaves out an utterance without text, or with nothing but white space in it.

    Args:
        text_key: the text's name in a sample.
    """

    results_version = 1

    def __init__(self, text_key: str = "text") -> None:
        self.text_key = text_key

    def __call__(self, sample: Sample) -> Sample | Dropped:
        text = sample.get(self.text_key)
        if text is None or not str(text).strip():
            return Dropped("empty_text", text, "at least one character")
        return sample


def level_of(audio: NDArray[np.float32]) -> float:
    """Root mean square in dBFS, at least -120."""
    power = float(np.dot(audio, audio)) / len(audio)
    return max(10.0 * math.log10(power), _LOWEST_DBFS) if power > 0 else _LOWEST_DBFS


def audio_of(sample: Sample, key: str) -> NDArray[np.float32]:
    """The sample's audio, float32 (samples,).

    Raises:
        ConfigError: the sample has no such entry.
        UtteranceError: it is no signal of one channel, or has no samples.
    """
    audio = sample.get(key)
    if audio is None:
        raise ConfigError(
            f"the sample has no audio {key!r}{nearest(key, sample)}; it has {listed(sorted(sample))}; set "
            "audio_key to the audio's name"
        )
    found = np.asarray(audio, np.float32)
    if found.ndim != 1 or not len(found):
        raise UtteranceError(
            f"{key!r} has shape {found.shape}; expected one channel with at least one sample; choose "
            "a channel in the dataset's entry, or remove the utterance",
            kind=Verdict.EXCEPTION if found.size else Verdict.EMPTY,
        )
    return found


def sample_rate_of(sample: Sample) -> int:
    """The rate of the sample's audio in Hz.

    Raises:
        ConfigError: the sample does not say it.
    """
    rate_hz = sample.get("sample_rate_hz")
    if isinstance(rate_hz, bool) or not isinstance(rate_hz, int | np.integer) or rate_hz < 1:
        seen = "has no sample_rate_hz" if rate_hz is None else f"has sample_rate_hz {rate_hz!r}"
        raise ConfigError(
            f"the sample {seen}; expected its audio's rate, a positive integer; return it from the dataset"
        )
    return int(rate_hz)


def _check_number(name: str, value: object, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise ConfigError(f"{name}: is {value!r}; expected a number from {low:g} to {high:g}")
