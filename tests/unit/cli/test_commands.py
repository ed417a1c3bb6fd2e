"""The commands on a small run: what they print, and what they return when something is wrong."""

import json
import shutil
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Statsprep


def test_run_measures_merges_and_says_what_to_type_next(
    recipe: Path, statsprep: Statsprep, tmp_path: Path
) -> None:
    found = statsprep("run", recipe)
    assert found.code == 0, found.err
    results = [json.loads(line) for line in (tmp_path / "exp" / "results.jsonl").read_text().splitlines()]
    assert [each["utt_id"] for each in results] == [f"u{number}" for number in range(20) if number != 7]
    assert "next: statsprep inspect exp" in found.out
    again = statsprep("run", recipe)
    assert again.code == 0
    assert "20 items, 20 finished before" in again.err


def test_a_changed_value_is_refused_with_the_difference(recipe: Path, statsprep: Statsprep) -> None:
    statsprep("run", recipe)
    found = statsprep("run", recipe, "length=21")
    assert found.code == 2
    assert "/exp: holds results of another" in found.error
    assert "  length: 20 -> 21" in found.err
    assert statsprep("run", recipe, "length=21", "--overwrite").code == 0


def test_an_accepted_change_goes_on_and_is_shown(recipe: Path, statsprep: Statsprep) -> None:
    statsprep("run", recipe)
    assert statsprep("run", recipe, "bad=-2").code == 2
    assert statsprep("run", recipe, "bad=-2", "--accept", "bad").code == 0
    assert "bad: -1 -> -2" in statsprep("status", "exp").out


def test_too_many_failures_end_with_3_and_name_them(recipe: Path, statsprep: Statsprep) -> None:
    found = statsprep("run", recipe, "bad=3")
    assert found.code == 3
    assert "errors.jsonl: 1 utterances failed, at most 0 may (max_errors)" in found.error
    assert "  u3: exception: ValueError: item 3 is bad" in found.err
    assert "Traceback" not in found.err
    assert "failed by kind: 1 exception" in statsprep("status", "exp").out
    allowed = statsprep("run", recipe, "bad=3", "runner.max_errors=1")
    assert allowed.code == 0, allowed.err
    assert "20 items, 20 finished before" in allowed.err


def test_a_stopped_run_can_be_looked_at_and_goes_on(recipe: Path, statsprep: Statsprep) -> None:
    assert statsprep("run", recipe, "bad=stop").code == 75
    (status,) = json.loads(statsprep("status", "exp", "--json").out)
    assert (status["state"], status["num_finished"], status["num_in_attempts"]) == ("unfinished", 10, 2)
    assert status["next_command"] == f"statsprep run {recipe} bad=stop"
    found = statsprep("inspect", "exp")
    assert found.code == 3
    assert "is unfinished (10 of 20 items); expected a merged run; type `statsprep run" in found.error
    found = statsprep("merge", "exp")
    assert found.code == 4
    assert "cannot merge 2 of 4 shards" in found.error


def test_verify_tells_damage_and_the_next_run_repairs_it(
    recipe: Path, statsprep: Statsprep, tmp_path: Path
) -> None:
    statsprep("run", recipe)
    found = statsprep("verify", "exp")
    assert (found.code, found.out) == (0, "exp: all shards and merged files are whole\n")
    path = tmp_path / "exp" / "split.1" / "results.jsonl"
    path.write_bytes(path.read_bytes()[:-4])
    found = statsprep("verify", "exp")
    assert found.code == 3
    assert found.out.startswith("exp: split.1: results.jsonl holds ")
    assert "exp: 1 problems; expected none" in found.error
    repaired = statsprep("run", recipe)
    assert repaired.code == 0
    assert "split.1: results.jsonl holds" in repaired.err
    assert statsprep("verify", "exp").code == 0


def test_merge_makes_lost_files_again(recipe: Path, statsprep: Statsprep, tmp_path: Path) -> None:
    statsprep("run", recipe)
    before = (tmp_path / "exp" / "results.jsonl").read_bytes()
    (tmp_path / "exp" / "results.jsonl").unlink()
    found = statsprep("merge", "exp")
    assert (found.code, found.out) == (0, "exp: merged 4 shards into 3 files\n")
    assert (tmp_path / "exp" / "results.jsonl").read_bytes() == before


def test_a_runner_that_is_gone_cannot_merge_and_says_what_can(
    recipe: Path, statsprep: Statsprep, tmp_path: Path
) -> None:
    statsprep("run", recipe)
    manifest = json.loads((tmp_path / "exp" / "manifest.json").read_text())
    manifest["runner"] = "__main__:Gone"
    (tmp_path / "exp" / "manifest.json").write_text(json.dumps(manifest))
    found = statsprep("merge", "exp")
    assert found.code == 2
    assert "the run's runner __main__:Gone cannot be imported" in found.error


def test_inspect_shows_counts(recipe: Path, statsprep: Statsprep) -> None:
    statsprep("run", recipe)
    found = statsprep("inspect", "exp")
    assert found.code == 0
    assert found.out.startswith("== exp: 20 utterances: 19 ok, 1 dropped")


def test_strays_are_shown(recipe: Path, statsprep: Statsprep, tmp_path: Path) -> None:
    statsprep("run", recipe)
    shutil.copytree(tmp_path / "exp" / "split.1", tmp_path / "exp" / "split.9")
    assert "not in the plan, left out: split.9" in statsprep("status", "exp").out


@pytest.mark.parametrize(
    ("config", "words", "message"),
    [
        ("", ["none.yaml"], "none.yaml"),
        ("", [], "statsprep.yaml"),
        ("x: [", ["c.yaml"], "c.yaml"),
        (
            "dataset: {train: [{manifest: a}], valid: [{manifest: a}]}",
            ["c.yaml"],
            "c.yaml: stats_dir: missing",
        ),
        ("stats_dir: exp", ["c.yaml"], "c.yaml: dataset: missing"),
        (
            "stats_dir: exp\ndataset: {train: [{manifest: a}], valid: [{manifest: a}]}",
            ["c.yaml", "--splits", "vaild"],
            "dataset.vaild: missing; --splits got 'vaild'; expected one of 'train', 'valid'; did you mean "
            "'valid'?",
        ),
        ("stats_dir: exp", ["c.yaml", "d.yaml"], "'c.yaml', 'd.yaml'; expected one CONFIG"),
        ("stats_dir: exp", ["c.yaml", "--parallel", "loca"], "loca"),
        ("stats_dir: exp\nparallel: {env: locl}", ["c.yaml"], "c.yaml: parallel.env: 'locl' is not valid"),
        (
            "stats_dir: exp\ncollect_stats: {batchsize: 2}",
            ["c.yaml"],
            "collect_stats: unknown key 'batchsize'",
        ),
        (
            "runner: {_target_: src.prep.Measure}",
            ["c.yaml"],
            "provider: missing; expected `provider: {_target_:",
        ),
        (
            "runner: {_target_: src.prep.Measure}\nprovider: {_target_: src.prep.Provider, x: 1}",
            ["c.yaml"],
            "provider.x: unknown key; expected _target_ and params",
        ),
        (
            "runner: {_target_: src.prep.Measure}\nprovider: {_target_: src.prep.Provider}\nlength: 3",
            ["c.yaml"],
            "runner.output_dir: missing",
        ),
        (
            "runner: {_target_: src.prep.Measure, shard_sise: 3}\nprovider: {_target_: src.prep.Provider}\n"
            "length: 3\nstats_dir: exp",
            ["c.yaml"],
            "shard_sise",
        ),
        (
            "runner: {_target_: src.prep.Measure}\nprovider: {_target_: src.prep.Provider}\n"
            "length: 3\nstats_dir: exp\nindices: all",
            ["c.yaml"],
            "indices: got 'all'; expected a number of items, or [start, stop]",
        ),
    ],
)
def test_mistakes_in_a_config_end_with_2_and_one_line_that_names_the_place(
    config: str, words: list[str], message: str, recipe: Path, statsprep: Statsprep, tmp_path: Path
) -> None:
    for name in ("c.yaml", "d.yaml"):
        (tmp_path / name).write_text(config)
    found = statsprep("run", *words)
    assert found.code == 2, found.err
    assert message in found.error
    assert not (tmp_path / "exp").exists()


@pytest.mark.parametrize(
    ("indices", "expected"), [("3", [0, 1, 2]), ("[4, 6]", [4, 5]), ("null", list(range(20)))]
)
def test_indices_are_a_number_a_range_or_the_whole_dataset(
    indices: str, expected: list[int], recipe: Path, statsprep: Statsprep, tmp_path: Path
) -> None:
    assert statsprep("run", recipe, f"indices={indices}").code == 0
    results = [
        json.loads(line)["index"] for line in (tmp_path / "exp" / "results.jsonl").read_text().splitlines()
    ]
    assert results == [index for index in expected if index != 7]
