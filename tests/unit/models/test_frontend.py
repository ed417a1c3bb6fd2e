"""LogMel agrees with librosa, alone and in any batch."""

from typing import Any

import librosa
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from statsprep.data.verdicts import UtteranceError, Verdict
from statsprep.errors import ConfigError
from statsprep.models.frontend import LogMel


def speechlike(length: int, seed: int = 0) -> NDArray[np.float32]:
    """Loud low tones over noise 80 dB below: what float32 transforms get wrong."""
    rng = np.random.default_rng(seed)
    time_s = np.arange(length) / 8000
    tones = np.sin(2 * np.pi * 150 * time_s) + np.sin(2 * np.pi * 300 * time_s)
    return (0.4 * tones + 1e-5 * rng.standard_normal(length)).astype(np.float32)


def by_librosa(
    signal: NDArray[np.float32], sample_rate_hz: int = 8000, **options: Any
) -> NDArray[np.float64]:
    options = {"n_fft": 256, "hop_length": 80, "n_mels": 80, "pad_mode": "reflect"} | options
    mel = librosa.feature.melspectrogram(y=signal.astype(np.float64), sr=sample_rate_hz, **options)
    return np.log(np.maximum(mel, 1e-10)).T  # type: ignore[no-any-return]


def run(model: LogMel, *signals: NDArray[np.float32]) -> tuple[NDArray[np.float32], list[int]]:
    lengths = [len(signal) for signal in signals]
    batch = torch.full((len(signals), max(lengths)), 99.0)
    for row, signal in zip(batch, signals, strict=True):
        row[: len(signal)] = torch.from_numpy(signal)
    feats, frame_counts = model(batch, torch.tensor(lengths))
    assert (feats.dtype, frame_counts.dtype) == (torch.float32, torch.int64)
    return feats.numpy(), frame_counts.tolist()


@pytest.mark.filterwarnings("ignore:n_fft=256 is too large")
@pytest.mark.parametrize("length", [129, 255, 256, 257, 4000, 24001])
def test_one_utterance_agrees_with_librosa(length: int) -> None:
    signal = speechlike(length)
    feats, counts = run(LogMel(8000, 256, hop_length=80), signal)
    assert counts == [1 + length // 80] == [feats.shape[1]]
    np.testing.assert_allclose(feats[0], by_librosa(signal), atol=1e-4)


@pytest.mark.parametrize(
    "options",
    [
        {"win_length": 200},
        {"htk": True, "n_mels": 23},
        {"fmin": 60.0, "fmax": 3800.0, "n_mels": 40},
        {"window": "hamming"},
        {"center": False},
        {"n_fft": 255, "hop_length": 100, "n_mels": 40},
        {"n_fft": 512, "hop_length": 512, "n_mels": 40},
    ],
)
def test_every_option_agrees_with_librosa(options: dict[str, Any]) -> None:
    signal = speechlike(3001)
    feats, counts = run(LogMel(8000, **({"n_fft": 256, "hop_length": 80} | options)), signal)
    expected = by_librosa(signal, **options)
    assert counts == [len(expected)]
    np.testing.assert_allclose(feats[0], expected, atol=1e-4)


def test_default_options_agree_with_librosa() -> None:
    signal = speechlike(8000)
    expected = by_librosa(signal, 16000, n_fft=512, hop_length=128)
    np.testing.assert_allclose(run(LogMel(), signal)[0][0], expected, atol=1e-4)


@settings(max_examples=25, deadline=None)
@given(lengths=st.lists(st.integers(256, 2000), min_size=2, max_size=5), center=st.booleans())
def test_padding_and_batch_mates_change_nothing(lengths: list[int], center: bool) -> None:
    model = LogMel(8000, 256, hop_length=80, n_mels=40, center=center)
    signals = [speechlike(length, seed) for seed, length in enumerate(lengths)]
    feats, counts = run(model, *signals)
    for row, count, signal in zip(feats, counts, signals, strict=True):
        alone, (count_alone,) = run(model, signal)
        assert count == count_alone
        np.testing.assert_allclose(row[:count], alone[0], atol=1e-5)
        assert not row[count:].any()


def test_padding_after_the_longest_utterance_is_cut() -> None:
    model = LogMel(8000, 256, hop_length=80, n_mels=40)
    signal = torch.from_numpy(speechlike(1000))[None]
    padded = torch.nn.functional.pad(signal, (0, 500), value=9.0)
    assert torch.equal(model(padded, torch.tensor([1000]))[0], model(signal, torch.tensor([1000]))[0])


@pytest.mark.parametrize(("center", "minimum"), [(True, 129), (False, 256)])
def test_too_short_is_a_verdict_with_both_numbers(center: bool, minimum: int) -> None:
    model = LogMel(8000, 256, hop_length=80, n_mels=40, center=center)
    assert run(model, speechlike(minimum))[1] == [1 + (minimum // 80 if center else 0)]
    with pytest.raises(
        UtteranceError, match=f"{minimum - 1} samples are too few.* at least {minimum}"
    ) as caught:
        run(model, speechlike(500), speechlike(minimum - 1))
    assert caught.value.kind is Verdict.TOO_SHORT


def test_silence_is_the_floor() -> None:
    feats, _ = run(LogMel(8000, 256, hop_length=80, n_mels=40, log_floor=1e-6), np.zeros(800, np.float32))
    np.testing.assert_allclose(feats, np.log(1e-6), rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_mels": 0}, "frontend.n_mels: is 0; expected an integer of at least 1"),
        ({"hop_length": 1.5}, "frontend.hop_length: is 1.5; expected an integer of at least 1"),
        ({"win_length": 513}, "frontend.win_length: is 513; expected 1 to n_fft, which is 512"),
        (
            {"window": "han"},
            "frontend.window: is 'han'; did you mean 'hann'?; expected one of hann, hamming, blackman",
        ),
        ({"log_floor": 0.0}, "frontend.log_floor: is 0.0; expected a number above 0"),
        (
            {"fmax": 9000.0},
            "frontend: fmin is 0 and fmax is 9000; expected 0 <= fmin < fmax <= 8000 "
            "(half of sample_rate_hz)",
        ),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        LogMel(**options)
    assert caught.value.message == message
