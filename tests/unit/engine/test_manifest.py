"""Opening a run: go on with the same thing, refuse another with a readable difference, remove only what runs
make.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from statsprep.engine.fingerprint import digest_of
from statsprep.engine.manifest import LAYOUT, Manifest, check_run_dir, open_run, read_manifest
from statsprep.errors import ChangedRunError, ConfigError, DataError
from statsprep.storage.paths import RunPaths

PARTS: dict[str, Any] = {
    "config": {"model": {"frontend": {"n_mels": 80}, "size": 1}},
    "code": {"src.prep.Measure": "aaaa"},
    "data": {"items": {"range": [0, 10, 1]}, "index": "d1"},
}


def make_manifest(shards: list[list[int]] | None = None, **changes: Any) -> Manifest:
    parts = {**PARTS, **changes}
    return Manifest(
        fingerprint=digest_of(parts),
        parts=parts,
        num_items=10,
        items=parts["data"]["items"],
        shards=shards or [[0, 5], [5, 10]],
        runner="src.prep:Measure",
        provider="src.prep:Provider",
        config={"ünicode": [1, None]},
    )


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    return RunPaths(tmp_path / "exp" / "train")


def test_a_first_run_writes_what_it_is(paths: RunPaths) -> None:
    opened = open_run(paths, make_manifest())
    found = read_manifest(paths)
    assert found == opened
    assert found.parts == PARTS
    assert found.versions.keys() >= {"python", "numpy", "dask"}
    assert found.created
    assert found.argv
    assert [(shard.shard_id, shard.start, shard.stop) for shard in found.plan] == [(0, 0, 5), (1, 5, 10)]


def test_the_same_run_goes_on_and_rewrites_nothing(paths: RunPaths) -> None:
    open_run(paths, make_manifest())
    before = paths.manifest.read_bytes()
    open_run(paths, make_manifest(), accept=["code"])
    assert paths.manifest.read_bytes() == before


def test_a_changed_config_is_refused_with_the_change_and_the_ways_on(paths: RunPaths) -> None:
    open_run(paths, make_manifest())
    before = paths.manifest.read_bytes()
    changed = make_manifest(
        config={"model": {"frontend": {"n_mels": 40}, "size": 1}}, code={"src.prep.Measure": "b"}
    )
    with pytest.raises(ChangedRunError) as caught:
        open_run(paths, changed)
    assert str(caught.value) == (
        f"{paths.root}: holds results of another code and config; expected no change (2 found); "
        "choose another stats_dir, or --overwrite to measure anew, "
        "or --accept code --accept model.frontend.n_mels to keep the finished shards"
    )
    assert caught.value.detail == "  code src.prep.Measure: changed\n  model.frontend.n_mels: 80 -> 40"
    assert caught.value.exit_code == 2
    assert paths.manifest.read_bytes() == before


def test_changed_data_is_refused_and_cannot_be_accepted(paths: RunPaths) -> None:
    open_run(paths, make_manifest())
    changed = make_manifest(data={**PARTS["data"], "index": "d2"})
    with pytest.raises(ChangedRunError, match="holds results of another data") as caught:
        open_run(paths, changed, accept=["data", "data.index", "code"])
    assert "--accept" not in str(caught.value)
    assert caught.value.detail == "  data.index: d1 -> d2"


def test_an_accepted_change_is_recorded_and_keeps_the_old_shards_trusted(paths: RunPaths) -> None:
    first = open_run(paths, make_manifest())
    second = open_run(paths, make_manifest(code={"src.prep.Measure": "bbbb"}), accept=["code"])
    third = open_run(paths, make_manifest(code={}, config={"model": {}}), accept=["code", "model"])
    assert third.trusted == {first.fingerprint, second.fingerprint, third.fingerprint}
    found = read_manifest(paths)
    assert [entry["fingerprint"] for entry in found.lineage] == [first.fingerprint, second.fingerprint]
    assert found.lineage[0]["changes"] == ["code src.prep.Measure: changed"]
    assert found.lineage[0]["accepted"] == ["code"]


def test_accepting_one_of_two_changes_is_not_enough(paths: RunPaths) -> None:
    open_run(paths, make_manifest())
    changed = make_manifest(code={}, config={"model": {"frontend": {"n_mels": 40}}})
    with pytest.raises(ChangedRunError, match=r"another config; .*\(1 found\)"):
        open_run(paths, changed, accept=["code", "model.size"])


def test_an_accepted_shard_size_keeps_the_plan_of_the_shards_that_are_there(paths: RunPaths) -> None:
    """Shard 1 of two plans may hold as many items and yet other ones."""
    open_run(paths, make_manifest(shards=[[0, 4], [4, 8], [8, 10]], options={"shard_size": 4}))
    wanted = make_manifest(shards=[[0, 6], [6, 10]], options={"shard_size": 6})
    assert open_run(paths, wanted, accept=["options.shard_size"]).shards == [[0, 4], [4, 8], [8, 10]]
    assert read_manifest(paths).shards == [[0, 4], [4, 8], [8, 10]]
    assert read_manifest(paths).trusted > {wanted.fingerprint}


def write_run(paths: RunPaths) -> list[Path]:
    """All that a run makes; returns what it does not make."""
    open_run(paths, make_manifest())
    for folder in (paths.shard(0), paths.shard(7), paths.attempts / "split.1.abc", paths.root / ".merge.abc"):
        folder.mkdir(parents=True)
        (folder / "file").write_text("x")
    files = ["results.jsonl", "dropped.jsonl", "errors.jsonl", "feats_shape", "feats_shape.arrow",
             "feats_stats.npz", "stats_keys", "index.arrow", "indices.npy", "own.txt"]  # fmt: skip
    for name in files:
        (paths.root / name).write_text("x")
    paths.receipt.write_text(json.dumps({"files": {"own.txt": {}}}))
    foreign = [paths.root / "notes.md", paths.root / "plots" / "a.png", paths.root / "split.x" / "file"]
    for path in foreign:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    return foreign


def test_overwrite_removes_a_runs_files_and_leaves_others(paths: RunPaths) -> None:
    foreign = write_run(paths)
    changed = make_manifest(data={"items": {}, "index": "d2"})
    open_run(paths, changed, overwrite=True)
    left = {path for path in paths.root.rglob("*") if path.is_file()}
    assert left == {paths.manifest, *foreign}
    assert read_manifest(paths).fingerprint == changed.fingerprint
    assert read_manifest(paths).lineage == []


def test_overwrite_removes_the_manifest_first(paths: RunPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill half-way leaves shards without a manifest, which the next run does not trust by themselves."""
    write_run(paths)

    def killed(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("shutil.rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        open_run(paths, make_manifest(), overwrite=True)
    assert not paths.manifest.exists()
    assert paths.shard(0).exists()


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "exp").write_text("a file")
    for path in (tmp_path / "exp", tmp_path / "exp" / "stats" / "train"):
        with pytest.raises(ConfigError, match=r"/exp: is a file; expected a folder for results"):
            check_run_dir(RunPaths(path))
    check_run_dir(RunPaths(tmp_path))
    check_run_dir(RunPaths(tmp_path / "new" / "deep"))


@pytest.mark.parametrize(
    ("content", "seen"),
    [
        ('{"num_items": 4, "items": [0, 1, 2, 3], "world_size": 2}', "layout None"),
        ('{"layout": 99}', "layout 99"),
        (f'{{"layout": {LAYOUT}, "another": 1}}', f"layout {LAYOUT}"),
        ("[]", "no JSON object"),
        ("", "no JSON object"),
        ('{"layout": 1, "finge', "no JSON object"),
    ],
    ids=["espnet", "newer", "unknown key", "list", "empty", "torn"],
)
def test_another_programs_manifest_is_refused_unless_overwritten(
    content: str, seen: str, paths: RunPaths
) -> None:
    paths.root.mkdir(parents=True)
    paths.manifest.write_text(content)
    with pytest.raises(DataError, match=rf"manifest\.json: {seen}; expected a statsprep manifest of layout"):
        open_run(paths, make_manifest())
    assert open_run(paths, make_manifest(), overwrite=True).num_items == 10


def test_a_manifest_that_lacks_a_part_is_refused(paths: RunPaths) -> None:
    open_run(paths, make_manifest())
    content = json.loads(paths.manifest.read_text())
    del content["shards"]
    paths.manifest.write_text(json.dumps(content))
    with pytest.raises(DataError, match=r"manifest\.json"):
        read_manifest(paths)


def test_an_edited_manifest_is_noticed(paths: RunPaths) -> None:
    open_run(paths, make_manifest())
    paths.manifest.write_text(paths.manifest.read_text().replace('"n_mels": 80', '"n_mels": 40'))
    with pytest.raises(
        DataError, match="its parts do not have its fingerprint; the file was edited or is damaged"
    ):
        read_manifest(paths)
