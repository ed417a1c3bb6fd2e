"""What every test gets: a check that it leaves nothing behind, and fixtures of odd inputs."""

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from statsprep.engine.executor import default_parallel, set_default_parallel

_GRACE_S = 5.0
# Pools that a library keeps for the life of the process.
_LASTING_THREADS = ("Dask-Offload", "asyncio_", "Dask-Default-Threads", "pymp-")
_LASTING_CHILDREN = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
# pytest's own, and what native libraries set when they are loaded.
_FOREIGN_VARIABLES = ("PYTEST_", "KMP_", "TORCH", "MKL_", "CUDA_", "HYPOTHESIS")


def _environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith(_FOREIGN_VARIABLES)}


def _threads() -> dict[int, str]:
    return {
        thread.ident or 0: f"thread {thread.name!r}"
        for thread in threading.enumerate()
        if not thread.daemon and not thread.name.startswith(_LASTING_THREADS)
    }


def _children() -> dict[int, str]:
    found = {}
    for listing in Path("/proc/self/task").glob("*/children"):
        try:
            pids = listing.read_text().split()
        except OSError:
            continue
        for pid in pids:
            try:
                command = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")
            except OSError:
                continue
            if not any(name in command for name in _LASTING_CHILDREN):
                found[int(pid)] = f"process {pid} ({command[:120]})"
    return found


def _clients() -> dict[int, str]:
    distributed = sys.modules.get("distributed")
    clients = distributed.Client._instances if distributed else ()
    return {id(client): f"Dask client {client}" for client in clients if client.status != "closed"}


def _entries_here() -> set[str]:
    """Only where nobody else works in the same folder at the same time."""
    if "CI" not in os.environ:
        return set()
    return {name for name in os.listdir() if not name.startswith(".") and name != "__pycache__"}


def _left_over(look: Callable[[], dict[int, str]], before: dict[int, str]) -> list[str]:
    """What is there now and was not before; things that are about to end have a moment to do so."""
    end = time.monotonic() + _GRACE_S
    while new := [text for key, text in look().items() if key not in before]:
        if time.monotonic() > end:
            break
        time.sleep(0.02)
    return new


@pytest.fixture(autouse=True)
def nothing_leaks() -> Iterator[None]:
    """Fail a test that leaks environment, folder, threads, processes, Dask clients, files or a parallel
    section.
    """
    folder, files, environment, parallel = Path.cwd(), _entries_here(), _environment(), default_parallel()
    looks: list[Callable[[], dict[int, str]]] = [_threads, _children, _clients]
    before: list[dict[int, str]] = [look() for look in looks]
    yield
    leaks: list[str] = []
    if Path.cwd() != folder:
        leaks.append(f"the current folder is {Path.cwd()}")
        os.chdir(folder)
    leaks += [f"file {name!r} in {folder}" for name in sorted(_entries_here() - files)]
    now = _environment()
    for key in sorted(environment.keys() | now.keys()):
        if environment.get(key) != now.get(key):
            leaks.append(f"variable {key} is {now.get(key)!r}, was {environment.get(key)!r}")
            os.environ.pop(key, None)
            if key in environment:
                os.environ[key] = environment[key]
    if default_parallel() is not parallel:
        leaks.append(f"the default parallel section is {default_parallel()!r}")
        set_default_parallel(parallel)
    for look, known in zip(looks, before, strict=True):
        leaks += _left_over(look, known)
    assert not leaks, "left behind: " + "; ".join(leaks)


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    """The command line sets up the package's logger: give every test the original."""
    logger = logging.getLogger("statsprep")
    state: tuple[Any, ...] = (logger.handlers[:], logger.level, logger.propagate)
    yield
    logger.handlers[:], logger.level, logger.propagate = state


@pytest.fixture(scope="session")
def odd_ids() -> list[str]:
    """Legal utterance ids of every kind that has broken a reader somewhere; no two are equal."""
    return [
        "plain",
        "speaker/session/0001",
        "/absolute",
        "../above",
        "語音-語料庫",
        "e\u0301",  # decomposed: not the same id as the next one
        "\u00e9",
        "🎤",
        "it's",
        'a"quoted"b',
        "back\\slash\\n",
        "comma,80",
        "tab-less#;=&%$`",
        "{json}",
        "[1]",
        "null",
        "0",
        "00",
        "-1",
        "1e5",
        "NaN",
        "x" * 300,
        "split.0",
        "done",
    ]


@pytest.fixture
def weird_tmp_path(tmp_path: Path) -> Path:
    """A folder whose name holds spaces, both quotes, a newline, a dollar, a hash and other scripts."""
    folder = tmp_path / "a b \"c\" 'd'\n$e #f %20 яз語"
    folder.mkdir()
    return folder
