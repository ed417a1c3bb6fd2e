"""The merge: a pure function of the committed shards, which can be killed at any moment and runs again."""

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from statsprep.engine import merge
from statsprep.engine.manifest import read_manifest
from statsprep.engine.merge import concatenate, merge_run, read_receipt
from statsprep.engine.provider import EnvironmentProvider
from statsprep.engine.runner import BaseRunner
from statsprep.engine.status import read_status
from statsprep.engine.verify import find_problems
from statsprep.errors import WorkerError
from statsprep.storage.paths import RunPaths


class Provider(EnvironmentProvider):
    def build_env_local(self) -> dict[str, Any]:
        return {}


class Measure(BaseRunner):
    @staticmethod
    def forward(idx: int) -> int | None:
        if idx == 13:
            raise ValueError("thirteen")
        return None if idx == 7 else idx

    @staticmethod
    def merge_files(shard_dirs: Sequence[Path], out_dir: Path) -> None:
        (out_dir / "sub").mkdir()
        concatenate(shard_dirs, "results.jsonl", out_dir / "sub" / "copy.jsonl")


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    """A finished run of four shards."""
    root = tmp_path / "exp"
    Measure(Provider({}), output_dir=root, shard_size=10, on_error="skip", max_errors=1)(range(40))
    return RunPaths(root)


def merge_again(paths: RunPaths) -> merge.Receipt:
    return merge_run(paths, read_manifest(paths), Measure)


def bytes_of(paths: RunPaths) -> dict[str, bytes]:
    receipt = read_receipt(paths)
    assert receipt is not None
    return {name: (paths.root / name).read_bytes() for name in (*receipt.files, "merged.json")}


def test_the_receipt_says_what_was_merged_from_what(paths: RunPaths) -> None:
    receipt = read_receipt(paths)
    assert receipt is not None
    assert receipt.counts == {"ok": 38, "dropped": 1, "error": 1}
    assert sorted(receipt.files) == ["dropped.jsonl", "errors.jsonl", "results.jsonl", "sub/copy.jsonl"]
    assert receipt.num_shards == 4
    assert receipt.keyed_by == "position"


def test_merging_what_is_merged_writes_nothing(paths: RunPaths) -> None:
    before = paths.receipt.stat().st_mtime_ns
    merge_again(paths)
    assert paths.receipt.stat().st_mtime_ns == before


@pytest.mark.parametrize("name", ["results.jsonl", "sub/copy.jsonl", "merged.json", "errors.jsonl"])
def test_a_lost_file_is_merged_again_to_the_same_bytes(name: str, paths: RunPaths) -> None:
    before = bytes_of(paths)
    (paths.root / name).unlink()
    merge_again(paths)
    assert bytes_of(paths) == before


@pytest.mark.parametrize("num_replaced", range(5))
def test_a_merge_killed_at_any_file_is_repaired_by_the_next(
    num_replaced: int, paths: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = bytes_of(paths)
    (paths.root / "results.jsonl").write_text("old")
    replace, count = os.replace, 0

    def killed(source: Any, target: Any) -> None:
        nonlocal count
        count += 1
        if count > num_replaced:
            raise KeyboardInterrupt
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed)
        # A killed process cleans nothing up.
        patch.setattr(shutil, "rmtree", lambda *args, **kwargs: None)
        with pytest.raises(KeyboardInterrupt):
            merge_again(paths)
    assert read_receipt(paths) is None, "a half-replaced set of files has no receipt"
    assert read_status(paths).state == "unmerged"
    merge_again(paths)
    assert bytes_of(paths) == before
    assert paths.stagings() == []


def test_missing_and_damaged_shards_are_named_and_nothing_is_written(paths: RunPaths) -> None:
    before = bytes_of(paths)
    shutil.rmtree(paths.shard(1))
    (paths.shard(3) / "results.jsonl").write_text("")
    with pytest.raises(WorkerError) as caught:
        merge_again(paths)
    message = str(caught.value)
    assert message.startswith(
        f"{paths.root}: cannot merge 2 of 4 shards: 'split.1 (not finished)', 'split.3 (results.jsonl holds 0"
    )
    assert message.endswith("; run the same command again to measure them")
    assert bytes_of(paths) == before


def test_a_stray_shard_is_left_out_of_the_merge(paths: RunPaths, caplog: pytest.LogCaptureFixture) -> None:
    before = bytes_of(paths)
    shutil.copytree(paths.shard(1), paths.shard(99))
    paths.receipt.unlink()
    merge_again(paths)
    assert bytes_of(paths) == before
    assert "'split.99' not in the plan of 4 shards; left out" in caplog.text


def test_a_file_that_no_shard_has_any_more_disappears(paths: RunPaths) -> None:
    receipt = json.loads(paths.receipt.read_text())
    receipt["files"]["old_shape"] = {"bytes": 1, "sha256": ""}
    receipt["inputs"] = "of other shards"
    paths.receipt.write_text(json.dumps(receipt))
    (paths.root / "old_shape").write_text("x")
    (paths.root / "notes.md").write_text("mine")
    merge_again(paths)
    assert not (paths.root / "old_shape").exists()
    assert (paths.root / "notes.md").exists()


# What a run directory says of itself


def test_status_of_a_merged_run(paths: RunPaths) -> None:
    status = read_status(paths)
    assert (status.state, status.num_finished, status.num_shards_finished) == ("merged", 40, 4)
    assert status.failures == {"exception": 1}
    assert status.keyed_by == "position"
    assert status.next_command == f"statsprep inspect {paths.root}"
    assert json.loads(json.dumps(status.to_json()))["num_items"] == 40


def test_status_counts_what_unfinished_attempts_hold(tmp_path: Path) -> None:
    class Stopping(Measure):
        @staticmethod
        def forward(idx: int) -> int:
            if idx == 25:
                raise KeyboardInterrupt
            return idx

    with pytest.raises(KeyboardInterrupt):
        Stopping(Provider({}), output_dir=tmp_path, shard_size=10)(range(40))
    status = read_status(RunPaths(tmp_path))
    assert (status.state, status.num_finished, status.num_in_attempts) == ("unfinished", 20, 5)
    assert (status.num_shards_finished, status.num_shards) == (2, 4)


def test_status_names_damage_and_strays(paths: RunPaths) -> None:
    (paths.shard(2) / "done").write_text("")
    shutil.copytree(paths.shard(1), paths.shard(7))
    status = read_status(paths)
    assert (status.state, status.damaged, status.strays) == ("unfinished", ["split.2"], ["split.7"])


def test_a_whole_run_has_no_problems(paths: RunPaths) -> None:
    assert find_problems(paths) == []


def test_verify_tells_every_problem(paths: RunPaths) -> None:
    shutil.rmtree(paths.shard(0))
    (paths.shard(1) / "results.jsonl").write_text("")
    shutil.copytree(paths.shard(2), paths.shard(7))
    (paths.root / "errors.jsonl").write_text("")
    problems = find_problems(paths)
    assert [problem.partition(":")[0] for problem in problems] == [
        "split.0", "split.1", "split.7", "merged file errors.jsonl holds 0 bytes, "
        + problems[-1].partition("bytes, ")[2]
    ]  # fmt: skip
    assert problems[:3] == [
        "split.0: not finished",
        f"split.1: {problems[1].partition(': ')[2]}",
        "split.7: not in the plan",
    ]
    paths.receipt.unlink()
    assert find_problems(paths)[-1] == "not merged"
