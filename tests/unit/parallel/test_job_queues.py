"""How each scheduler writes a walltime, what its list of jobs says, and where its logs are."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statsprep.config.yaml_file import parse_value
from statsprep.errors import ConfigError
from statsprep.parallel.job_queues import (
    QUEUES,
    JobState,
    lifetime_arguments,
    log_tail,
    single_as_list,
)


@pytest.mark.parametrize(
    ("env", "written", "text", "seconds"),
    [
        ("slurm", "30:00", "00:30:00", 1800),
        ("slurm", '"30:00"', "30:00", 1800),
        ("slurm", "1:30:00", "01:30:00", 5400),
        ("slurm", "04:00:00", "04:00:00", 14400),
        ("slurm", '"90"', "90", 5400),
        ("slurm", "2-00", "2-00", 172800),
        ("slurm", "1-12:30", "1-12:30", 131400),
        ("slurm", "1-12:30:15", "1-12:30:15", 131415),
        ("pbs", "30:00", "00:30:00", 1800),
        ("sge", '"3600"', "3600", 3600),
        ("lsf", "30:00", "00:30", 1800),
        ("lsf", '"04:00"', "04:00", 14400),
        ("lsf", '"90"', "90", 5400),
        ("oar", '"2"', "2", 7200),
        ("oar", "01:30:00", "01:30:00", 5400),
    ],
)
def test_a_walltime_means_the_same_to_the_scheduler_and_to_the_worker(
    env: str, written: str, text: str, seconds: int
) -> None:
    queue = QUEUES[env]()
    assert queue.walltime(parse_value(written)) == text
    assert queue.walltime_s(text) == seconds


@pytest.mark.parametrize("text", ["abc", "1:2:3:4", "-1", "", "1:x"])
def test_what_is_no_walltime_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"parallel\.options\.walltime: got .*; expected hours, minutes"):
        QUEUES["slurm"]().walltime_s(text)


@given(st.integers(60, 10**6))
def test_a_worker_leaves_before_its_job_is_killed(walltime_s: int) -> None:
    _, lifetime, _, stagger = lifetime_arguments(walltime_s)
    latest = int(lifetime[:-1]) + int(stagger[:-1])
    assert 0.9 * walltime_s - 1 <= latest < walltime_s
    assert walltime_s - latest >= min(180, 0.04 * walltime_s)


@pytest.mark.parametrize(
    ("env", "text", "found"),
    [
        (
            "slurm",
            "12 RUNNING None\n13 PENDING (Resources)\n",
            {"12": "RUNNING", "13": "PENDING (Resources)"},
        ),
        (
            "slurm",
            "14 PENDING (Nodes required for job are DOWN)\n",
            {"14": "PENDING (Nodes required for job are DOWN)"},
        ),
        (
            "sge",
            "job-ID  prior   name       user   state\n-----------\n     7 0.5 statsprep me qw 01/01 1\n",
            {"7": "qw"},
        ),
        ("pbs", "Job id  Name  User Time Use S Queue\n3.host statsprep me 0 Q workq\n", {"3": "Q"}),
        ("lsf", "5 PEND\n6 RUN\n", {"5": "PEND", "6": "RUN"}),
        ("htcondor", "8 5 out of disk\n9 2 undefined\n", {"8": "5 (out of disk)", "9": "2 (undefined)"}),
        ("moab", "active jobs\nJOBID USER STATE\n4 me Running 1\n\n", {"4": "Running"}),
        ("slurm", "", {}),
    ],
)
def test_the_list_of_jobs(env: str, text: str, found: dict[str, str]) -> None:
    assert {job: str(state) for job, state in QUEUES[env]().parse_queue(text).items()} == found


def test_a_scheduler_that_fails_proves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert asyncio.run(QUEUES["slurm"]().queue()) is None
    assert asyncio.run(QUEUES["oar"]().queue()) is None, "it is never asked"
    (tmp_path / "squeue").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "squeue").chmod(0o755)
    assert asyncio.run(QUEUES["slurm"]().queue()) is None
    (tmp_path / "squeue").write_text("#!/bin/sh\nexit 0\n")
    assert asyncio.run(QUEUES["slurm"]().queue()) == {}, "no jobs is an answer"


def test_slurms_word_on_a_job() -> None:
    text = "JobId=7 JobState=FAILED Reason=NonZeroExitCode Requeue=0 ExitCode=127:0 NodeList=n1 X=(null)"
    explained = QUEUES["slurm"]().parse_explanation(text)
    assert explained == "FAILED, NonZeroExitCode, exit code 127:0, on n1"
    assert str(JobState("PENDING", "Resources")) == "PENDING (Resources)"


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ([], ["--no-requeue"]),
        (["--gres=gpu:1"], ["--no-requeue"]),
        (["--requeue"], []),
        (["--no-requeue"], []),
    ],
)
def test_the_users_directives_decide(given: list[str], missing: list[str]) -> None:
    assert QUEUES["slurm"]().missing_directives(given, Path("/logs")) == missing


def test_oar_is_told_where_logs_go() -> None:
    missing = QUEUES["oar"]().missing_directives(["-O /mine"], Path("/logs"))
    assert missing == ["-E /logs/statsprep-%jobid%.err"]


def test_the_log_of_a_job_is_found_by_its_whole_number(tmp_path: Path) -> None:
    (tmp_path / "statsprep-12.err").write_text("".join(f"line {n}\n" for n in range(40)))
    (tmp_path / "statsprep-12.out").write_text("out\n")
    (tmp_path / "statsprep-112.err").write_text("other\n")
    (tmp_path / "statsprep-3.err").write_text("")
    path, tail = log_tail(tmp_path, "12") or (None, "")
    assert path == tmp_path / "statsprep-12.err"
    assert tail.splitlines() == [f"line {n}" for n in range(25, 40)]
    assert log_tail(tmp_path, "3") is None, "it holds nothing"
    assert log_tail(tmp_path, "2") is None


def test_a_directive_without_the_dash_is_one_directive() -> None:
    assert single_as_list({"job_extra_directives": "--gres=gpu:1", "queue": "gpu"}) == {
        "job_extra_directives": ["--gres=gpu:1"],
        "queue": "gpu",
    }
