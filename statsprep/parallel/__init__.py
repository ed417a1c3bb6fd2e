"""Where shards run besides this process: the only place that imports dask or talks to a scheduler.

Importing it registers the executors and loads nothing heavy; dask is loaded when a cluster starts.
"""

from collections.abc import Mapping
from typing import Any

from statsprep.engine.executor import Executor, register_executor
from statsprep.parallel.functional import (
    get_client,
    get_parallel_config,
    parallel_for,
    parallel_map,
    set_parallel,
)

__all__ = ["get_client", "get_parallel_config", "parallel_for", "parallel_map", "set_parallel"]


def _dask_executor(parallel: Mapping[str, Any]) -> Executor:
    from statsprep.parallel.dask_executor import DaskExecutor

    return DaskExecutor(parallel)


for _env in (
    "local", "local_gpu", "slurm", "pbs", "sge", "lsf", "htcondor", "oar", "moab", "ssh", "kube"
):  # fmt: skip
    register_executor(_env, _dask_executor)
