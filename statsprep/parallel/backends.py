"""The cluster behind each `parallel.env`.

Where workers are on other hosts, everything between them and the scheduler is encrypted with keys of this run
alone (`security: false` turns that off), and the dashboard listens on loopback. Of `env: kube` the operator
decides that.
"""

import logging
import os
from collections.abc import Mapping
from typing import Any

from statsprep.errors import ConfigError
from statsprep.parallel.backend import Backend, parameters_of
from statsprep.parallel.batch_backend import Batch
from statsprep.parallel.job_queues import QUEUES
from statsprep.parallel.settings import DASHBOARD
from statsprep.parallel.ssh_backend import Ssh

logger = logging.getLogger(__name__)


class Local(Backend):
    """Processes on this machine."""

    on_other_hosts = False

    def start(self) -> Any:
        from distributed import LocalCluster, Nanny, Worker

        takers = "dask.distributed.LocalCluster"
        # What LocalCluster does not know it passes on, and the worker processes would die of it.
        self.check_options(parameters_of(LocalCluster, Nanny, Worker), takers)
        return self.built(LocalCluster, takers, n_workers=self.bounds["minimum"], **self.defaults())

    def defaults(self) -> dict[str, Any]:
        return {
            "threads_per_worker": 1,
            "processes": True,
            "dashboard_address": DASHBOARD,
            "silence_logs": logging.CRITICAL,
            **self.options,
        }


class LocalGpu(Local):
    """One process for each of this machine's GPUs."""

    package = "dask_cuda"
    extra = "dask-cuda"

    def start(self) -> Any:
        from distributed import LocalCluster, Nanny, Worker

        cuda = self.module(self.package)
        takers = "dask_cuda.LocalCUDACluster"
        self.check_options(parameters_of(cuda.LocalCUDACluster, LocalCluster, Nanny, Worker), takers)
        wanted = self.bounds.get("maximum", self.bounds["minimum"])
        visible = self.options.get("CUDA_VISIBLE_DEVICES", os.environ.get("CUDA_VISIBLE_DEVICES"))
        devices = visible.split(",") if isinstance(visible, str) else visible
        found = len(devices) if devices else self.module("dask_cuda.utils").get_n_gpus()
        if wanted > found:
            raise ConfigError(
                f"parallel.n_workers: got {wanted}, but this machine shows {found} GPUs; expected at most "
                f"one worker a GPU; set n_workers: {found}"
            )
        if wanted < found:
            logger.warning("parallel.n_workers: %d of %d GPUs are used", wanted, found)
        return self.built(cuda.LocalCUDACluster, takers, n_workers=self.bounds["minimum"], **self.defaults())


class Kube(Backend):
    """Pods, by Dask's operator for Kubernetes."""

    package = "dask_kubernetes"
    extra = "dask-kubernetes"
    timeout_s = 1800.0

    def start(self) -> Any:
        kubernetes = self.module("dask_kubernetes.operator")
        takers = "dask_kubernetes.operator.KubeCluster"
        self.check_options(parameters_of(kubernetes.KubeCluster), takers)
        return self.built(kubernetes.KubeCluster, takers, n_workers=self.bounds["minimum"], **self.options)


_BACKENDS: dict[str, type[Backend]] = {
    "local": Local, "local_gpu": LocalGpu, "ssh": Ssh, "kube": Kube, **dict.fromkeys(QUEUES, Batch)
}  # fmt: skip


def backend_of(parallel: Mapping[str, Any]) -> Backend:
    """What a `parallel:` section's env is started by."""
    workers = parallel.get("n_workers", 1)
    return _BACKENDS[parallel["env"]](parallel["env"], workers, parallel.get("options") or {})
