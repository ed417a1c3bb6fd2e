"""Strict YAML: no duplicate keys, no dates, and errors that say file, line and column on one line."""

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from statsprep.errors import ConfigError

_FLOAT_TAG = "tag:yaml.org,2002:float"
_TIMESTAMP_TAG = "tag:yaml.org,2002:timestamp"
# YAML 1.1 reads `1e-4` as text; everybody who writes it means a number.
_EXPONENT = re.compile(r"[-+]?[0-9]+[eE][-+]?[0-9]+$")

# Nine lines of aliases of aliases stand for a billion values.
_MOST_VALUES = 1_000_000

_ADVICE = {
    "found character '\\t' that cannot start any token": "a tab; YAML is indented with spaces; replace it",
    "mapping values are not allowed here": "a second ': ' in a line; quote the value or start a new line",
    "found unconstructable recursive node": "an alias inside the value it refers to; write the value out",
}


def _num_values(node: yaml.Node, known: dict[int, int]) -> int:
    """How many values a node is once every alias in it is written out."""
    number = known.get(id(node))
    if number is None:
        known[id(node)] = 1  # of a node inside itself, which is refused later
        parts: list[yaml.Node] = []
        if isinstance(node, yaml.SequenceNode):
            parts = node.value
        elif isinstance(node, yaml.MappingNode):
            parts = [part for pair in node.value for part in pair]
        number = known[id(node)] = 1 + sum(_num_values(part, known) for part in parts)
    return number


class _StrictLoader(yaml.SafeLoader):
    """SafeLoader that refuses duplicate keys and self-references, and reads dates as the text they are."""

    def construct_document(self, node: yaml.Node) -> Any:
        if _num_values(node, {}) > _MOST_VALUES:
            raise yaml.MarkedYAMLError(
                problem=f"aliases make more than {_MOST_VALUES:,} values of this; write out what is meant",
                problem_mark=node.start_mark,
            )
        return self.construct_object(node, deep=True)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        first_lines: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            name = (key.tag, key.value)
            if name in first_lines:
                before = f"before in line {first_lines[name]}"
                raise yaml.MarkedYAMLError(
                    problem=f"key {key.value!r} is given twice ({before}); remove one of them",
                    problem_mark=key.start_mark,
                )
            first_lines[name] = key.start_mark.line + 1
        return super().construct_mapping(node, deep=deep)


_StrictLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP_TAG]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_StrictLoader.add_implicit_resolver(_FLOAT_TAG, _EXPONENT, list("-+0123456789"))


_UNREADABLE = "holds a number that is none, or brackets nested hundreds deep; write out what is meant"


class _StrictDumper(yaml.SafeDumper):
    """SafeDumper that quotes what the loader above would take for a number, and writes no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_StrictDumper.add_implicit_resolver(_FLOAT_TAG, _EXPONENT, list("-+0123456789"))


def read_mapping(path: Path) -> dict[str, Any]:
    """The mapping that a YAML file holds.

    Raises:
        ConfigError: The file is missing, a folder, not UTF-8, not YAML, empty, or holds no mapping.
    """
    if path.is_dir():
        raise ConfigError(
            f"{path}: this is a folder; expected a YAML file; name the file, e.g. {path / 'training.yaml'}"
        )
    if path.exists() and not path.is_file():
        raise ConfigError(f"{path}: is no regular file; expected a YAML file; name the file")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; expected a YAML file; check the path") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); check its permissions") from error
    try:
        content = yaml.load(text, _StrictLoader)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}{_place(error)}: {_problem(error)}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: {_UNREADABLE}") from error
    if content is None:
        raise ConfigError(f"{path}: the file is empty; expected keys such as 'stats_dir: exp/stats'")
    if not isinstance(content, dict):
        raise ConfigError(
            f"{path}: the top level is a {type(content).__name__}; "
            "expected a mapping with keys such as 'stats_dir: exp/stats'"
        )
    return content


def parse_value(text: str) -> Any:
    """The value that `text` is in YAML: `4` an integer, `[a, b]` a list, `null` None.

    Raises:
        ConfigError: The text is not YAML. The message holds the reason only; the caller says where.
    """
    try:
        return yaml.load(text, _StrictLoader)
    except yaml.YAMLError as error:
        raise ConfigError(_problem(error)) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(_UNREADABLE) from error


def _place(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    return f":{mark.line + 1}:{mark.column + 1}" if mark is not None else ""


def _problem(error: yaml.YAMLError) -> str:
    problem = getattr(error, "problem", None)
    if problem is None:
        return " ".join(str(error).split())
    if problem in _ADVICE:
        return _ADVICE[problem]
    context = getattr(error, "context", None)
    return f"{problem} ({context})" if context else str(problem)


def dump(tree: Any) -> str:
    """YAML text that reads back as `tree`, in its order."""
    text: str = yaml.dump(tree, Dumper=_StrictDumper, sort_keys=False, allow_unicode=True, width=100)
    return text
