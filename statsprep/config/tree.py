"""Plain nested dicts and lists, addressed by dotted keys such as `dataset.train.0.manifest`."""

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from statsprep.config.yaml_file import parse_value
from statsprep.errors import ConfigError

MISSING = "???"
_BRACKETED_INDEX = re.compile(r"\[(\d+)\]")


def merged(base: Any, over: Any) -> Any:
    """`over` laid upon `base`, as a copy: mappings merge, everything else (lists too) is replaced."""
    if isinstance(base, Mapping) and isinstance(over, Mapping):
        keys = {**base, **over}
        return {
            key: merged(base[key], over[key]) if key in base and key in over else copy.deepcopy(keys[key])
            for key in keys
        }
    return copy.deepcopy(over)


def dotted(key: str) -> str:
    """One spelling of a key: `train[0].name` becomes `train.0.name`."""
    return _BRACKETED_INDEX.sub(r".\1", key).removeprefix(".")


def leaves(node: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every dotted key with its value; what holds others comes before its members."""
    if prefix:
        yield prefix, node
    children: Iterator[tuple[Any, Any]] | Any = ()
    if isinstance(node, Mapping):
        children = node.items()
    elif isinstance(node, list):
        children = enumerate(node)
    for name, child in children:
        yield from leaves(child, f"{prefix}.{name}" if prefix else str(name))


def apply_overrides(tree: dict[str, Any], overrides: Sequence[str]) -> None:
    """Set each `key=value` in `tree`, the value read as YAML, later ones last.

    Raises:
        ConfigError: An override has no `=`, no key, a value that is not YAML, or leads below a plain value.
    """
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"override {override!r}: expected key=value, e.g. collect_stats.batch_size=4")
        try:
            value = parse_value(text)
        except ConfigError as error:
            raise ConfigError(
                f"override {override!r}: the value is not YAML: {error.message}; put it in quotes"
            ) from error
        set_value(tree, key.strip(), value, where=f"override {override!r}")


def set_value(tree: dict[str, Any], key: str, value: Any, *, where: str) -> None:
    """Set a dotted key; missing mappings on the way are made, list items must exist."""
    parts = dotted(key).split(".")
    if "" in parts:
        raise ConfigError(f"{where}: key {key!r} has an empty part; expected e.g. collect_stats.batch_size")
    node: Any = tree
    for depth, part in enumerate(parts):
        here = ".".join(parts[:depth])
        is_last = depth == len(parts) - 1
        slot: Any
        if isinstance(node, list):
            slot = _list_index(node, part, here, where)
        elif isinstance(node, dict):
            slot = part
        else:
            raise ConfigError(
                f"{where}: {here!r} is {node!r}, which has no key {part!r}; set {here!r} itself"
            )
        if is_last:
            node[slot] = copy.deepcopy(value)
            return
        if isinstance(node, dict) and node.get(slot) in (None, MISSING):
            node[slot] = {}
        node = node[slot]


def _list_index(items: list[Any], part: str, here: str, where: str) -> int:
    if part.isdecimal() and int(part) < len(items):
        return int(part)
    seen = f"{here!r} is a list of {len(items)}" if items else f"{here!r} is an empty list"
    expected = (
        f"expected an index from 0 to {len(items) - 1}" if items else f"set the whole list, e.g. {here}=[...]"
    )
    raise ConfigError(f"{where}: {seen} and has no item {part!r}; {expected}")
