"""What everything is compared with: one process, one thread, no bookkeeping."""

from multiprocessing.synchronize import Barrier
from typing import Any

import numpy as np
from numpy.typing import NDArray


def measure_plainly(
    paths: list[str], frontend_options: dict[str, Any]
) -> tuple[int, NDArray[np.float64], NDArray[np.float64]]:
    """Count, sums and sums of squares of the log-mel features of `paths`, one file at a time."""
    import soundfile
    import torch

    from statsprep.models.frontend import LogMel

    frontend = LogMel(**frontend_options)
    count, total, square = 0, np.zeros(0), np.zeros(0)
    with torch.inference_mode():
        for path in paths:
            audio, _ = soundfile.read(path, dtype="float32")
            feats = (
                frontend(torch.from_numpy(audio)[None], torch.tensor([len(audio)]))[0][0]
                .numpy()
                .astype(np.float64)
            )
            if not count:
                total, square = np.zeros(feats.shape[1]), np.zeros(feats.shape[1])
            count += len(feats)
            total += feats.sum(axis=0)
            square += (feats * feats).sum(axis=0)
    return count, total, square


def loop_when_told(
    paths: list[str], frontend_options: dict[str, Any], barrier: Barrier, num_rounds: int
) -> None:
    """In a process of its own: a warm round, then one per pair of barriers."""
    import torch

    torch.set_num_threads(1)
    measure_plainly(paths, frontend_options)
    for _ in range(num_rounds):
        barrier.wait()
        measure_plainly(paths, frontend_options)
        barrier.wait()
