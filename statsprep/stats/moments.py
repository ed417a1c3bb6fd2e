"""Mean, M2, minimum and maximum per dimension, of one utterance and of many, in float64.

M2 is the sum of squared deviations from the mean, so that variance = M2 / count never suffers from the
cancellation of `sum_square / count - mean ** 2`. Parts are combined by the identity of Chan, Golub and
LeVeque (1983):

    M2 = sum_i M2_i + sum_i n_i * (mean_i - mean) ** 2

evaluated in the order given, so equal parts in equal order give equal bits.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]

MEAN, M2, MIN, MAX = range(4)


@dataclass(frozen=True, slots=True)
class Moments:
    """`count` frames and four float64 arrays of shape (dim,)."""

    count: int
    mean: Float64
    m2: Float64
    min: Float64
    max: Float64

    @property
    def variance(self) -> Float64:
        """Population variance, float64 (dim,)."""
        return self.m2 / self.count

    @property
    def sum(self) -> Float64:
        return self.mean * self.count

    @property
    def sum_square(self) -> Float64:
        return self.m2 + self.mean * self.mean * self.count


def measure(frames: NDArray[np.floating]) -> Float64:
    """One utterance's row.

    Args:
        frames: float (num_frames, dim), at least one frame, finite.

    Returns:
        float64 (4, dim): mean, M2, min, max.
    """
    row = np.empty((4, frames.shape[1]))
    row[MIN] = frames.min(axis=0)
    row[MAX] = frames.max(axis=0)
    deviations = frames.astype(np.float64)
    np.add.reduce(deviations, axis=0, out=row[MEAN])
    row[MEAN] /= len(frames)
    deviations -= row[MEAN]
    deviations *= deviations
    np.add.reduce(deviations, axis=0, out=row[M2])
    return row


def combine(counts: NDArray[np.int64], rows: Float64) -> Moments:
    """Many parts as one, in their order.

    Args:
        counts: int64 (num_parts,), frames of each part, all positive.
        rows: float64 (num_parts, 4, dim), as `measure` gives them.
    """
    total = int(counts.sum())
    weights = counts.astype(np.float64)[:, None]
    mean = (weights * rows[:, MEAN]).sum(axis=0) / total
    m2 = rows[:, M2].sum(axis=0) + (weights * (rows[:, MEAN] - mean) ** 2).sum(axis=0)
    return Moments(total, mean, m2, rows[:, MIN].min(axis=0), rows[:, MAX].max(axis=0))


def as_row(moments: Moments) -> Float64:
    """The row (4, dim) of a part, to be combined with others."""
    return np.stack([moments.mean, moments.m2, moments.min, moments.max])
