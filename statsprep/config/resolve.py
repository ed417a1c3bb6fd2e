"""`${}` references, resolved once on the whole tree, and `???` marks for values that must be given."""

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from statsprep.config.tree import MISSING, dotted, leaves
from statsprep.errors import ConfigError, listed, nearest

_QUOTED = re.compile(r"'([^']*)'")
_WRAPPING = re.compile(r"\w+ (?:raised )?while resolving interpolation: ")


def resolve(tree: dict[str, Any], path: Path, *, may_lack: bool = False) -> dict[str, Any]:
    """A copy of `tree` as plain dicts and lists without references.

    Besides OmegaConf's own (`${key}`, `${oc.env:HOME}`), ESPnet3's `${self_name:}` (the file's name without
    suffix) and `${load_line:tokens.txt}` (the lines of a file) are known. References read values, environment
    variables and text files, and run nothing.

    Args:
        tree: as read, overrides included.
        path: its file.
        may_lack: leave `???` where it stands.

    Raises:
        ConfigError: Required values are missing, or a reference leads nowhere.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    missing = [key for key, value in leaves(tree) if value == MISSING]
    if missing and not may_lack:
        raise ConfigError(
            f"{path}: no value for {listed(missing)}; replace {MISSING!r} or pass e.g. {missing[0]}=VALUE"
        )
    try:
        with _espnet_resolvers(path):
            resolved: Any = OmegaConf.to_container(OmegaConf.create(tree), resolve=True)
    except OmegaConfBaseException as error:
        raise _explained(error, tree, path) from error
    except RecursionError as error:
        raise ConfigError(
            f"{path}: a '${{}}' reference contains itself; write one of the values out"
        ) from error
    return dict(resolved)


@contextlib.contextmanager
def _espnet_resolvers(path: Path) -> Iterator[None]:
    """OmegaConf keeps resolvers per process: a user's own of that name stays, ours are taken away again."""
    from omegaconf import OmegaConf

    ours: dict[str, Callable[..., Any]] = {"self_name": lambda: path.stem, "load_line": _load_lines}
    added = {name: function for name, function in ours.items() if not OmegaConf.has_resolver(name)}
    for name, function in added.items():
        OmegaConf.register_new_resolver(name, function)
    try:
        yield
    finally:
        for name in added:
            OmegaConf.clear_resolver(name)


def _load_lines(file: str) -> list[str]:
    return [line.strip() for line in Path(file).read_text(encoding="utf-8").splitlines()]


def _explained(error: Exception, tree: dict[str, Any], path: Path) -> ConfigError:
    key = dotted(str(getattr(error, "full_key", None) or ""))
    reason = _WRAPPING.sub("", str(error).splitlines()[0])
    if not key:
        return ConfigError(f"{path}: {reason}")
    values = dict(leaves(tree))
    value = values.get(key)
    quoted = _QUOTED.search(reason)
    if type(error).__name__ == "InterpolationKeyError" and quoted:
        return ConfigError(
            f"{path}: {key}: {value!r} refers to {quoted[1]!r}, which the configuration does not have"
            f"{nearest(quoted[1], values) or '; add that key or write the value out'}"
        )
    return ConfigError(
        f"{path}: {key}: {value!r} cannot be resolved: {reason}; write the value out or correct it"
    )
