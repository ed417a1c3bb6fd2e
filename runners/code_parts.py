"""The code that a run's results depend on, as far as its configuration names it."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from statsprep.config.policy import TargetPolicy
from statsprep.config.recipe import find_dataset_class
from statsprep.config.targets import locate
from statsprep.engine.code_hash import hash_code

# The name that a recipe's dataset module has in this process says where its folder is.
_RECIPE_MODULE = re.compile(r"^statsprep_recipe_\w*_[0-9a-f]{12}")


def targets_in(node: Any, policy: TargetPolicy) -> list[Any]:
    """The classes and functions that a section's `_target_` nodes name."""
    if isinstance(node, Mapping):
        own = [locate(node["_target_"], policy)] if "_target_" in node else []
        return own + [each for child in node.values() for each in targets_in(child, policy)]
    return [each for child in node for each in targets_in(child, policy)] if isinstance(node, list) else []


def recipe_datasets(entries: Any, root: Path) -> dict[str, str]:
    """Hashes of the `Dataset` classes that entries name by `data_src`, wherever their recipes lie."""
    found: dict[str, str] = {}
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, Mapping) and ("data_src" in entry or "data_src_args" in entry):
            source = entry.get("data_src")
            for name, value in hash_code([find_dataset_class(source, root)]).items():
                found[f"data_src {source or ''}{_RECIPE_MODULE.sub('', name)}"] = value
    return found
