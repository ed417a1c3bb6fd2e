"""The `parallel:` sections that `--parallel NAME` knows without a file."""

import os
from typing import Any


def available_cpus() -> int:
    """CPUs that this process may use, at least 1 (a batch job often gets fewer than the machine has)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


PRESETS: dict[str, dict[str, Any]] = {
    "in_process": {"env": "none"},
    "none": {"env": "none"},
    "local": {"env": "local", "n_workers": available_cpus()},
}
