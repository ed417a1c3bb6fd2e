"""Batch schedulers: for each one, dask-jobqueue's class, how it writes a walltime, and how it is asked what
became of a job.
"""

import contextlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from statsprep.config.values import walltime_text
from statsprep.errors import ConfigError
from statsprep.parallel.scheduler_commands import CommandError, call

_TAIL_LINES = 15
_LONGEST_MARGIN_S = 300


@dataclass(frozen=True, slots=True)
class JobState:
    """What the scheduler says of a job that it still has."""

    state: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.state} ({self.reason})" if self.reason else self.state


class JobQueue:
    """A scheduler.

    Attributes:
        cluster: name of the class in dask_jobqueue.
        last_unit_s: seconds of the last number of a walltime of one, two and three numbers.
        queue_command: lists this user's jobs, a line each that begins with the job's number.
        state_column, reason_column: of that list; a reason goes on to the end of the line.
        explain_command: tells all about the job whose number is appended.
        hopeless: reasons by which a job that waits would wait for ever.
        directives: what a job is submitted with unless the user's directives say something of it.
    """

    cluster = ""
    has_walltime = True
    last_unit_s = (1, 1, 1)
    queue_command: tuple[str, ...] = ()
    state_column = 1
    reason_column: int | None = None
    explain_command: tuple[str, ...] = ()
    hopeless: frozenset[str] = frozenset()
    directives: tuple[str, ...] = ()

    def walltime(self, value: int | float | str) -> str:
        """A walltime as the scheduler reads it; of a number, which is in seconds, hours in two digits."""
        return walltime_text(value).zfill(8) if not isinstance(value, str) else value

    def walltime_s(self, text: str) -> int:
        """Seconds of a walltime in the scheduler's own notation.

        Raises:
            ConfigError: it is none.
        """
        days, dash, clock = text.rpartition("-")
        numbers = clock.split(":")
        if not all(each.isdigit() for each in [*numbers, *([days] if dash else [])]) or len(numbers) > 3:
            raise ConfigError(
                f"parallel.options.walltime: got {text!r}; expected hours, minutes and seconds such as "
                "04:00:00"
            )
        unit = 3600 // 60 ** (len(numbers) - 1) if days else self.last_unit_s[len(numbers) - 1]
        total = 0
        for number in numbers:
            total = total * 60 + int(number)
        return int(days or 0) * 86400 + total * unit

    def log_directives(self, log_directory: Path) -> tuple[str, ...]:
        """Where logs go, for a scheduler whose dask-jobqueue class does not say it."""
        return ()

    def missing_directives(self, given: Iterable[str], log_directory: Path) -> list[str]:
        words = {re.split(r"[ =]", each.strip(), maxsplit=1)[0] for each in given}
        opposites = {each.replace("--no-", "--") for each in words} | words
        wanted = (*self.directives, *self.log_directives(log_directory))
        return [each for each in wanted if each.split(" ")[0].replace("--no-", "--") not in opposites]

    async def queue(self) -> Mapping[str, JobState] | None:
        """This user's jobs by number, or None where the scheduler did not answer, which proves nothing."""
        if not self.queue_command:
            return None
        try:
            return self.parse_queue(await call(self.queue_command))
        except CommandError:
            return None

    def parse_queue(self, text: str) -> dict[str, JobState]:
        """The jobs in what `queue_command` prints."""
        found = {}
        for line in text.splitlines():
            fields = line.split()
            number = re.match(r"\d+", fields[0]) if fields else None
            if number is None or len(fields) <= self.state_column:
                continue
            reason = " ".join(fields[self.reason_column :]) if self.reason_column is not None else ""
            found[number[0]] = JobState(fields[self.state_column], reason.strip("()").replace("None", ""))
        return found

    async def explain(self, job_id: str) -> str:
        """What the scheduler knows of a job, on one line; empty where it has forgotten it."""
        with contextlib.suppress(CommandError):
            if self.explain_command:
                return self.parse_explanation(await call([*self.explain_command, job_id]))
        return ""

    def parse_explanation(self, text: str) -> str:
        lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
        return "; ".join(lines[-3:])[:300]


class Slurm(JobQueue):
    cluster = "SLURMCluster"
    last_unit_s = (60, 1, 1)
    queue_command = ("squeue", "--me", "--noheader", "--format=%A %T %r")
    reason_column = 2
    explain_command = ("scontrol", "--oneliner", "show", "job")
    hopeless = frozenset(
        {
            "BadConstraints", "InvalidAccount", "InvalidQOS", "PartitionNodeLimit", "PartitionTimeLimit",
            "launch failed requeued held", "JobHoldMaxRequeue",
        }
    )  # fmt: skip
    # A worker that is lost is asked for anew; Slurm's own second try would find no scheduler or a namesake.
    directives = ("--no-requeue",)

    def parse_explanation(self, text: str) -> str:
        fields = dict(re.findall(r"(\w+)=(\S+)", text))
        words = [fields.get(key, "") for key in ("JobState", "Reason", "ExitCode", "NodeList")]
        names = ("", "", "exit code ", "on ")
        shown = zip(names, words, strict=True)
        return ", ".join(name + word for name, word in shown if word not in ("", "None", "(null)", "0:0"))


class Pbs(JobQueue):
    cluster = "PBSCluster"
    queue_command = ("qstat",)
    state_column = 4
    explain_command = ("qstat", "-x", "-f")


class Moab(JobQueue):
    cluster = "MoabCluster"
    queue_command = ("showq",)
    state_column = 2
    explain_command = ("checkjob",)


class Sge(JobQueue):
    cluster = "SGECluster"
    queue_command = ("qstat",)
    state_column = 4
    explain_command = ("qstat", "-j")


class Lsf(JobQueue):
    cluster = "LSFCluster"
    last_unit_s = (60, 60, 60)
    queue_command = ("bjobs", "-noheader", "-o", "jobid stat")
    explain_command = ("bjobs", "-l")

    def walltime(self, value: int | float | str) -> str:
        """LSF counts hours and minutes."""
        text = super().walltime(value)
        return text if isinstance(value, str) else text[:-3]


class HTCondor(JobQueue):
    cluster = "HTCondorCluster"
    has_walltime = False
    queue_command = ("condor_q", "-autoformat", "ClusterId", "JobStatus", "HoldReason")
    reason_column = 2
    explain_command = ("condor_q", "-better-analyze")


class Oar(JobQueue):
    cluster = "OARCluster"
    last_unit_s = (3600, 60, 1)
    explain_command = ("oarstat", "-f", "-j")

    def log_directives(self, log_directory: Path) -> tuple[str, ...]:
        return (f"-O {log_directory}/statsprep-%jobid%.out", f"-E {log_directory}/statsprep-%jobid%.err")


QUEUES: dict[str, type[JobQueue]] = {
    "slurm": Slurm, "pbs": Pbs, "moab": Moab, "sge": Sge, "lsf": Lsf, "htcondor": HTCondor, "oar": Oar,
}  # fmt: skip


def lifetime_arguments(walltime_s: int) -> list[str]:
    """Worker arguments by which it stops taking shards before the scheduler kills its job.

    Five minutes earlier, give or take two, so that workers which began together do not leave together; of a
    short walltime a tenth.
    """
    margin_s = min(_LONGEST_MARGIN_S, walltime_s / 10)
    return ["--lifetime", f"{walltime_s - margin_s:.0f}s", "--lifetime-stagger", f"{margin_s * 0.4:.0f}s"]


def log_tail(log_directory: Path, job_id: str) -> tuple[Path, str] | None:
    """The newest log of a job that holds anything, and its last lines."""
    number = re.compile(rf"(?<!\d){re.escape(job_id)}(?!\d)")
    logs = [path for path in log_directory.glob("*") if number.search(path.name) and path.is_file()]
    written = [path for path in logs if path.stat().st_size]
    if not written:
        return None
    newest = max(written, key=lambda path: (path.suffix == ".err", path.stat().st_mtime))
    lines = newest.read_text(encoding="utf-8", errors="replace").splitlines()
    return newest, "\n".join(lines[-_TAIL_LINES:])


def single_as_list(options: dict[str, Any]) -> dict[str, Any]:
    """Options that are lists, where one value was written without the dash."""
    names = ("job_extra_directives", "job_script_prologue", "worker_extra_args", "job_directives_skip")
    return {
        name: [value] if name in names and isinstance(value, str) else value
        for name, value in options.items()
    }
