"""Any configuration as plain JSON, for the manifest and the fingerprint."""

import argparse
import dataclasses
import os
import sys
import types
from collections.abc import Mapping
from typing import Any

import numpy as np


def plain_config(config: Any) -> Any:
    """A config as JSON: OmegaConf nodes resolved, numpy's values as numbers, other objects by their class
    alone.
    """
    omegaconf = sys.modules.get("omegaconf")
    if omegaconf is not None and omegaconf.OmegaConf.is_config(config):
        config = omegaconf.OmegaConf.to_container(config, resolve=True)
    if isinstance(config, argparse.Namespace | types.SimpleNamespace):
        config = vars(config)
    elif dataclasses.is_dataclass(config) and not isinstance(config, type):
        config = {each.name: getattr(config, each.name) for each in dataclasses.fields(config)}
    elif isinstance(config, np.generic | np.ndarray):
        config = config.tolist()
    elif isinstance(config, set | frozenset):
        config = sorted(config, key=repr)
    if isinstance(config, Mapping):
        return {str(key): plain_config(value) for key, value in config.items()}
    if isinstance(config, list | tuple | range):
        return [plain_config(value) for value in config]
    if config is None or isinstance(config, str | int | float | bool):
        return config
    return os.fspath(config) if isinstance(config, os.PathLike) else f"<{dotted_name(type(config))}>"


def dotted_name(kind: type) -> str:
    """`package.module:Class`."""
    return f"{kind.__module__}:{kind.__qualname__}"
