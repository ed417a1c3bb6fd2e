"""Moments: exact where sums of squares are not, and the same bits for the same order."""

import time
from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from statsprep.stats.moments import MAX, MEAN, MIN, Moments, as_row, combine, measure


def combined(parts: Sequence[NDArray[np.floating]]) -> Moments:
    return combine(np.array([len(part) for part in parts]), np.stack([measure(part) for part in parts]))


@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=12),
    st.integers(1, 5),
    st.sampled_from([0.0, 1.0, -1000.0, 1e6]),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=60, deadline=None)
def test_parts_combine_to_what_the_whole_measures(
    lengths: list[int], dim: int, offset: float, seed: int
) -> None:
    random = np.random.default_rng(seed)
    parts = [random.normal(size=(length, dim)) + offset for length in lengths]
    found = combined(parts)
    whole = np.concatenate(parts)
    assert found.count == len(whole)
    np.testing.assert_allclose(found.mean, whole.mean(axis=0), rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(found.min, whole.min(axis=0))
    np.testing.assert_array_equal(found.max, whole.max(axis=0))
    # A deviation of 1 around 1e6 is itself known to 1e-10 only.
    exact = ((whole.astype(np.longdouble) - whole.astype(np.longdouble).mean(axis=0)) ** 2).sum(axis=0)
    np.testing.assert_allclose(found.m2, exact.astype(float), rtol=1e-12, atol=1e-16 * offset**2 * len(whole))


def test_combining_combinations_is_combining_all() -> None:
    random = np.random.default_rng(3)
    parts = [random.normal(size=(length, 4)) * 7 - 3 for length in (5, 1, 30, 12, 8, 2)]
    halves = [combined(parts[:2]), combined(parts[2:])]
    found = combine(np.array([each.count for each in halves]), np.stack([as_row(each) for each in halves]))
    direct = combined(parts)
    for name in ("mean", "m2", "min", "max"):
        np.testing.assert_allclose(getattr(found, name), getattr(direct, name), rtol=1e-12, err_msg=name)


def test_small_deviation_around_a_large_mean_is_kept() -> None:
    """float32 sums of squares give a variance of 27.6 here; the true one is 0.01 (espnet#2614)."""
    random = np.random.default_rng(0)
    frames = (1000 + 0.1 * random.standard_normal((200_000, 2))).astype(np.float32)
    found = combined([frames[start : start + 700] for start in range(0, len(frames), 700)])
    true = frames.astype(np.longdouble)
    variance = ((true - true.mean(axis=0)) ** 2).mean(axis=0).astype(float)
    np.testing.assert_allclose(found.variance, variance, rtol=1e-12)
    np.testing.assert_allclose(np.sqrt(found.variance), 0.1, rtol=0.01)


def test_nearly_constant_bin_over_ten_million_frames() -> None:
    """A bin at the floor of the logarithm, -15.9 with deviation 0.05: exact to 1e-9, in flat memory."""
    began = time.perf_counter()
    base = 0.05 * np.random.default_rng(1).standard_normal((100_000, 1))
    rows, counts = [], []
    for chunk in range(100):
        frames = np.roll(base, chunk)  # every value appears 100 times, so the truth is that of one chunk
        for start in range(0, len(frames), 5000):
            rows.append(measure(frames[start : start + 5000] - 15.9))
            counts.append(5000)
    found = combine(np.array(counts), np.stack(rows))
    assert found.count == 10_000_000
    exact = (base - 15.9).astype(np.longdouble)
    deviation = float(np.sqrt(((exact - exact.mean()) ** 2).mean()))
    assert abs(float(np.sqrt(found.variance[0])) - deviation) < 1e-9
    assert time.perf_counter() - began < 10


def test_float32_frames_are_measured_in_float64() -> None:
    frames = (np.random.default_rng(0).normal(size=(1000, 3)) + 100).astype(np.float32)
    np.testing.assert_array_equal(measure(frames), measure(frames.astype(np.float64)))


def test_measuring_leaves_the_frames_alone() -> None:
    frames = np.arange(12, dtype=np.float64).reshape(4, 3)
    measure(frames)
    np.testing.assert_array_equal(frames, np.arange(12).reshape(4, 3))


def test_memory_layout_does_not_change_the_row() -> None:
    frames = np.random.default_rng(0).normal(size=(301, 5))
    np.testing.assert_allclose(measure(np.asfortranarray(frames)), measure(frames), rtol=1e-13)


def test_one_frame_has_no_deviation() -> None:
    row = measure(np.array([[2.5, -1.0]]))
    assert row.tolist() == [[2.5, -1.0], [0, 0], [2.5, -1.0], [2.5, -1.0]]
    assert combine(np.array([1]), row[None]).variance.tolist() == [0, 0]


def test_equal_parts_in_equal_order_give_equal_bits() -> None:
    random = np.random.default_rng(0)
    parts = [random.normal(size=(length, 3)) for length in random.integers(1, 50, size=200)]
    first, second = combined(parts), combined([part.copy() for part in parts])
    for name in ("mean", "m2", "min", "max"):
        assert getattr(first, name).tobytes() == getattr(second, name).tobytes()


def test_sums_are_those_that_espnet_writes() -> None:
    frames = np.random.default_rng(0).normal(size=(500, 3)) + 2
    found = combined([frames[:123], frames[123:]])
    np.testing.assert_allclose(found.sum, frames.sum(axis=0), rtol=1e-13)
    np.testing.assert_allclose(found.sum_square, (frames**2).sum(axis=0), rtol=1e-13)


def test_not_a_number_shows_in_minimum_and_maximum() -> None:
    frames = np.zeros((10, 2))
    frames[4, 1] = np.nan
    row = measure(frames)
    assert np.isnan(row[[MEAN, MIN, MAX], 1]).all()
    assert np.isfinite(row[:, 0]).all()
