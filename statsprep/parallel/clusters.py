"""Dask clusters for a `parallel:` section, with the settings that suit few long tasks without data in Dask."""

import contextlib
import importlib.util
import logging
import math
from collections.abc import Iterator, Mapping
from typing import Any

from statsprep.errors import ConfigError, WorkerError
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
    with dask.config.set(_SETTINGS), main_module_hidden(), contextlib.ExitStack() as stack:
        cluster = stack.enter_context(_local_cluster(workers, options))
        client = stack.enter_context(_client(cluster))
        try:
            client.wait_for_workers(1, timeout=_START_TIMEOUT_S)
        except TimeoutError:
            raise WorkerError(
                f"no worker came up within {_START_TIMEOUT_S} s; expected {workers}; look at the messages above, "
                "and try n_workers: 1 or env: none"
            ) from None
        logger.info(
            "%d workers; dashboard %s", len(cluster.workers), cluster.dashboard_link or "off (no bokeh)"
        )
        yield client


@contextlib.contextmanager
def _local_cluster(workers: Any, options: dict[str, Any]) -> Iterator[Any]:
    from distributed import LocalCluster

    is_adaptive = isinstance(workers, Mapping)
    defaults = {
        "threads_per_worker": 1,
        "processes": True,
        # A free port on loopback; without bokeh there is no page to serve.
        "dashboard_address": "127.0.0.1:0" if importlib.util.find_spec("bokeh") else None,
        "silence_logs": logging.CRITICAL,
    }
    try:
        cluster = LocalCluster(
            n_workers=workers["minimum"] if is_adaptive else workers, **{**defaults, **options}
        )
    except TypeError as error:
        raise ConfigError(
            f"parallel.options: {error}; expected arguments of dask.distributed.LocalCluster"
        ) from error
    except (OSError, RuntimeError) as error:
        raise WorkerError(
            f"the local cluster did not start: {error}; try fewer workers or env: none"
        ) from error
    with contextlib.closing(cluster):
        if is_adaptive:
            cluster.adapt(**workers)
        yield cluster


@contextlib.contextmanager
def _client(cluster: Any) -> Iterator[Any]:
    from distributed import Client

    client = Client(cluster)
    try:
        yield client
    finally:
        client.close(timeout=5)


def count_workers(parallel: Mapping[str, Any]) -> int:
    """How many workers a section asks for; of an adaptive one its maximum."""
    workers = parallel.get("n_workers", 1)
    return int(workers["maximum"] if isinstance(workers, Mapping) else workers)


def chunk_length(num_items: int) -> int:
    """Items per task, so that a map of any length has about 256 tasks: one message costs as much as 500 small items."""
    return max(1, math.ceil(num_items / 256))
