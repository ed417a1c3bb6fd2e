"""The recipe that `init` writes does what its README says."""

import json
from collections.abc import Callable
from pathlib import Path

from tests.integration.conftest import RunDir, StatsprepCommand


def test_the_new_recipe_passes_its_test_and_runs_in_every_mode(
    tmp_path: Path, statsprep: StatsprepCommand, statsprep_in: Callable[[Path], StatsprepCommand]
) -> None:
    """In a fresh folder: its own test, its runner in process and on workers, statistics, and a replay."""
    statsprep("init", "my recipe")
    folder = tmp_path / "my recipe"
    inside = statsprep_in(folder)
    tested = inside.start_python("-m", "pytest", "-q", "-p", "no:cacheprovider").wait().check()
    assert "2 passed" in tested.out
    inside.start_python("-m", "src.make_data").wait().check()
    inside("run", "conf/prepare.yaml")
    inside("run", "conf/prepare.yaml", "output_dir=exp/parallel", "--parallel", "local")
    assert RunDir(folder / "exp/prepare").merged() == RunDir(folder / "exp/parallel").merged()
    (dropped,) = RunDir(folder / "exp/prepare").lines("dropped.jsonl")
    assert dropped["utt_id"] == "utt_003"
    inside("run")
    assert len(RunDir(folder / "exp/stats/train").ids()) == 16
    replayed = json.loads(inside("replay", "exp/prepare", "--utt", "utt_000").out)
    assert replayed["result"] == RunDir(folder / "exp/prepare").lines("results.jsonl")[0]["result"]
