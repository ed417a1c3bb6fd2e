"""Jobs of every scheduler, with stand-ins for its programs on PATH: their scripts start workers that work."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from statsprep import get_client, parallel_map
from statsprep.errors import WorkerError
from statsprep.parallel import batch_jobs
from statsprep.parallel.job_queues import QUEUES

PROGRAMS = (
    "sbatch", "scancel", "squeue", "scontrol", "qsub", "qdel", "qstat", "msub", "canceljob", "showq", "bsub",
    "bkill", "bjobs", "oarsub", "oardel", "condor_submit", "condor_rm", "condor_q",
)  # fmt: skip
OPTIONS = {"cores": 2, "memory": "1GB", "interface": "lo", "job_script_prologue": ["export GREETING='a b'"]}
NEEDED = {"htcondor": {"disk": "1GB"}, "oar": {"memory_per_core_property_name": "not_applicable"}}


@pytest.fixture
def scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The stand-ins' folder; the working folder has spaces and quotes."""
    here = tmp_path / 'it\'s "here"'
    here.mkdir()
    monkeypatch.chdir(here)
    programs = tmp_path / "bin"
    programs.mkdir()
    fake = Path(__file__).with_name("fake_scheduler.py")
    for name in PROGRAMS:
        (programs / name).write_text(
            f'#!/bin/sh\nexec {sys.executable} {fake} {name} "$@"\n', encoding="utf-8"
        )
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SCHEDULER", str(tmp_path))
    return tmp_path


def section(env: str, **options: Any) -> dict[str, Any]:
    options = {**OPTIONS, **NEEDED.get(env, {}), **options}
    return {"env": env, "n_workers": 1, "options": options, "worker_timeout_s": 30}


def surroundings(_: int) -> tuple[str | None, ...]:
    return os.getcwd(), os.environ.get("GREETING"), os.environ.get("OMP_NUM_THREADS")


@pytest.mark.parametrize("env", QUEUES)
def test_a_job_of_every_scheduler_brings_a_worker(env: str, scheduler: Path) -> None:
    """It stands in the driver's folder, ran the user's prologue, and may use the job's cores."""
    with get_client(section(env)) as client:
        assert client.scheduler.address.startswith("tls://")
        assert parallel_map(surroundings, [1, 2], client) == [(os.getcwd(), "a b", "2")] * 2
    assert not [path for path in Path("parallel_logs").iterdir() if path.name.startswith(".")]


def test_a_scheduler_that_does_not_answer_is_asked_again(
    scheduler: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_jobs, "_RETRIES_AFTER_S", (0.1, 0.1))
    (scheduler / "busy").write_text("2")
    with get_client(section("slurm")) as client:
        assert len(parallel_map(surroundings, [1], client)) == 1


def test_a_scheduler_that_never_answers_ends_the_run(
    scheduler: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_jobs, "_RETRIES_AFTER_S", (0.1, 0.1))
    (scheduler / "busy").write_text("9")
    with (
        pytest.raises(WorkerError, match=r"no job was taken: sbatch ended with 1: .*Socket timed out"),
        get_client(section("slurm")),
    ):
        pass
    assert (scheduler / "busy").read_text() == "6", "three tries"


def test_a_directive_is_skipped_by_its_whole_name(scheduler: Path) -> None:
    """dask-jobqueue drops every line that holds the text: with -t also --cpus-per-task."""
    options = {"job_directives_skip": ["-t", "--mem"], "job_extra_directives": ["-t 5", "--mem=0"]}
    with get_client(section("slurm", **options)) as client:
        lines = client.cluster.job_script().splitlines()
    assert [line for line in lines if "-t " in line or "--mem" in line][:2] == [
        "#SBATCH -t 5",
        "#SBATCH --mem=0",
    ]
    assert "#SBATCH --cpus-per-task=2" in lines
    assert "#SBATCH -J statsprep" in lines


@pytest.mark.parametrize(
    ("path", "word"),
    [
        ("/scratch", "/scratch"),
        ("/a b", "'/a b'"),
        ('$TMPDIR/a "b" `c`', '"$TMPDIR/a \\"b\\" \\`c\\`"'),
    ],
)
def test_variables_in_a_path_are_the_nodes_own(path: str, word: str) -> None:
    assert batch_jobs.shell_word(path) == word
