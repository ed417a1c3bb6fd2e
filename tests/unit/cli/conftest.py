"""The command line in process, in a recipe folder of the test's own."""

import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from statsprep.cli import main


@dataclass
class Outcome:
    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one line that states the error."""
        (line,) = [line for line in self.err.splitlines() if line.startswith("error: ")]
        return line.removeprefix("error: ")


Statsprep = Callable[..., Outcome]


@pytest.fixture
def statsprep(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Statsprep]:
    """`statsprep("run", ...)` in tmp_path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("COLUMNS", "200")
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    modules = set(sys.modules)

    def call(*words: object) -> Outcome:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["statsprep", *map(str, words)])
        try:
            code = main.main(list(map(str, words)))
        except SystemExit as end:
            code = int(end.code or 0)
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    yield call
    for number, handler in handlers.items():
        signal.signal(number, handler)
    for name in set(sys.modules) - modules:
        if name.split(".")[0] == "src":
            del sys.modules[name]


RECIPE = """\
from statsprep import BaseRunner, EnvironmentProvider


class Numbers(list):
    def utt_ids(self):
        return [f"u{number}" for number in self]


class Provider(EnvironmentProvider):
    def build_env_local(self):
        return {"dataset": Numbers(range(self.config["length"])), "bad": self.config.get("bad", -1)}


class Measure(BaseRunner):
    @staticmethod
    def forward(idx, *, dataset, bad):
        if idx == bad:
            raise ValueError(f"item {idx} is bad")
        if bad == "stop" and idx == 12:
            raise KeyboardInterrupt
        return None if idx == 7 else dataset[idx] * 2
"""

CONFIG = """\
stats_dir: exp
length: 20
bad: -1
provider: {_target_: src.prep.Provider}
runner: {_target_: src.prep.Measure, shard_size: 5, on_error: skip, max_errors: 0}
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """A recipe that runs within milliseconds: prep.yaml and src/prep.py."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "__init__.py").touch()
    (tmp_path / "src" / "prep.py").write_text(RECIPE)
    path = tmp_path / "prep.yaml"
    path.write_text(CONFIG)
    return path
