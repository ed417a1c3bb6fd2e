"""The `parallel:` sections that `--parallel NAME` knows without a file.

`configs/parallel/NAME.yaml` says the same with every option explained; a site's own `conf/parallel/NAME.yaml`
comes first.
"""

import os
from typing import Any


def available_cpus() -> int:
    """CPUs that this process may use, at least 1 (a batch job often gets fewer than the machine has)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _jobs(env: str, **options: Any) -> dict[str, Any]:
    """A scheduler's jobs of one core each."""
    common = {"cores": 1, "memory": "4GB"}
    return {"env": env, "n_workers": 4, "worker_timeout_s": 1800, "options": {**common, **options}}


PRESETS: dict[str, dict[str, Any]] = {
    "in_process": {"env": "none"},
    "none": {"env": "none"},
    "local": {"env": "local", "n_workers": available_cpus()},
    "local_gpu": {"env": "local_gpu", "n_workers": 1, "options": {"threads_per_worker": 1}},
    "slurm": _jobs("slurm", walltime="04:00:00"),
    "pbs": _jobs("pbs", walltime="04:00:00"),
    "moab": _jobs("moab", walltime="04:00:00"),
    "sge": _jobs("sge", walltime="04:00:00"),
    "lsf": _jobs("lsf", walltime="04:00"),
    "htcondor": _jobs("htcondor", disk="1GB"),
    "oar": _jobs("oar", walltime="04:00:00", memory_per_core_property_name="not_applicable"),
    "ssh": {"env": "ssh", "n_workers": 1, "options": {"hosts": ["localhost", "localhost"]}},
    "kube": {
        "env": "kube", "n_workers": 2, "options": {"name": "statsprep", "image": "statsprep:latest"}
    },
}  # fmt: skip
