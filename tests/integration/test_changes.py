"""A run goes on only where its results would be the same; every other change stops it and is named."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from statsprep.data.demo_corpus import write_demo_corpus
from tests.integration.conftest import Finished, RunDir, StatsprepCommand

IN_PROCESS = ("--parallel", "none")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The config of a measured corpus that no test changes."""
    folder = tmp_path_factory.mktemp("measured")
    config = write_demo_corpus(folder, 60, 1)
    StatsprepCommand(folder)("run", config, *IN_PROCESS)
    return config


@pytest.fixture
def corpus(tmp_path: Path, statsprep: StatsprepCommand) -> Path:
    """The config of a measured corpus that a test may change."""
    config = write_demo_corpus(tmp_path, 60, 1)
    statsprep("run", config, *IN_PROCESS)
    return config


def check_refused(seen: Finished, change: str) -> None:
    """One line that says what to do, and the change itself below it."""
    assert len(seen.errors) == 1
    assert "--overwrite" in seen.errors[0]
    assert change in [line.strip() for line in seen.err.splitlines()]
    assert "Traceback" not in seen.err


def num_from_before(seen: Finished) -> list[int]:
    """Per split, how many items the run found finished."""
    return [
        int(line.split(", ")[1].split(" ")[0].replace(",", ""))
        for line in seen.err.splitlines()
        if "finished before" in line
    ]


def edit_line(path: Path, number: int, change: Callable[[dict[str, str]], dict[str, str]]) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    lines[number] = json.dumps(change(json.loads(lines[number])))
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def test_another_feature_size_is_refused(measured: Path, statsprep: StatsprepCommand) -> None:
    """`n_mels: 80 -> 40` stops with that line, and nothing of the earlier run is touched."""
    stats_dir = measured.parent / "exp" / "stats"
    before = RunDir(stats_dir / "train").merged()
    seen = statsprep("run", measured, *IN_PROCESS, "model.frontend.n_mels=40", code=2)
    check_refused(seen, "model.frontend.n_mels: 80 -> 40")
    assert RunDir(stats_dir / "train").merged() == before
    statsprep("verify", stats_dir)


def test_another_text_in_the_manifest_is_refused(
    corpus: Path, statsprep: StatsprepCommand, tmp_path: Path
) -> None:
    """Any change of a manifest row is a change of the data, which `--accept` does not cover."""
    edit_line(tmp_path / "data/train.jsonl", 20, lambda row: row | {"speaker": "emma"})
    seen = statsprep("run", corpus, *IN_PROCESS, "--accept", "data", code=2)
    assert "holds results of another data" in seen.errors[0]
    assert "data.index: " in seen.err
    assert "--accept" not in seen.errors[0]


def test_overwrite_measures_what_has_changed(
    corpus: Path, statsprep: StatsprepCommand, tmp_path: Path
) -> None:
    """After a refusal, --overwrite gives the same bytes as a run into an empty folder."""
    statsprep("run", corpus, *IN_PROCESS, "model.frontend.n_mels=40", "--overwrite")
    statsprep("run", corpus, *IN_PROCESS, "model.frontend.n_mels=40", "stats_dir=fresh")
    for split in ("train", "valid"):
        assert RunDir(tmp_path / "exp/stats" / split).merged() == RunDir(tmp_path / "fresh" / split).merged()


@pytest.mark.parametrize(
    "words",
    [
        ("parallel.env=local", "parallel.n_workers=2"),
        ("parallel.options={memory_limit: 2GB}",),
        ("parallel={env: none}",),
        ("model.encoder={layers: 12}",),
        ("model.normalize=global_mvn", "model.normalize_conf={stats_file: none.npz}"),
        ("model.frontend.n_fft=512",),
        ("collect_stats.max_errors=10",),
        ("optimizer={lr: 0.1}", "seed=3"),
        ("--debug",),
    ],
    ids=lambda words: words[0],
)
def test_what_results_do_not_depend_on_resumes(
    words: tuple[str, ...], measured: Path, statsprep: StatsprepCommand
) -> None:
    """Workers, their options, later layers, a default written out, limits and log level measure nothing
    again.
    """
    assert num_from_before(statsprep("run", measured, *words)) == [54, 6]


def test_another_valid_set_leaves_train_alone(
    corpus: Path, statsprep: StatsprepCommand, tmp_path: Path
) -> None:
    """A split depends on its own data only."""
    edit_line(tmp_path / "data/valid.jsonl", 2, lambda row: row | {"speaker": "emma"})
    assert num_from_before(statsprep("run", corpus, *IN_PROCESS, "--splits", "train")) == [54]
    assert len(statsprep("run", corpus, *IN_PROCESS, "--splits", "valid", code=2).errors) == 1


def test_reordered_manifest_keeps_every_length_with_its_utterance(
    corpus: Path, statsprep: StatsprepCommand, tmp_path: Path
) -> None:
    """Rows in another order are other data; measured anew, every id has the length that it had."""
    before = sorted((tmp_path / "exp/stats/train/feats_shape").read_text(encoding="utf-8").splitlines())
    manifest = tmp_path / "data/train.jsonl"
    lines = manifest.read_text(encoding="utf-8").splitlines()
    manifest.write_text("".join(f"{line}\n" for line in reversed(lines)), encoding="utf-8")
    assert len(statsprep("run", corpus, *IN_PROCESS, code=2).errors) == 1
    statsprep("run", corpus, *IN_PROCESS, "--overwrite")
    after = (tmp_path / "exp/stats/train/feats_shape").read_text(encoding="utf-8").splitlines()
    assert after != before
    assert sorted(after) == before


@pytest.fixture
def half_done(tmp_path: Path, cheap_recipe: Callable[..., Path], statsprep: StatsprepCommand) -> Path:
    """A recipe's run with one shard of twelve missing."""
    import shutil

    config = cheap_recipe(600, 50)
    statsprep("run", config)
    shutil.rmtree(tmp_path / "exp" / "split.5")
    return config


def edit_code(tmp_path: Path, old: str, new: str) -> None:
    path = tmp_path / "src" / "prep.py"
    code = path.read_text(encoding="utf-8")
    assert old in code
    path.write_text(code.replace(old, new), encoding="utf-8")


def test_changed_code_of_the_runner_is_refused(
    half_done: Path, tmp_path: Path, statsprep: StatsprepCommand
) -> None:
    """Another formula in `forward` stops the run and names the class; shards of both are never mixed."""
    edit_code(tmp_path, "factor * idx", "factor * idx + 1")
    seen = statsprep("run", half_done, code=2)
    assert "--accept code" in seen.errors[0]
    check_refused(seen, "code src.prep.Measure: changed")
    assert not (tmp_path / "exp" / "split.5").exists()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("            return None\n", "            return None  # dropped\n\n\n"),
        (
            "    def forward(idx, *, dataset, factor=1):\n",
            '    def forward(idx, *, dataset, factor=1):\n        """Doc."""\n',
        ),
        ("import time\n", "import time\n\nUNUSED = 3\n"),
    ],
    ids=["comment", "docstring", "unused_name"],
)
def test_code_that_does_the_same_resumes(
    old: str, new: str, half_done: Path, tmp_path: Path, statsprep: StatsprepCommand
) -> None:
    """Comments, docstrings and what the runner does not use are no change: only the missing shard is
    measured.
    """
    edit_code(tmp_path, old, new)
    assert num_from_before(statsprep("run", half_done)) == [550]


def test_changed_params_are_refused(half_done: Path, statsprep: StatsprepCommand) -> None:
    """What the provider hands to `forward` is part of what results depend on."""
    check_refused(
        statsprep("run", half_done, "provider.params={factor: 2}", code=2),
        "provider.params.factor: absent -> 2",
    )


def test_accepted_code_keeps_good_shards_and_is_recorded(
    half_done: Path, tmp_path: Path, statsprep: StatsprepCommand
) -> None:
    """`--accept code` measures only what is missing; manifest and status keep saying so."""
    edit_code(tmp_path, "factor * idx", "1 * factor * idx")
    expected = RunDir(tmp_path / "exp").lines("results.jsonl")
    assert num_from_before(statsprep("run", half_done, "--accept", "code")) == [550]
    lineage = RunDir(tmp_path / "exp").json("manifest.json")["lineage"]
    assert [entry["accepted"] for entry in lineage] == [["code"]]
    assert lineage[0]["changes"] == ["code src.prep.Measure: changed"]
    assert RunDir(tmp_path / "exp").lines("results.jsonl") == expected
    assert num_from_before(statsprep("run", half_done)) == [600]
    assert "accepted at " in statsprep("status", "exp").out
    statsprep("verify", "exp")


def test_accepting_one_change_does_not_accept_another(
    half_done: Path, tmp_path: Path, statsprep: StatsprepCommand
) -> None:
    """`--accept KEY` covers that key and what lies below it, nothing else."""
    edit_code(tmp_path, "factor * idx", "factor * idx + 1")
    seen = statsprep("run", half_done, "provider.params={factor: 2}", "--accept", "provider.params", code=2)
    assert "code src.prep.Measure: changed" in seen.err
