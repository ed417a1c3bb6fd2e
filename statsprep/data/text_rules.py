r"""Text normalisation by rules that a YAML file states together with test cases of their own.

    nfkc: true                  # Unicode's compatibility form, first of all
    lowercase: true             # then
    rules:                      # then these, in order, as Python's re.sub
      - {pattern: "[.,!?]", replace: ""}
      - {pattern: '(\d+) ?%', replace: '\1 percent'}
    collapse_spaces: true       # last; the default
    test_cases:
      - {in: "Up 5%, OK?", out: "up 5 percent ok"}

The test cases are run whenever the file is loaded, so rules that no longer do what they say stop a run before
it begins.
"""

import re
import unicodedata
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from statsprep.config.yaml_file import read_mapping
from statsprep.errors import ConfigError, listed, nearest

_FLAGS = ("nfkc", "lowercase", "collapse_spaces")
_KEYS = (*_FLAGS, "rules", "test_cases")


class TextRules:
    """A cleaner that rewrites a sample's text; a sample without text stays as it is.

    Args:
        path: the YAML file.
        text_key: the text's name in a sample.

    Raises:
        ConfigError: the file has an unknown key or a pattern that is none, or a test case fails.
    """

    results_version = 1

    def __init__(self, path: str | Path, text_key: str = "text") -> None:
        self.path = Path(path)
        self.text_key = text_key
        self._content = read_mapping(self.path)
        self._steps = _read_steps(self._content, self.path)
        _run_test_cases(self._content.get("test_cases"), self.normalise, self.path)

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        text = sample.get(self.text_key)
        return sample if text is None else {**sample, self.text_key: self.normalise(str(text))}

    def normalise(self, text: str) -> str:
        """The text after all rules."""
        for step in self._steps:
            text = step(text)
        return text

    def fingerprint(self) -> dict[str, Any]:
        """What the rules are, whatever the file is called; test cases change no text."""
        return {key: value for key, value in self._content.items() if key != "test_cases"}


def _read_steps(content: Mapping[str, Any], path: Path) -> list[Callable[[str], str]]:
    for key in content:
        if key not in _KEYS:
            raise ConfigError(
                f"{path}: unknown key {key!r}{nearest(str(key), _KEYS)}; expected {', '.join(_KEYS)}"
            )
    for flag in _FLAGS:
        if not isinstance(content.get(flag, True), bool):
            raise ConfigError(f"{path}: {flag}: is {content[flag]!r}; expected true or false")
    steps: list[Callable[[str], str]] = []
    if content.get("nfkc", False):
        steps.append(lambda text: unicodedata.normalize("NFKC", text))
    if content.get("lowercase", False):
        steps.append(str.lower)
    rules = _entries(content.get("rules"), ("pattern", "replace"), f"{path}: rules")
    steps += [_substitution(rule, f"{path}: rules.{i}") for i, rule in enumerate(rules)]
    if content.get("collapse_spaces", True):
        steps.append(lambda text: " ".join(text.split()))
    return steps


def _substitution(rule: Mapping[str, str], where: str) -> Callable[[str], str]:
    try:
        pattern = re.compile(rule["pattern"])
        # The replacement's references are checked also where nothing matches.
        pattern.sub(rule["replace"], "")
    except (re.error, IndexError) as error:
        raise ConfigError(
            f"{where}: {rule['pattern']!r} -> {rule['replace']!r} is no substitution of Python's re "
            f"({error}); correct it"
        ) from error
    return lambda text: pattern.sub(rule["replace"], text)


def _run_test_cases(cases: Any, normalise: Callable[[str], str], path: Path) -> None:
    for i, case in enumerate(_entries(cases, ("in", "out"), f"{path}: test_cases")):
        got = normalise(case["in"])
        if got != case["out"]:
            raise ConfigError(
                f"{path}: test_cases.{i}: {case['in']!r} became {got!r}; expected {case['out']!r}; correct "
                "the rules or the case"
            )


def _entries(value: Any, keys: tuple[str, str], where: str) -> list[dict[str, str]]:
    """A list of mappings with just these two keys, both text."""
    if value is None:
        return []
    example = f"[{{{keys[0]}: ..., {keys[1]}: ...}}]"
    if not isinstance(value, list):
        raise ConfigError(f"{where}: is {value!r}; expected a list such as {example}")
    for i, entry in enumerate(value):
        if not isinstance(entry, dict) or set(entry) != set(keys):
            seen = listed(sorted(map(str, entry))) if isinstance(entry, dict) else repr(entry)
            raise ConfigError(f"{where}.{i}: has {seen}; expected {keys[0]} and {keys[1]}, as in {example}")
        for key in keys:
            if not isinstance(entry[key], str):
                raise ConfigError(f"{where}.{i}.{key}: is {entry[key]!r}; expected text; put it in quotes")
    return value
