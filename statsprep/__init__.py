"""Distributed statistics collection and data preparation for speech corpora.

The public names below are loaded when they are first used, so that `import statsprep` loads neither torch nor
dask.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from statsprep.engine.provider import EnvironmentProvider as EnvironmentProvider
    from statsprep.engine.records import Dropped as Dropped
    from statsprep.engine.records import Record as Record
    from statsprep.engine.runner import BaseRunner as BaseRunner
    from statsprep.parallel import get_client as get_client
    from statsprep.parallel import get_parallel_config as get_parallel_config
    from statsprep.parallel import parallel_for as parallel_for
    from statsprep.parallel import parallel_map as parallel_map
    from statsprep.parallel import set_parallel as set_parallel

__version__ = "0.1.0"

_PUBLIC = {
    "BaseRunner": "statsprep.engine.runner",
    "Dropped": "statsprep.engine.records",
    "EnvironmentProvider": "statsprep.engine.provider",
    "Record": "statsprep.engine.records",
    "get_client": "statsprep.parallel",
    "get_parallel_config": "statsprep.parallel",
    "parallel_for": "statsprep.parallel",
    "parallel_map": "statsprep.parallel",
    "set_parallel": "statsprep.parallel",
}

__all__ = [*_PUBLIC]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'statsprep' has no attribute {name!r}")
