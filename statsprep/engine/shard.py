"""Run one shard: the same function in every mode, in process and on any worker.

Everything in `ShardJob` and `ShardTask` is plain and travels; everything in `ShardReport` is small and
travels back.
"""

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from statsprep.engine.attempt import Attempt, Done, find_defect, read_done
from statsprep.engine.env import bind_env, env_of
from statsprep.engine.lease import hold_lease
from statsprep.engine.mirror import on_this_machine, publish_shard
from statsprep.engine.plan import Shard
from statsprep.engine.provider import Env
from statsprep.engine.records import Dropped, Record, error_record, to_json
from statsprep.errors import ConfigError, DataError, StorageError, WorkerError, is_disk_error
from statsprep.storage.atomic import disk_errors_named, open_private
from statsprep.storage.journal import Entry, JournalWriter, Status, read_journal
from statsprep.storage.jsonl import compact
from statsprep.storage.paths import DROPPED, ERRORS, RESULTS, RunPaths

if TYPE_CHECKING:
    from statsprep.engine.runner import BaseRunner


_ERRORS_REPORTED = 5


@dataclass(frozen=True, slots=True)
class ShardJob:
    """What all shards of a run share.

    Attributes:
        setup: builds the env.
        paths: the run directory, None where results stay in memory.
        batch_size: indices that `forward` gets at once; None for one index that is no list.
        block_size: without batch_size, how many indices `forward` may get at once, where grouping changes no
            result.
    """

    run_id: str
    runner: "type[BaseRunner]"
    setup: Callable[[], Env]
    fingerprint: str = ""
    trusted: frozenset[str] = frozenset()
    paths: RunPaths | None = None
    batch_size: int | None = None
    block_size: int = 1
    raise_errors: bool = True


@dataclass(frozen=True, slots=True)
class ShardTask:
    """One shard and the indices at its positions."""

    shard: Shard
    indices: Sequence[int]


@dataclass(slots=True)
class ShardReport:
    """What became of a shard: counts, and a few bytes more.

    Attributes:
        errors: error records without tracebacks, at most five.
        entries: (status, utt_id, result) of each item as JSON text, only where results stay in memory.
    """

    shard_id: int
    counts: dict[str, int]
    seconds: float = 0.0
    num_resumed: int = 0
    keyed_by: str = "utt_id"
    extra: dict[str, Any] = field(default_factory=dict)
    errors: list[dict[str, Any]] = field(default_factory=list)
    entries: str | None = None

    @property
    def num_items(self) -> int:
        return sum(self.counts.values())

    @classmethod
    def of(cls, done: Done, errors: list[dict[str, Any]]) -> "ShardReport":
        return cls(
            done.shard_id, done.counts, done.seconds, done.num_resumed, done.keyed_by, done.extra, errors
        )


def run_shard(job: ShardJob, task: ShardTask) -> ShardReport:
    """Handle every item of a shard and commit the shard.

    Raises:
        DataError: an utterance failed and the job is to stop at the first.
        ConfigError: the runner is used wrongly, whatever the utterance.
        WorkerError: the env could not be built, or the disk is full.
    """
    env = env_of(job.run_id, job.setup)
    items = ItemLoop(job, task, env)
    if job.paths is None:
        entries = [entry for entries in items.run(0) for entry in entries]
        text = compact([[entry.status, entry.utt_id, entry.result] for entry in entries])
        failed = [_without_traceback(entry.result) for entry in entries if entry.status is Status.ERROR]
        return ShardReport(
            task.shard.shard_id,
            items.counts,
            keyed_by=items.keyed_by,
            errors=failed[:_ERRORS_REPORTED],
            entries=text,
        )
    paths, shard_id = on_this_machine(job.paths), task.shard.shard_id
    with hold_lease(paths.shard_lease(shard_id), refuse_live=False):
        folder = paths.shard(shard_id)
        if folder.exists() and find_defect(folder, task.shard, job.trusted) is None:
            finished = read_done(folder)
            if finished is not None:  # another process was faster while this one waited for the lease
                return ShardReport.of(publish_shard(paths, shard_id, job.trusted) or finished, [])
        report = _attempt(job, task, env, items, paths)
        published = publish_shard(paths, shard_id, job.trusted)
        return report if published is None else ShardReport.of(published, report.errors)


def _attempt(job: ShardJob, task: ShardTask, env: Env, items: "ItemLoop", paths: RunPaths) -> ShardReport:
    attempt = Attempt(paths, task.shard, job.fingerprint)
    writers = ShardWriters(job.runner, env, task, attempt)
    with disk_errors_named(attempt.folder), contextlib.ExitStack() as stack:
        stack.callback(writers.abandon)
        journal = JournalWriter(attempt.folder)
        stack.callback(journal.close)
        num_resumed = _take_over(items, writers, journal, attempt)
        for entries in items.run(num_resumed):
            for entry in entries:
                writers.write(entry, items.side_of(entry.position))
            journal.append(entries)
        extra = writers.close()
    done = attempt.commit(counts=items.counts, num_resumed=num_resumed, keyed_by=items.keyed_by, extra=extra)
    return ShardReport.of(done, writers.first_errors)


def _take_over(items: "ItemLoop", writers: "ShardWriters", journal: JournalWriter, attempt: Attempt) -> int:
    """Copy the valid prefix of the earlier attempt, whole batches only, and feed it to the writers."""
    if attempt.previous is None:
        return 0
    waiting: list[Entry] = []
    num_taken = 0
    items.go_singly()
    for entry in read_journal(attempt.previous):
        if entry.status is Status.OK and not writers.can_take_over(entry):
            break
        waiting.append(entry)
        if len(waiting) == items.batch_length(num_taken):
            for each in waiting:
                writers.write(each, {})
                items.count(each)
            journal.append(waiting)
            num_taken += len(waiting)
            waiting = []
    return num_taken


def _without_traceback(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != "traceback"}


class ItemLoop:
    """Calls `forward` for the items of a shard, in order, and says what became of each."""

    def __init__(self, job: ShardJob, task: ShardTask, env: Env) -> None:
        self._job = job
        self._indices = task.indices
        self._forward = job.runner.forward
        self._arguments = bind_env(job.runner.forward, env)
        self._ids = _ids_of(env)
        self._side: dict[int, Any] = {}
        self._block_size = job.block_size
        self.counts: dict[str, int] = {str(status): 0 for status in Status}
        self.keyed_by = "utt_id"

    def batch_length(self, start: int) -> int:
        return min(self._job.batch_size or self._block_size, len(self._indices) - start)

    def go_singly(self) -> None:
        """No more blocks: whatever killed the earlier attempt, this one saves every single item."""
        self._block_size = 1

    def count(self, entry: Entry) -> None:
        self.counts[entry.status] += 1
        if (
            entry.status is Status.OK
            and self._ids is None
            and entry.utt_id == str(self._indices[entry.position])
        ):
            self.keyed_by = "position"

    def side_of(self, position: int) -> dict[str, Any]:
        """The arrays that a Record gave to the writers alone; they are forgotten once taken."""
        side: dict[str, Any] = self._side.pop(position, {})
        return side

    def run(self, start: int) -> Iterator[list[Entry]]:
        """The outcomes of one batch (or block, or item) after the other, from position `start` on."""
        while start < len(self._indices):
            stop = start + self.batch_length(start)
            entries = self._run_batch(range(start, stop))
            for entry in entries:
                self.count(entry)
            yield entries
            start = stop

    def _run_batch(self, positions: range) -> list[Entry]:
        results: list[Any] | None
        try:
            if self._job.batch_size is None and self._job.block_size == 1:
                results = [self._forward(self._indices[positions[0]], **self._arguments)]
            else:
                results = self._forward_batch(positions)
        except Exception as error:
            self._raise_unless_bad_item(error)
            if len(positions) == 1:
                return [self._fail(positions[0], error)]
            results = None
        if results is None:
            # One bad utterance costs one: its mates are measured alone. Not inside the handler, where the
            # record of the error would hold this traceback as well, in a run that was never stopped but not
            # in one that was.
            singles = (range(position, position + 1) for position in positions)
            return [entry for single in singles for entry in self._run_batch(single)]
        return [self._succeed(position, result) for position, result in zip(positions, results, strict=True)]

    def _forward_batch(self, positions: range) -> list[Any]:
        indices = [self._indices[position] for position in positions]
        results = self._forward(indices, **self._arguments)
        if results is None:
            return [None] * len(indices)
        if not isinstance(results, list | tuple) or len(results) != len(indices):
            seen = f"{len(results)} results" if isinstance(results, list | tuple) else type(results).__name__
            raise ConfigError(
                f"{self._job.runner.__name__}.forward returned {seen} for a batch of {len(indices)}; "
                "expected a list with one result per index, None for a dropped one"
            )
        return list(results)

    def _raise_unless_bad_item(self, error: Exception) -> None:
        """Let everything through that is not one utterance's fault."""
        if is_disk_error(error):
            with disk_errors_named(self._job.paths.root if self._job.paths else Path("forward")):
                raise error
        if isinstance(error, ConfigError | WorkerError | StorageError):
            raise error

    def _succeed(self, position: int, result: Any) -> Entry:
        if result is None or isinstance(result, Dropped):
            return self._drop(position, result)
        rows = {}
        if isinstance(result, Record):
            rows = dict(result.rows)
            if result.side and self._job.paths is not None:
                self._side[position] = result.side
            result = result.result
        index = self._indices[position]
        utt_id = self._utt_id(position, result)
        value, text = to_json(result, f"index {index} (utterance {utt_id!r})")
        return Entry(position, Status.OK, utt_id, value, rows, text)

    def _drop(self, position: int, reason: Dropped | None) -> Entry:
        utt_id = self._utt_id(position)
        where = f"index {self._indices[position]} (utterance {utt_id!r})"
        value, text = to_json(None if reason is None else asdict(reason), where)
        return Entry(position, Status.DROPPED, utt_id, value, text=text)

    def _fail(self, position: int, error: Exception) -> Entry:
        index = self._indices[position]
        utt_id = self._utt_id(position)
        record = error_record(error, utt_id=utt_id, index=index)
        if self._job.raise_errors:
            raise DataError(
                f"utterance {utt_id!r} (index {index}): {type(error).__name__}: {error}; mend or remove "
                "it, or use on_error: skip to record such utterances and go on",
                detail=record["traceback"],
            ) from error
        return Entry(position, Status.ERROR, utt_id, record)

    def _utt_id(self, position: int, result: Any = None) -> str:
        index = self._indices[position]
        if self._ids is not None:
            with contextlib.suppress(IndexError, KeyError):
                return str(self._ids[index])
        if isinstance(result, dict) and result.get("utt_id") is not None:
            return str(result["utt_id"])
        return str(index)


def _ids_of(env: Env) -> Any:
    """The dataset's ids by index, where the env has a dataset that knows them without loading a sample."""
    dataset = env.get("dataset")
    utt_ids = getattr(dataset, "utt_ids", None)
    return utt_ids() if callable(utt_ids) and getattr(dataset, "has_utt_ids", True) else None


class ShardWriters:
    """What is written for one attempt: the runner's own files by its hooks, and results, dropped and failed
    items.
    """

    def __init__(self, runner: "type[BaseRunner]", env: Env, task: ShardTask, attempt: Attempt) -> None:
        self._runner = runner
        self._indices = task.indices
        self._folder = attempt.folder
        self._state: dict[str, Any] = {
            "shard_id": task.shard.shard_id,
            "shard_dir": str(attempt.folder),
            "final_dir": attempt.final_place,
            "previous_dir": str(attempt.previous) if attempt.previous else None,
        }
        self._write_arguments = bind_env(runner.write_record, env, given=3)
        self._close_arguments = bind_env(runner.close_writers, env, given=2)
        self._lines = contextlib.ExitStack()
        self._streams: dict[str, IO[str]] = {}
        self._writers = runner.open_writers(attempt.folder, **bind_env(runner.open_writers, env)) or {}
        self._is_open = True
        self.first_errors: list[dict[str, Any]] = []

    def can_take_over(self, entry: Entry) -> bool:
        return self._runner.has_files(entry.result, self._state_of(entry))

    def _state_of(self, entry: Entry) -> dict[str, Any]:
        index = self._indices[entry.position]
        self._state.update(position=entry.position, index=index, utt_id=entry.utt_id)
        return self._state

    def write(self, entry: Entry, side: dict[str, Any]) -> None:
        index = self._indices[entry.position]
        if entry.status is Status.ERROR:
            self._write_line(ERRORS, entry.result)
            if len(self.first_errors) < _ERRORS_REPORTED:
                self.first_errors.append(_without_traceback(entry.result))
        elif entry.status is Status.DROPPED:
            self._write_line(DROPPED, {"utt_id": entry.utt_id, "index": index, **(entry.result or {})})
        else:
            result = Record(entry.result, entry.rows, side) if entry.rows or side else entry.result
            state = self._state_of(entry)
            kept = self._runner.write_record(self._writers, result, state, **self._write_arguments)
            if self._runner.keeps_results:
                result = entry.result if kept is None else kept
                self._write_line(RESULTS, {"utt_id": entry.utt_id, "index": index, "result": result})

    def _write_line(self, name: str, value: Any) -> None:
        if name not in self._streams:
            self._streams[name] = self._lines.enter_context(open_private(self._folder / name))
        self._streams[name].write(compact(value) + "\n")

    def close(self) -> dict[str, Any]:
        """Close the writers; what the hook returns is kept in `done`."""
        self._is_open = False
        self._lines.close()
        closed = self._runner.close_writers(self._writers, self._state, **self._close_arguments)
        result: dict[str, Any] = json.loads(compact(closed or {}))
        return result

    def abandon(self) -> None:
        """Close files after a failure; their content is of no interest any more."""
        if self._is_open:
            for close in (
                self._lines.close,
                *(writer.close for writer in self._writers.values() if hasattr(writer, "close")),
            ):
                with contextlib.suppress(Exception):
                    close()
