"""`<key>_stats.npz`: ESPnet's keys count, sum, sum_square, and mean, m2, min, max beside them, all float64.

Consumers should take `m2 / count` for the variance: `sum_square` is exact only as far as float64 can hold a
square.
"""

import math
import zipfile
import zlib
from pathlib import Path

import numpy as np

from statsprep.errors import DataError
from statsprep.stats.moments import Moments
from statsprep.storage.atomic import open_private

_NO_ARCHIVE = (
    *(OSError, KeyError, ValueError, TypeError, EOFError, NotImplementedError, RuntimeError, MemoryError),
    *(zipfile.BadZipFile, zlib.error),
)


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
        _check_claims(path)
        with np.load(path, allow_pickle=False) as archive:
            return Moments(
                int(archive["count"]), archive["mean"], archive["m2"], archive["min"], archive["max"]
            )
    except _NO_ARCHIVE as error:
        reason = str(error).partition("\n")[0]
        raise DataError(
            f"{path}: cannot read statistics ({reason}); expected an archive with count, mean, m2, min and "
            "max; measure the split again"
        ) from error


def _check_claims(path: Path) -> None:
    """Refuse an archive whose arrays are larger than the file: statistics are not compressed, bombs are.

    Raises:
        ValueError: says what is claimed.
    """
    file_bytes = path.stat().st_size
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            with archive.open(member) as stream:
                version = np.lib.format.read_magic(stream)
                read_header = {
                    (1, 0): np.lib.format.read_array_header_1_0,
                    (2, 0): np.lib.format.read_array_header_2_0,
                }.get(version)
                if read_header is None:
                    raise ValueError(f"{member.filename} is of npy version {version}")
                shape, _, dtype = read_header(stream)
            claimed = max(member.file_size, math.prod(shape) * dtype.itemsize)
            if claimed > file_bytes:
                raise ValueError(f"{member.filename} claims {claimed:,} bytes in a file of {file_bytes:,}")
