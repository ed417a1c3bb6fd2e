"""The code hash: what changes results changes it, what does not leaves it alone."""

import importlib
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from statsprep.engine import code_hash
from statsprep.engine.code_hash import hash_code

RUNNER = """\
import numpy as np
from recipe_pkg.text import clean
from recipe_pkg import audio as sound

N_WORKERS = 4
SCALE = 3


def helper(x):
    return x * SCALE


class Base:
    def shared(self):
        return 1


class Runner(Base):
    limit: int = 5

    @staticmethod
    def forward(idx):
        return clean(helper(idx)) + sound.gain()


def main():
    print(N_WORKERS)


if __name__ == "__main__":
    main()
"""
TEXT = "def clean(x):\n    return x\n"
AUDIO = "from recipe_pkg.deep import LEVEL\n\n\ndef gain():\n    return LEVEL\n"
DEEP = "LEVEL = 1\n"

HashOf = Callable[..., dict[str, str]]


@pytest.fixture
def hash_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HashOf]:
    """Writes a recipe and gives the hash of its Runner."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def forget() -> None:
        for name in [name for name in sys.modules if name.startswith("recipe_")]:
            del sys.modules[name]
        importlib.invalidate_caches()

    def compute(
        runner: str = RUNNER, text: str = TEXT, audio: str = AUDIO, deep: str = DEEP
    ) -> dict[str, str]:
        forget()
        package = tmp_path / "recipe_pkg"
        package.mkdir(exist_ok=True)
        for name, code in (("__init__", ""), ("text", text), ("audio", audio), ("deep", deep)):
            (package / f"{name}.py").write_text(code, encoding="utf-8")
        (tmp_path / "recipe_main.py").write_text(runner, encoding="utf-8")
        return hash_code([importlib.import_module("recipe_main").Runner])

    yield compute
    forget()


def test_parts_are_named_by_class_and_module(hash_of: HashOf) -> None:
    assert list(hash_of()) == [
        "recipe_main.Base",
        "recipe_main.Runner",
        "recipe_pkg",
        "recipe_pkg.audio",
        "recipe_pkg.deep",
        "recipe_pkg.text",
    ]
    assert hash_of() == hash_of()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    return x * SCALE", "    # faster than a loop\n\n    return (x   *  SCALE)"),
        ("    def forward(idx):\n", '    def forward(idx):\n        """Measure one."""\n'),
        ("class Runner(Base):\n", 'class Runner(Base):\n    """Measures."""\n\n'),
        ("N_WORKERS = 4", "N_WORKERS = 64"),
        ("    main()\n", "    print('start')\n    main()\n"),
        ("    main()\n", "    SCALE = 7\n    main()\n"),
        ("    print(N_WORKERS)", "    print('workers', N_WORKERS)"),
        ("import numpy as np\n", "import json\nimport numpy as np\n"),
    ],
    ids=[
        "layout",
        "docstring",
        "class docstring",
        "workers",
        "main guard",
        "names of the main guard",
        "main",
        "unused import",
    ],
)
def test_what_changes_no_result_keeps_the_hash(old: str, new: str, hash_of: HashOf) -> None:
    assert old in RUNNER
    assert hash_of(RUNNER.replace(old, new)) == hash_of()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("clean(helper(idx))", "clean(helper(idx + 1))"),
        ("return x * SCALE", "return x + SCALE"),
        ("SCALE = 3", "SCALE = 4"),
        ("limit: int = 5", "limit: int = 6"),
        ("        return 1", "        return 2"),
    ],
    ids=["forward", "helper function", "constant", "class attribute", "base class"],
)
def test_what_the_runner_refers_to_changes_the_hash(old: str, new: str, hash_of: HashOf) -> None:
    assert old in RUNNER
    assert hash_of(RUNNER.replace(old, new)) != hash_of()


def test_imported_recipe_modules_count_also_through_others(hash_of: HashOf) -> None:
    before = hash_of()
    for change in (
        {"text": TEXT + "\n\nX = 1\n"},
        {"audio": AUDIO.replace("return LEVEL", "return -LEVEL")},
        {"deep": "LEVEL = 2\n"},
    ):
        after = hash_of(**change)
        (changed,) = [name for name in before if before[name] != after[name]]
        assert changed == f"recipe_pkg.{next(iter(change))}"


def test_comments_in_imported_modules_do_not_count(hash_of: HashOf) -> None:
    assert hash_of(deep='# Decibels.\n"""Levels."""\nLEVEL = 1\n') == hash_of()


def test_a_module_imported_inside_a_function_counts(hash_of: HashOf) -> None:
    lazy = RUNNER.replace("from recipe_pkg import audio as sound\n", "").replace(
        "        return clean(helper(idx)) + sound.gain()",
        "        from recipe_pkg.deep import LEVEL\n        return clean(helper(idx)) + LEVEL",
    )
    assert hash_of(lazy) != hash_of(lazy, deep="LEVEL = 2\n")


def test_installed_packages_do_not_count(hash_of: HashOf) -> None:
    assert not any("numpy" in name for name in hash_of())


def test_results_version_stands_for_the_class(hash_of: HashOf) -> None:
    versioned = RUNNER.replace("    limit: int = 5\n", "    results_version = 2\n")
    changed = versioned.replace("helper(idx)", "helper(-idx)")
    assert hash_of(versioned)["recipe_main.Runner"] == "results_version 2"
    assert hash_of(changed) == hash_of(versioned)
    assert hash_of(changed.replace("results_version = 2", "results_version = 3")) != hash_of(versioned)


def test_statsprep_itself_is_not_hashed() -> None:
    from statsprep.engine.runner import BaseRunner
    from statsprep.runners import CollectStatsRunner

    assert hash_code([BaseRunner]) == {}
    assert list(hash_code([CollectStatsRunner])) == ["statsprep.runners.stats.CollectStatsRunner"]


def test_functions_are_hashed_as_classes_are() -> None:
    found = hash_code([test_functions_are_hashed_as_classes_are, code_hash.hash_code])
    assert [name.rpartition(".")[2] for name in found] == ["test_functions_are_hashed_as_classes_are"]


SCRIPT = """\
from statsprep import BaseRunner
from statsprep.engine.code_hash import hash_code

{constant}

class Runner(BaseRunner):
    @staticmethod
    def forward(idx):
        return idx {operator} 1

print(hash_code([Runner])["__main__.Runner"])
"""


def test_a_class_of_a_script_is_hashed_by_its_source(tmp_path: Path) -> None:
    def run(constant: str, operator: str) -> str:
        (tmp_path / "script.py").write_text(SCRIPT.format(constant=constant, operator=operator))
        done = subprocess.run(
            [sys.executable, tmp_path / "script.py"], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    first = run("N_WORKERS = 2", "+")
    assert len(first) == 16
    assert run("N_WORKERS = 8  # more", "+") == first
    assert run("N_WORKERS = 2", "-") != first


def test_a_class_typed_into_a_console_is_hashed_by_its_bytecode() -> None:
    def run(operator: str) -> str:
        code = textwrap.dedent(SCRIPT.format(constant="", operator=operator))
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    assert run("+").startswith("bytecode ")
    assert run("+") == run("+")
    assert run("+") != run("-")
