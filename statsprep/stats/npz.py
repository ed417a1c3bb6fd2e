"""`<key>_stats.npz`: ESPnet's keys count, sum, sum_square, and mean, m2, min, max beside them, all float64.

Consumers should take `m2 / count` for the variance: `sum_square` is exact only as far as float64 can hold a
square.
"""

import zipfile
from pathlib import Path

import numpy as np

from statsprep.errors import DataError
from statsprep.stats.moments import Moments
from statsprep.storage.atomic import open_private


def write_stats(path: Path, moments: Moments) -> None:
    """Write one feature key's statistics; equal moments give equal bytes."""
    with open_private(path, binary=True) as stream:
        np.savez(
            stream,
            count=np.int64(moments.count),
            sum=moments.sum,
            sum_square=moments.sum_square,
            mean=moments.mean,
            m2=moments.m2,
            min=moments.min,
            max=moments.max,
        )


def read_stats(path: Path) -> Moments:
    """Read what `write_stats` wrote.

    Raises:
        DataError: missing, damaged, or an archive of other keys.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            return Moments(
                int(archive["count"]), archive["mean"], archive["m2"], archive["min"], archive["max"]
            )
    except (OSError, KeyError, ValueError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(
            f"{path}: cannot read statistics ({error}); expected an archive with count, mean, m2, min and "
            "max; measure the split again"
        ) from error
