"""Extractors: torch's and librosa's agree, and what they cannot use is named."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from statsprep.data.verdicts import UtteranceError, Verdict
from statsprep.errors import ConfigError
from statsprep.models.extract import LogMelFeatures, StftFeatures


@pytest.fixture(scope="module")
def audio() -> NDArray[np.float32]:
    return np.random.default_rng(0).normal(0, 0.1, 16000).astype(np.float32)


@pytest.mark.parametrize("options", [{}, {"center": False, "win_length": 400, "n_mels": 40, "htk": True}])
def test_log_mel_of_both_backends_is_the_same(options: dict[str, Any], audio: NDArray[np.float32]) -> None:
    ours = LogMelFeatures(**options)(audio, 16000)
    theirs = LogMelFeatures(backend="librosa", **options)(audio, 16000)
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype == np.float32
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("value", ["magnitude", "power", "complex"])
@pytest.mark.parametrize(
    "options", [{}, {"center": False, "n_fft": 400, "win_length": 300, "window": "hamming"}]
)
def test_stft_of_both_backends_is_the_same(
    value: Any, options: dict[str, Any], audio: NDArray[np.float32]
) -> None:
    ours = StftFeatures(value, **options)(audio, 16000)
    theirs = StftFeatures(value, backend="librosa", **options)(audio, 16000)
    n_fft = options.get("n_fft", 512)
    frames = 1 + len(audio) // 128 if options.get("center", True) else 1 + (len(audio) - n_fft) // 128
    assert ours.shape == theirs.shape == (frames, n_fft // 2 + 1)
    assert ours.dtype == theirs.dtype == (np.complex64 if value == "complex" else np.float32)
    np.testing.assert_allclose(ours, theirs, atol=1e-4, rtol=1e-5)


def test_power_is_the_square_of_magnitude(audio: NDArray[np.float32]) -> None:
    spectrum = StftFeatures("complex")(audio, 16000)
    np.testing.assert_allclose(StftFeatures("power")(audio, 16000), np.abs(spectrum) ** 2, rtol=1e-5)


def test_audio_of_another_rate_is_refused(audio: NDArray[np.float32]) -> None:
    with pytest.raises(UtteranceError, match="the audio has 8000 Hz, the features expect 16000") as caught:
        LogMelFeatures()(audio, 8000)
    assert caught.value.kind == Verdict.HEADER_MISMATCH


@pytest.mark.parametrize("backend", ["torch", "librosa"])
@pytest.mark.parametrize("make", [LogMelFeatures, StftFeatures])
def test_too_few_samples_for_a_frame(make: Any, backend: str) -> None:
    extract = make(backend=backend, n_fft=512)
    assert len(extract(np.zeros(257, np.float32), 16000)) == 3
    with pytest.raises(UtteranceError, match="256 samples are too few") as caught:
        extract(np.zeros(256, np.float32), 16000)
    assert caught.value.kind == Verdict.TOO_SHORT


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: LogMelFeatures(n_mel=80), "features.n_mel: unknown key; did you mean 'n_mels'?"),
        (
            lambda: LogMelFeatures(backend="tensorflow"),
            "backend: is 'tensorflow'; expected one of torch, librosa",
        ),
        (lambda: StftFeatures("magnitud"), "value: is 'magnitud'; did you mean 'magnitude'?"),
        (lambda: StftFeatures(window="han"), "window: is 'han'; did you mean 'hann'?"),
        (lambda: StftFeatures(hop_length=0), "hop_length: is 0; expected an integer of at least 1"),
        (lambda: StftFeatures(win_length=600), "win_length: is 600; expected at most n_fft, which is 512"),
    ],
)
def test_a_wrong_option_is_named(build: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build()
    assert message in str(caught.value)


def test_filled_config_writes_the_defaults_out() -> None:
    full = LogMelFeatures.filled_config({"n_mels": 40})
    assert (full["backend"], full["n_mels"], full["win_length"], full["fmax"]) == ("torch", 40, 512, 8000.0)
    assert LogMelFeatures.filled_config(full) == full
