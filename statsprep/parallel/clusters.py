"""Dask clusters for a `parallel:` section, with the settings that suit few long tasks without data in
Dask.
"""

import contextlib
import importlib.util
import inspect
import logging
import math
import os
from collections.abc import Iterator, Mapping
from typing import Any

from statsprep.errors import ConfigError, WorkerError, nearest
from statsprep.parallel.interrupts import children_without_ctrl_c, interrupts_held
from statsprep.parallel.main_module import main_module_hidden

logger = logging.getLogger(__name__)

_START_TIMEOUT_S = 120

_SETTINGS = {
    # The shard is retried by the executor, which knows how far it got; Dask would only count deaths.
    "distributed.scheduler.allowed-failures": 0,
    # One shard per worker and none queued there: a dying worker takes no innocent shard with it.
    "distributed.scheduler.worker-saturation": 1.0,
    "distributed.scheduler.work-stealing": False,
    # C code that holds the interpreter lock for minutes stops heartbeats; that is no death.
    "distributed.scheduler.worker-ttl": "30 minutes",
    "distributed.scheduler.no-workers-timeout": "5 minutes",
    # No data lives in Dask, so there is nothing to spill, and a paused worker would wait for ever.
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": 0.95,
    # Dask's value gives freed memory back at every utterance, only to fetch it again for the next one.
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 2**28,
    "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": 2**28,
    "distributed.nanny.pre-spawn-environ.MALLOC_ARENA_MAX": 1,
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "2s",
    "distributed.comm.timeouts.connect": "60s",
    "distributed.comm.timeouts.tcp": "60s",
}


@contextlib.contextmanager
def open_client(parallel: Mapping[str, Any]) -> Iterator[Any]:
    """A distributed.Client on a fresh cluster with its workers up; both are closed on leaving.

    Args:
        parallel: `{env: local, n_workers: 2, options: {...}}`; options go to `LocalCluster`.

    Raises:
        ConfigError: an option that LocalCluster does not know.
        WorkerError: no worker came up in time.
    """
    import dask
    import distributed  # noqa: F401  its defaults must be there before they are changed

    workers = parallel.get("n_workers", 1)
    options = dict(parallel.get("options") or {})
    with (
        dask.config.set(_SETTINGS),
        _environment_kept(),
        main_module_hidden(),
        contextlib.ExitStack() as stack,
    ):
        cluster = stack.enter_context(_local_cluster(workers, options))
        client = stack.enter_context(_client(cluster))
        try:
            client.wait_for_workers(1, timeout=_START_TIMEOUT_S)
        except TimeoutError:
            raise WorkerError(
                f"no worker came up within {_START_TIMEOUT_S} s; expected {workers}; look at the messages "
                "above, and try n_workers: 1 or env: none"
            ) from None
        has_pages = importlib.util.find_spec("bokeh") is not None
        logger.info(
            "%d workers; dashboard %s",
            len(cluster.workers),
            cluster.dashboard_link if has_pages else "off (no bokeh)",
        )
        yield client


@contextlib.contextmanager
def _environment_kept() -> Iterator[None]:
    """What nannies set for their workers does not stay in this process, where they write it first."""
    import dask

    names = {"PYTHONHASHSEED", "__DASK_PARENT_PID", *dask.config.get("distributed.nanny.pre-spawn-environ")}
    before = {name: os.environ.get(name) for name in names}
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _local_cluster(workers: Any, options: dict[str, Any]) -> Iterator[Any]:
    from distributed import LocalCluster, Nanny, Worker

    # What LocalCluster does not know it passes on, and the worker processes would die of it.
    known = {name for kind in (LocalCluster, Nanny, Worker) for name in inspect.signature(kind).parameters}
    for name in options:
        if name not in known:
            raise ConfigError(
                f"parallel.options.{name}: unknown{nearest(name, known)}; expected arguments of "
                "dask.distributed.LocalCluster; remove it"
            )
    is_adaptive = isinstance(workers, Mapping)
    defaults = {
        "threads_per_worker": 1,
        "processes": True,
        # A free port on loopback; None would not mean no server, but port 8787 on the scheduler's address.
        "dashboard_address": "127.0.0.1:0",
        "silence_logs": logging.CRITICAL,
    }
    with contextlib.ExitStack() as stack:
        with interrupts_held(), children_without_ctrl_c():
            cluster = _start(workers["minimum"] if is_adaptive else workers, {**defaults, **options})
            stack.callback(_close, cluster)
        if is_adaptive:
            cluster.adapt(**workers)
        yield cluster


def _start(num_workers: int, options: Mapping[str, Any]) -> Any:
    from distributed import LocalCluster

    try:
        return LocalCluster(n_workers=num_workers, **options)
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        if isinstance(cause, TypeError | ValueError):  # a worker process refused the value of an option
            raise ConfigError(
                f"parallel.options: {cause}; expected arguments of dask.distributed.LocalCluster"
            ) from error
        raise WorkerError(
            f"the local cluster did not start: {error}; try fewer workers or env: none"
        ) from error


def _close(cluster: Any) -> None:
    with interrupts_held():
        cluster.close()


@contextlib.contextmanager
def _client(cluster: Any) -> Iterator[Any]:
    from distributed import Client

    with contextlib.ExitStack() as stack:
        with interrupts_held(), children_without_ctrl_c():
            client = Client(cluster)
            stack.callback(_close_client, client)
        yield client


def _close_client(client: Any) -> None:
    with interrupts_held():
        client.close(timeout=5)


def count_workers(parallel: Mapping[str, Any]) -> int:
    """How many workers a section asks for; of an adaptive one its maximum."""
    workers = parallel.get("n_workers", 1)
    return int(workers["maximum"] if isinstance(workers, Mapping) else workers)


def chunk_length(num_items: int) -> int:
    """Items per task, so that a map of any length has about 256 tasks: one message costs as much as 500 small
    items.
    """
    return max(1, math.ceil(num_items / 256))
