"""A configuration with nothing left unsaid: with the defaults of every class that it names.

It is what `--print_config` shows and what a fingerprint is taken of: writing out a default changes no result.
"""

import inspect
from collections.abc import Mapping
from typing import Any

from statsprep.config.names import PLANNED, resolve_name
from statsprep.config.policy import TargetPolicy
from statsprep.config.targets import SPECIAL_KEYS, locate
from statsprep.config.tree import MISSING
from statsprep.errors import ConfigError

_NONE_GIVEN = object()
# It builds its entries whatever the section says.
_ALWAYS_RECURSIVE = "statsprep.data.organizer.DataOrganizer"


def filled(
    node: Any, policy: TargetPolicy, *, mark_missing: bool = False, given: tuple[str, ...] = ()
) -> Any:
    """A copy of `node` in which every `_target_` node has all its arguments.

    A class may know more than its signature says, by a classmethod `filled_config(section) -> section`. Nodes
    that are not allowed, cannot be imported or are wrong stay as they are: whoever builds them reports them.

    Args:
        node: any part of a resolved configuration.
        policy: what may be named.
        mark_missing: write `???` for required arguments that are not there.
        given: arguments of the outermost node that come from elsewhere.
    """
    if isinstance(node, list):
        return [filled(member, policy, mark_missing=mark_missing) for member in node]
    if not isinstance(node, Mapping):
        return node
    target = node.get("_target_")
    is_built = node.get("_recursive_", True) is not False or _resolved(target) == _ALWAYS_RECURSIVE
    result = {
        key: filled(value, policy, mark_missing=mark_missing) if is_built else value
        for key, value in node.items()
    }
    if target is None or target in PLANNED:
        return result
    try:
        call = locate(target, policy)
        missing = mark_missing and not node.get("_partial_", False)
        own = {key: value for key, value in result.items() if key not in SPECIAL_KEYS}
        own |= _defaults(call, node, given, missing=missing)
        hook = getattr(call, "filled_config", None)
        full = hook(own) if hook is not None else own
    except ConfigError:
        return result
    special = {key: value for key, value in result.items() if key in SPECIAL_KEYS}
    return {**special, **full}


def canonical(node: Any, policy: TargetPolicy) -> Any:
    """`filled`, and one name for each class that has several."""
    return renamed(filled(node, policy))


def overlaid(raw: Any, full: Any) -> Any:
    """`full` with what `raw` says, `${}` included, where `raw` says anything."""
    if isinstance(raw, Mapping) and isinstance(full, Mapping):
        return {
            key: overlaid(raw[key], full[key]) if key in raw and key in full else {**raw, **full}[key]
            for key in {**raw, **full}
        }
    if isinstance(raw, list) and isinstance(full, list) and len(raw) == len(full):
        return [overlaid(one, other) for one, other in zip(raw, full, strict=True)]
    return raw


def renamed(node: Any) -> Any:
    """A copy in which every class goes by its name in statsprep."""
    if isinstance(node, Mapping):
        return {key: _resolved(value) if key == "_target_" else renamed(value) for key, value in node.items()}
    return [renamed(member) for member in node] if isinstance(node, list) else node


def _resolved(target: Any) -> Any:
    return resolve_name(target) if isinstance(target, str) else target


def _defaults(call: Any, node: Mapping[str, Any], given: tuple[str, ...], *, missing: bool) -> dict[str, Any]:
    try:
        signature = inspect.signature(call)
        taken = {*signature.bind_partial(*(node.get("_args_") or [])).arguments, *node, *given}
    except (TypeError, ValueError):
        return {}
    found: dict[str, Any] = {}
    for parameter in signature.parameters.values():
        if parameter.name in taken or parameter.kind not in (
            parameter.POSITIONAL_OR_KEYWORD,
            parameter.KEYWORD_ONLY,
        ):
            continue
        value = _plain(parameter.default)
        if parameter.default is parameter.empty:
            value = MISSING if missing else _NONE_GIVEN
        if value is not _NONE_GIVEN:
            found[parameter.name] = value
    return found


def _plain(value: Any) -> Any:
    """A default as YAML has it; what YAML has no form for is left to the class."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return _NONE_GIVEN if "${" in value or value == MISSING else value
    if isinstance(value, list | tuple):
        members = [_plain(member) for member in value]
        return _NONE_GIVEN if any(member is _NONE_GIVEN for member in members) else members
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        entries = {key: _plain(member) for key, member in value.items()}
        return _NONE_GIVEN if any(member is _NONE_GIVEN for member in entries.values()) else entries
    return _NONE_GIVEN
