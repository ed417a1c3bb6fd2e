"""A scheduler's programs: what they inherit, and what becomes of one that hangs or fails."""

import asyncio
import os
from pathlib import Path

import pytest

from statsprep.parallel.scheduler_commands import CommandError, call, without_job_variables


def test_a_job_is_submitted_as_from_outside_any_job() -> None:
    """Such variables would be wishes for the new job: its array index, its cores, its memory."""
    kept = {
        "PATH": "/bin",
        "SLURM_CONF": "/etc/s.conf",
        "SBATCH_ACCOUNT": "speech",
        "SBATCH_PARTITION": "cpu",
    }
    of_the_job = {
        "SLURM_JOB_ID": "1", "SLURM_ARRAY_TASK_ID": "77", "SLURM_CPUS_PER_TASK": "4", "SRUN_DEBUG": "3",
        "PMI_RANK": "0", "PMIX_RANK": "0", "SBATCH_CPU_BIND": "x", "CUDA_VISIBLE_DEVICES": "1",
    }  # fmt: skip
    assert without_job_variables({**kept, **of_the_job}) == kept


def test_a_choice_of_gpus_outside_a_job_is_the_users() -> None:
    assert without_job_variables({"CUDA_VISIBLE_DEVICES": "1"}) == {"CUDA_VISIBLE_DEVICES": "1"}


def test_what_a_program_says_when_it_fails_is_the_error() -> None:
    with pytest.raises(CommandError, match=r"^sh ended with 3: no such partition$"):
        asyncio.run(call(["sh", "-c", "echo no such; false; echo no such partition >&2; exit 3"]))
    with pytest.raises(CommandError, match=r"^nosuchprogram: No such file or directory$"):
        asyncio.run(call(["nosuchprogram"]))


def test_a_program_that_hangs_is_killed(tmp_path: Path) -> None:
    script = f"echo $$ > {tmp_path}/pid; exec sleep 60"
    with pytest.raises(CommandError, match=r"sh timed out: no answer within 0.5 s"):
        asyncio.run(call(["sh", "-c", script], time_limit_s=0.5))
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_shell_reads_redirections() -> None:
    assert asyncio.run(call(["cat", "</dev/null;", "echo", "read"], shell=True)) == "read\n"
