"""SIGKILL at random moments, and at every single step: the same command, typed again, ends with the bytes of
an
undisturbed run."""

import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from statsprep.data.demo_corpus import write_demo_corpus
from tests.integration.conftest import RunDir, Started, StatsprepCommand, members_of_group, wait_until

# About so many random kills in all; the sweep below adds one at every step.
NUM_KILLS = int(os.environ.get("STATSPREP_KILLS", "30"))
LENGTH = 600
DASK = ("parallel.env=local", "parallel.n_workers=2")
MODES = pytest.mark.parametrize("parallel", [(), DASK], ids=["in_process", "dask"])


@pytest.fixture
def undisturbed(
    tmp_path: Path, cheap_recipe: Callable[..., Path], statsprep: StatsprepCommand
) -> dict[str, str]:
    """The merged bytes of a run that nobody kills."""
    statsprep("run", cheap_recipe(LENGTH), "stats_dir=undisturbed")
    return RunDir(tmp_path / "undisturbed").merged()


def check_whole(found: RunDir, undisturbed: dict[str, str]) -> None:
    assert found.merged() == undisturbed
    assert found.twice() == []
    assert len(found.ids()) == LENGTH
    assert found.hidden() == []


def num_measured(log: Path) -> int:
    return len(log.read_text(encoding="utf-8").splitlines()) if log.exists() else 0


def kill_at_random(started: Started, chance: random.Random, longest_s: float) -> None:
    end = time.monotonic() + chance.uniform(0, longest_s)
    while time.monotonic() < end and started.is_running:
        time.sleep(0.005)
    started.kill()


@MODES
def test_driver_killed_mid_run(
    parallel: tuple[str, ...], tmp_path: Path, statsprep: StatsprepCommand, undisturbed: dict[str, str]
) -> None:
    """Whenever the driver is killed, a finished item is never measured again, and its workers end by
    themselves.
    """
    chance, found, log = random.Random(1), RunDir(tmp_path / "exp"), tmp_path / "measured"
    groups, num_kills, num_mid_run = [], 0, 0
    for number in range(max(2, NUM_KILLS // 4)):
        before = num_measured(log)
        started = statsprep.start("run", "prep.yaml", *parallel, PAUSE_S="0.004", MEASURED=str(log))
        groups.append(started.pid)
        if number % 2:
            # On a busy machine the others may all come before the first item.
            wait_until(lambda: num_measured(log) > before or not started.is_running)  # noqa: B023
            kill_at_random(started, chance, 0.3)
        else:
            kill_at_random(started, chance, 3.5 if parallel else 2.5)
        num_kills += 1
        if (found.root / "merged.json").exists():
            # The kill may have come after the merge and before the end.
            statsprep("run", "prep.yaml", *parallel)
            check_whole(found, undisturbed)
            shutil.rmtree(found.root)
            log.unlink()
            num_kills = 0
        else:
            num_mid_run += num_measured(log) > 0
        # One item in flight per process is lost by a kill, no more.
        assert num_measured(log) <= LENGTH + 2 * num_kills
    assert num_mid_run > 0
    statsprep("run", "prep.yaml", *parallel)
    check_whole(found, undisturbed)
    wait_until(lambda: not any(map(members_of_group, groups)))


def test_workers_killed_mid_shard(
    tmp_path: Path, statsprep: StatsprepCommand, undisturbed: dict[str, str]
) -> None:
    """A killed worker's shard goes on elsewhere, from its last finished item; the run itself does not end."""
    chance, found, log = random.Random(2), RunDir(tmp_path / "exp"), tmp_path / "measured"
    wanted, num_kills = max(2, NUM_KILLS // 4), 0
    while num_kills < wanted:
        shutil.rmtree(found.root, ignore_errors=True)
        log.unlink(missing_ok=True)
        started = statsprep.start("run", "prep.yaml", *DASK, PAUSE_S="0.02", MEASURED=str(log))
        num_here = 0
        while started.is_running and num_kills < wanted:
            owners = wait_until(lambda: found.shard_owners() or not started.is_running)  # noqa: B023
            time.sleep(chance.uniform(0.1, 0.8))
            if owners is not True:
                pid = chance.choice(sorted(owners))
                if pid in members_of_group(started.pid) and pid in found.shard_owners():
                    os.kill(pid, signal.SIGKILL)
                    num_kills += 1
                    num_here += 1
        ended = started.wait().check()
        assert ended.err.count("its worker died") >= 1 or num_here == 0
        check_whole(found, undisturbed)
        assert num_measured(log) <= LENGTH + num_here


@MODES
def test_driver_killed_mid_merge(
    parallel: tuple[str, ...], tmp_path: Path, statsprep: StatsprepCommand, undisturbed: dict[str, str]
) -> None:
    """A merge that is cut short is done again from the shards, which are not measured again."""
    chance, found, log = random.Random(3), RunDir(tmp_path / "exp"), tmp_path / "measured"
    for _ in range(max(2, NUM_KILLS // 6)):
        started = statsprep.start(
            "run", "prep.yaml", *parallel, MERGE_PAUSE_S="0.05", MEASURED=str(log)
        )  # 12 shards
        wait_until(lambda: list(found.root.glob(".merge.*")))
        kill_at_random(started, chance, 0.6)
        assert not (found.root / "merged.json").exists()
    statsprep("run", "prep.yaml", *parallel, MEASURED=str(log))
    check_whole(found, undisturbed)
    assert num_measured(log) == LENGTH


def test_collect_stats_killed(tmp_path: Path, statsprep: StatsprepCommand) -> None:
    """The statistics of a corpus that took several killed runs are those of one run, bit for bit."""
    config = write_demo_corpus(tmp_path, 60, 2)
    options = ("collect_stats.shard_size=5", "collect_stats.per_utterance_stats=true")
    statsprep("run", config, *options, "stats_dir=undisturbed", "--parallel", "none")
    chance = random.Random(4)
    for number in range(max(2, NUM_KILLS // 8)):
        parallel = "none" if number % 2 else "local"
        started = statsprep.start("run", config, *options, "stats_dir=exp", "--parallel", parallel)
        wait_until(lambda: list(tmp_path.glob("exp/train/.attempts/*")) or not started.is_running)  # noqa: B023
        kill_at_random(started, chance, 0.5)
    statsprep("run", config, *options, "stats_dir=exp", "--parallel", "none")
    for split in ("train", "valid"):
        assert RunDir(tmp_path / "exp" / split).merged() == RunDir(tmp_path / "undisturbed" / split).merged()
        assert RunDir(tmp_path / "exp" / split).twice() == []


# Forks a child per step, so that nothing is imported anew: it is killed before its n-th change of the disk,
# and a second child finishes the run.
_SWEEP = """\
import itertools, json, os, shutil, signal, sys
from pathlib import Path
from statsprep.cli import main

NAMES = ("replace", "rename", "link", "unlink", "mkdir", "rmdir", "write", "fsync")

def run(step):
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    counter = itertools.count(1)
    def killing(call):
        def wrapper(*args, **options):
            if next(counter) == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **options)
        return wrapper
    for name in NAMES:
        setattr(os, name, killing(getattr(os, name)))
    os._exit(main.main(["run", "prep.yaml"]))

def merged():
    root = Path("exp")
    names = ["merged.json", *json.loads((root / "merged.json").read_text())["files"]]
    return {name: (root / name).read_bytes() for name in names}

result, sys.stdout, sys.stderr = sys.stdout, open(os.devnull, "w"), open(os.devnull, "w")
assert main.main(["run", "prep.yaml"]) == 0
sys.stderr = sys.__stderr__
expected = merged()
for step in itertools.count(1):
    shutil.rmtree("exp")
    code = run(step)
    if code == 0:
        break
    assert code == -signal.SIGKILL, (step, code)
    code = run(0)
    assert code == 0, (step, code)
    assert merged() == expected, step
    left = [path.name for path in Path("exp").iterdir() if path.name.startswith(".")]
    assert not left, (step, left)
print(step - 1, file=result)
"""


def test_killed_at_every_step(
    tmp_path: Path, cheap_recipe: Callable[..., Path], statsprep: StatsprepCommand
) -> None:
    """Whichever change of the disk is the last one, the next run ends with the same bytes and leaves nothing
    behind.
    """
    cheap_recipe(12, 4)
    num_steps = int(statsprep.start_python("-c", _SWEEP).wait(200).check().out)
    assert num_steps > 60


_DEADLY = """\
import os, signal
from statsprep import BaseRunner, EnvironmentProvider

class Provider(EnvironmentProvider):
    def build_env_local(self):
        return {"calls": []}

class Deadly(BaseRunner):
    @staticmethod
    def forward(idx, *, calls):
        if os.environ.get("DEADLY") and len(calls) == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        calls.append(idx)
        return idx * idx
"""
_DEADLY_CONFIG = """\
stats_dir: exp
provider: {_target_: src.prep.Provider}
runner: {_target_: src.prep.Deadly, shard_size: 13}
indices: 26
"""


@MODES
def test_shard_that_dies_after_every_third_item_still_ends(
    parallel: tuple[str, ...], tmp_path: Path, recipe: Callable[..., Path], statsprep: StatsprepCommand
) -> None:
    """Each attempt goes on after the last one, so a shard longer than any process lives is finished all the
    same.
    """
    config = recipe(_DEADLY, _DEADLY_CONFIG)
    statsprep("run", config, "stats_dir=undisturbed")
    codes: list[int] = []
    while not codes or codes[-1] != 0:
        codes.append(statsprep.start("run", config, *parallel, DEADLY="1").wait().code)
        assert len(codes) <= 9
    assert set(codes[:-1]) <= {-signal.SIGKILL}
    # 26 items of which each process handles three; Dask workers die within one run of the command.
    assert len(codes) == (1 if parallel else 9)
    assert RunDir(tmp_path / "exp").merged() == RunDir(tmp_path / "undisturbed").merged()


@pytest.fixture
def finished_run(tmp_path: Path, cheap_recipe: Callable[..., Path], statsprep: StatsprepCommand) -> RunDir:
    statsprep("run", cheap_recipe(120, 20))
    return RunDir(tmp_path / "exp")


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "truncated": (lambda root: os.truncate(root / "split.2" / "values", 5), "split.2: values holds 5 bytes"),
    "changed": (
        lambda root: (root / "split.2" / "values").write_bytes(
            (root / "split.2" / "values").read_bytes()[::-1]
        ),
        "split.2: values has other content",
    ),
    "deleted": (
        lambda root: (root / "split.3" / "results.jsonl").unlink(),
        "split.3: results.jsonl is missing",
    ),
    "done_deleted": (lambda root: (root / "split.4" / "done").unlink(), "split.4: done is missing"),
    "done_damaged": (
        lambda root: os.truncate(root / "split.4" / "done", 40),
        "split.4: done is missing or damaged",
    ),
    "shard_deleted": (lambda root: shutil.rmtree(root / "split.5"), "split.5: not finished"),
    "merged_truncated": (lambda root: os.truncate(root / "values", 5), "merged file values holds 5 bytes"),
    "merged_deleted": (
        lambda root: (root / "results.jsonl").unlink(),
        "merged file results.jsonl is missing",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_named_and_repaired(
    damage: str, finished_run: RunDir, statsprep: StatsprepCommand, tmp_path: Path
) -> None:
    """`verify` names the damaged shard or file; the next run measures that shard alone again, to the same
    bytes.
    """
    expected, log = finished_run.merged(), tmp_path / "measured"
    do_damage, message = DAMAGES[damage]
    do_damage(finished_run.root)
    seen = statsprep("verify", "exp", code=3)
    assert message in seen.out
    assert len(seen.errors) == 1
    repaired = statsprep("run", "prep.yaml", MEASURED=str(log))
    assert finished_run.merged() == expected
    if not damage.startswith("merged"):
        shard = message.partition(":")[0]
        assert num_measured(log) == 20
        assert damage == "shard_deleted" or f"{shard}: " in repaired.err
    else:
        assert num_measured(log) == 0
        assert "merging again" in repaired.err
    statsprep("verify", "exp")


def test_stray_shard_is_named_and_left_out(finished_run: RunDir, statsprep: StatsprepCommand) -> None:
    """A `split.99` of an older plan is reported by every command, never merged and never removed."""
    expected = finished_run.merged()
    shutil.copytree(finished_run.root / "split.0", finished_run.root / "split.99")
    (finished_run.root / "merged.json").unlink()
    assert "split.99" in statsprep("run", "prep.yaml").err
    assert finished_run.merged() == expected
    assert "split.99: not in the plan" in statsprep("verify", "exp", code=3).out
    assert "not in the plan, left out: split.99" in statsprep("status", "exp").out
    assert (finished_run.root / "split.99" / "done").exists()
