"""A configuration file together with the `defaults:` files that it names."""

import os
from pathlib import Path
from typing import Any

from statsprep.config.tree import merged
from statsprep.config.yaml_file import read_mapping
from statsprep.errors import ConfigError

_SELF = "_self_"


def compose(path: Path) -> dict[str, Any]:
    """The mapping of `path` merged over its `defaults:` files, later files over earlier ones, unresolved.

    An entry of `defaults:` is a path relative to the file that names it (`base.yaml`, the suffix may be left
    out), `group: name` (the file `group/name.yaml`, placed under the key `group`), or `_self_` (the place of
    the file's own keys; without it they come last).

    Raises:
        ConfigError: A file cannot be read, `defaults` is no such list, or files include each other in turn.
    """
    return _compose(path, ())


def _compose(path: Path, including: tuple[Path, ...]) -> dict[str, Any]:
    if any(_same(path, other) for other in including):
        circle = " -> ".join(str(part) for part in (*including, path))
        raise ConfigError(
            f"{including[-1]}: 'defaults' includes itself: {circle}; remove one of these entries"
        )
    own = read_mapping(path)
    entries = own.pop("defaults", None) or []
    if not isinstance(entries, list):
        raise ConfigError(f"{path}: defaults: {entries!r} is not a list; expected e.g. defaults: [base.yaml]")
    if _SELF not in entries:
        entries = [*entries, _SELF]
    result: dict[str, Any] = {}
    for position, entry in enumerate(entries):
        if entry == _SELF:
            result = merged(result, own)
            continue
        where = f"{path}: defaults.{position}"
        for group, name in _files(entry, where=where):
            file = path.parent / name
            if not file.exists():
                raise ConfigError(f"{where}: {entry!r} asks for {file}, which is not there; check the name")
            part = _compose(file, (*including, path))
            result = merged(result, {group: part} if group else part)
    return result


def _files(entry: Any, *, where: str) -> list[tuple[str, str]]:
    """(key to place the content under or "", file name) of one entry."""
    if isinstance(entry, str):
        return [("", _with_suffix(entry))]
    if isinstance(entry, dict) and all(isinstance(name, str | None) for name in entry.values()):
        return [
            (str(group), _with_suffix(name if "/" in name else f"{group}/{name}"))
            for group, name in entry.items()
            if name is not None
        ]
    raise ConfigError(f"{where}: {entry!r} is not a file name; expected e.g. base.yaml")


def _with_suffix(name: str) -> str:
    return name if name.endswith((".yaml", ".yml")) else f"{name}.yaml"


def _same(one: Path, other: Path) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)
