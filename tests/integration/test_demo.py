"""The first thing that a newcomer types, and what it tells them to type next."""

import json
from pathlib import Path

import pytest

from tests.integration.conftest import Finished, RunDir, StatsprepCommand


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Finished]:
    """The folder in which `statsprep demo` was typed, and what it said."""
    folder = tmp_path_factory.mktemp("demo")
    return folder, StatsprepCommand(folder)("demo", "--num_utterances", "80")


def command_in(demo: tuple[Path, Finished]) -> StatsprepCommand:
    return StatsprepCommand(demo[0])


def test_demo_measures_a_corpus_on_two_workers(demo: tuple[Path, Finished]) -> None:
    """80 utterances in two splits; the two broken ones are named with their kinds."""
    folder, seen = demo
    assert "2 workers" in seen.err
    assert len(RunDir(folder / "demo/exp/stats/train").ids()) == 72
    assert len(RunDir(folder / "demo/exp/stats/valid").ids()) == 8
    assert "1 empty" in seen.out
    assert "1 unreadable" in seen.out


def test_every_command_that_demo_suggests_works(demo: tuple[Path, Finished]) -> None:
    """They can be typed as they stand; the last one is the one that is refused, which is its point."""
    lines = [line.strip() for line in demo[1].out.partition("\nnext:\n")[2].splitlines()]
    suggested = [line.partition("#")[0].split() for line in lines if line.startswith("statsprep ")]
    assert [words[1] for words in suggested] == ["status", "verify", "run", "run"]
    for words in suggested[:-1]:
        command_in(demo)(*words[1:])
    refused = command_in(demo)(*suggested[-1][1:], code=2)
    assert "model.frontend.n_mels: 80 -> 40" in refused.err


def test_status_as_json_is_one_list_for_programs(demo: tuple[Path, Finished]) -> None:
    """One object per split with state, counts, failures and the next command."""
    status = json.loads(command_in(demo)("status", "demo/exp/stats", "--json").out)
    assert [Path(each["run_dir"]).name for each in status] == ["train", "valid"]
    train = status[0]
    assert (train["state"], train["num_items"], train["num_finished"]) == ("merged", 72, 72)
    assert train["counts"] == {"ok": 70, "dropped": 0, "error": 2}
    assert train["failures"] == {"empty": 1, "unreadable": 1}
    assert train["next_command"].startswith("statsprep inspect ")
    assert (train["owner"], train["strays"], train["damaged"]) == (None, [], [])


def test_inspect_shows_lengths_and_statistics(demo: tuple[Path, Finished]) -> None:
    """Totals, the shortest and longest by id, and the range of the features."""
    seen = command_in(demo)("inspect", "demo/exp/stats/train")
    assert "72 utterances" in seen.out
    for word in (
        "feats: 70 utterances",
        "each of 80",
        "shortest: ",
        "longest: ",
        "feats statistics: ",
        "by kind: ",
    ):
        assert word in seen.out


def test_merge_writes_lost_files_again(demo: tuple[Path, Finished]) -> None:
    """Merged files are made of the shards alone, so that they can always be made again."""
    found = RunDir(demo[0] / "demo/exp/stats/train")
    before = found.merged()
    for name in ("feats_shape", "feats_stats.npz", "merged.json"):
        (found.root / name).unlink()
    assert json.loads(command_in(demo)("status", found.root, "--json").out)[0]["state"] == "unmerged"
    command_in(demo)("merge", "demo/exp/stats")
    assert found.merged() == before
    command_in(demo)("verify", "demo/exp/stats")


def test_flags_may_be_written_with_dashes(demo: tuple[Path, Finished]) -> None:
    """--retry-errors and --retry_errors are one flag."""
    seen = command_in(demo)(
        "run", "demo/statsprep.yaml", "--retry-errors", "--parallel", "none", "--splits=train"
    )
    assert "failed utterances are tried again" in seen.err
