"""Where a run's files are, and which runs a path means."""

from pathlib import Path

import pytest

from statsprep.errors import ConfigError
from statsprep.storage.paths import RunPaths, find_run_dirs


def test_shard_folders_are_found_by_their_exact_name_in_numeric_order(tmp_path: Path) -> None:
    for name in ("split.10", "split.9", "split.x", "split.1.bad", ".attempts", "split.-1"):
        (tmp_path / name).mkdir()
    (tmp_path / "split.3").write_text("a file is no shard")
    assert list(RunPaths(tmp_path).shard_folders()) == [9, 10]
    assert RunPaths(tmp_path / "missing").shard_folders() == {}


def test_attempts_of_one_shard_are_not_those_of_another(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    one, eleven = paths.new_attempt(1, "f1"), paths.new_attempt(11, "f1")
    for folder in (one, eleven):
        folder.mkdir(parents=True)
    assert paths.earlier_attempts(1) == [one]
    assert paths.new_attempt(1, "f1") != one


def test_a_stats_dir_means_its_splits_train_first(tmp_path: Path) -> None:
    for name in ("extra", "valid", "train"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text("{}")
    (tmp_path / "no_run").mkdir()
    assert [run.root.name for run in find_run_dirs(tmp_path)] == ["train", "valid", "extra"]
    assert [run.root for run in find_run_dirs(tmp_path / "valid")] == [tmp_path / "valid"]


def test_a_path_without_a_run_says_what_was_seen(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="missing: does not exist; expected a run directory"):
        find_run_dirs(tmp_path / "missing")
    with pytest.raises(ConfigError, match=r"holds no manifest\.json, nor does a folder in it"):
        find_run_dirs(tmp_path)


def test_a_path_above_a_run_says_where_it_is(tmp_path: Path) -> None:
    """People give the recipe's folder, or exp/, where stats_dir is exp/stats."""
    run = tmp_path / "demo" / "exp" / "stats" / "train"
    run.mkdir(parents=True)
    (run / "manifest.json").write_text("{}")
    for given in (tmp_path / "demo", tmp_path / "demo" / "exp"):
        with pytest.raises(ConfigError, match=f"did you mean '{run.parent}'"):
            find_run_dirs(given)
    assert find_run_dirs(f"file://{run.parent}") == find_run_dirs(run.parent)
