"""Keeps a cluster's workers coming: replaces those that were lost, says why others wait, and gives up with
the scheduler's own reason where none will ever come.

It runs on the cluster's event loop and asks the scheduler seldom: at first every two seconds, then less and
less often up to twice a minute, and only while a job has no worker yet. An unanswered question never means
that a job is gone.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from statsprep.errors import WorkerError, listed
from statsprep.parallel.job_queues import JobQueue, JobState, log_tail

logger = logging.getLogger(__name__)

_POLL_S = 0.5
_FIRST_QUESTION_S, _LAST_QUESTION_S = 2.0, 30.0
# A nanny restarts a killed worker within this time.
_LOST_AFTER_S = 10.0
_MOST_FAILED_STARTS = 3
# A site's limit on jobs may have room again.
_AFTER_REFUSAL_S = 60.0


@dataclass(slots=True)
class _History:
    """What was seen of a job."""

    was_up: bool = False
    lost_since: float | None = None
    num_absent: int = 0


class Supply:
    """The watch over one cluster.

    Args:
        cluster: a SpecCluster whose workers are jobs.
        queue: the scheduler.
        num_workers: how many are wanted all the time; None where Dask adapts the number.
        timeout_s: how long there may be no worker at all.
        log_directory: where jobs write their logs.
    """

    def __init__(
        self, cluster: Any, queue: JobQueue, num_workers: int | None, timeout_s: float, log_directory: Path
    ) -> None:
        self._cluster = cluster
        self._queue = queue
        self._num_workers = num_workers
        self._timeout_s = timeout_s
        self._log_directory = log_directory
        self._histories: dict[Any, _History] = {}
        self._states: dict[str, JobState] | None = None
        self._num_failed_starts = 0
        self._last_failed = ""
        self._refusal = ""
        self._may_ask_from = 0.0
        self._idle_since = time.monotonic()
        self._question_s = _FIRST_QUESTION_S
        self._next_question = time.monotonic() + _FIRST_QUESTION_S
        self._told = ""
        self._listeners: list[Callable[[], object]] = []
        self._task: asyncio.Task[None] | None = None
        self.has_workers = False
        self.error: WorkerError | None = None

    def start(self) -> None:
        self._cluster.sync(self._start)

    async def _start(self) -> None:
        self._task = asyncio.create_task(self._watch())

    def stop(self) -> None:
        self._cluster.sync(self._stop)

    async def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def on_failure(self, listener: Callable[[], object]) -> None:
        """Call `listener` once, in the event loop's thread, when `error` is set."""
        self._listeners.append(listener)
        if self.error is not None:
            listener()

    async def _watch(self) -> None:
        try:
            while self.error is None:
                await asyncio.sleep(_POLL_S)
                self.error = await self._look()
        except Exception as error:
            self.error = WorkerError(
                f"the watch over the workers failed: {type(error).__name__}: {error}; run the same command "
                "again"
            )
        for listener in self._listeners:
            listener()

    async def _look(self) -> WorkerError | None:
        """One look at all jobs; the error that ends the run, or None."""
        connected = {state.name for state in self._cluster.scheduler.workers.values()}
        self.has_workers = bool(connected)
        now = time.monotonic()
        waiting, lost = [], []
        for name, job in list(self._cluster.workers.items()):
            history = self._histories.setdefault(name, _History())
            if job.refusal is not None:
                logger.warning("%s", job.refusal)
                self._refusal, self._may_ask_from = job.refusal, now + _AFTER_REFUSAL_S
                self._forget(name)
                await job.close()
            elif connected & self._worker_names(name):
                if not history.was_up:
                    self._num_failed_starts = 0
                history.was_up, history.lost_since = True, None
            elif not history.was_up:
                waiting.append(name)
            else:
                if history.lost_since is None:
                    history.lost_since = now
                    self._ask_soon()
                lost.append(name)
                if now - history.lost_since > _LOST_AFTER_S:
                    await self._drop(name, "lost its worker")
        if connected or not self._cluster.worker_spec:
            self._idle_since = now
        if (waiting or lost) and now >= self._next_question:
            await self._ask(waiting, lost)
        self._replace()
        return None if connected else await self._failure(waiting, now - self._idle_since)

    def _worker_names(self, name: Any) -> set[Any]:
        spec = self._cluster.worker_spec.get(name, {})
        return {f"{name}{suffix}" for suffix in spec.get("group", [""])}

    def _ask_soon(self) -> None:
        self._question_s = _FIRST_QUESTION_S
        self._next_question = time.monotonic() + _FIRST_QUESTION_S

    async def _ask(self, waiting: list[Any], lost: list[Any]) -> None:
        """Learn from the scheduler what jobs without a worker are doing."""
        states = await self._queue.queue()
        self._question_s = min(1.5 * self._question_s, _LAST_QUESTION_S)
        self._next_question = time.monotonic() + self._question_s
        self._states = None if states is None else dict(states)
        if states is None:
            return
        for name in [*waiting, *lost]:
            job, history = self._cluster.workers.get(name), self._histories.get(name)
            if job is None or history is None:
                continue
            history.num_absent = 0 if self._state(job) is not None else history.num_absent + 1
            if history.was_up and history.num_absent:
                await self._drop(name, "lost its worker")
            elif history.num_absent > 1:
                self._num_failed_starts += 1
                self._last_failed = str(job.job_id)
                await self._drop(name, "ended before its worker came")
            elif history.num_absent:
                self._ask_soon()
        self._tell(waiting)

    def _state(self, job: Any) -> JobState | None:
        state = (self._states or {}).get(_number(job.job_id))
        return None if state is None or state.state.startswith("COMPLET") else state

    def _tell(self, waiting: list[Any]) -> None:
        text = self._waiting_text(waiting)
        if text and text != self._told:
            logger.info("%s", text)
            self._told = text

    def _waiting_text(self, waiting: list[Any]) -> str:
        jobs = [job for name in waiting if (job := self._cluster.workers.get(name)) is not None]
        known = {str(state) for job in jobs if (state := self._state(job)) is not None}
        ids = listed([int(_number(job.job_id)) for job in jobs if job.job_id], limit=3)
        return f"job {ids}: {', '.join(sorted(known)) or 'state unknown'}" if jobs else ""

    async def _drop(self, name: Any, why: str) -> None:
        """Cancel a job that is of no more use, and ask for another."""
        job = self._cluster.workers.get(name)
        self._forget(name)
        if job is not None:
            logger.warning("job %s %s; asking for another", job.job_id, why)
            await job.close()
        self._ask_soon()

    def _forget(self, name: Any) -> None:
        self._cluster.workers.pop(name, None)
        self._cluster.worker_spec.pop(name, None)
        self._histories.pop(name, None)

    def _replace(self) -> None:
        """As many jobs as are wanted, unless one was refused just now or they keep dying at the start."""
        may_ask = time.monotonic() >= self._may_ask_from and self._num_failed_starts < _MOST_FAILED_STARTS
        if self._num_workers is None or not may_ask:
            return
        if sum(len(self._worker_names(name)) for name in self._cluster.worker_spec) < self._num_workers:
            self._cluster.scale(self._num_workers)

    async def _failure(self, waiting: list[Any], idle_s: float) -> WorkerError | None:
        """Why no worker will come, where that is certain or has taken too long."""
        pending = [job for name in waiting if (job := self._cluster.workers.get(name)) is not None]
        states = [self._state(job) for job in pending]
        if self._refusal and not self._cluster.worker_spec:
            return WorkerError(
                f"no job was taken: {self._refusal}; correct parallel.options and run the same command again"
            )
        if self._num_failed_starts >= _MOST_FAILED_STARTS:
            return await self._described(
                f"{self._num_failed_starts} jobs ended before a worker came", self._last_failed
            )
        if states and all(state is not None and state.reason in self._queue.hopeless for state in states):
            return await self._described("no job will ever start", pending[0].job_id)
        if idle_s > self._timeout_s:
            return await self._described(
                f"no worker for {self._timeout_s:g} s (parallel.worker_timeout_s)",
                pending[0].job_id if pending else self._last_failed,
            )
        return None

    async def _described(self, what: str, job_id: str | None) -> WorkerError:
        """The error with the scheduler's word and the end of the job's log."""
        said, log = "", None
        if job_id:
            state = (self._states or {}).get(_number(job_id))
            said = await self._queue.explain(_number(job_id)) or str(state or "no longer known")
            log = log_tail(self._log_directory, _number(job_id))
        where = f"; job {job_id}: {said}" if job_id else ""
        last = f"; {log[0]} ends with: {log[1].splitlines()[-1].strip()}" if log else ""
        return WorkerError(
            f"{what}{where}{last}; correct parallel.options and run the same command again",
            detail=f"{log[0]}:\n{log[1]}" if log else "",
        )


def _number(job_id: str | None) -> str:
    return str(job_id or "").partition(".")[0]
