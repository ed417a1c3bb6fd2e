"""Shards on Dask workers: one task per shard, few in flight, and a shard whose worker died is tried again."""

import contextlib
import logging
from collections import deque
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self

from distributed import KilledWorker

from statsprep.engine.env import forget_env
from statsprep.engine.shard import ShardJob, ShardReport, ShardTask, run_shard
from statsprep.errors import ConfigError, WorkerError, listed
from statsprep.parallel.clusters import count_workers, open_client
from statsprep.parallel.interrupts import interrupts_held
from statsprep.storage.journal import count_entries

logger = logging.getLogger(__name__)

# Deaths of a shard's worker in a row without a further item finished.
_MOST_DEATHS = 3
_SHARDS_PER_WORKER = 2

_jobs: dict[str, ShardJob] = {}


def run_task(run_id: str, pickled_job: bytes, task: ShardTask) -> ShardReport:
    """On a worker: unpickle the run's job once per process and run one shard."""
    if run_id not in _jobs:
        import cloudpickle

        # A cluster runs one run after the other; the model of the last one need not stay.
        for ended in list(_jobs):
            del _jobs[ended]
            forget_env(ended)
        _jobs[run_id] = cloudpickle.loads(pickled_job)
    return run_shard(_jobs[run_id], task)


@dataclass(slots=True)
class _Try:
    """A task in flight and the history of its shard."""

    task: ShardTask
    number: int = 1
    num_deaths: int = 0
    num_finished: int = 0


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
        self._client: Any = None
        self.num_workers = count_workers(parallel)

    def __enter__(self) -> Self:
        self._client = self._stack.enter_context(open_client(self._parallel))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def run(self, job: ShardJob, tasks: Iterable[ShardTask]) -> Generator[ShardReport]:
        """Yield reports as shards end. A stop signal acts between two of Dask's own steps."""
        pickled = pickle_job(job)
        waiting = deque(_Try(task) for task in tasks)
        flying: dict[Any, _Try] = {}
        given_up: list[str] = []
        ended: SimpleQueue[Any] = SimpleQueue()

        def launch(each: _Try) -> None:
            key = f"{job.run_id}-split.{each.task.shard.shard_id}-{each.number}"
            future = self._client.submit(run_task, job.run_id, pickled, each.task, key=key, pure=False)
            flying[future] = each
            future.add_done_callback(ended.put)

        def top_up() -> None:
            while waiting and len(flying) < _SHARDS_PER_WORKER * self.num_workers:
                launch(waiting.popleft())

        try:
            with interrupts_held():
                top_up()
            while flying:
                report = None
                with interrupts_held(wake=lambda: ended.put(None)):
                    future = ended.get()
                    if future is None:
                        continue  # to the end of the block, where the signal acts
                    each = flying.pop(future)
                    try:
                        report = future.result()
                    except KilledWorker:
                        self._note_death(job, each)
                        if each.num_deaths < _MOST_DEATHS:
                            launch(each)
                        else:
                            given_up.append(_describe_poison(each))
                    finally:
                        future.release()
                    top_up()
                if report is not None:
                    yield report
        finally:
            with interrupts_held():
                if flying:
                    self._client.cancel(list(flying), force=True)
        if given_up:
            raise WorkerError(
                f"{listed(given_up, limit=3)}: the workers died there {_MOST_DEATHS} times in a row (killed, "
                "or out of memory); look at that utterance, remove it or give workers more memory, and run "
                "the same command again"
            )

    def _note_death(self, job: ShardJob, each: _Try) -> None:
        shard_id = each.task.shard.shard_id
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
            len(each.task.indices),
        )


def _describe_poison(each: _Try) -> str:
    indices, number = each.task.indices, each.num_finished
    where = f"at index {indices[number]}" if number < len(indices) else "after its last item"
    return f"split.{each.task.shard.shard_id} {where}"


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
