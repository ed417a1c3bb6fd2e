"""A full disk and a stop signal: one line, the right exit code, nothing lost, and the same command
goes on.
"""

import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.conftest import RunDir, StatsprepCommand, members_of_group, wait_until

LENGTH = 600
DASK = ("parallel.env=local", "parallel.n_workers=2")
MODES = pytest.mark.parametrize("parallel", [(), DASK], ids=["in_process", "dask"])
Mount = Callable[[Path, str], Callable[[str], None]]


@pytest.fixture
def undisturbed(
    tmp_path: Path, cheap_recipe: Callable[..., Path], statsprep: StatsprepCommand
) -> dict[str, str]:
    statsprep("run", cheap_recipe(LENGTH, 50), "stats_dir=undisturbed")
    return RunDir(tmp_path / "undisturbed").merged()


def num_measured(log: Path) -> int:
    return len(log.read_text(encoding="utf-8").splitlines()) if log.exists() else 0


@MODES
def test_disk_full_in_mid_shard(
    parallel: tuple[str, ...],
    tmp_path: Path,
    statsprep: StatsprepCommand,
    undisturbed: dict[str, str],
    mount_tmpfs: Mount,
) -> None:
    """Exit code 4 and one line that names the place; with more space, the run goes on with what was
    finished.
    """
    found, log = RunDir(tmp_path / "exp"), tmp_path / "measured"
    found.root.mkdir()
    remount = mount_tmpfs(found.root, "size=200k")
    seen = statsprep("run", "prep.yaml", *parallel, MEASURED=str(log), code=4)
    assert len(seen.errors) == 1
    assert "cannot write (No space left on device)" in seen.errors[0]
    assert "run the same command again" in seen.errors[0]
    assert "Traceback" not in seen.err
    assert list(found.root.glob("split.*"))
    assert num_measured(log) < LENGTH
    remount("size=8m")
    statsprep("run", "prep.yaml", *parallel, MEASURED=str(log))
    assert found.merged() == undisturbed
    assert found.hidden() == []
    # What the two workers had in hand is all that may be done twice.
    assert num_measured(log) <= LENGTH + 2


def test_disk_full_in_mid_merge(
    tmp_path: Path, statsprep: StatsprepCommand, undisturbed: dict[str, str], mount_tmpfs: Mount
) -> None:
    """The shards are whole, so that more space and the same command, or `merge`, is all that is needed."""
    found, log = RunDir(tmp_path / "exp"), tmp_path / "measured"
    found.root.mkdir()
    remount = mount_tmpfs(found.root, "size=8m")
    statsprep("run", "prep.yaml", MEASURED=str(log))
    for name in found.merged():
        (found.root / name).unlink()
    used = shutil.disk_usage(found.root).used
    remount(f"size={used + 32768}")
    for words in (("run", "prep.yaml"), ("merge", "exp")):
        seen = statsprep(*words, MEASURED=str(log), code=4)
        assert len(seen.errors) == 1
        assert "cannot write (No space left on device)" in seen.errors[0]
        assert "Traceback" not in seen.err
        assert not (found.root / "merged.json").exists()
    remount("size=8m")
    statsprep("merge", "exp")
    assert found.merged() == undisturbed
    assert num_measured(log) == LENGTH


@MODES
@pytest.mark.parametrize("kind", ["ctrl_c", "ctrl_c_twice", "terminate", "terminate_all"])
def test_stop_signal(
    kind: str,
    parallel: tuple[str, ...],
    tmp_path: Path,
    statsprep: StatsprepCommand,
    undisturbed: dict[str, str],
) -> None:
    """Exit code 75 within seconds, one line, no worker left behind, and at most the items in hand are done
    twice.
    """
    found, log = RunDir(tmp_path / "exp"), tmp_path / "measured"
    started = statsprep.start("run", "prep.yaml", *parallel, PAUSE_S="0.02", MEASURED=str(log))
    wait_until(lambda: num_measured(log) > 60)
    began = time.monotonic()
    if kind.startswith("terminate"):
        started.interrupt(signal.SIGTERM, group=kind == "terminate_all")
    else:
        started.interrupt(signal.SIGINT, group=True)
        if kind == "ctrl_c_twice":
            time.sleep(0.2)
            if started.is_running:
                started.interrupt(signal.SIGINT, group=True)
    seen = started.wait().check(75)
    assert time.monotonic() - began < 15
    assert seen.errors == ["error: stopped; what was finished is saved; run the same command again to go on"]
    assert "Traceback" not in seen.err
    wait_until(lambda: not members_of_group(started.pid), timeout_s=10)
    assert not (found.root / "merged.json").exists()
    statsprep("run", "prep.yaml", *parallel, MEASURED=str(log))
    assert found.merged() == undisturbed
    assert num_measured(log) <= LENGTH + 2


@MODES
def test_stop_signal_while_starting(
    parallel: tuple[str, ...], statsprep: StatsprepCommand, cheap_recipe: Callable[..., Path]
) -> None:
    """At whichever moment of the first two seconds SIGTERM comes, the end is 75 (or 0), without a
    traceback.
    """
    config = cheap_recipe(100, 50)
    for number in range(6):
        started = statsprep.start("run", config, *parallel, f"stats_dir=exp{number}", PAUSE_S="0.02")
        time.sleep(0.4 + number * (0.35 if parallel else 0.1))
        if started.is_running:
            started.interrupt(signal.SIGTERM)
        seen = started.wait()
        assert seen.code in (75, -signal.SIGTERM) if number == 0 else seen.code in (75, 0), seen.err
        assert "Traceback" not in seen.err
        wait_until(lambda: not members_of_group(started.pid), timeout_s=10)  # noqa: B023
