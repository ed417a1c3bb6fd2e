"""From a file name and overrides to one plain, resolved tree."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from statsprep.config.compose import compose
from statsprep.config.presets import PRESETS
from statsprep.config.recipe import find_recipe_root
from statsprep.config.resolve import resolve
from statsprep.config.tree import apply_overrides, set_value
from statsprep.errors import ConfigError, listed, nearest

# What ESPnet3 puts below every training.yaml of a recipe; `task:` tells that one is meant.
_ESPNET_SCAFFOLD = {
    "num_device": 1,
    "num_nodes": 1,
    "recipe_dir": ".",
    "data_dir": "${recipe_dir}/data",
    "exp_tag": "${self_name:}",
    "exp_dir": "${recipe_dir}/exp/${exp_tag}",
    "stats_dir": "${recipe_dir}/exp/stats",
}
_DEFAULT_PATHS = (Path("statsprep.yaml"), Path("conf/training.yaml"))


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A configuration as read: `tree` is resolved and plain, `raw` is the same before `${}` were resolved."""

    path: Path
    recipe_root: Path
    tree: dict[str, Any]
    raw: dict[str, Any]


def find_config(path: str | None) -> Path:
    """The given path, else `./statsprep.yaml`, else `conf/training.yaml`.

    Raises:
        ConfigError: No path was given and neither file is there.
    """
    if path is not None:
        return Path(path)
    for candidate in _DEFAULT_PATHS:
        if candidate.is_file():
            return candidate
    raise ConfigError(
        f"no configuration: neither ./{_DEFAULT_PATHS[0]} nor {_DEFAULT_PATHS[1]} is in {Path.cwd()}; "
        "name one, e.g. statsprep run conf/training.yaml"
    )


def load_config(
    path: str | Path,
    overrides: Sequence[str] = (),
    *,
    extra: Mapping[str, Any] | None = None,
    may_lack: bool = False,
) -> LoadedConfig:
    """Read `path` over its `defaults:` files, apply overrides, then `extra`, and resolve references once.

    Args:
        path: The YAML file.
        overrides: `key=value` each, with dotted keys and YAML values.
        extra: Dotted key to value, from the command line's named flags. Each replaces what stood there.
        may_lack: Required values that are marked `???` may stay so.

    Raises:
        ConfigError: Anything about the file, an override or a reference is wrong.
    """
    path = Path(path)
    raw = compose(path)
    if "task" in raw:
        raw = {**{key: value for key, value in _ESPNET_SCAFFOLD.items() if key not in raw}, **raw}
    apply_overrides(raw, overrides)
    for key, value in (extra or {}).items():
        set_value(raw, key, value, where=f"option {key!r}")
    tree = resolve(raw, path, may_lack=may_lack)
    return LoadedConfig(path=path, recipe_root=find_recipe_root(path), tree=tree, raw=raw)


def load_parallel(name_or_path: str, *, config_dir: Path) -> dict[str, Any]:
    """The `parallel:` section of a file (with or without that top key) or of a preset, unresolved.

    A name without suffix and slash is a preset: `conf/parallel/NAME.yaml` here, `parallel/NAME.yaml` beside
    the configuration, or a built-in one.

    Raises:
        ConfigError: There is no such file or preset.
    """
    if "/" in name_or_path or Path(name_or_path).suffix:
        return _parallel_section(Path(name_or_path))
    folders = (Path.cwd() / "conf" / "parallel", config_dir / "parallel")
    for folder in folders:
        candidate = folder / f"{name_or_path}.yaml"
        if candidate.is_file():
            return _parallel_section(candidate)
    if name_or_path in PRESETS:
        return copy.deepcopy(PRESETS[name_or_path])
    known = sorted({*PRESETS, *(file.stem for folder in folders for file in folder.glob("*.yaml"))})
    raise ConfigError(
        f"--parallel {name_or_path}: no such preset{nearest(name_or_path, known)}; "
        f"known are {listed(known, limit=20)}; a file needs its suffix, e.g. --parallel {name_or_path}.yaml"
    )


def _parallel_section(path: Path) -> dict[str, Any]:
    content = compose(path)
    section = content.get("parallel", content)
    if not isinstance(section, dict):
        raise ConfigError(
            f"{path}: parallel: {section!r} is not a mapping; expected e.g. parallel: {{env: local}}"
        )
    return section
