"""`replay` runs one item with the run's own env, says what came of it, and writes nothing there."""

import io
import json
import sys
from pathlib import Path

import pytest

from statsprep.data.demo_corpus import write_demo_corpus
from statsprep.engine.provider import EnvironmentProvider
from statsprep.engine.runner import BaseRunner
from tests.unit.cli.conftest import Statsprep


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("item", [("--utt", "u4"), ("--index", "4")])
def test_an_item_is_found_by_id_and_by_index_and_nothing_is_written(
    item: tuple[str, str], recipe: Path, statsprep: Statsprep, tmp_path: Path
) -> None:
    statsprep("run", recipe)
    before = snapshot(tmp_path / "exp")
    found = statsprep("replay", "exp", *item)
    assert found.code == 0, found.err
    assert json.loads(found.out) == {"utt_id": "u4", "index": 4, "status": "ok", "result": 8}
    assert snapshot(tmp_path / "exp") == before


def test_a_dropped_item_says_so(recipe: Path, statsprep: Statsprep) -> None:
    statsprep("run", recipe)
    assert json.loads(statsprep("replay", "exp", "--utt", "u7").out)["status"] == "dropped"


def test_a_failing_item_shows_its_traceback_and_ends_with_3(recipe: Path, statsprep: Statsprep) -> None:
    statsprep("run", recipe, "bad=3", "runner.max_errors=1")
    found = statsprep("replay", "exp", "--utt", "u3")
    assert found.code == 3
    assert 'raise ValueError(f"item {idx} is bad")' in found.err
    assert "\nValueError: item 3 is bad\n" in found.err
    assert "index 3 ('u3') failed as above" in found.error


def test_pdb_opens_where_it_was_raised(
    recipe: Path, statsprep: Statsprep, monkeypatch: pytest.MonkeyPatch
) -> None:
    statsprep("run", recipe, "bad=3", "runner.max_errors=1")
    monkeypatch.setattr(sys, "stdin", io.StringIO("p idx * 1000\nq\n"))
    found = statsprep("replay", "exp", "--index", "3", "--pdb")
    assert found.code == 3
    assert "(Pdb) 3000" in found.out


def test_a_run_is_replayed_from_any_folder(
    recipe: Path, statsprep: Statsprep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    statsprep("run", "prep.yaml")
    (tmp_path / "else").mkdir()
    monkeypatch.chdir(tmp_path / "else")
    assert json.loads(statsprep("replay", "../exp", "--index", "5").out)["result"] == 10
    assert Path.cwd() == tmp_path / "else"


def test_an_unknown_item_names_those_that_are_near(recipe: Path, statsprep: Statsprep) -> None:
    statsprep("run", recipe)
    found = statsprep("replay", "exp", "--utt", "u123")
    assert found.code == 2
    assert "no utterance 'u123'; did you mean 'u13' or 'u12'" in found.error
    found = statsprep("replay", "exp", "--index", "20")
    assert found.code == 2
    assert "index 20 is none of the run's 20 items; expected one from 0 to 19" in found.error


def test_without_ids_in_the_dataset_the_results_know_them(
    recipe: Path, statsprep: Statsprep, tmp_path: Path
) -> None:
    code = (tmp_path / "src" / "prep.py").read_text()
    code = code.replace("def utt_ids", "def other").replace(
        "dataset[idx] * 2", '{"utt_id": f"x{idx}", "value": dataset[idx]}'
    )
    (tmp_path / "src" / "prep.py").write_text(code)
    statsprep("run", recipe)
    found = json.loads(statsprep("replay", "exp", "--utt", "x6").out)
    assert (found["utt_id"], found["index"], found["result"]["value"]) == ("x6", 6, 6)
    assert "did you mean 'x6'" in statsprep("replay", "exp", "--utt", "x66").error


def test_a_batched_runner_gets_its_list(recipe: Path, statsprep: Statsprep, tmp_path: Path) -> None:
    code = (tmp_path / "src" / "prep.py").read_text()
    start = code.index("        if idx == bad")
    (tmp_path / "src" / "prep.py").write_text(code[:start] + "        return [each * 3 for each in idx]\n")
    statsprep("run", recipe, "runner.batch_size=5")
    assert json.loads(statsprep("replay", "exp", "--index", "2").out)["result"] == 6


def test_indices_of_their_own_are_checked(recipe: Path, statsprep: Statsprep) -> None:
    statsprep("run", recipe, "indices=[4, 6]")
    assert statsprep("replay", "exp", "--index", "5").code == 0
    assert "expected one from 4 to 5" in statsprep("replay", "exp", "--index", "6").error


def test_statistics_of_one_utterance(statsprep: Statsprep, tmp_path: Path) -> None:
    """The same shape as the run has, from an env with dataset, model and index."""
    config = write_demo_corpus(tmp_path / "demo", 12, 1)
    run = statsprep("run", config, "--parallel", "none", "collect_stats.max_errors=2")
    assert run.code == 0, run.err
    stats = tmp_path / "demo" / "exp" / "stats"
    before = snapshot(stats)
    found = json.loads(statsprep("replay", stats / "train", "--utt", "anna_0004").out)
    line = (stats / "train" / "feats_shape").read_text().splitlines()
    assert f"anna_0004 {','.join(map(str, found['result']['shapes']['feats']))}" in line
    low, high = found["stats"]["feats"]["mean"]
    assert -24 < low < high < 5
    broken = statsprep("replay", stats / "train", "--utt", "dora_0007")
    assert broken.code == 3
    assert "dora_0007.wav: has no samples" in broken.err
    assert snapshot(stats) == before
    assert "holds 2 runs; expected one of" in statsprep("replay", stats, "--index", "0").error


class Python(EnvironmentProvider):
    def build_env_local(self) -> dict[str, object]:
        return {}


class Square(BaseRunner):
    @staticmethod
    def forward(idx: int) -> int:  # type: ignore[override]
        return idx * idx


def test_a_run_from_python_says_that_it_cannot_be_rebuilt(statsprep: Statsprep, tmp_path: Path) -> None:
    Square(Python({}), output_dir=tmp_path / "exp")(range(3))
    found = statsprep("replay", "exp", "--index", "1")
    assert found.code == 2
    assert "the run was started from Python, and its provider cannot be built from files" in found.error


def test_a_run_whose_folder_is_gone_says_so(recipe: Path, statsprep: Statsprep, tmp_path: Path) -> None:
    statsprep("run", recipe)
    manifest = json.loads((tmp_path / "exp" / "manifest.json").read_text())
    manifest["origin"]["cwd"] = str(tmp_path / "gone")
    (tmp_path / "exp" / "manifest.json").write_text(json.dumps(manifest))
    found = statsprep("replay", "exp", "--index", "1")
    assert found.code == 2
    assert f"was started in {tmp_path / 'gone'}, which is not there" in found.error
