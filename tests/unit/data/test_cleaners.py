"""Ready-made cleaners: what stays, what goes, and with which measured value and bound."""

from typing import Any

import numpy as np
import pytest

from statsprep.data.cleaners import ClippingBounds, DurationBounds, NonEmptyText, SilenceBounds, level_of
from statsprep.data.verdicts import Dropped, UtteranceError, Verdict
from statsprep.errors import ConfigError


def sample_of(audio: Any, **fields: Any) -> dict[str, Any]:
    return {"speech": np.asarray(audio, np.float32), "sample_rate_hz": 1000, **fields}


@pytest.mark.parametrize(
    ("num_samples", "expected"),
    [
        (299, Dropped("duration", 0.299, "min_s 0.3")),
        (300, None),
        (2000, None),
        (2001, Dropped("duration", 2.001, "max_s 2")),
    ],
)
def test_both_duration_bounds_are_included(num_samples: int, expected: Dropped | None) -> None:
    sample = sample_of(np.zeros(num_samples))
    found = DurationBounds(min_s=0.3, max_s=2)(sample)
    assert found == expected if expected else found is sample


def test_one_duration_bound_is_enough() -> None:
    assert isinstance(DurationBounds(max_s=2)(sample_of([0.0])), dict)
    assert isinstance(DurationBounds(min_s=2)(sample_of(np.zeros(9000))), dict)


def test_silence_is_judged_by_its_level_in_dbfs() -> None:
    sine = np.sin(np.arange(1000))
    assert SilenceBounds(min_dbfs=-40)(sample_of(0.01 * sine)) == Dropped("silence", -43.01, "min_dbfs -40")
    assert isinstance(SilenceBounds(min_dbfs=-44)(sample_of(0.01 * sine)), dict)
    assert level_of(np.ones(10, np.float32)) == 0.0


def test_nothing_but_zeros_has_a_number_for_a_level() -> None:
    """JSON has no -inf."""
    assert SilenceBounds()(sample_of(np.zeros(100))) == Dropped("silence", -120.0, "min_dbfs -60")


def test_a_loud_click_between_zeros_is_silence_too() -> None:
    audio = np.zeros(1000)
    audio[:50] = 0.5
    assert SilenceBounds()(sample_of(audio)) == Dropped("silence", 0.95, "max_zero_share 0.9")
    assert isinstance(SilenceBounds(max_zero_share=1)(sample_of(audio)), dict)


def test_clipping_is_the_share_of_samples_at_full_scale() -> None:
    audio = np.full(1000, 0.5)
    audio[:4] = [1.0, -1.0, 0.9995, 32767 / 32768]
    assert ClippingBounds()(sample_of(audio)) == Dropped("clipping", 0.004, "max_share 0.001")
    assert isinstance(ClippingBounds(max_share=0.004)(sample_of(audio)), dict)


@pytest.mark.parametrize("fields", [{}, {"text": None}, {"text": ""}, {"text": " \t"}])
def test_utterance_without_text_goes(fields: dict[str, Any]) -> None:
    found = NonEmptyText()(sample_of([0.1], **fields))
    assert found == Dropped("empty_text", fields.get("text"), "at least one character")


def test_utterance_with_text_stays() -> None:
    sample = sample_of([0.1], words="yes")
    assert NonEmptyText("words")(sample) is sample


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: DurationBounds(), "min_s and max_s are both missing; expected at least one"),
        (lambda: DurationBounds(min_s=3, max_s=2), "min_s 3 is above max_s 2"),
        (lambda: DurationBounds(min_s=-1), "min_s: is -1; expected a number from 0 to inf"),
        (lambda: DurationBounds(max_s="2"), "max_s: is '2'; expected a number"),  # type: ignore[arg-type]
        (lambda: SilenceBounds(min_dbfs=5), "min_dbfs: is 5; expected a number from -120 to 0"),
        (lambda: SilenceBounds(max_zero_share=90), "max_zero_share: is 90; expected a number from 0 to 1"),
        (lambda: ClippingBounds(full_scale=True), "full_scale: is True; expected a number from 0 to 1"),
    ],
)
def test_a_bound_that_cannot_be_meant_is_refused(build: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build()
    assert message in str(caught.value)


def test_a_sample_that_lacks_what_a_cleaner_needs_is_the_configurations_fault() -> None:
    with pytest.raises(ConfigError, match="no audio 'speech'; did you mean 'speach'"):
        SilenceBounds()({"speach": np.zeros(3)})
    with pytest.raises(ConfigError, match="has no sample_rate_hz; expected its audio's rate"):
        DurationBounds(min_s=1)({"speech": np.zeros(3, np.float32)})


def test_audio_of_several_channels_or_none_is_the_utterances_fault() -> None:
    for audio, kind in ((np.zeros((2, 5)), Verdict.EXCEPTION), (np.zeros(0), Verdict.EMPTY)):
        with pytest.raises(UtteranceError, match="expected one channel") as caught:
            SilenceBounds()(sample_of(audio))
        assert caught.value.kind == kind
