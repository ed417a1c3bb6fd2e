"""`<key>_utt_stats.npy`: float64 (num_utterances, 4, dim) with each utterance's mean, M2, minimum and
maximum.

Row i belongs to line i of `<key>_shape`, whose first number is the count. `statsprep.stats.moments.combine`
makes the statistics of any subset from them.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from statsprep.errors import DataError
from statsprep.storage.atomic import open_private


def write_rows(path: Path, rows: NDArray[np.float64]) -> None:
    """Write the rows of one shard."""
    with open_private(path, binary=True) as stream:
        np.save(stream, rows)


def merge_rows(parts: Sequence[Path], target: Path) -> None:
    """Join the shards' rows, one shard in memory at a time.

    Raises:
        DataError: a file holds something else.
    """
    mapped = [_mapped(part) for part in parts]
    shape = (sum(len(part) for part in mapped), *mapped[0].shape[1:])
    header = {
        "descr": np.lib.format.dtype_to_descr(np.dtype(np.float64)),
        "fortran_order": False,
        "shape": shape,
    }
    with open_private(target, binary=True) as stream:
        np.lib.format.write_array_header_1_0(stream, header)
        for part in mapped:
            stream.write(part.tobytes())


def _mapped(path: Path) -> NDArray[np.float64]:
    """A file's array, which is as large as the file and no pickle."""
    try:
        rows: NDArray[np.float64] = np.lib.format.open_memmap(path, mode="r")
        reason = f"expected float64 (utterances, 4, dim), not {rows.dtype} {rows.shape}"
    except (ValueError, EOFError, OSError, TypeError, OverflowError) as error:
        rows, reason = np.empty(0), str(error).partition("\n")[0]
    if rows.dtype != np.float64 or rows.ndim != 3:
        raise DataError(f"{path}: cannot be read as an array ({reason}); measure the split again")
    return rows
