"""SIGKILL at random moments: the same command, typed again, ends with the bytes of an undisturbed run."""

import json
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from statsprep.data.demo_corpus import write_demo_corpus
from tests.integration.conftest import RunDir, Started, StatsprepCommand, wait_until

# A third of the kills each: the driver in process, the driver of Dask workers, and both during the merge; as many
# workers are killed on top.
NUM_KILLS = int(os.environ.get("STATSPREP_KILLS", "30"))
LENGTH = 600
PAUSE = {"PAUSE_S": "0.002"}
DASK = ("parallel.env=local", "parallel.n_workers=2")


@pytest.fixture
def undisturbed(
    tmp_path: Path, cheap_recipe: Callable[..., Path], statsprep: StatsprepCommand
) -> dict[str, str]:
    """The merged bytes of a run that nobody kills."""
    statsprep("run", cheap_recipe(LENGTH), "stats_dir=undisturbed")
    return RunDir(tmp_path / "undisturbed").merged()


def measured_items(log: Path) -> list[int]:
    return [int(line.split(" ")[0]) for line in log.read_text(encoding="utf-8").splitlines()]


def check_whole(found: RunDir, expected: dict[str, str]) -> None:
    assert found.merged() == expected
    assert found.twice() == []
    assert len(found.ids()) == LENGTH
    assert found.hidden() == []


def kill_at_random(started: Started, moment: random.Random, longest_s: float) -> bool:
    """False where the command ended before its time came."""
    end = time.monotonic() + moment.uniform(0, longest_s)
    while time.monotonic() < end and started.is_running:
        time.sleep(0.005)
    was_running = started.is_running
    started.kill()
    return was_running


@pytest.mark.parametrize("parallel", [(), DASK], ids=["in_process", "dask"])
def test_driver_killed_mid_run(
    parallel: tuple[str, ...], tmp_path: Path, statsprep: StatsprepCommand, undisturbed: dict[str, str]
) -> None:
    """No finished item is measured again, whichever moment the driver is killed at."""
    moment, found, log = random.Random(1), RunDir(tmp_path / "exp"), tmp_path / "measured"
    env = {**PAUSE, "MEASURED": str(log)}
    num_kills = num_journaled = 0
    for _ in range(max(1, NUM_KILLS // 3)):
        started = statsprep.start("run", "prep.yaml", *parallel, **env)
        before = found.journaled() if found.root.exists() else 0
        if kill_at_random(started, moment, 3 if parallel else 1.2):
            num_kills += 1
            num_journaled += found.journaled() > before
        if (found.root / "merged.json").exists():
            check_whole(found, undisturbed)
            statsprep("run", "prep.yaml", "--overwrite", "stats_dir=exp", "length=600", PAUSE_S="0")
            __import__("shutil").rmtree(found.root)
            log.unlink()
    statsprep("run", "prep.yaml", *parallel, **env)
    check_whole(found, undisturbed)
