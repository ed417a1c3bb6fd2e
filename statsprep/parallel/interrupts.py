"""Ctrl-C and SIGTERM while a cluster starts or ends: they wait, for a cluster that is half built cannot be
closed.
"""

import contextlib
import signal
import threading
from collections.abc import Iterator
from multiprocessing import resource_tracker
from types import FrameType


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """Hold SIGINT and SIGTERM back until the end of the block, and let them act there.

    Threads and processes that are started inside never get SIGINT, not even from a terminal, which sends it
    to all: the driver alone decides how its workers end. They do get SIGTERM, by which a nanny ends its
    worker.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[int] = []

    def hold(number: int, frame: FrameType | None) -> None:
        held.append(number)

    # Where it is started by the first child, it opens that child's way to SIGINT again.
    resource_tracker.ensure_running()
    previous = signal.signal(signal.SIGTERM, hold)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous if previous is not None else signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if held:
            signal.raise_signal(signal.SIGTERM)
