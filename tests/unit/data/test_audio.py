"""What read_audio returns, and the verdict for every way in which a file can be wrong."""

import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr
from hypothesis import example, given
from hypothesis import strategies as st

from statsprep.data import audio
from statsprep.data.audio import check_reading_options, num_samples, read_audio
from statsprep.data.verdicts import UtteranceError, Verdict
from statsprep.errors import ConfigError

NOISE = (np.random.default_rng(0).standard_normal(8000) * 0.1).astype(np.float32)


def write(path: Path, samples: np.ndarray = NOISE, rate_hz: int = 8000, **options: str) -> Path:
    soundfile.write(path, samples, rate_hz, **options)
    return path


def verdict(path: Path, **options: object) -> Verdict:
    """The kind of error that reading gives; its message must name the path."""
    with pytest.raises(UtteranceError) as caught:
        read_audio(path, **options)  # type: ignore[arg-type]
    assert str(path) in caught.value.message
    assert "\n" not in caught.value.message
    return caught.value.kind


@pytest.mark.parametrize("extension", ["wav", "flac", "ogg", "mp3"])
def test_formats_are_read_as_soundfile_reads_them(tmp_path: Path, extension: str) -> None:
    path = write(tmp_path / f"a.{extension}")
    samples, rate_hz = read_audio(path)
    assert rate_hz == 8000
    assert samples.dtype == np.float32
    # soundfile.read seeks to 0 first, after which the MP3 decoder rounds differently.
    np.testing.assert_allclose(
        samples, soundfile.read(path, dtype="float32")[0], atol=1e-7 * (extension == "mp3")
    )
    assert num_samples(path) == len(samples)


@pytest.mark.parametrize("extension", ["wav", "flac"])
def test_part_is_cut_at_the_files_own_samples(tmp_path: Path, extension: str) -> None:
    path = write(tmp_path / f"a.{extension}")
    whole, _ = read_audio(path)
    part, _ = read_audio(path, start_s=0.25, duration_s=0.5)
    np.testing.assert_array_equal(part, whole[2000:6000])
    assert num_samples(path, start_s=0.25, duration_s=0.5) == 4000
    np.testing.assert_array_equal(read_audio(path, start_s=0.25)[0], whole[2000:])


def test_part_past_the_end_is_an_error_not_a_shorter_part(tmp_path: Path) -> None:
    path = write(tmp_path / "a.wav")
    assert verdict(path, start_s=0.5, duration_s=0.51) is Verdict.HEADER_MISMATCH
    assert verdict(path, start_s=1.0) is Verdict.HEADER_MISMATCH
    assert verdict(path, start_s=0.5, duration_s=1e-6) is Verdict.EMPTY
    one_sample_over = 0.5 + 1 / 8000
    assert len(read_audio(path, start_s=0.5, duration_s=one_sample_over)[0]) == 4000


def test_claimed_length_is_compared_with_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.wav")
    assert len(read_audio(path, claimed_s=1.004)[0]) == 8000
    assert verdict(path, claimed_s=1.5) is Verdict.HEADER_MISMATCH
    assert verdict(path, claimed_s=0.5) is Verdict.HEADER_MISMATCH


def test_missing_file_and_folder_are_unreadable_with_the_systems_reason(tmp_path: Path) -> None:
    with pytest.raises(UtteranceError, match="No such file"):
        read_audio(tmp_path / "no.wav")
    with pytest.raises(UtteranceError, match="Is a directory"):
        read_audio(tmp_path)
    with pytest.raises(UtteranceError, match="No such file"):
        num_samples(tmp_path / "no.wav")


def test_text_named_wav_is_unreadable(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    path.write_text("not audio " * 50)
    assert verdict(path) is Verdict.UNREADABLE


def test_no_bytes_and_no_samples_are_empty(tmp_path: Path) -> None:
    (tmp_path / "zero.wav").touch()
    assert verdict(tmp_path / "zero.wav") is Verdict.EMPTY
    assert verdict(write(tmp_path / "header.wav", NOISE[:0])) is Verdict.EMPTY
    with pytest.raises(UtteranceError, match="has no samples"):
        num_samples(tmp_path / "header.wav")


@pytest.mark.parametrize("kept", [12, 40, 44, 46, 8000, 16043])
def test_wav_shorter_than_its_header_says_is_truncated(tmp_path: Path, kept: int) -> None:
    """libsndfile alone returns the shorter signal without an error."""
    path = write(tmp_path / "a.wav")
    path.write_bytes(path.read_bytes()[:kept])
    assert verdict(path) is Verdict.TRUNCATED
    with pytest.raises(UtteranceError):
        num_samples(path)


@pytest.mark.parametrize("extension", ["flac", "mp3"])
def test_compressed_file_that_ends_early_is_truncated(tmp_path: Path, extension: str) -> None:
    path = write(tmp_path / f"a.{extension}")
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    assert verdict(path) is Verdict.TRUNCATED


def test_rf64_is_checked_by_its_long_size(tmp_path: Path) -> None:
    path = write(tmp_path / "a.wav", format="RF64")
    assert len(read_audio(path)[0]) == 8000
    path.write_bytes(path.read_bytes()[:-2])
    assert verdict(path) is Verdict.TRUNCATED


def test_chunks_before_and_after_the_samples_are_stepped_over(tmp_path: Path) -> None:
    path = write(tmp_path / "a.wav")
    content = path.read_bytes()
    odd = struct.pack("<4sI", b"LIST", 301) + bytes(302)
    path.write_bytes(content[:36] + odd + content[36:] + odd)
    samples, _ = read_audio(path)
    assert len(samples) == 8000
    path.write_bytes((content[:36] + odd + content[36:])[:-1000])
    assert verdict(path) is Verdict.TRUNCATED


@pytest.mark.parametrize("size", [0xFFFFFFFF, 0x7FFFF000])
def test_wav_written_to_a_pipe_is_read_to_its_end(tmp_path: Path, size: int) -> None:
    path = write(tmp_path / "a.wav")
    content = path.read_bytes()
    path.write_bytes(content[:40] + struct.pack("<I", size) + content[44:])
    assert len(read_audio(path)[0]) == 8000


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("sample_rate_hz", [None, 16000])
def test_non_finite_sample_is_named(tmp_path: Path, value: float, sample_rate_hz: int | None) -> None:
    samples = NOISE.copy()
    samples[4321] = value
    path = write(tmp_path / "a.wav", samples, subtype="FLOAT")
    assert verdict(path, sample_rate_hz=sample_rate_hz) is Verdict.NON_FINITE
    with pytest.raises(UtteranceError, match="sample 4321 "):
        read_audio(path, start_s=0.5)


def test_huge_finite_samples_are_no_error(tmp_path: Path) -> None:
    path = write(tmp_path / "a.wav", np.full(100, 3e38, np.float32), subtype="FLOAT")
    assert len(read_audio(path)[0]) == 100


def test_several_channels_need_a_choice(tmp_path: Path) -> None:
    stereo = np.stack([NOISE, -NOISE / 2], axis=1)
    path = write(tmp_path / "a.wav", stereo, subtype="FLOAT")
    assert verdict(path) is Verdict.HEADER_MISMATCH
    assert verdict(path, channel=2) is Verdict.HEADER_MISMATCH
    np.testing.assert_array_equal(read_audio(path, channel=1)[0], stereo[:, 1])
    np.testing.assert_allclose(read_audio(path, channel="mean")[0], NOISE / 4, atol=1e-7)
    assert len(read_audio(path, channel=0, sample_rate_hz=16000)[0]) == 16000
    mono = write(tmp_path / "b.wav")
    assert len(read_audio(mono, channel=0)[0]) == len(read_audio(mono, channel="mean")[0]) == 8000


@given(
    length=st.integers(1, 3000)
    | st.integers(0, 400).map(lambda odd: 160 * (2 * odd + 1))
    | st.sampled_from([44100, 44101, 99_999, 262_145]),
    rate_hz=st.sampled_from([8000, 11025, 16000, 22050, 44100, 48000, 7999]),
    target_hz=st.sampled_from([8000, 16000, 22050, 24000, 44100]),
)
@example(length=480, rate_hz=48000, target_hz=22050)
@example(length=2080, rate_hz=48000, target_hz=22050)
@example(length=1, rate_hz=16000, target_hz=8000)
def test_length_after_resampling_follows_from_the_header(length: int, rate_hz: int, target_hz: int) -> None:
    """read_audio relies on it: num_samples never opens a resampler."""
    resampled = soxr.resample(np.zeros(length, np.float32), rate_hz, target_hz, quality="HQ")
    if len(resampled):
        assert audio._resampled_length("a.wav", length, rate_hz, target_hz) == len(resampled)
        return
    with pytest.raises(UtteranceError, match="are none at"):
        audio._resampled_length("a.wav", length, rate_hz, target_hz)


@pytest.mark.parametrize("target_hz", [8000, 16000, 11025])
@pytest.mark.parametrize("length", [1, 7, 441, 4409])
def test_num_samples_equals_what_is_read(tmp_path: Path, target_hz: int, length: int) -> None:
    path = write(tmp_path / "a.wav", NOISE[:length], 11025)
    samples, rate_hz = read_audio(path, sample_rate_hz=target_hz)
    assert rate_hz == target_hz
    assert samples.dtype == np.float32
    assert num_samples(path, sample_rate_hz=target_hz) == len(samples)


def test_resampling_keeps_a_tone(tmp_path: Path) -> None:
    path = write(tmp_path / "a.wav", np.sin(2 * np.pi * 440 * np.arange(8000) / 8000), subtype="FLOAT")
    samples, _ = read_audio(path, sample_rate_hz=16000)
    expected = np.sin(2 * np.pi * 440 * np.arange(16000) / 16000)
    np.testing.assert_allclose(samples[2000:-2000], expected[2000:-2000], atol=1e-3)


def test_odd_file_names_are_read(tmp_path: Path) -> None:
    for name in ("a b.wav", "quote'\".wav", "new\nline.wav", "ünï-語.wav"):
        write(tmp_path / name)
        assert len(read_audio(str(tmp_path / name))[0]) == 8000


def test_error_keeps_its_kind_when_pickled(tmp_path: Path) -> None:
    """Errors come back from worker processes."""
    error = UtteranceError("a.wav: bad", kind=Verdict.TRUNCATED, detail="more")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.kind, again.message, again.detail) == (
        UtteranceError,
        Verdict.TRUNCATED,
        "a.wav: bad",
        "more",
    )


@pytest.mark.parametrize(
    ("rate", "channel", "message"),
    [
        (0, None, "m: sample_rate_hz is 0; expected a positive integer"),
        ("8k", None, "m: sample_rate_hz is '8k'; expected a positive integer"),
        (None, -1, "m: channel is -1; expected an integer from 0, or mean"),
        (None, "left", "m: channel is 'left'; expected an integer from 0, or mean"),
    ],
)
def test_impossible_options_are_config_errors(rate: object, channel: object, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_reading_options(rate, channel, where="m")
    assert caught.value.message == message
