"""dask-jobqueue's jobs with what it leaves open: quoted paths, whole-word directives, one thread per worker,
and submissions whose failure is known rather than logged.
"""

import asyncio
import copy
import itertools
import logging
import re
import shlex
import sys
from collections.abc import Mapping
from typing import Any

import dask
from dask_jobqueue.core import Job, JobQueueCluster
from distributed.core import Status
from distributed.deploy.spec import ProcessInterface

from statsprep.parallel.scheduler_commands import CommandError, call

logger = logging.getLogger(__name__)

_MOST_AT_ONCE = 16
_RETRIES_AFTER_S = (2.0, 10.0)
# The scheduler was busy or restarts; everything else it says is its answer.
_PASSING = re.compile(r"timed out|unable to contact|connect failure|connection refused|try again", re.I)


class BatchJob(Job):  # type: ignore[misc]
    """A mixin before a scheduler's own job class.

    Attributes:
        refusal: what the scheduler said where it did not take the job.
    """

    gate: asyncio.Semaphore
    job_header: str

    def __init__(self, scheduler: Any = None, name: Any = None, **options: Any) -> None:
        self.refusal: str | None = None
        section = f"jobqueue.{self.default_config_name()}"
        skipped = options.pop("job_directives_skip", None)
        if skipped is None:
            skipped = dask.config.get(f"{section}.job-directives-skip", ())
        python = options.pop("python", None) or dask.config.get(f"{section}.python", None) or sys.executable
        folder = options.pop("local_directory", None) or dask.config.get(f"{section}.local-directory", None)
        # HTCondor's directives are keys, not lines.
        has_lines = self.default_config_name() != "htcondor"
        super().__init__(
            scheduler,
            name,
            # dask-jobqueue looks for these anywhere in a line: `-t` would take `--cpus-per-task` along.
            job_directives_skip=() if has_lines else skipped,
            python=shlex.quote(python),
            local_directory=folder and shell_word(folder),
            **options,
        )
        if has_lines:
            given = set(self.job_extra_directives)
            self.job_header = "\n".join(
                self._quoted(line)
                for line in self.job_header.split("\n")
                if line.split(" ", 1)[1] in given or not _is_skipped(line, skipped)
            )

    @property
    def worker_process_threads(self) -> int:
        """One shard at a time in each worker; its numeric libraries use the job's cores."""
        return 1

    def _quoted(self, line: str) -> str:
        """A line that names the folder of logs, as the scheduler reads it whatever the folder is called."""
        folder = str(self.log_directory)
        mark, option, *words = line.split(" ", 2)
        if not words or not words[0].startswith(folder):
            return line
        name = words[0].removeprefix(folder)
        if "%J" in name:
            folder = folder.replace("%", "%%")
        return f"{mark} {option} {shlex.quote(folder + name)}"

    async def start(self) -> None:
        try:
            async with self.gate:
                await self._submit()
        except (CommandError, ValueError) as error:
            self.refusal = " ".join(str(error).split())
        await ProcessInterface.start(self)

    async def _submit(self) -> None:
        for delay_s in (*_RETRIES_AFTER_S, None):
            try:
                with self.job_file() as script:
                    said = await self._submit_job(script)
                self.job_id = self._job_id_from_submit_output(said)
                return
            except CommandError as error:
                if delay_s is None or not _PASSING.search(str(error)):
                    raise
                logger.warning("%s; trying again in %g s", error, delay_s)
            await asyncio.sleep(delay_s)

    async def close(self) -> None:
        async with self.gate:
            await super().close()
        self.status = Status.closed

    @staticmethod
    async def _call(words: list[str], *, shell: bool = False, **options: Any) -> str:
        # LSF's submission throws away what bsub says when it refuses.
        return await call([word.removesuffix(" 2> /dev/null") for word in words], shell=shell)


def _is_skipped(line: str, skipped: Any) -> bool:
    words = line.split(" ", 1)[-1]
    return any(words == each or re.match(re.escape(each) + r"[\s=]", words) for each in skipped)


def shell_word(path: str) -> str:
    """`path` as one word of a job script, in which variables such as $TMPDIR are still replaced."""
    if "$" not in path:
        return shlex.quote(path)
    return '"' + re.sub(r'(["\\`])', r"\\\1", path) + '"'


class BatchCluster(JobQueueCluster):  # type: ignore[misc]
    """A mixin before a scheduler's own cluster class."""

    _numbers: "itertools.count[int]"
    key_files: Mapping[str, str]

    def _new_worker_name(self, worker_number: int) -> str:
        # A lost job's name is not given again: its worker may still live on a node that is cut off.
        return f"{self._name}-{next(self._numbers)}"

    def _get_worker_security(self, security: Any) -> Any:
        """The keys' files, with paths that a job script can hold."""
        if security is None:
            return None
        found = copy.copy(security)
        found.tls_ca_file = shlex.quote(self.key_files["ca_file"])
        found.tls_worker_cert = shlex.quote(self.key_files["cert"])
        found.tls_worker_key = shlex.quote(self.key_files["key"])
        return found


def cluster_class(base: Any, key_files: Mapping[str, str]) -> Any:
    """`SLURMCluster` and its kin with the rules above, for one cluster.

    Args:
        base: a class of dask_jobqueue.
        key_files: paths of a worker's `ca_file`, `cert` and `key`; empty without encryption.
    """
    job = type(base.job_cls.__name__, (BatchJob, base.job_cls), {"gate": asyncio.Semaphore(_MOST_AT_ONCE)})
    attributes = {"job_cls": job, "key_files": key_files, "_numbers": itertools.count()}
    return type(base.__name__, (BatchCluster, base), attributes)
