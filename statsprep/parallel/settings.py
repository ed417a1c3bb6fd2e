"""Dask's settings for few long tasks without data in Dask, here and in jobs on other hosts."""

import os
from collections.abc import Mapping
from typing import Any

SETTINGS: dict[str, Any] = {
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

THREAD_VARIABLES = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "NUMBA_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)  # fmt: skip

# A free port on loopback; None would not mean no server, but port 8787 on the scheduler's address.
DASHBOARD = "127.0.0.1:0"


def job_exports(num_threads: int) -> list[str]:
    """Lines of a job script by which its workers have the settings above and use the job's cores."""
    import dask

    theirs = {
        name: value for name, value in SETTINGS.items() if not name.startswith("distributed.scheduler.")
    }
    return [
        f"export DASK_INTERNAL_INHERIT_CONFIG={dask.config.serialize(theirs)}",
        "export " + " ".join(f"{name}={num_threads}" for name in THREAD_VARIABLES),
    ]


def environment_before() -> Mapping[str, str | None]:
    """The variables that nannies write in this process before they start a worker, as they are now."""
    import dask

    names = {"PYTHONHASHSEED", "__DASK_PARENT_PID", *dask.config.get("distributed.nanny.pre-spawn-environ")}
    return {name: os.environ.get(name) for name in names}
