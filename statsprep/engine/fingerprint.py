"""The fingerprint: what a run's results depend on, in named parts, and what changed between two of them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from statsprep.storage.digest import json_digest

Parts = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Change:
    """One leaf that differs. `key` is dotted and begins with the part: `config.model.frontend.n_mels`."""

    key: str
    old: Any
    new: Any

    @property
    def part(self) -> str:
        return self.key.partition(".")[0]

    @property
    def name(self) -> str:
        """The key as the user knows it: a config key without the leading `config.`."""
        return self.key.removeprefix("config.")

    def __str__(self) -> str:
        if self.part == "code":
            what = "added" if self.old is None else "removed" if self.new is None else "changed"
            return f"{self.name.replace('code.', 'code ', 1)}: {what}"
        return f"{self.name}: {_short(self.old)} -> {_short(self.new)}"


def _short(value: Any) -> str:
    text = "absent" if value is None else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def digest_of(parts: Parts) -> str:
    """The fingerprint itself: SHA-256 of the parts, in hex."""
    return json_digest(parts)


def find_changes(old: Parts, new: Parts) -> list[Change]:
    """Every leaf in which two fingerprints' parts differ, sorted by key."""
    before, after = dict(_leaves(old)), dict(_leaves(new))
    return [
        Change(key, before.get(key), after.get(key))
        for key in sorted(before.keys() | after.keys())
        if _differ(before.get(key), after.get(key))
    ]


def _differ(old: Any, new: Any) -> bool:
    """NaN in a config is the same NaN next time."""
    return bool(old != new and not (old != old and new != new))


def _leaves(value: Any, key: str = "") -> Iterable[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for name, child in value.items():
            yield from _leaves(child, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list) and value:
        for position, child in enumerate(value):
            yield from _leaves(child, f"{key}.{position}")
    else:
        yield key, value


def without(config: Mapping[str, Any], ignored: Iterable[str]) -> dict[str, Any]:
    """A copy of `config` without the dotted keys in `ignored`; a key that is not there is no matter."""
    copy: dict[str, Any] = _copy(config)
    for key in ignored:
        *parents, last = key.split(".")
        node: Any = copy
        for name in parents:
            node = _child(node, name)
        if isinstance(node, dict):
            node.pop(last, None)
        elif isinstance(node, list) and last.isdigit() and int(last) < len(node):
            node[int(last)] = None
    return copy


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _copy(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [_copy(child) for child in value]
    return value


def _child(node: Any, name: str) -> Any:
    if isinstance(node, dict):
        return node.get(name)
    if isinstance(node, list) and name.isdigit() and int(name) < len(node):
        return node[int(name)]
    return None


def is_accepted(change: Change, accepted: Iterable[str]) -> bool:
    """Whether `--accept` covers a change: `code` for all code, else a dotted key or one above it.

    A change of the data is never covered: positions and lengths would not be this data's.
    """
    if change.part == "data":
        return False
    return any(
        change.part == "code" if each == "code" else f"{change.name}.".startswith(f"{each}.")
        for each in accepted
    )
