"""Dask clusters for a `parallel:` section: started, watched while they work, and closed."""

import contextlib
import importlib.util
import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from statsprep.errors import WorkerError
from statsprep.parallel.backend import Backend
from statsprep.parallel.backends import backend_of
from statsprep.parallel.interrupts import children_without_ctrl_c, interrupts_held
from statsprep.parallel.main_module import main_module_hidden
from statsprep.parallel.settings import SETTINGS, environment_before
from statsprep.parallel.supply import Supply

logger = logging.getLogger(__name__)

_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Workers:
    """A cluster with its client, and the watch over its jobs where it has any."""

    client: Any
    supply: Supply | None

    def on_failure(self, listener: Callable[[], object]) -> None:
        """Call `listener`, in another thread, once no more workers will come."""
        if self.supply is not None:
            self.supply.on_failure(listener)

    @property
    def failure(self) -> WorkerError | None:
        """Why no more workers will come."""
        return self.supply.error if self.supply is not None else None


@contextlib.contextmanager
def open_workers(parallel: Mapping[str, Any]) -> Iterator[Workers]:
    """A fresh cluster with its first worker up; everything is closed on leaving.

    Args:
        parallel: `{env: local, n_workers: 2, options: {...}}`; options go to the class that Dask has for env.

    Raises:
        ConfigError: an option that the cluster does not know, or a package is missing.
        WorkerError: no worker came up in time, or none ever will.
    """
    import dask
    import distributed  # noqa: F401  its defaults must be there before they are changed

    backend = backend_of(parallel)
    timeout_s = parallel.get("worker_timeout_s") or backend.timeout_s
    # The watch over jobs speaks first, for it knows why.
    patience = {"distributed.scheduler.no-workers-timeout": f"{timeout_s + 60} s"}
    with contextlib.ExitStack() as stack:
        stack.callback(backend.release)
        stack.enter_context(dask.config.set({**SETTINGS, **patience, **backend.settings()}))
        stack.enter_context(_environment_kept())
        stack.enter_context(main_module_hidden())
        cluster = stack.enter_context(_cluster(backend))
        client = stack.enter_context(_client(cluster))
        if backend.on_other_hosts:
            from statsprep.parallel.place import SamePlace

            with interrupts_held():
                client.register_plugin(SamePlace())
        with interrupts_held(), children_without_ctrl_c():
            backend.ask(cluster)
        supply = backend.watch(cluster, timeout_s)
        if supply is not None:
            supply.start()
            stack.callback(_end, supply)
        workers = Workers(client, supply)
        if not backend.is_adaptive or backend.bounds["minimum"]:
            _wait_for_first(workers, timeout_s)
        has_pages = importlib.util.find_spec("bokeh") is not None
        logger.info(
            "%d workers; dashboard %s",
            len(cluster.scheduler_info["workers"]),
            cluster.dashboard_link if has_pages else "off (no bokeh)",
        )
        yield workers


@contextlib.contextmanager
def open_client(parallel: Mapping[str, Any]) -> Iterator[Any]:
    """A distributed.Client on a cluster as `open_workers` has it."""
    with open_workers(parallel) as workers:
        yield workers.client


def _wait_for_first(workers: Workers, timeout_s: float) -> None:
    if workers.supply is None:
        try:
            workers.client.wait_for_workers(1, timeout=timeout_s)
        except TimeoutError:
            raise WorkerError(
                f"no worker came up within {timeout_s:g} s; look at the messages above, and try "
                "n_workers: 1 or env: none"
            ) from None
        return
    while not workers.supply.has_workers:
        if workers.failure is not None:
            raise workers.failure
        time.sleep(_POLL_S)


@contextlib.contextmanager
def _environment_kept() -> Iterator[None]:
    """What nannies set for their workers does not stay in this process, where they write it first."""
    before = environment_before()
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _cluster(backend: Backend) -> Iterator[Any]:
    with contextlib.ExitStack() as stack:
        with interrupts_held(), children_without_ctrl_c():
            cluster = backend.start()
            stack.callback(_close, cluster)
        yield cluster


def _close(cluster: Any) -> None:
    with interrupts_held():
        cluster.close()


def _end(supply: Supply) -> None:
    with interrupts_held():
        supply.stop()


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
