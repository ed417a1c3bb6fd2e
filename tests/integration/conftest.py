"""The real command line in processes of its own, recipes to run with it, and what two runs are
compared by.
"""

import hashlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SOUNDS = Path("/usr/share/asterisk/sounds")


@dataclass(frozen=True)
class Finished:
    """A command that has ended."""

    code: int
    out: str
    err: str
    seconds: float

    @property
    def errors(self) -> list[str]:
        """The lines that state an error."""
        return [line for line in self.err.splitlines() if line.startswith("error: ")]

    def check(self, code: int = 0) -> "Finished":
        assert self.code == code, f"exit code {self.code} instead of {code}\n{self.out}\n{self.err}"
        return self


def _hear_sigint() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Started:
    """A command that runs in a process group of its own, as one typed into a shell does."""

    def __init__(self, words: list[str], folder: Path, env: Mapping[str, str]) -> None:
        self._began = time.monotonic()
        self._process = subprocess.Popen(
            words, cwd=folder, env=dict(env), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
            # A shell ignores SIGINT in what it starts in the background, and children inherit that.
            preexec_fn=_hear_sigint,
        )  # fmt: skip
        self.pid = self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL to the driver alone; its workers are left to find out by themselves."""
        self._process.kill()
        self.wait()

    def interrupt(self, number: signal.Signals, *, group: bool = False) -> None:
        (os.killpg if group else os.kill)(self.pid, number)

    def wait(self, timeout_s: float = 120) -> Finished:
        try:
            out, err = self._process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(self.pid, signal.SIGKILL)
            out, err = self._process.communicate()
            pytest.fail(f"still running after {timeout_s} s\n{out}\n{err}")
        return Finished(self._process.returncode, out, err, time.monotonic() - self._began)

    def members(self) -> list[int]:
        """The live processes of its group: the driver and every process that it started."""
        return members_of_group(self.pid)

    def end(self) -> None:
        """Leave nothing behind, whatever the test did."""
        for pid in self.members():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._process.communicate()


def members_of_group(group: int) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (
                (folder / "stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
            )
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] not in "ZX":
            found.append(int(folder.name))
    return found


class StatsprepCommand:
    """`python -m statsprep`, in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # Recipes change within a second here, too fast for the time stamps of compiled modules.
        self.env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "200"}
        self._started: list[Started] = []

    def __call__(self, *words: object, code: int = 0, timeout_s: float = 120, **env: str) -> Finished:
        """Run to the end and check the exit code."""
        return self.start(*words, **env).wait(timeout_s).check(code)

    def start(self, *words: object, **env: str) -> Started:
        return self.start_python("-m", "statsprep", *words, **env)

    def start_python(self, *words: object, **env: str) -> Started:
        started = Started([sys.executable, *map(str, words)], self.folder, {**self.env, **env})
        self._started.append(started)
        return started

    def end_all(self) -> None:
        for started in self._started:
            started.end()


@pytest.fixture
def statsprep(tmp_path: Path) -> Iterator[StatsprepCommand]:
    command = StatsprepCommand(tmp_path)
    yield command
    command.end_all()


@pytest.fixture
def statsprep_in() -> Iterator[Callable[[Path], StatsprepCommand]]:
    """The command for another folder than the test's own."""
    commands: list[StatsprepCommand] = []

    def make(folder: Path) -> StatsprepCommand:
        commands.append(StatsprepCommand(folder))
        return commands[-1]

    yield make
    for command in commands:
        command.end_all()


# A runner with everything that a killed run could spoil: rows, dropped and failing items, a file of its own,
# a merge. MEASURED names a log that says which item was handled by which process; PAUSE_S makes each item
# slow, MERGE_PAUSE_S the merge.
_CHEAP_RECIPE = """\
import os
import time

import numpy as np

from statsprep import BaseRunner, EnvironmentProvider, Record


class Numbers:
    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def utt_ids(self):
        return [f"u{number:05d}" for number in range(self.length)]


class Provider(EnvironmentProvider):
    def build_env_local(self):
        return {"dataset": Numbers(self.config["length"]), **self.params}


class Measure(BaseRunner):
    @staticmethod
    def forward(idx, *, dataset, factor=1):
        with open(os.environ.get("MEASURED", os.devnull), "a") as log:
            log.write(f"{idx} {os.getpid()}\\n")
        time.sleep(float(os.environ.get("PAUSE_S", 0)))
        if idx % 17 == 3:
            return None
        if idx % 97 == 50:
            raise ValueError(f"item {idx} is bad: {dataset}")
        return Record({"value": factor * idx}, {"row": np.full((2, 3), idx / 7)})

    @staticmethod
    def open_writers(shard_dir):
        return {"values": open(shard_dir / "values", "w")}

    @staticmethod
    def write_record(writers, result, state):
        writers["values"].write(f"{state['utt_id']} {result.result['value']} {result.rows['row'].sum()!r}\\n")

    @staticmethod
    def merge_files(shard_dirs, out_dir):
        with open(out_dir / "values", "w") as merged:
            for shard_dir in shard_dirs:
                time.sleep(float(os.environ.get("MERGE_PAUSE_S", 0)))
                merged.write((shard_dir / "values").read_text())
"""

_CHEAP_CONFIG = """\
stats_dir: exp
length: {length}
provider: {{_target_: src.prep.Provider}}
runner: {{_target_: src.prep.Measure, shard_size: {shard_size}, on_error: skip, max_errors: {max_errors}}}
"""


def write_recipe(folder: Path, code: str, config: str) -> Path:
    """`src/prep.py` and `prep.yaml` in `folder`; returns the config's path."""
    (folder / "src").mkdir(parents=True, exist_ok=True)
    (folder / "src" / "prep.py").write_text(textwrap.dedent(code), encoding="utf-8")
    path = folder / "prep.yaml"
    path.write_text(textwrap.dedent(config), encoding="utf-8")
    return path


@pytest.fixture
def recipe(tmp_path: Path) -> Callable[..., Path]:
    """Writes a recipe of the test's own code and config."""

    def write(code: str, config: str) -> Path:
        return write_recipe(tmp_path, code, config)

    return write


@pytest.fixture
def cheap_recipe(tmp_path: Path) -> Callable[..., Path]:
    """Writes the recipe above: needs no torch, so that a run starts within a second."""

    def write(length: int = 600, shard_size: int = 50, max_errors: object = "5%") -> Path:
        config = _CHEAP_CONFIG.format(length=length, shard_size=shard_size, max_errors=max_errors)
        return write_recipe(tmp_path, _CHEAP_RECIPE, config)

    return write


@dataclass
class RunDir:
    """What a run directory holds, read without statsprep's own code."""

    root: Path

    def json(self, name: str) -> Any:
        return json.loads((self.root / name).read_text(encoding="utf-8"))

    def lines(self, name: str) -> list[Any]:
        return [json.loads(line) for line in (self.root / name).read_text(encoding="utf-8").splitlines()]

    def merged(self) -> dict[str, str]:
        """SHA-256 of every merged file and of merged.json itself: two runs with equal ones have equal
        bytes.
        """
        names = ["merged.json", *self.json("merged.json")["files"]]
        return {name: hashlib.sha256((self.root / name).read_bytes()).hexdigest() for name in names}

    def ids(self) -> list[str]:
        """Each utterance's id, wherever it was recorded, in no particular order."""
        names = ("results.jsonl", "dropped.jsonl", "errors.jsonl")
        found = [line["utt_id"] for name in names if (self.root / name).exists() for line in self.lines(name)]
        for shapes in self.root.glob("*_shape"):
            return found + [line.split(" ")[0] for line in shapes.read_text(encoding="utf-8").splitlines()]
        return found

    def twice(self) -> list[str]:
        return [utt_id for utt_id, number in Counter(self.ids()).items() if number > 1]

    def hidden(self) -> list[str]:
        """Folders and files of work in progress; none of them outlives a whole run."""
        return sorted(path.name for path in self.root.iterdir() if path.name.startswith("."))

    def journaled(self) -> int:
        """Lines in the journals of unfinished attempts."""
        total = 0
        for path in self.root.glob(".attempts/*/journal"):
            try:
                total += path.read_bytes().count(b"\n")
            except OSError:
                continue
        return total

    def shard_owners(self) -> set[int]:
        """Processes that hold a shard's lease."""
        owners = set()
        for path in self.root.glob(".leases/split.*.json"):
            try:
                owners.add(json.loads(path.read_text(encoding="utf-8"))["pid"])
            except (OSError, ValueError):
                continue
        return owners


def wait_until(condition: Callable[[], object], timeout_s: float = 60, poll_s: float = 0.005) -> Any:
    """What `condition` returns once it is true."""
    end = time.monotonic() + timeout_s
    while not (found := condition()):
        if time.monotonic() > end:
            pytest.fail(f"did not happen within {timeout_s} s")
        time.sleep(poll_s)
    return found


@pytest.fixture(scope="session")
def asterisk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the real corpus's manifests in data/asterisk."""
    if not SOUNDS.is_dir():
        reason = f"{SOUNDS} is missing: asterisk-core-sounds-*-wav is not installed"
        pytest.fail(f"{reason}, and CI must not skip it") if os.environ.get("CI") else pytest.skip(reason)
    folder = tmp_path_factory.mktemp("corpus")
    script = ROOT / "deploy" / "corpora" / "asterisk.py"
    subprocess.run([sys.executable, script, "data/asterisk"], cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture
def mount_tmpfs() -> Iterator[Callable[[Path, str], Callable[[str], None]]]:
    """Mounts a small disk on a folder; returns a function that changes its options, such as `size=8m`."""
    mounted: list[Path] = []

    def mount(folder: Path, options: str) -> Callable[[str], None]:
        words = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            reason = f"no small disk can be mounted here: {done.stderr.strip()}"
            pytest.fail(f"{reason}, and CI must not skip it") if os.environ.get("CI") else pytest.skip(reason)
        mounted.append(folder)

        def remount(options: str) -> None:
            subprocess.run(["mount", "-o", f"remount,{options}", str(folder)], check=True)

        return remount

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
