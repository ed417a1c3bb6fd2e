"""The one door to a scheduler's own programs: a clean environment, a time limit, and errors that show what
was said.
"""

import asyncio
import os
from collections.abc import Mapping, Sequence

_TIME_LIMIT_S = 30.0

# What a job's shell has and a job submitted from there would inherit as if its user had asked for it.
_OF_THE_JOB = ("SLURM_", "SRUN_", "PMI", "SBATCH_CPU_BIND", "SBATCH_MEM_BIND")
_OF_ITS_DEVICES = frozenset({"CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES"})
_KEPT = frozenset({"SLURM_CONF"})


class CommandError(RuntimeError):
    """A scheduler's program failed or did not answer; the text is what it said."""


def without_job_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment to submit a job from: that of a shell outside of any job."""
    devices = _OF_ITS_DEVICES if "SLURM_JOB_ID" in environment else frozenset()
    return {
        name: value
        for name, value in environment.items()
        if name in _KEPT or not (name.startswith(_OF_THE_JOB) or name in devices)
    }


async def call(words: Sequence[str], *, shell: bool = False, time_limit_s: float = _TIME_LIMIT_S) -> str:
    """What a program prints to its standard output.

    Args:
        words: the program and its arguments.
        shell: give the words to a shell.
        time_limit_s: it is killed then, for a scheduler that hangs must not hang the driver.

    Raises:
        CommandError: it does not exist, failed, or took too long.
    """
    command = ["/bin/sh", "-c", " ".join(words)] if shell else words
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=without_job_variables(os.environ),
        )
    except OSError as error:
        raise CommandError(f"{words[0]}: {error.strerror}") from error
    try:
        out, err = await asyncio.wait_for(process.communicate(), time_limit_s)
    except TimeoutError:
        process.kill()
        await process.wait()
        raise CommandError(f"{words[0]} timed out: no answer within {time_limit_s:g} s") from None
    if process.returncode:
        said = " ".join((err or out).decode(errors="replace").split())
        raise CommandError(f"{words[0]} ended with {process.returncode}: {said or 'it said nothing'}")
    return out.decode(errors="replace")
