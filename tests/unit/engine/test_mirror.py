"""Runs on a store: committed by a `done` that only one attempt makes, worked on in a mirror."""

import dataclasses
import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import fsspec
import pytest

from statsprep.engine.attempt import parse_done, read_done
from statsprep.engine.mirror import copy_for_reading, fetch_input, on_this_machine, publish_shard
from statsprep.engine.provider import EnvironmentProvider
from statsprep.engine.report import RunReport
from statsprep.engine.runner import BaseRunner
from statsprep.engine.status import read_status
from statsprep.engine.verify import find_problems
from statsprep.errors import ChangedRunError, ConfigError, DataError, WorkerError
from statsprep.storage.paths import RunPaths, find_run_dirs
from statsprep.storage.stores import Store

URL = "memory://bucket/exp"


@pytest.fixture(autouse=True)
def own_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    yield
    fsspec.filesystem("memory").store.clear()


class Provider(EnvironmentProvider):
    def build_env_local(self) -> dict[str, Any]:
        return {"factor": self.config["factor"], "seen": self.params.get("seen", [])}


class Runner(BaseRunner):
    """Multiplies; drops every seventh."""

    @staticmethod
    def forward(idx: int, *, factor: int, seen: list[int]) -> Any:
        seen.append(idx)
        return {"x": idx * factor} if idx % 7 else None

    @staticmethod
    def write_record(writers: dict[str, Any], result: Any, state: dict[str, Any], **env: Any) -> None:
        folder = Path(state["shard_dir"]) / "large"
        folder.mkdir(exist_ok=True)
        (folder / f"{state['position']}.txt").write_text(str(result["x"]))
        (Path(state["shard_dir"]) / "feats.ark").write_text("large as well")


def run(factor: int = 2, url: str = URL, seen: list[int] | None = None, **options: Any) -> RunReport:
    provider = Provider({"factor": factor}, params={"seen": [] if seen is None else seen})
    runner = Runner(provider, output_dir=url, shard_subdir="train", shard_size=20)
    return runner.run(range(60), **options)


def store() -> Store:
    return Store(f"{URL}/train")


def merged() -> dict[str, bytes]:
    return {
        name: content
        for name, content in store().read_many(store().sizes()).items()
        if "/" not in name and name != "manifest.json"
    }


def lose_mirror(report: RunReport) -> None:
    """As on another machine."""
    assert report.paths is not None
    shutil.rmtree(report.paths.root.parent)


def test_a_run_on_a_store_gives_the_bytes_of_a_local_one(tmp_path: Path) -> None:
    run()
    run(url=str(tmp_path / "local"))
    local = {
        path.name: path.read_bytes()
        for path in (tmp_path / "local" / "train").iterdir()
        if path.is_file() and path.name != "manifest.json"
    }
    assert merged() == local
    names = store().sizes()
    attempt = parse_done(store().read("split.1/done"))
    assert attempt is not None
    assert f"split.1/{attempt.attempt}/large/0.txt" in names
    assert not [name for name in names if name.startswith(".")]


def test_a_second_run_has_nothing_to_do(tmp_path: Path) -> None:
    lose_mirror(run())
    seen: list[int] = []
    before = store().read_many(store().sizes())
    report = run(seen=seen)
    assert seen == []
    assert report.num_skipped == 60
    assert store().read_many(store().sizes()) == before


def test_large_files_of_other_machines_are_not_downloaded(tmp_path: Path) -> None:
    lose_mirror(run())
    store().remove(["merged.json", "results.jsonl"])
    report = run()
    assert report.paths is not None
    assert (report.paths.shard(1) / "results.jsonl").exists()
    assert not (report.paths.shard(1) / "large").exists()
    assert not (report.paths.shard(1) / "feats.ark").exists()
    assert "results.jsonl" in merged()


def test_a_shard_committed_here_but_not_there_is_published(tmp_path: Path) -> None:
    """A kill between the two."""
    whole = run()
    before = merged()
    assert whole.paths is not None
    store().remove([name for name in store().sizes() if name.startswith("split.2/") or name == "merged.json"])
    seen: list[int] = []
    run(seen=seen)
    assert seen == []
    assert merged() == before


@pytest.mark.parametrize("damage", ["lost", "short", "done", "other run"])
def test_a_bad_shard_is_measured_again(damage: str, caplog: pytest.LogCaptureFixture) -> None:
    lose_mirror(run())
    before = merged()
    done = parse_done(store().read("split.2/done"))
    assert done is not None
    name = f"split.2/{done.attempt}/results.jsonl"
    if damage == "lost":
        store().remove([name])
    elif damage == "short":
        store().put(name, b"{}")
    elif damage == "done":
        store().put("split.2/done", b"{")
    else:
        other = dataclasses.asdict(done) | {"fingerprint": "0" * 64}
        store().put("split.2/done", json.dumps(other).encode())
    seen: list[int] = []
    run(seen=seen)
    assert seen == list(range(40, 60))
    assert "split.2" in caplog.text
    assert merged() == before


def test_content_that_changed_in_place_is_seen_by_the_merge() -> None:
    lose_mirror(run())
    before = merged()
    done = parse_done(store().read("split.2/done"))
    assert done is not None
    name = f"split.2/{done.attempt}/results.jsonl"
    content = store().read(name)
    assert content is not None
    store().put(name, content[::-1])
    store().remove(["merged.json"])
    with pytest.raises(WorkerError, match=r"cannot merge 1 of 3 shards: .split\.2"):
        run()
    run()
    assert merged() == before


def test_a_change_stops_the_run_and_overwrite_starts_anew() -> None:
    run()
    before = merged()
    with pytest.raises(ChangedRunError, match="memory://bucket/exp/train: holds results of another config"):
        run(factor=3)
    assert merged() == before
    assert run(factor=3, overwrite=True).num_skipped == 0
    changed = merged()
    assert changed["results.jsonl"] != before["results.jsonl"]
    run(factor=2, overwrite=True)
    assert merged() == before


def test_the_loser_of_a_race_discards_itself() -> None:
    report = run()
    paths = report.paths
    assert paths is not None
    winner = read_done(paths.shard(1))
    assert winner is not None
    trusted = frozenset({winner.fingerprint})
    folder = paths.shard(1)
    loser = dataclasses.replace(winner, attempt="late")
    (folder / "done").write_text(json.dumps(dataclasses.asdict(loser)))
    assert publish_shard(paths, 1, trusted) == winner
    assert not folder.exists()
    assert not [name for name in store().sizes() if "/late/" in name]
    assert parse_done(store().read("split.1/done")) == winner


def test_a_done_of_another_run_does_not_win() -> None:
    report = run()
    paths = report.paths
    assert paths is not None
    mine = read_done(paths.shard(1))
    assert mine is not None
    other = dataclasses.replace(mine, attempt="old", fingerprint="0" * 64)
    store().put("split.1/done", json.dumps(dataclasses.asdict(other)).encode())
    assert publish_shard(paths, 1, frozenset({mine.fingerprint})) == mine
    assert parse_done(store().read("split.1/done")) == mine


def test_a_worker_elsewhere_has_a_folder_of_its_own(tmp_path: Path) -> None:
    report = run()
    assert report.paths is not None
    assert on_this_machine(report.paths) == report.paths
    elsewhere = dataclasses.replace(report.paths, mirror_token="another driver's")
    own = on_this_machine(elsewhere)
    assert own.root != report.paths.root
    assert own.root.name == "train"
    store().put("index.arrow", b"index")
    assert fetch_input(elsewhere, elsewhere.index).read_bytes() == b"index"
    assert fetch_input(elsewhere, elsewhere.index) == own.index
    store().remove(["token_list"])
    with pytest.raises(DataError, match="token_list: is gone"):
        fetch_input(elsewhere, elsewhere.root / "token_list")


def test_commands_read_a_copy() -> None:
    lose_mirror(run())
    (found,) = find_run_dirs(URL)
    assert found == RunPaths.at(URL, "train")
    status = read_status(copy_for_reading(found))
    assert (status.state, status.num_finished, status.run_dir) == ("merged", 60, f"{URL}/train")
    assert find_problems(copy_for_reading(found, contents=True)) == []
    done = parse_done(store().read("split.0/done"))
    assert done is not None
    store().put(f"split.0/{done.attempt}/large/1.txt", b"?")
    assert find_problems(copy_for_reading(found, contents=True))[0].startswith(
        "split.0: large/1.txt has other"
    )
    with pytest.raises(ConfigError, match=r"memory://bucket/nothing: holds no manifest\.json"):
        find_run_dirs("memory://bucket/nothing")


def test_memory_is_not_shared_with_workers() -> None:
    class Elsewhere:
        in_process = False
        num_workers = 1

        def run(self, job: Any, tasks: Sequence[Any]) -> Iterator[Any]:
            yield from ()

    with pytest.raises(ConfigError, match="cannot see this one's memory"):
        run(executor=Elsewhere())


@pytest.mark.parametrize("change", [{"attempt": "../../letter"}, {"attempt": ""}, {"files": {"../x": None}}])
def test_a_hostile_done_on_a_store_leads_nowhere(change: dict[str, Any]) -> None:
    """Nothing beside the run is read, copied or removed; the shard is measured again."""
    report = run()
    before = merged()
    fsspec.filesystem("memory").pipe_file("/bucket/letter", b"precious")
    content = json.loads(store().read("split.1/done") or b"")
    described = next(iter(content["files"].values()))
    if "files" in change:
        change = {"files": content["files"] | dict.fromkeys(change["files"], described)}
    store().put("split.1/done", json.dumps(content | change).encode())
    store().remove(["merged.json"])
    lose_mirror(report)
    (paths,) = find_run_dirs(URL)
    copied = copy_for_reading(paths, contents=True)
    assert read_status(copied).damaged == ["split.1"]
    seen: list[int] = []
    run(seen=seen)
    assert seen == list(range(20, 40))
    assert merged() == before
    assert fsspec.filesystem("memory").cat_file("/bucket/letter") == b"precious"
