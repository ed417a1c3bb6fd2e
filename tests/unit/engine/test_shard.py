"""One shard: what forward returned or raised becomes entries; what an earlier attempt finished is not done
again.
"""

import errno
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from statsprep.data.verdicts import UtteranceError, Verdict
from statsprep.engine.attempt import Attempt, find_defect, read_done
from statsprep.engine.env import forget_env
from statsprep.engine.plan import Shard
from statsprep.engine.records import Dropped, Record
from statsprep.engine.runner import BaseRunner
from statsprep.engine.shard import ItemLoop, ShardJob, ShardReport, ShardTask, run_shard
from statsprep.errors import ConfigError, DataError, StorageError, WorkerError
from statsprep.storage.journal import Entry, JournalWriter, Status
from statsprep.storage.paths import RunPaths

_numbers = itertools.count()
Run = Callable[..., ShardReport]


class WithIds:
    def __init__(self, *ids: str) -> None:
        self._ids = ids

    def utt_ids(self) -> tuple[str, ...]:
        return self._ids


def runner_of(forward: Callable[..., Any], **attributes: Any) -> type[BaseRunner]:
    return type("Probe", (BaseRunner,), {"forward": staticmethod(forward), **attributes})


@pytest.fixture
def job_of() -> Iterator[Callable[..., ShardJob]]:
    made = []

    def make(forward: Any, env: dict[str, Any] | None = None, **options: Any) -> ShardJob:
        runner = forward if isinstance(forward, type) else runner_of(forward)
        made.append(f"test-{next(_numbers)}")
        options = {"raise_errors": False, "fingerprint": "f1", "trusted": frozenset({"f1"}), **options}
        return ShardJob(made[-1], runner, lambda: env or {}, **options)

    yield make
    for run_id in made:
        forget_env(run_id)


def task_of(*indices: int, shard_id: int = 0) -> ShardTask:
    return ShardTask(Shard(shard_id, 0, len(indices)), indices)


@pytest.fixture
def entries_of(job_of: Callable[..., ShardJob]) -> Callable[..., list[Any]]:
    """The [status, utt_id, result] of a shard in memory."""

    def entries(forward: Any, *indices: int, env: Any = None, **options: Any) -> list[Any]:
        report = run_shard(job_of(forward, env, **options), task_of(*indices))
        found: list[Any] = json.loads(report.entries or "null")
        return found

    return entries


def test_results_come_in_index_order_and_none_is_dropped(entries_of: Callable[..., list[Any]]) -> None:
    found = entries_of(lambda idx: None if idx == 5 else idx * 2, 7, 5, 6)
    assert found == [["ok", "7", 14], ["dropped", "5", None], ["ok", "6", 12]]


def test_a_dropped_item_keeps_its_reason(entries_of: Callable[..., list[Any]]) -> None:
    """As JSON: numpy's numbers as well."""
    found = entries_of(lambda idx: Dropped("duration", np.float32(0.25), "min_s 0.3"), 4)  # type: ignore[arg-type]
    assert found == [["dropped", "4", {"step": "duration", "measured": 0.25, "bound": "min_s 0.3"}]]


@pytest.mark.parametrize("value", [0, False, "", [], {}])
def test_only_none_drops(value: Any, entries_of: Callable[..., list[Any]]) -> None:
    assert entries_of(lambda idx: value, 0) == [["ok", "0", value]]


def test_a_failing_item_is_recorded_and_the_others_go_on(entries_of: Callable[..., list[Any]]) -> None:
    def forward(idx: int) -> int:
        if idx == 1:
            raise UtteranceError("no samples", kind=Verdict.EMPTY)
        if idx == 2:
            return 1 // 0
        return idx

    found = entries_of(forward, 0, 1, 2, 3)
    assert [status for status, _, _ in found] == ["ok", "error", "error", "ok"]
    assert [(found[i][2]["kind"], found[i][2]["type"]) for i in (1, 2)] == [
        ("empty", "UtteranceError"),
        ("exception", "ZeroDivisionError"),
    ]
    assert "return 1 // 0" in found[2][2]["traceback"]


def test_ids_come_from_the_dataset_then_from_the_result_then_from_the_position(
    job_of: Callable[..., ShardJob],
) -> None:
    def run(forward: Any, env: dict[str, Any] | None = None) -> tuple[list[str], str]:
        report = run_shard(job_of(forward, env), task_of(0, 1))
        return [utt_id for _, utt_id, _ in json.loads(report.entries or "")], report.keyed_by

    named = {"dataset": WithIds("a/1", "b/2")}
    assert run(lambda idx: {"utt_id": "result's"}, named) == (["a/1", "b/2"], "utt_id")
    assert run(lambda idx: {"utt_id": f"r{idx}"}) == (["r0", "r1"], "utt_id")
    assert run(lambda idx: {"utt_id": None}) == (["0", "1"], "position")
    assert run(lambda idx: idx, {"dataset": [1, 2]}) == (["0", "1"], "position")


def test_failed_and_dropped_items_have_the_datasets_ids(entries_of: Callable[..., list[Any]]) -> None:
    def forward(idx: int, dataset: Any) -> None:
        if idx:
            raise ValueError

    found = entries_of(forward, 0, 1, env={"dataset": WithIds("a/1", "b/2")})
    assert [entry[:2] for entry in found] == [["dropped", "a/1"], ["error", "b/2"]]
    assert found[1][2]["utt_id"] == "b/2"


def test_a_batch_gets_lists_and_may_drop_members(entries_of: Callable[..., list[Any]]) -> None:
    seen = []

    def forward(indices: list[int]) -> list[int | None]:
        seen.append(indices)
        return [None if index == 3 else index for index in indices]

    assert [entry[2] for entry in entries_of(forward, 1, 2, 3, 4, 5, batch_size=2)] == [1, 2, None, 4, 5]
    assert seen == [[1, 2], [3, 4], [5]]
    assert all(type(indices) is list for indices in seen)


def test_a_batch_dropped_as_a_whole(entries_of: Callable[..., list[Any]]) -> None:
    found = entries_of(lambda indices: None, 1, 2, batch_size=2)
    assert [status for status, _, _ in found] == ["dropped", "dropped"]


@pytest.mark.parametrize("options", [{"batch_size": 4}, {"block_size": 4}])
def test_one_bad_member_of_a_batch_costs_one(
    options: dict[str, int], entries_of: Callable[..., list[Any]]
) -> None:
    seen = []

    def forward(indices: list[int]) -> list[int]:
        seen.append(indices)
        if 2 in indices:
            raise ValueError("two")
        return indices

    found = entries_of(forward, 0, 1, 2, 3, 4, **options)
    assert [status for status, _, _ in found] == ["ok", "ok", "error", "ok", "ok"]
    assert found[2][2]["message"] == "two"
    assert seen == [[0, 1, 2, 3], [0], [1], [2], [3], [4]]


def test_the_record_of_an_error_is_the_same_in_a_batch_and_alone(
    entries_of: Callable[..., list[Any]],
) -> None:
    """A killed run measures singly what an undisturbed one measures in blocks; the merged bytes must not
    tell.
    """

    def forward(indices: list[int]) -> list[int]:
        if 1 in indices:
            raise ValueError("one")
        return indices

    assert entries_of(forward, 0, 1, batch_size=2) == entries_of(forward, 0, 1, batch_size=1)


@pytest.mark.parametrize(
    ("returned", "seen"), [([1], "1 results"), ([1, 2, 3], "3 results"), (7, "int"), ({0: 1, 1: 2}, "dict")]
)
def test_a_batch_result_of_another_length_is_a_mistake_of_the_runner(
    returned: Any, seen: str, entries_of: Callable[..., list[Any]]
) -> None:
    with pytest.raises(
        ConfigError, match=rf"Probe\.forward returned {seen} for a batch of 2; expected a list"
    ):
        entries_of(lambda indices: returned, 0, 1, batch_size=2)


def test_what_is_no_json_names_index_and_utterance(entries_of: Callable[..., list[Any]]) -> None:
    env = {"dataset": WithIds("a", "b")}
    with pytest.raises(
        ConfigError, match=r"index 1 \(utterance 'b'\): forward returned what is no JSON \(numpy\.ndarray\)"
    ):
        entries_of(lambda idx: np.zeros(3) if idx else 0, 0, 1, env=env)


def test_numpy_scalars_and_tuples_become_json(entries_of: Callable[..., list[Any]]) -> None:
    assert entries_of(lambda idx: {"shape": (np.int64(3), 80)}, 0) == [["ok", "0", {"shape": [3, 80]}]]


def test_to_stop_at_the_first_failure_names_the_utterance_and_its_cause(
    entries_of: Callable[..., list[Any]],
) -> None:
    def forward(idx: int, dataset: Any) -> float:
        return 1 / idx

    with pytest.raises(DataError) as caught:
        entries_of(forward, 0, env={"dataset": WithIds("spk/a")}, raise_errors=True)
    assert str(caught.value).startswith(
        "utterance 'spk/a' (index 0): ZeroDivisionError: division by zero; mend or"
    )
    assert "return 1 / idx" in caught.value.detail
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("error", [ConfigError("config"), WorkerError("worker"), StorageError("storage")])
def test_an_error_that_is_no_utterances_fault_stops_the_shard(
    error: Exception, entries_of: Callable[..., list[Any]]
) -> None:
    def forward(idx: int) -> None:
        raise error

    with pytest.raises(type(error), match=str(error)):
        entries_of(forward, 0)


def test_a_full_disk_is_no_bad_utterance(tmp_path: Path, job_of: Callable[..., ShardJob]) -> None:
    def forward(idx: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(StorageError, match=r"cannot write \(No space left on device\); free space"):
        run_shard(job_of(forward, paths=RunPaths(tmp_path)), task_of(0))
    assert not (tmp_path / "split.0").exists()


def test_interrupts_are_not_recorded_as_failures(entries_of: Callable[..., list[Any]]) -> None:
    def forward(idx: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        entries_of(forward, 0)


class Writing(BaseRunner):
    """Notes every call of its hooks."""

    @staticmethod
    def forward(idx: int, calls: list[Any]) -> Any:
        calls.append(("forward", idx))
        if idx == 3:
            return None
        if idx == 4:
            raise ValueError("four")
        return Record({"n": idx}, {"row": np.full((1, 2), idx / 3)}) if idx % 2 else {"n": idx}

    @staticmethod
    def open_writers(shard_dir: Path, *, calls: list[Any], **env: Any) -> dict[str, Any]:  # type: ignore[override]
        calls.append("open")
        return {"file": open(shard_dir / "mine", "w")}

    @staticmethod
    def write_record(  # type: ignore[override]
        writers: dict[str, Any], result: Any, state: dict[str, Any], calls: list[Any], **env: Any
    ) -> None:
        calls.append(("write", state["utt_id"], state["position"], state["index"]))
        row = result.rows["row"].tolist() if isinstance(result, Record) else None
        plain = result.result if isinstance(result, Record) else result
        writers["file"].write(f"{state['utt_id']} {plain} {row}\n")

    @staticmethod
    def close_writers(  # type: ignore[override]
        writers: dict[str, Any], state: dict[str, Any], calls: list[Any], **env: Any
    ) -> dict[str, Any]:
        calls.append("close")
        writers["file"].close()
        return {"shard": state["shard_id"], "audio_s": 1.5}


INDICES = (1, 2, 3, 4, 5)


@pytest.fixture
def calls() -> list[Any]:
    return []


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_shard_on_disk_holds_results_dropped_failed_and_the_runners_own_files(
    tmp_path: Path, calls: list[Any], job_of: Callable[..., ShardJob]
) -> None:
    report = run_shard(
        job_of(Writing, {"calls": calls}, paths=RunPaths(tmp_path)), task_of(*INDICES, shard_id=2)
    )
    folder = tmp_path / "split.2"
    assert report.counts == {"ok": 3, "dropped": 1, "error": 1}
    assert report.extra == {"shard": 2, "audio_s": 1.5}
    assert report.entries is None, "only counts travel"
    assert [(each["utt_id"], "traceback" in each) for each in report.errors] == [("4", False)]
    assert lines(folder / "results.jsonl") == [
        {"utt_id": str(n), "index": n, "result": {"n": n}} for n in (1, 2, 5)
    ]
    assert lines(folder / "dropped.jsonl") == [{"utt_id": "3", "index": 3}]
    (failed,) = lines(folder / "errors.jsonl")
    assert failed.keys() == {"utt_id", "index", "kind", "type", "message", "traceback"}
    assert (folder / "mine").read_text().splitlines()[:2] == [
        "1 {'n': 1} [[0.3333333333333333, 0.3333333333333333]]",
        "2 {'n': 2} None",
    ]
    done = read_done(folder)
    assert done is not None
    assert sorted(done.files) == ["dropped.jsonl", "errors.jsonl", "mine", "results.jsonl"]
    assert find_defect(folder, Shard(2, 0, 5), frozenset({"f1"})) is None
    writes = [call for call in calls if call[0] == "write"]
    assert writes == [("write", "1", 0, 1), ("write", "2", 1, 2), ("write", "5", 4, 5)]
    assert (calls[0], calls[-1]) == ("open", "close")
    assert [path.name for path in (tmp_path / ".leases").iterdir()] == []


@pytest.mark.parametrize("num_finished", range(6))
@pytest.mark.parametrize(
    "options", [{}, {"batch_size": 2}, {"block_size": 3}], ids=["singly", "batch", "block"]
)
def test_an_attempt_killed_after_any_item_is_taken_over_to_the_same_bytes(
    num_finished: int,
    options: dict[str, int],
    tmp_path: Path,
    calls: list[Any],
    job_of: Callable[..., ShardJob],
) -> None:
    runner = Batched if options else Writing
    whole, resumed = RunPaths(tmp_path / "whole"), RunPaths(tmp_path / "resumed")
    run_shard(job_of(runner, {"calls": []}, paths=whole, **options), task_of(*INDICES))
    interrupted = Attempt(resumed, task_of(*INDICES).shard, "f1")
    journal = JournalWriter(interrupted.folder)
    loop = ItemLoop(job_of(runner, {"calls": []}, **options), task_of(*INDICES), {"calls": []})
    journal.append([entry for entries in loop.run(0) for entry in entries][:num_finished])
    journal.close()
    report = run_shard(job_of(runner, {"calls": calls}, paths=resumed, **options), task_of(*INDICES))
    is_cut = num_finished < len(INDICES)
    num_taken = num_finished - num_finished % options.get("batch_size", 1) if is_cut else num_finished
    assert report.num_resumed == num_taken, "of batches only whole ones"
    handled = [index for call in calls if call[0] == "forward" for index in np.atleast_1d(call[1])]
    assert list(dict.fromkeys(handled)) == list(INDICES[num_taken:])
    assert [call[1] for call in calls if call[0] == "write"] == ["1", "2", "5"]
    for path in whole.shard(0).iterdir():
        if path.name != "done":
            assert (resumed.shard(0) / path.name).read_bytes() == path.read_bytes(), path.name
    assert list(resumed.attempts.iterdir()) == []


class Batched(Writing):
    @staticmethod
    def forward(idx: list[int], calls: list[Any]) -> list[Any]:  # type: ignore[override]
        return [Writing.forward(each, calls) for each in idx]


def test_after_a_killed_attempt_blocks_are_no_more(tmp_path: Path, job_of: Callable[..., ShardJob]) -> None:
    """Whatever killed a block of items kills only the one that it is in next time, and the others are
    saved.
    """
    sizes = []

    def forward(indices: list[int]) -> list[int]:
        sizes.append(len(indices))
        if 3 in indices and len(sizes) < 5:
            raise KeyboardInterrupt
        return indices

    job = job_of(forward, paths=RunPaths(tmp_path), block_size=2)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            run_shard(job, task_of(0, 1, 2, 3, 4))
    assert sizes == [2, 2, 1, 1]
    assert run_shard(job, task_of(0, 1, 2, 3, 4)).num_resumed == 3


def test_a_shard_that_another_process_committed_meanwhile_is_taken_as_it_is(
    tmp_path: Path, calls: list[Any], job_of: Callable[..., ShardJob]
) -> None:
    job = job_of(Writing, {"calls": calls}, paths=RunPaths(tmp_path))
    first = run_shard(job, task_of(*INDICES))
    calls.clear()
    again = run_shard(job, task_of(*INDICES))
    assert calls == []
    assert again.counts == first.counts


def test_a_failure_to_write_leaves_what_was_finished_for_the_next_attempt(
    tmp_path: Path, job_of: Callable[..., ShardJob]
) -> None:
    class Full(BaseRunner):
        @staticmethod
        def forward(idx: int) -> int:
            return idx

        @staticmethod
        def write_record(writers: Any, result: Any, state: Any, **env: Any) -> None:
            if result == 3:
                raise OSError(errno.ENOSPC, "No space left on device")

    paths = RunPaths(tmp_path)
    with pytest.raises(StorageError, match="cannot write"):
        run_shard(job_of(Full, paths=paths), task_of(0, 1, 2, 3, 4))
    report = run_shard(job_of(lambda idx: idx, paths=paths), task_of(0, 1, 2, 3, 4))
    assert report.num_resumed == 3


def test_hooks_are_told_what_they_miss_before_any_item(
    tmp_path: Path, job_of: Callable[..., ShardJob]
) -> None:
    def write_record(writers: Any, result: Any, state: Any, speaker: Any) -> None: ...

    runner = runner_of(
        lambda idx: pytest.fail("an item was handled"), write_record=staticmethod(write_record)
    )
    with pytest.raises(ConfigError, match="needs 'speaker', but the provider's env has nothing"):
        run_shard(job_of(runner, paths=RunPaths(tmp_path)), task_of(0))


def test_journal_entries_of_a_record_keep_its_rows(tmp_path: Path, job_of: Callable[..., ShardJob]) -> None:
    loop = ItemLoop(job_of(Writing), task_of(1), {"calls": []})
    ((entry,),) = loop.run(0)
    assert entry == Entry(0, Status.OK, "1", {"n": 1}, entry.rows, '{"n":1}')
    assert entry.rows["row"].tolist() == [[1 / 3, 1 / 3]]


def test_reason_of_a_dropped_item_outlives_a_kill(job_of: Callable[..., ShardJob], tmp_path: Path) -> None:
    """dropped.jsonl is the same whether the item was dropped by this attempt or by the one before."""

    def forward(idx: int) -> Any:
        if idx == 2 and not is_resumed:
            raise StorageError("killed here")
        return Dropped("silence", -70.5, "min_dbfs -60") if idx == 1 else None if idx == 3 else idx

    is_resumed = False
    job = job_of(forward, paths=RunPaths(tmp_path))
    with pytest.raises(StorageError):
        run_shard(job, task_of(0, 1, 2, 3))
    is_resumed = True
    assert run_shard(job, task_of(0, 1, 2, 3)).num_resumed == 2
    lines = [json.loads(line) for line in (tmp_path / "split.0" / "dropped.jsonl").read_text().splitlines()]
    assert lines == [
        {"utt_id": "1", "index": 1, "step": "silence", "measured": -70.5, "bound": "min_dbfs -60"},
        {"utt_id": "3", "index": 3},
    ]


def test_what_write_record_returns_stands_in_results(job_of: Callable[..., ShardJob], tmp_path: Path) -> None:
    def write_record(writers: Any, result: Any, state: dict[str, Any], **env: Any) -> Any:
        return {"path": f"{state['position']}.npy"} if result else None

    runner = runner_of(lambda idx: idx, write_record=staticmethod(write_record))
    run_shard(job_of(runner, paths=RunPaths(tmp_path)), task_of(0, 1))
    lines = [json.loads(line) for line in (tmp_path / "split.0" / "results.jsonl").read_text().splitlines()]
    assert [line["result"] for line in lines] == [0, {"path": "1.npy"}]


def test_takeover_ends_where_a_file_is_gone(job_of: Callable[..., ShardJob], tmp_path: Path) -> None:
    """What follows is done again, and nothing is written twice."""
    done: list[int] = []

    def forward(idx: int) -> int:
        if idx == 3 and len(done) == 3:
            raise StorageError("killed here")
        done.append(idx)
        return idx

    def has_files(result: Any, state: dict[str, Any]) -> bool:
        assert Path(state["previous_dir"]).is_dir()
        return bool(result != 1)

    job = job_of(runner_of(forward, has_files=staticmethod(has_files)), paths=RunPaths(tmp_path))
    with pytest.raises(StorageError):
        run_shard(job, task_of(0, 1, 2, 3))
    assert run_shard(job, task_of(0, 1, 2, 3)).num_resumed == 1
    assert done == [0, 1, 2, 1, 2, 3]
    lines = (tmp_path / "split.0" / "results.jsonl").read_text().splitlines()
    assert [json.loads(line)["result"] for line in lines] == [0, 1, 2, 3]
