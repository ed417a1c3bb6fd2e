"""Shards on Dask workers: few tasks in flight, and a shard whose worker died is tried again.

A task is one shard, or several where shards are short: a message costs the driver as much as milliseconds of
work.
"""

import contextlib
import logging
import math
import time
from collections import deque
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self

from distributed import KilledWorker

from statsprep.engine.env import env_of, forget_env
from statsprep.engine.shard import ShardJob, ShardReport, ShardTask, run_shard
from statsprep.errors import ConfigError, WorkerError, listed
from statsprep.parallel.clusters import Workers, count_workers, open_workers
from statsprep.parallel.interrupts import interrupts_held
from statsprep.storage.journal import count_entries

logger = logging.getLogger(__name__)

# Deaths of a shard's worker in a row without a further item finished.
_MOST_DEATHS = 3
_TASKS_PER_WORKER = 2
_TASK_S = 1.0

_jobs: dict[str, ShardJob] = {}


def run_tasks(run_id: str, pickled_job: bytes, tasks: Sequence[ShardTask]) -> tuple[list[ShardReport], float]:
    """On a worker: unpickle the run's job once per process and run some shards.

    Returns:
        The reports, and the seconds that all of them took.
    """
    if run_id not in _jobs:
        import cloudpickle

        # A cluster runs one run after the other; the model of the last one need not stay.
        for ended in list(_jobs):
            del _jobs[ended]
            forget_env(ended)
        _jobs[run_id] = cloudpickle.loads(pickled_job)
    env_of(run_id, _jobs[run_id].setup)
    began = time.perf_counter()
    return [run_shard(_jobs[run_id], task) for task in tasks], time.perf_counter() - began


@dataclass(slots=True)
class _Try:
    """Shards that fly as one task; the history is that of a single one."""

    tasks: list[ShardTask]
    number: int = 1
    num_deaths: int = 0
    num_finished: int = 0


class _Waiting:
    """Shards that no task has taken yet."""

    def __init__(self, tasks: Iterable[ShardTask], num_workers: int) -> None:
        self._tasks = deque(tasks)
        self._num_workers = num_workers
        self._shard_s = math.inf

    def __bool__(self) -> bool:
        return bool(self._tasks)

    def note(self, num_shards: int, seconds: float) -> None:
        """A task took so long; the next ones follow it."""
        self._shard_s = max(seconds / num_shards, 1e-4)

    def take(self) -> _Try:
        """Shards for about a second, and few enough that all workers end at the same time."""
        fair = len(self._tasks) // (2 * _TASKS_PER_WORKER * self._num_workers)
        number = max(1, min(int(_TASK_S / self._shard_s), fair))
        return _Try([self._tasks.popleft() for _ in range(number)])


class DaskExecutor:
    """Runs shards on the cluster that a `parallel:` section describes; the cluster lives as long as the
    block.

    Raises:
        ConfigError: what a shard needs cannot be pickled.
        WorkerError: workers do not come up, or a shard's worker died three times at the same item.
    """

    in_process = False

    def __init__(self, parallel: Mapping[str, Any]) -> None:
        self._parallel = parallel
        self._stack = contextlib.ExitStack()
        self._workers: Workers | None = None
        self.num_workers = count_workers(parallel)

    def __enter__(self) -> Self:
        self._workers = self._stack.enter_context(open_workers(self._parallel))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def run(self, job: ShardJob, tasks: Iterable[ShardTask]) -> Generator[ShardReport]:
        """Yield reports as shards end. A stop signal acts between two of Dask's own steps."""
        pickled = pickle_job(job)
        waiting = _Waiting(tasks, self.num_workers)
        flying: dict[Any, _Try] = {}
        given_up: list[str] = []
        ended: SimpleQueue[Any] = SimpleQueue()

        workers = self._workers
        assert workers is not None, "the executor is a context manager"
        workers.on_failure(lambda: ended.put(None))

        def launch(each: _Try) -> None:
            key = f"{job.run_id}-split.{each.tasks[0].shard.shard_id}-{each.number}"
            future = workers.client.submit(run_tasks, job.run_id, pickled, each.tasks, key=key, pure=False)
            flying[future] = each
            future.add_done_callback(ended.put)

        def top_up() -> None:
            while waiting and len(flying) < _TASKS_PER_WORKER * self.num_workers:
                launch(waiting.take())

        try:
            with interrupts_held():
                top_up()
            while flying:
                reports: list[ShardReport] = []
                with interrupts_held(wake=lambda: ended.put(None)):
                    future = ended.get()
                    if future is None:
                        if workers.failure is not None:
                            raise workers.failure
                        continue  # to the end of the block, where a signal acts
                    each = flying.pop(future)
                    try:
                        reports, seconds = future.result()
                        waiting.note(len(reports), seconds)
                    except KilledWorker:
                        if len(each.tasks) > 1:
                            # Which one it was will show; those that are committed end at once.
                            logger.warning("a worker died at one of %d shards; trying again", len(each.tasks))
                            for task in each.tasks:
                                launch(_Try([task], each.number + 1))
                        elif self._note_death(job, each) < _MOST_DEATHS:
                            launch(each)
                        else:
                            given_up.append(_describe_poison(each))
                    finally:
                        future.release()
                    top_up()
                yield from reports
        finally:
            with interrupts_held():
                if flying:
                    workers.client.cancel(list(flying), force=True)
        if given_up:
            raise WorkerError(
                f"{listed(given_up, limit=3)}: the workers died there {_MOST_DEATHS} times in a row (killed, "
                "or out of memory); look at that utterance, remove it or give workers more memory, and run "
                "the same command again"
            )

    def _note_death(self, job: ShardJob, each: _Try) -> int:
        """Count a death of a single shard's worker; how many there were in a row without progress."""
        task = each.tasks[0]
        shard_id = task.shard.shard_id
        finished = 0
        if job.paths is not None:
            finished = max(map(count_entries, job.paths.earlier_attempts(shard_id)), default=0)
        has_progressed = finished > each.num_finished
        each.num_deaths = 1 if has_progressed else each.num_deaths + 1
        each.num_finished = finished
        each.number += 1
        logger.warning(
            "split.%d: its worker died with %d of %d items finished; trying again",
            shard_id,
            finished,
            len(task.indices),
        )
        return each.num_deaths


def _describe_poison(each: _Try) -> str:
    task = each.tasks[0]
    indices, number = task.indices, each.num_finished
    where = f"at index {indices[number]}" if number < len(indices) else "after its last item"
    return f"split.{task.shard.shard_id} {where}"


def pickle_job(job: ShardJob) -> bytes:
    """The job as bytes.

    Raises:
        ConfigError: the runner or what the provider's setup holds cannot be pickled; the message says which.
    """
    import cloudpickle

    for name, part in (
        ("the runner class", job.runner),
        ("make_worker_setup_fn's function", job.setup),
        ("", job),
    ):
        try:
            pickled: bytes = cloudpickle.dumps(part)
        except Exception as error:
            raise ConfigError(
                f"{name} cannot be sent to workers ({type(error).__name__}: {error}); build such objects "
                "inside setup() from "
                "plain config values, so that each worker makes its own"
            ) from error
    return pickled
