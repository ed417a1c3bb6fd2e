"""Ctrl-C and SIGTERM around Dask: they wait, for an exception in the midst of Dask's own code leaves locks
taken and clusters half built, which nobody can close any more.
"""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def interrupts_held(wake: Callable[[], object] | None = None) -> Iterator[None]:
    """Hold SIGINT and SIGTERM back until the end of the block, and let them act there.

    Args:
        wake: called when one comes, so that a block that waits can end; it may be called at any moment of the
            block.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[int] = []

    def hold(number: int, frame: FrameType | None) -> None:
        held.append(number)
        if wake is not None:
            wake()

    # One that is ignored stays so, and None is a handler that was not made by Python.
    previous = {number: signal.getsignal(number) for number in _SIGNALS}
    heard = {number: handler for number, handler in previous.items() if handler not in (signal.SIG_IGN, None)}
    for number in heard:
        signal.signal(number, hold)
    try:
        yield
    finally:
        for number, handler in heard.items():
            signal.signal(number, handler)
        if held:
            signal.raise_signal(held[0])


@contextlib.contextmanager
def children_without_ctrl_c() -> Iterator[None]:
    """Threads that are started inside, and their processes, never get SIGINT.

    A terminal sends it to all of its processes; the driver alone decides how its workers end. They do get
    SIGTERM, by which a nanny ends its worker.
    """
    # Where it is started by the first child, it opens that child's way to SIGINT again.
    resource_tracker.ensure_running()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
