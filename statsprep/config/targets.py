"""Objects that a configuration names by `_target_`: finding them, checking their arguments, building them."""

import copy
import functools
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from statsprep.config.names import ESPNET_NAMES, PLANNED, resolve_name
from statsprep.config.policy import TargetPolicy
from statsprep.errors import ConfigError, StatsprepError, listed, nearest

__all__ = ["SPECIAL_KEYS", "TargetPolicy", "check_targets", "instantiate", "locate"]

# `_convert_` is Hydra's; the containers are always plain here, which is its value "all".
SPECIAL_KEYS = frozenset({"_target_", "_args_", "_partial_", "_recursive_", "_convert_"})


def instantiate(node: Any, *, where: str, allow: TargetPolicy, **kwargs: Any) -> Any:
    """Build the object that `node` describes, the nested `_target_` nodes first.

    Args:
        node: A mapping with `_target_` (a dotted name) and arguments; as in Hydra, `_args_` are positional,
            `_partial_: true` gives the callable with its arguments filled in, and `_recursive_: false` hands
            nested nodes on as plain dicts.
        where: What errors begin with, e.g. `conf/training.yaml: model`.
        allow: The names that may be built.
        **kwargs: Further arguments, unchecked; they replace those of the node.

    Raises:
        ConfigError: The name is not allowed or not there, an argument is unknown or missing, building failed.
    """
    if not isinstance(node, Mapping):
        raise ConfigError(f"{where}: {node!r} is not a mapping; expected one with '_target_'")
    if "_target_" not in node:
        hint = nearest("_target_", [str(key) for key in node]).replace("did you mean", "is it misspelt as")
        raise ConfigError(f"{where}: no '_target_'{hint}; expected the dotted name of a class or function")
    call = locate(node["_target_"], allow, where=_under(where, "_target_"))
    is_recursive = _flag(node, "_recursive_", where, default=True)
    is_partial = _flag(node, "_partial_", where, default=False)
    given = {key: value for key, value in node.items() if key not in SPECIAL_KEYS and key not in kwargs}
    _check_arguments(call, _args(node, where), {**given, **kwargs}, where, may_lack=is_partial)
    _check_recipe_root(given.get("recipe_root"), where, allow)
    build = _build if is_recursive else _copied
    args = [build(value, f"{where}._args_.{index}", allow) for index, value in enumerate(_args(node, where))]
    built = {key: build(value, _under(where, key), allow) for key, value in given.items()} | kwargs
    if is_partial:
        return functools.partial(call, *args, **built)
    try:
        return call(*args, **built)
    except StatsprepError as error:
        # A plain ConfigError does not know its key yet; kinds with an exit code of their own keep it.
        if type(error) is ConfigError:
            raise ConfigError(f"{where}: {error.message}", detail=error.detail) from error
        raise
    except Exception as error:
        reason, _, rest = str(error).strip().partition("\n")
        raise ConfigError(
            f"{where}: {_name(call)} could not be built: {type(error).__name__}: {reason}",
            detail=rest.strip(),
        ) from error


def check_targets(node: Any, where: str, allow: TargetPolicy) -> None:
    """Check every `_target_` in a tree, and the arguments beside it, without building anything.

    Classes that are known but not part of this version pass: they are named for another command.

    Args:
        node: A section, or a whole tree.
        where: What errors begin with: `conf/training.yaml: model` for a section, `conf/training.yaml: ` (with
            the space) for a whole tree.
        allow: The names that may be built.

    Raises:
        ConfigError: A name is not allowed or does not exist, or an argument is unknown.
    """
    if isinstance(node, Mapping):
        if "_target_" in node and str(node["_target_"]) not in PLANNED:
            call = locate(node["_target_"], allow, where=_under(where, "_target_"))
            given = {key: value for key, value in node.items() if key not in SPECIAL_KEYS}
            _check_arguments(call, _args(node, where), given, where, may_lack=True)
        for key, value in node.items():
            check_targets(value, _under(where, key), allow)
    elif isinstance(node, list):
        for index, value in enumerate(node):
            check_targets(value, _under(where, index), allow)


def locate(name: Any, allow: TargetPolicy, *, where: str = "_target_") -> Callable[..., Any]:
    """The class or function of a dotted name (ESPnet's names included), if `allow` allows it.

    Raises:
        ConfigError: The name is not allowed, does not exist, or is nothing that can be called.
    """
    if (
        not isinstance(name, str)
        or not all(part.isidentifier() for part in name.split("."))
        or "." not in name
    ):
        raise ConfigError(
            f"{where}: {name!r} is not a dotted name; expected e.g. statsprep.models.features.FeatureModel"
        )
    if name in PLANNED:
        raise ConfigError(
            f"{where}: {name!r} is not part of this version; it is accepted in files for collect_stats only"
        )
    real_name = resolve_name(name)
    if any(part.startswith("__") for part in real_name.split(".")):
        raise ConfigError(f"{where}: {name!r} reaches into Python's internals; expected a class or function")
    if not allow.allows_name(real_name):
        raise ConfigError(_refusal(name, allow, where))
    found = _walk(real_name.split("."), allow, where)
    if isinstance(found, ModuleType) or not callable(found):
        kind = "a module" if isinstance(found, ModuleType) else f"an object of type {type(found).__name__}"
        raise ConfigError(f"{where}: {name!r} is {kind}; expected a class or function")
    if not allow.allows_object(found, real_name):
        home = getattr(found, "__module__", None)
        raise ConfigError(_refusal(name, allow, where, home=home if isinstance(home, str) else None))
    call: Callable[..., Any] = found
    return call


def _walk(parts: list[str], allow: TargetPolicy, where: str) -> Any:
    found: Any = _imported(parts[0], where)
    for depth, part in enumerate(parts[1:], start=1):
        owner = ".".join(parts[:depth])
        if hasattr(found, part):
            found = getattr(found, part)
        else:
            submodule = _imported(f"{owner}.{part}", where) if isinstance(found, ModuleType) else None
            if submodule is None:
                hint = nearest(part, _members(found)) or "; give the full dotted name of a class or function"
                raise ConfigError(f"{where}: {owner!r} has no {part!r}{hint}")
            found = submodule
        if isinstance(found, ModuleType) and not allow.allows_module(found.__name__):
            raise ConfigError(_refusal(".".join(parts), allow, where, home=found.__name__))
    return found


def _imported(name: str, where: str) -> ModuleType | None:
    """The module, or None where there is no such module. One that exists and fails to import is an error."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name == name:
            return None
        raise ConfigError(f"{where}: module {name!r} needs {error.name!r}, which is not installed") from error
    except Exception as error:
        raise ConfigError(f"{where}: module {name!r} cannot be imported: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0]


def _members(owner: Any) -> list[str]:
    submodules = [module.name for module in pkgutil.iter_modules(getattr(owner, "__path__", ()))]
    return [*submodules, *(name for name in dir(owner) if not name.startswith("_"))]


def _refusal(name: str, allow: TargetPolicy, where: str, *, home: str | None = None) -> str:
    top = (home or name).split(".")[0]
    seen = f"{name!r} is defined in {home!r}, which is not allowed" if home else f"{name!r} is not allowed"
    if home is not None and home.split(".")[0] == "statsprep":
        seen = f"{name!r} is a function of {home!r}, which a configuration may not call"
    hint = nearest(name, [*ESPNET_NAMES, *PLANNED]) if top.startswith("espnet") else ""
    if not hint and top not in allow.tops():
        hint = nearest(top, allow.tops())
    return (
        f"{where}: {seen}{hint}; allowed are {allow.described()}; if you trust it, pass --allow_target {top}"
    )


def _check_arguments(
    call: Callable[..., Any], args: list[Any], given: Mapping[str, Any], where: str, *, may_lack: bool
) -> None:
    """Compare the arguments with the signature before anything is built; without a signature they pass."""
    try:
        signature = inspect.signature(call)
    except (ValueError, TypeError):
        return
    parameters = signature.parameters.values()
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        for key in given:
            if key not in named:
                hint = nearest(str(key), named) or f"; it takes {listed(named)}"
                raise ConfigError(f"{_under(where, key)}: {_name(call)} has no argument {key!r}{hint}")
    try:
        filled = signature.bind_partial(*args, **given).arguments
    except TypeError as error:
        raise ConfigError(f"{where}: {_name(call)}: {error}; check '_args_'") from error
    lacking = [
        p.name
        for p in parameters
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and p.name not in filled
    ]
    if lacking and not may_lack:
        raise ConfigError(
            f"{where}: {_name(call)} needs {listed(lacking)}; add {'it' if len(lacking) == 1 else 'them'}"
        )


def _check_recipe_root(root: Any, where: str, allow: TargetPolicy) -> None:
    """A dataset imports the modules of its recipe_root, which `_target_` could not lead to."""
    if root is not None and not (allow.recipe_root and allow.contains(root)):
        raise ConfigError(
            f"{_under(where, 'recipe_root')}: {root!r} is not in {allow.recipe_root}, the recipe of the "
            "configuration; its code is not run; leave it out"
        )


def _build(value: Any, where: str, allow: TargetPolicy) -> Any:
    if isinstance(value, Mapping):
        if "_target_" in value:
            return instantiate(value, where=where, allow=allow)
        return {key: _build(member, _under(where, key), allow) for key, member in value.items()}
    if isinstance(value, list):
        return [_build(member, _under(where, index), allow) for index, member in enumerate(value)]
    return value


def _copied(value: Any, where: str, allow: TargetPolicy) -> Any:
    return copy.deepcopy(value)


def _args(node: Mapping[str, Any], where: str) -> list[Any]:
    args = node.get("_args_", [])
    if not isinstance(args, list):
        raise ConfigError(
            f"{where}._args_: {args!r} is not a list; expected the positional arguments in order"
        )
    return args


def _under(where: str, key: object) -> str:
    return f"{where}{key}" if where.endswith(": ") else f"{where}.{key}"


def _flag(node: Mapping[str, Any], key: str, where: str, *, default: bool) -> bool:
    value = node.get(key, default)
    if not isinstance(value, bool):
        raise ConfigError(f"{_under(where, key)}: {value!r} is not valid; expected true or false")
    return value


def _name(call: Callable[..., Any]) -> str:
    return f"{call.__module__}.{getattr(call, '__qualname__', type(call).__name__)}"
