"""BaseRunner: one answer in memory and on disk, at once or resumed; damage is named and repaired."""

import argparse
import contextlib
import json
import logging
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statsprep.engine.plain import plain_config
from statsprep.engine.plan import plan_shards
from statsprep.engine.provider import EnvironmentProvider
from statsprep.engine.runner import BaseRunner
from statsprep.engine.shard import ShardJob, ShardReport, ShardTask, run_shard
from statsprep.errors import (
    ChangedRunError,
    ConfigError,
    DataError,
    RunInUseError,
    StatsprepError,
    WorkerError,
)


@dataclass
class Log:
    """What forward was asked for, and what it should fail at."""

    handled: list[int] = field(default_factory=list)
    bad: set[int] = field(default_factory=set)

    def take(self) -> list[int]:
        handled, self.handled = self.handled, []
        return handled


LOG = Log()


@pytest.fixture(autouse=True)
def log() -> Log:
    LOG.handled, LOG.bad = [], set()
    return LOG


class Provider(EnvironmentProvider):
    def build_env_local(self) -> dict[str, Any]:
        return dict(self.params)


class Squares(BaseRunner):
    @staticmethod
    def forward(idx: int, **env: Any) -> Any:
        LOG.handled.append(idx)
        if idx in LOG.bad:
            raise ValueError(f"bad {idx}")
        return None if idx % 10 == 7 else {"utt_id": f"u{idx}", "square": idx * idx}


def make(
    output_dir: Path | None = None, config: Any = None, runner: type[BaseRunner] = Squares, **options: Any
) -> BaseRunner:
    if output_dir is not None:
        options.setdefault("shard_size", 10)
    return runner(
        Provider(config if config is not None else {"n_mels": 80}), output_dir=output_dir, **options
    )


def results(root: Path) -> list[Any]:
    return [json.loads(line)["result"] for line in (root / "results.jsonl").read_text().splitlines()]


def merged(root: Path) -> dict[str, bytes]:
    """The bytes of all merged files."""
    names = ["merged.json", *json.loads((root / "merged.json").read_text())["files"]]
    return {name: (root / name).read_bytes() for name in names}


# In memory


def test_without_output_dir_results_come_back_in_index_order_without_dropped_ones() -> None:
    runner = make()
    found = runner([5, 7, 1, 5])
    assert [each["square"] for each in found] == [25, 1, 25]
    assert runner.report is not None
    assert runner.report.counts == {"ok": 3, "dropped": 1, "error": 0}
    assert runner.report.dropped_ids == ["7"]
    assert runner.report.failed_ids == []


@given(
    indices=st.lists(st.integers(-50, 10_000), max_size=80),
    size=st.integers(1, 9),
    batch=st.none() | st.integers(1, 5),
)
@settings(max_examples=40, deadline=None)
def test_any_indices_shards_and_batches_give_the_plain_loops_list(
    indices: list[int], size: int, batch: int | None
) -> None:
    runner = make(runner=Batched if batch else Squares, shard_size=size, batch_size=batch)
    expected = [result for index in indices if (result := Squares.forward(index)) is not None]
    assert runner(indices) == expected


class Batched(BaseRunner):
    @staticmethod
    def forward(idx: list[int], **env: Any) -> list[Any]:
        return [Squares.forward(each) for each in idx]


def test_nothing_to_do_is_an_empty_list(log: Log) -> None:
    assert make()([]) == []
    assert make()(range(0)) == []
    assert log.handled == []


def test_the_first_failure_stops_and_names_the_utterance(log: Log) -> None:
    log.bad = {3}
    with pytest.raises(DataError, match=r"utterance '3' \(index 3\): ValueError: bad 3; mend or remove it"):
        make()(range(9))
    assert log.handled == [0, 1, 2, 3]


def test_skipped_failures_are_reported_within_the_limit(log: Log) -> None:
    log.bad = {3}
    runner = make(on_error="skip", max_errors=1)
    assert len(runner(range(7))) == 6
    assert runner.report is not None
    assert runner.report.failed_ids == ["3"]
    log.bad = {3, 4}
    with pytest.raises(DataError, match="2 utterances failed, at most 1 may") as caught:
        runner(range(7))
    assert "3: exception: ValueError: bad 3" in caught.value.detail


def test_keyed_by_tells_positions_from_ids() -> None:
    class Plain(BaseRunner):
        @staticmethod
        def forward(idx: int) -> int:
            return idx

    for kind, expected in ((Plain, "position"), (Squares, "utt_id")):
        runner = make(runner=kind)
        runner(range(3))
        assert runner.report is not None
        assert runner.report.keyed_by == expected


def test_a_runner_without_forward_says_what_to_write() -> None:
    with pytest.raises(ConfigError, match="the runner has no forward; write"):
        make(runner=BaseRunner)(range(1))


def test_env_entries_reach_forward_by_name() -> None:
    class Named(BaseRunner):
        @staticmethod
        def forward(idx: int, *, offset: int, scale: int = 2) -> int:
            return offset + scale * idx

    assert Named(Provider(None, params={"offset": 5, "unused": 0}))(range(3)) == [5, 7, 9]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size: got 0; expected a positive number"),
        ({"on_error": "ignore"}, "on_error: got 'ignore'; expected 'raise' or 'skip'"),
        ({"max_errors": "some"}, "max_errors: got 'some'; expected a count such as 20 or a share such as 1%"),
        ({"max_errors": -1}, "max_errors: got -1; expected"),
    ],
)
def test_options_out_of_range_are_refused_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make(**options)


def test_running_into_files_needs_a_folder() -> None:
    with pytest.raises(ConfigError, match="output_dir: missing"):
        make().run(range(3))


# On disk


def test_files_hold_what_the_list_holds(weird_tmp_path: Path) -> None:
    report = make(weird_tmp_path)(range(35))
    assert results(weird_tmp_path) == make()(range(35))
    assert report.counts == {"ok": 32, "dropped": 3, "error": 0}
    assert report.dropped_ids == ["7", "17", "27"]
    assert [path.name for path in report.shard_dirs] == ["split.0", "split.1", "split.2", "split.3"]
    assert not [path for path in weird_tmp_path.iterdir() if path.name.startswith(".")]


def test_merged_bytes_depend_on_neither_folder_nor_time_nor_shards(tmp_path: Path) -> None:
    make(tmp_path / "a")(range(35))
    make(tmp_path / "b", shard_subdir="train")(range(35))
    assert merged(tmp_path / "a") == merged(tmp_path / "b" / "train")
    make(tmp_path / "c", shard_size=4)(range(35))
    assert (tmp_path / "a" / "results.jsonl").read_bytes() == (tmp_path / "c" / "results.jsonl").read_bytes()


def test_any_list_of_indices_is_run_and_resumed(tmp_path: Path, log: Log) -> None:
    indices = [40, 3, 3, -2, 11] * 5
    make(tmp_path)(indices)
    assert [each["square"] for each in results(tmp_path)] == [index * index for index in indices]
    assert np.load(tmp_path / "indices.npy").tolist() == indices
    log.take()
    make(tmp_path)(np.array(indices))
    assert log.handled == []
    with pytest.raises(ChangedRunError, match="another data"):
        make(tmp_path)(indices[::-1])


def test_an_empty_range_makes_empty_files(tmp_path: Path) -> None:
    report = make(tmp_path)(range(0))
    assert report.num_items == 0
    assert results(tmp_path) == []


def test_the_same_run_again_handles_nothing_and_changes_no_file(tmp_path: Path, log: Log) -> None:
    make(tmp_path)(range(35))
    times = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    log.take()
    report = make(tmp_path)(range(35))
    assert log.handled == []
    assert report.num_skipped == 35
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()} == times


def test_a_run_that_stopped_goes_on_at_the_next_item(tmp_path: Path, log: Log) -> None:
    """The failed item's shard keeps what it finished, and every item is handled once."""
    log.bad = {23}
    with pytest.raises(DataError, match="bad 23"):
        make(tmp_path)(range(35))
    assert log.take() == list(range(24))
    log.bad = set()
    report = make(tmp_path)(range(35))
    assert log.take() == list(range(23, 35))
    assert report.num_skipped == 20
    make(tmp_path / "undisturbed")(range(35))
    assert merged(tmp_path) == merged(tmp_path / "undisturbed")


@given(cuts=st.lists(st.integers(0, 44), max_size=5))
@settings(max_examples=25, deadline=None)
def test_any_pattern_of_interruptions_gives_the_same_bytes(
    cuts: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("cuts")
    handled = []
    for cut in cuts:
        LOG.bad = {cut}
        with contextlib.suppress(DataError):
            make(folder / "run")(range(45))
        handled += [index for index in LOG.take() if index != cut]
    LOG.bad = set()
    make(folder / "run")(range(45))
    handled += LOG.take()
    undisturbed = tmp_path_factory.getbasetemp() / "undisturbed45"
    make(undisturbed)(range(45))
    LOG.take()
    assert merged(folder / "run") == merged(undisturbed)
    assert sorted(set(handled)) == list(range(45))
    assert len(handled) - len(set(handled)) <= len(cuts)


def damage_cut(shard: Path) -> None:
    path = shard / "results.jsonl"
    path.write_bytes(path.read_bytes()[:-3])


def damage_bits(shard: Path) -> None:
    path = shard / "results.jsonl"
    path.write_bytes(path.read_bytes().replace(b"square", b"sqaure"))


def damage_lost(shard: Path) -> None:
    (shard / "results.jsonl").unlink()


def damage_done(shard: Path) -> None:
    (shard / "done").unlink()


def damage_emptied(shard: Path) -> None:
    (shard / "done").write_text("")


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (damage_cut, r"results.jsonl holds \d+ bytes, \d+ were committed"),
        (damage_bits, "results.jsonl has other content than was committed"),
        (damage_lost, "results.jsonl is missing"),
        (damage_done, "done is missing or damaged"),
        (damage_emptied, "done is missing or damaged"),
        (shutil.rmtree, None),
    ],
)
def test_a_damaged_shard_is_named_and_measured_again(
    damage: Callable[[Path], None],
    text: str | None,
    tmp_path: Path,
    log: Log,
    caplog: pytest.LogCaptureFixture,
) -> None:
    make(tmp_path)(range(35))
    before = merged(tmp_path)
    damage(tmp_path / "split.1")
    log.take()
    with caplog.at_level(logging.WARNING):
        make(tmp_path)(range(35))
    assert log.handled == list(range(10, 20))
    assert merged(tmp_path) == before
    messages = [record.getMessage() for record in caplog.records]
    if text is None:
        assert not any("split.1" in message for message in messages)
    else:
        assert re.fullmatch(f"{tmp_path}/split.1: {text}; measuring this shard again", messages[0])


def test_a_damaged_merged_file_is_made_again_from_the_shards(
    tmp_path: Path, log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    make(tmp_path)(range(35))
    before = merged(tmp_path)
    (tmp_path / "results.jsonl").write_text("")
    log.take()
    make(tmp_path)(range(35))
    assert log.handled == []
    assert merged(tmp_path) == before
    assert "results.jsonl holds 0 bytes" in caplog.text


def test_a_stray_shard_is_named_and_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make(tmp_path)(range(35))
    before = merged(tmp_path)
    shutil.copytree(tmp_path / "split.1", tmp_path / "split.99")
    (tmp_path / "merged.json").unlink()
    make(tmp_path)(range(35))
    assert merged(tmp_path) == before
    assert "'split.99' not in the plan of 4 shards; left out" in caplog.text
    assert (tmp_path / "split.99").is_dir()


def test_a_shard_under_another_shards_name_is_not_trusted(tmp_path: Path, log: Log) -> None:
    make(tmp_path)(range(35))
    before = merged(tmp_path)
    shutil.rmtree(tmp_path / "split.1")
    shutil.copytree(tmp_path / "split.2", tmp_path / "split.1")
    log.take()
    make(tmp_path)(range(35))
    assert log.handled == list(range(10, 20))
    assert merged(tmp_path) == before


def test_too_many_failures_end_with_an_error_after_everything_is_merged(tmp_path: Path, log: Log) -> None:
    log.bad = {1, 12, 33}
    with pytest.raises(
        DataError, match=r"errors\.jsonl: 3 utterances failed, at most 2 may \(max_errors\)"
    ) as caught:
        make(tmp_path, on_error="skip", max_errors=2)(range(35))
    assert "1: exception: ValueError: bad 1" in caught.value.detail
    assert "by kind: 3 exception" in caught.value.detail
    assert len(results(tmp_path)) == 35 - 3 - 3
    report = make(tmp_path, on_error="skip", max_errors="9%")(range(35))
    assert report.failed_ids == ["1", "12", "33"]


def test_a_run_in_which_most_fails_stops_early(tmp_path: Path, log: Log) -> None:
    log.bad = set(range(100))
    with pytest.raises(DataError, match="stopped: 10 of the first 10 utterances failed, at most 1 may"):
        make(tmp_path, on_error="skip")(range(100))
    assert log.handled == list(range(10))


def test_retry_errors_measures_the_shards_that_hold_failures(tmp_path: Path, log: Log) -> None:
    log.bad = {12}
    runner = make(tmp_path, on_error="skip", max_errors=1)
    runner.run(range(35))
    log.bad = set()
    log.take()
    runner.run(range(35))
    assert log.take() == []
    report = runner.run(range(35), retry_errors=True)
    assert log.take() == list(range(10, 20))
    assert report.num_failed == 0
    make(tmp_path / "undisturbed", on_error="skip")(range(35))
    assert (tmp_path / "results.jsonl").read_bytes() == (
        tmp_path / "undisturbed" / "results.jsonl"
    ).read_bytes()


def test_without_resume_everything_is_measured_anew(tmp_path: Path, log: Log) -> None:
    make(tmp_path)(range(35))
    (tmp_path / "mine.txt").write_text("keep")
    log.take()
    make(tmp_path, resume=False, config={"n_mels": 40})(range(35))
    assert log.handled == list(range(35))
    assert (tmp_path / "mine.txt").read_text() == "keep"


def test_another_config_is_refused_with_the_difference_before_anything_runs(tmp_path: Path, log: Log) -> None:
    make(tmp_path, config={"model": {"frontend": {"n_mels": 80}}})(range(35))
    before = merged(tmp_path)
    log.take()
    with pytest.raises(ChangedRunError) as caught:
        make(tmp_path, config={"model": {"frontend": {"n_mels": 40}}})(range(35))
    assert caught.value.detail == "  model.frontend.n_mels: 80 -> 40"
    assert log.handled == []
    assert merged(tmp_path) == before


@pytest.mark.parametrize("key", ["parallel", "stats_dir", "exp_dir", "output_dir", "log_level"])
def test_where_and_how_a_run_works_is_not_in_its_fingerprint(key: str, tmp_path: Path, log: Log) -> None:
    make(tmp_path, config={"n": 1, key: "a"})(range(20))
    log.take()
    make(tmp_path, config={"n": 1, key: "b"}, max_errors=3)(range(20))
    assert log.handled == []


def test_ignored_keys_may_change(tmp_path: Path, log: Log) -> None:
    make(tmp_path, config={"m": {"depth": 1, "n": 1}, "fingerprint": {"ignore": ["m.depth"]}})(range(20))
    log.take()
    make(tmp_path, config={"m": {"depth": 2, "n": 1}, "fingerprint": {"ignore": ["m.depth"]}})(range(20))
    assert log.handled == []


def test_accepted_changes_keep_the_finished_shards(tmp_path: Path, log: Log) -> None:
    log.bad = {23}
    with pytest.raises(DataError):
        make(tmp_path, config={"a": 1})(range(35))
    log.bad = set()
    log.take()
    make(tmp_path, config={"a": 2}).run(range(35), accept=["a"])
    assert log.handled == list(range(20, 35))
    assert json.loads((tmp_path / "manifest.json").read_text())["lineage"][0]["changes"] == ["a: 1 -> 2"]


def test_an_accepted_shard_size_loses_and_doubles_nothing(tmp_path: Path, log: Log) -> None:
    """split.1 of the new plan would hold as many items as split.1 of the old one, and other ones."""
    make(tmp_path, shard_size=10)(range(30))
    shutil.rmtree(tmp_path / "split.2")
    make(tmp_path, shard_size=20).run(range(30), accept=["options.shard_size"])
    assert results(tmp_path) == make()(range(30))


def test_what_a_provider_adds_to_the_fingerprint_counts(tmp_path: Path, log: Log) -> None:
    class Lexicon(Provider):
        def fingerprint(self) -> dict[str, Any]:
            return {"lexicon": self.config["lexicon"], "langs": ("en", "fr"), "size": np.int64(3)}

    def run(lexicon: str) -> None:
        provider = Lexicon({"lexicon": lexicon, "fingerprint": {"ignore": ["lexicon"]}})
        Squares(provider, output_dir=tmp_path, shard_size=10)(range(20))

    run("v1")
    log.take()
    run("v1")
    assert log.handled == []
    with pytest.raises(ChangedRunError) as caught:
        run("v2")
    assert caught.value.detail == "  data.lexicon: v1 -> v2"


@dataclass
class Options:
    depth: int


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (np.int64(80), np.int64(40)),
        (np.float32(0.5), np.float32(0.25)),
        (np.array([1, 2]), np.array([1, 3])),
        ((1, 2), (1, 3)),
        (Path("a"), Path("b")),
        (range(3), range(4)),
        ({1, 2}, {1, 3}),
        (Options(1), Options(2)),
        (argparse.Namespace(a=[1]), argparse.Namespace(a=[2])),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_of_any_plain_kind_in_a_config_count(old: Any, new: Any, tmp_path: Path, log: Log) -> None:
    make(tmp_path, config={"x": old})(range(20))
    log.take()
    make(tmp_path, config={"x": old})(range(20))
    assert log.handled == []
    with pytest.raises(ChangedRunError):
        make(tmp_path, config={"x": new})(range(20))


def test_a_config_of_omegaconf_is_its_resolved_values() -> None:
    from omegaconf import OmegaConf

    config = OmegaConf.create({"a": 1, "b": "${a}", "c": [1, {"d": None}]})
    assert plain_config(config) == {"a": 1, "b": 1, "c": [1, {"d": None}]}
    assert plain_config({"object": object()}) == {"object": "<builtins:object>"}


def test_params_count_except_where_output_goes(tmp_path: Path, log: Log) -> None:
    def run(**params: Any) -> None:
        Squares(Provider({}, params=params), output_dir=tmp_path, shard_size=10)(range(20))

    run(scale=2, output_dir="a", tag=("x", 1))
    log.take()
    run(scale=2, output_dir="b", tag=("x", 1))
    assert log.handled == []
    with pytest.raises(ChangedRunError) as caught:
        run(scale=3, output_dir="b", tag=("x", 1))
    assert "params.scale: 2 -> 3" in caught.value.detail


def test_a_second_run_in_a_live_run_directory_is_refused(tmp_path: Path) -> None:
    class Nested(BaseRunner):
        @staticmethod
        def forward(idx: int, output: str) -> int:
            with pytest.raises(RunInUseError, match="works in this run directory"):
                make(Path(output))(range(3))
            return idx

    Nested(Provider(None, params={"output": str(tmp_path)}), output_dir=tmp_path)(range(1))


class Merging(BaseRunner):
    """Counts in files of its own."""

    @staticmethod
    def forward(idx: int) -> int:
        if idx in LOG.bad:
            raise ValueError("bad")
        return idx

    @staticmethod
    def open_writers(shard_dir: Path, **env: Any) -> dict[str, Any]:
        return {"sum": open(shard_dir / "numbers", "w")}

    @staticmethod
    def write_record(writers: dict[str, Any], result: Any, state: dict[str, Any], **env: Any) -> None:
        writers["sum"].write(f"{result}\n")

    @staticmethod
    def merge_files(shard_dirs: Sequence[Path], out_dir: Path) -> None:
        (out_dir / "numbers").write_text("".join((folder / "numbers").read_text() for folder in shard_dirs))

    def merge(self, shard_dirs: Sequence[Path]) -> int:
        assert self.output_dir is not None
        return sum(map(int, (self.output_dir / "numbers").read_text().split()))


def test_what_merge_returns_is_what_the_call_returns(tmp_path: Path, log: Log) -> None:
    log.bad = {25}
    with pytest.raises(DataError):
        make(tmp_path, runner=Merging)(range(30))
    log.bad = set()
    assert make(tmp_path, runner=Merging)(range(30)) == sum(range(30))
    assert make(tmp_path, runner=Merging)(range(30)) == sum(range(30))


class Failing:
    """An executor whose workers are gone after the first shard."""

    in_process = True
    num_workers = 1

    def __enter__(self) -> "Failing":
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def run(self, job: ShardJob, tasks: Iterable[ShardTask]) -> Iterator[ShardReport]:
        for task in tasks:
            yield run_shard(job, task)
            raise WorkerError("all workers are gone")


@dataclass
class Observed:
    seen: list[Any] = field(default_factory=list)

    def begin(self, label: str, num_items: int, num_done: int) -> None:
        self.seen.append(("begin", label, num_items, num_done))

    def advance(self, report: ShardReport) -> None:
        self.seen.append(("shard", report.shard_id, report.num_items))

    def end(self) -> None:
        self.seen.append("end")


def test_lost_workers_leave_the_lease_free_and_the_finished_shards(tmp_path: Path, log: Log) -> None:
    observed = Observed()
    with pytest.raises(WorkerError, match="all workers are gone"):
        make(tmp_path).run(range(35), executor=Failing(), observer=observed)
    assert observed.seen == [("begin", tmp_path.name, 35, 0), ("shard", 0, 10), "end"]
    log.take()
    observed.seen.clear()
    make(tmp_path).run(range(35), observer=observed)
    assert log.handled == list(range(10, 35))
    assert observed.seen[0] == ("begin", tmp_path.name, 35, 10)


def test_the_plan_of_a_run_is_in_its_manifest(tmp_path: Path) -> None:
    make(tmp_path, shard_size=7, batch_size=3, runner=Batched)(range(20))
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["shards"] == [[0, 9], [9, 18], [18, 20]]
    assert manifest["shards"] == [[s.start, s.stop] for s in plan_shards(20, shard_size=7, multiple_of=3)]
    assert manifest["config"] == {"n_mels": 80}
    assert manifest["runner"].endswith(":Batched")


def test_a_damaged_manifest_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    make(tmp_path)(range(35))
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(StatsprepError, match="choose another stats_dir, or --overwrite"):
        make(tmp_path)(range(35))
