"""The statistics archive: ESPnet's keys, every bit kept, equal bytes for equal numbers."""

from pathlib import Path

import numpy as np
import pytest

from statsprep.errors import DataError
from statsprep.stats.moments import Moments, combine, measure
from statsprep.stats.npz import read_stats, write_stats


@pytest.fixture
def moments() -> Moments:
    frames = np.random.default_rng(0).normal(size=(40, 5)) + 0.1
    return combine(np.array([15, 25]), np.stack([measure(frames[:15]), measure(frames[15:])]))


def test_round_trip_keeps_every_bit(tmp_path: Path, moments: Moments) -> None:
    write_stats(tmp_path / "feats_stats.npz", moments)
    found = read_stats(tmp_path / "feats_stats.npz")
    assert found.count == 40
    for name in ("mean", "m2", "min", "max"):
        assert getattr(found, name).tobytes() == getattr(moments, name).tobytes()
        assert getattr(found, name).dtype == np.float64


def test_equal_moments_give_equal_bytes_at_any_time(
    tmp_path: Path, moments: Moments, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_stats(tmp_path / "a", moments)
    monkeypatch.setattr("time.time", lambda: 2e9)
    monkeypatch.setattr("time.localtime", lambda *_: (2033, 5, 18, 3, 33, 20, 2, 138, 0))
    write_stats(tmp_path / "b", moments)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_espnets_reader_finds_its_keys(tmp_path: Path, moments: Moments) -> None:
    """espnet2.layers.global_mvn reads count, sum and sum_square."""
    write_stats(tmp_path / "s.npz", moments)
    stats = np.load(tmp_path / "s.npz")
    mean = stats["sum"] / stats["count"]
    variance = stats["sum_square"] / stats["count"] - mean * mean
    np.testing.assert_allclose(mean, moments.mean, rtol=1e-14)
    np.testing.assert_allclose(variance, moments.variance, rtol=1e-12)


@pytest.mark.parametrize("content", [b"", b"no archive", None])
def test_a_damaged_archive_is_named(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "feats_stats.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=r"feats_stats\.npz: cannot read statistics"):
        read_stats(path)


def test_truncation_and_other_keys_are_named(tmp_path: Path, moments: Moments) -> None:
    path = tmp_path / "feats_stats.npz"
    write_stats(path, moments)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match="cannot read statistics"):
        read_stats(path)
    np.savez(path, count=1)
    with pytest.raises(DataError, match="expected an archive with count, mean, m2, min and max"):
        read_stats(path)
