"""What clusters do to workers, on a real Slurm: the run goes on by itself, to the same bytes."""

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.conftest import Slurm
from tests.cluster.test_runs import begun, wait_for_jobs, worker_of
from tests.integration.conftest import RunDir, StatsprepCommand, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]


def check(statsprep: StatsprepCommand, expected: dict[str, str], log: Path, *, most_twice: int) -> None:
    found = RunDir(statsprep.folder / "exp")
    assert found.merged() == expected
    assert found.hidden() == []
    measured = [line.split()[0] for line in log.read_text().splitlines()]
    assert len(measured) - len(set(measured)) <= most_twice, "finished items were measured again"


def test_killed_workers_and_cancelled_jobs(
    statsprep: StatsprepCommand, expected: dict[str, str], slurm: Slurm, parallel: Callable[..., Path]
) -> None:
    """A killed worker starts again in its job; for a cancelled job another one is submitted."""
    log = statsprep.folder / "measured"
    started = begun(statsprep, parallel(), log, pause_s=0.08)
    first, second = sorted(wait_for_jobs(slurm, 2, started))
    os.kill(worker_of(first), signal.SIGKILL)
    slurm.call("scancel", str(second))
    wait_until(lambda: max(slurm.jobs("RUNNING"), default=0) > second, timeout_s=60, poll_s=0.2)
    done = started.wait().check()
    check(statsprep, expected, log, most_twice=4)
    assert re.search(f"job {second} (lost its worker|ended before its worker came); asking", done.err)


@pytest.mark.parametrize("options", [(), ("--keep-steps",)], ids=["steps die", "steps live on"])
def test_a_lost_node(
    options: tuple[str, ...],
    statsprep: StatsprepCommand,
    expected: dict[str, str],
    slurm: Slurm,
    parallel: Callable[..., Path],
) -> None:
    log = statsprep.folder / "measured"
    # A CPU on each of two nodes.
    started = begun(statsprep, parallel(2, cores=2), log, pause_s=0.06)
    jobs = wait_for_jobs(slurm, 2, started)
    node = jobs[min(jobs)]
    slurm.kill_node(node, *options)
    started.wait(180).check()
    slurm.revive_node(node)
    check(statsprep, expected, log, most_twice=4)


def test_workers_leave_before_their_walltime_and_others_take_over(
    statsprep: StatsprepCommand, expected: dict[str, str], slurm: Slurm, parallel: Callable[..., Path]
) -> None:
    log = statsprep.folder / "measured"
    path = parallel(worker_extra_args=["--lifetime", "5s"])
    started = begun(statsprep, path, log, pause_s=0.04)
    first = max(wait_for_jobs(slurm, 2, started))
    wait_until(lambda: max(slurm.jobs("RUNNING"), default=0) > first, timeout_s=60, poll_s=0.2)
    started.wait().check()
    check(statsprep, expected, log, most_twice=12)


def test_workers_of_a_killed_driver_end_by_themselves(
    statsprep: StatsprepCommand, expected: dict[str, str], slurm: Slurm, parallel: Callable[..., Path]
) -> None:
    log, path = statsprep.folder / "measured", parallel()
    begun(statsprep, path, log).kill()
    wait_until(lambda: not slurm.jobs(), timeout_s=90, poll_s=0.5)
    statsprep("run", "prep.yaml", "--parallel", path, MEASURED=str(log))
    check(statsprep, expected, log, most_twice=4)
