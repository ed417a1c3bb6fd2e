"""A real Slurm of four nodes on loopback, and runs on it."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.conftest import (  # noqa: F401  with its fixtures
    ROOT,
    RunDir,
    StatsprepCommand,
    asterisk,
    cheap_recipe,
    recipe,
    statsprep_in,
    wait_until,
)
from tests.storage.conftest import free_ports, require

SCRIPT = ROOT / "deploy" / "slurm" / "slurm.sh"


class Slurm:
    """The cluster, with the words of its own programs."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.env = {"SLURM_CONF": f"{folder}/slurm.conf"}

    def call(self, *words: str, check: bool = True) -> str:
        done = subprocess.run(
            words, env={**os.environ, **self.env}, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0 or not check, f"{words}: {done.stderr}"
        return done.stdout

    def jobs(self, states: str = "PENDING,RUNNING,COMPLETING") -> dict[int, str]:
        """Node of each of its jobs."""
        lines = self.call("squeue", "--noheader", f"--states={states}", "--format=%A %N").splitlines()
        return {int(job): node for job, _, node in (line.partition(" ") for line in lines)}

    def job(self, number: int) -> dict[str, str]:
        words = self.call("scontrol", "--oneliner", "show", "job", str(number)).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def kill_node(self, node: str, *options: str) -> None:
        self.call(str(SCRIPT), "kill-node", self.folder, node.removeprefix("n"), *options)

    def revive_node(self, node: str) -> None:
        self.call(str(SCRIPT), "revive-node", self.folder, node.removeprefix("n"))
        wait_until(self.is_idle, timeout_s=60, poll_s=0.2)

    def is_idle(self) -> bool:
        states = self.call("sinfo", "--noheader", "--Node", "--format=%T", check=False).split()
        return not self.jobs() and states == ["idle"] * 4


@pytest.fixture(scope="session")
def slurm_of_session() -> Iterator[Slurm]:
    require("slurmctld", "slurmd", "sbatch", "munged")
    folder = tempfile.mkdtemp(prefix="slurm", dir="/tmp")  # sockets' paths are short
    port = free_ports(5)
    with open(Path(folder) / "slurm.log", "w") as log:
        try:
            subprocess.run([SCRIPT, "up", folder, str(port)], check=True, timeout=60, stdout=log, stderr=log)
            yield Slurm(folder)
        finally:
            subprocess.run([SCRIPT, "down", folder], timeout=60, stdout=log, stderr=log)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def slurm(slurm_of_session: Slurm) -> Iterator[Slurm]:
    """The cluster; afterwards no job of the test may be left on it."""
    yield slurm_of_session
    left = slurm_of_session.jobs("PENDING,RUNNING")
    for job in left:
        slurm_of_session.call("scancel", str(job), check=False)
    assert not left, f"jobs {left} were left behind"


@pytest.fixture
def statsprep(tmp_path: Path, slurm: Slurm) -> Iterator[StatsprepCommand]:
    """The command, on a host that can submit jobs."""
    command = StatsprepCommand(tmp_path)
    command.env = {**command.env, **slurm.env}
    yield command
    command.end_all()


OPTIONS = {"cores": 1, "memory": "500MB", "walltime": "00:10:00", "interface": "lo"}


@pytest.fixture
def parallel(tmp_path: Path) -> Callable[..., Path]:
    """Writes a `--parallel` file for Slurm."""

    def write(n_workers: Any = 2, *, worker_timeout_s: int = 60, text: str = "", **options: Any) -> Path:
        section = {
            "env": "slurm", "n_workers": n_workers, "worker_timeout_s": worker_timeout_s,
            "options": {**OPTIONS, **options},
        }  # fmt: skip
        path = tmp_path / "parallel.yaml"
        path.write_text(text or yaml.safe_dump({"parallel": section}), encoding="utf-8")
        return path

    return write


@pytest.fixture
def expected(cheap_recipe: Callable[..., Path], statsprep: StatsprepCommand) -> dict[str, str]:  # noqa: F811
    """The merged files of the cheap recipe from a run in one process."""
    statsprep("run", cheap_recipe(), "stats_dir=alone")
    return RunDir(statsprep.folder / "alone").merged()


def processes_of(variable: str, value: str | None = None) -> dict[int, str]:
    """Live processes with this variable (of this value) in their environment, and their command lines."""
    wanted = f"{variable}={value}".encode()
    name = f"{variable}=".encode()
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            entries = (folder / "environ").read_bytes().split(b"\0")
            if wanted in entries or (value is None and any(entry.startswith(name) for entry in entries)):
                found[int(folder.name)] = (folder / "cmdline").read_text(errors="replace").replace("\0", " ")
    return found
