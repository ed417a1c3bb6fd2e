"""`<key>_utt_stats.npy`: float64 (num_utterances, 4, dim) with each utterance's mean, M2, minimum and
maximum.

Row i belongs to line i of `<key>_shape`, whose first number is the count. `statsprep.stats.moments.combine`
makes the statistics of any subset from them.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from statsprep.storage.atomic import open_private


def write_rows(path: Path, rows: NDArray[np.float64]) -> None:
    """Write the rows of one shard."""
    with open_private(path, binary=True) as stream:
        np.save(stream, rows)


def merge_rows(parts: Sequence[Path], target: Path) -> None:
    """Join the shards' rows, one shard in memory at a time."""
    mapped = [np.load(part, mmap_mode="r") for part in parts]
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
