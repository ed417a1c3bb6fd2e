"""A recipe folder to write configurations in, and a fresh module search path for every test."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Write = Callable[[str, str], Path]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, empty, so that relative paths in messages are short and stable."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def write(folder: Path) -> Write:
    """Write a file below the current folder and give its relative path."""

    def write_file(name: str, text: str) -> Path:
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write_file


@pytest.fixture(autouse=True)
def own_imports() -> Iterator[None]:
    """Recipes all call their package `src`: forget what a test imported and where it looked."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.split(".")[0] == "src" or name.startswith("statsprep_recipe_"):
            del sys.modules[name]
