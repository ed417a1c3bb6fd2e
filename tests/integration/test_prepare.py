"""Preparing the real corpus: the same files in every mode and after kills, and every recording accounted for;
and the door to it, from the command line.
"""

import hashlib
import json
import os
import shutil
import textwrap
from pathlib import Path

import kaldiio
import numpy as np
import pytest

from statsprep.data.dataset import ManifestDataset
from statsprep.data.demo_corpus import write_demo_corpus
from tests.integration.conftest import ROOT, RunDir, StatsprepCommand, members_of_group, wait_until

CONFIG = ROOT / "configs" / "asterisk" / "prepare.yaml"
SPLITS = ("train", "valid")
LISTS = ("results.jsonl", "dropped.jsonl", "errors.jsonl")
DASK = ("parallel.env=local", "parallel.n_workers=2")


def files_of(output_dir: Path) -> dict[str, str]:
    """SHA-256 of every file of a preparation but its receipts, which hold times and random names."""
    found = {}
    for path in output_dir.rglob("*"):
        if path.is_file() and path.name not in ("done", "manifest.json"):
            content = path.read_bytes()
            found[str(path.relative_to(output_dir))] = hashlib.sha256(content).hexdigest()
    return found


@pytest.fixture(scope="module")
def prepared(asterisk: Path) -> dict[str, Path]:
    """The real corpus's output_dir by mode. All were made in one place, which SCP files name."""
    statsprep, place, found = StatsprepCommand(asterisk), asterisk / "prepared", {}

    def prepare(mode: str, *words: str) -> None:
        statsprep("run", CONFIG, "output_dir=prepared", *words)
        found[mode] = asterisk / f"prepared_{mode}"
        os.rename(place, found[mode])

    prepare("in_process")
    prepare("dask", *DASK)
    run = RunDir(place / "train")
    for words, num_shards in ((DASK, 5), ((), 15)):
        started = statsprep.start("run", CONFIG, "output_dir=prepared", *words)
        wait_until(lambda: len(list(run.root.glob("split.*"))) > num_shards and run.journaled() > 0)  # noqa: B023
        started.kill()
        wait_until(lambda: not members_of_group(started.pid))  # noqa: B023
        assert not (run.root / "manifest.jsonl").exists()
    prepare("killed")
    statsprep.end_all()
    return found


@pytest.mark.corpus
@pytest.mark.parametrize("mode", ["dask", "killed"])
def test_every_mode_writes_the_same_files(mode: str, prepared: dict[str, Path]) -> None:
    """Audio, features, lists and receipts of the merge: with two workers, and killed twice, by kill -9, and
    resumed.
    """
    files = files_of(prepared[mode])
    assert files == files_of(prepared["in_process"])
    for suffix in (".flac", ".npy"):
        assert sum(name.endswith(suffix) for name in files) == 2756
    for split in SPLITS:
        assert RunDir(prepared[mode] / split).hidden() == []


@pytest.mark.corpus
def test_each_recording_is_in_exactly_one_list(asterisk: Path, prepared: dict[str, Path]) -> None:
    """2,831 recordings: prepared, dropped for a stated reason, or broken."""
    found, kinds = [], []
    for split in SPLITS:
        run = RunDir(prepared["in_process"] / split)
        manifest = (asterisk / "data" / "asterisk" / f"stats_{split}.jsonl").read_text(encoding="utf-8")
        lines = [line for name in LISTS for line in run.lines(name)]
        ids = sorted(json.loads(line)["utt_id"] for line in manifest.splitlines())
        assert sorted(line["utt_id"] for line in lines) == ids
        found += ids
        kinds += [line["kind"] for line in run.lines("errors.jsonl")]
    assert len(found) == 2831
    assert kinds == ["empty"]


@pytest.mark.corpus
def test_dropped_recordings_are_those_outside_the_bounds(prepared: dict[str, Path]) -> None:
    """Measured value and bound are given, and nothing that was kept is outside either."""
    for split in SPLITS:
        run = RunDir(prepared["in_process"] / split)
        for line in run.lines("dropped.jsonl"):
            bound, value = line["bound"].split(" ")
            assert {"min_s": "duration", "max_s": "duration", "min_dbfs": "silence"}[bound] == line["step"]
            assert line["measured"] > float(value) if bound == "max_s" else line["measured"] < float(value)
        assert {line["step"] for line in run.lines("dropped.jsonl")} == {"duration", "silence"}
        assert all(0.3 <= line["result"]["duration_s"] <= 60 for line in run.lines("results.jsonl"))


@pytest.mark.corpus
def test_prepared_corpus_is_measured_without_the_original(
    prepared: dict[str, Path], statsprep: StatsprepCommand, tmp_path: Path
) -> None:
    """It may be moved: its manifest has relative paths. The shapes that came with it are those measured."""
    root = prepared["in_process"]
    (tmp_path / "stats.yaml").write_text(
        textwrap.dedent(f"""
            stats_dir: stats
            dataset: {{train: [{{manifest: {root}/valid/manifest.jsonl}}],
                      valid: [{{manifest: {root}/valid/manifest.jsonl}}]}}
            model: {{frontend: {{sample_rate_hz: 16000, n_fft: 512, hop_length: 160, n_mels: 80}}}}
        """),
        encoding="utf-8",
    )
    statsprep("run", "stats.yaml", "--splits", "valid")
    measured = (tmp_path / "stats" / "valid" / "feats_shape").read_text(encoding="utf-8")
    assert measured == (root / "valid" / "feats_shape").read_text(encoding="utf-8")
    dataset = ManifestDataset(root / "valid" / "manifest.jsonl")
    sample = dataset[0]
    assert sample["sample_rate_hz"] == 16000
    assert np.load(root / "valid" / sample["feats"]).shape == (sample["num_frames"], 80)


def test_the_config_of_the_documentation(statsprep: StatsprepCommand, tmp_path: Path) -> None:
    """configs/prep/corpus.yaml, on two workers: cleaned texts, archives, and a reason for what is missing."""
    write_demo_corpus(tmp_path / "demo", 60, 1)
    shutil.copytree(ROOT / "configs" / "prep", tmp_path / "configs" / "prep")
    statsprep("run", "configs/prep/corpus.yaml", "--parallel", "local")
    run = RunDir(tmp_path / "exp" / "prepared" / "train")
    assert [line["kind"] for line in run.lines("errors.jsonl")] == ["empty", "unreadable"]
    assert {line["step"] for line in run.lines("dropped.jsonl")} == {"duration"}
    rows = run.lines("manifest.jsonl")
    archives = kaldiio.load_scp(str(run.root / "feats.scp"))
    assert {row["utt_id"]: row["num_frames"] for row in rows} == {
        utt_id: len(feats) for utt_id, feats in archives.items()
    }
    assert {row["sample_rate_hz"] for row in rows} == {8000}


DEMO = """
output_dir: exp/prepared
dataset:
  train: [{manifest: demo/data/train.jsonl}]
  valid: [{manifest: demo/data/valid.jsonl}]
prepare:
  cleaner: {_target_: statsprep.data.cleaners.DurationBounds, min_s: 0.5}
  audio: flac
  max_errors: 10%
"""


def test_a_preparation_is_looked_at_like_any_run(statsprep: StatsprepCommand, tmp_path: Path) -> None:
    """run, status, verify, replay and print_config know it; another run of it finds nothing to do."""
    write_demo_corpus(tmp_path / "demo", 40, 1)
    (tmp_path / "prep.yaml").write_text(DEMO, encoding="utf-8")
    statsprep("run", "prep.yaml")
    run = RunDir(tmp_path / "exp" / "prepared" / "train")
    before = run.merged()
    text = statsprep("run", "prep.yaml", "--print_config").out
    (tmp_path / "full.yaml").write_text(text, encoding="utf-8")
    num_items = sum(len(run.lines(name)) for name in LISTS)
    assert f"train: {num_items:,} items, {num_items:,} finished before" in statsprep("run", "full.yaml").err
    assert run.merged() == before
    statsprep("status", "exp/prepared")
    statsprep("verify", "exp/prepared")
    row = run.lines("results.jsonl")[0]
    replayed = json.loads(statsprep("replay", "exp/prepared/train", "--utt", row["utt_id"]).out)
    assert replayed["result"]["row"]["num_samples"] == row["result"]["num_samples"]
    dropped = run.lines("dropped.jsonl")[0]
    replayed = json.loads(statsprep("replay", "exp/prepared/train", "--index", dropped["index"]).out)
    assert replayed["reason"] == {key: dropped[key] for key in ("step", "measured", "bound")}
    path = next(run.root.glob("split.0/audio/*.flac"))
    path.write_bytes(path.read_bytes()[:-1])
    assert "split.0" in statsprep("verify", "exp/prepared", code=3).out
    statsprep("run", "prep.yaml")
    assert run.merged() == before
    statsprep("verify", "exp/prepared")
    # A change that keeps the size is for `verify` to find: a run does not read terabytes again.
    path = next(run.root.glob("split.0/audio/*.flac"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    seen = statsprep("verify", "exp/prepared", "--repair", code=3)
    assert "has other content than was committed" in seen.out
    assert "removed 'split.0'" in seen.out
    statsprep("run", "prep.yaml")
    assert path.read_bytes() == whole
    assert run.merged() == before
    statsprep("verify", "exp/prepared")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("prepare.audoi=flac", "prep.yaml: prepare: unknown key 'audoi'; did you mean 'audio'?"),
        ("prepare.cleaner._target_=statsprep.data.cleaners.DurationBound", "did you mean 'DurationBounds'?"),
        ("prepare.cleaner._target_=os.system", "prepare.cleaner.0._target_: 'os.system' is not allowed"),
        ("prepare.splits=[trian]",
         "dataset.trian: missing; expected a split with entries; the dataset has 'train', 'valid'; did you"),
        ("output_dir=", "prep.yaml: output_dir: missing"),
        ("collect_stats.batch_size=2", "prep.yaml: has both prepare and collect_stats; expected one of them"),
        ("prepare.max_errors=200%", "prepare.max_errors: '200%' is not valid"),
    ],
)  # fmt: skip
def test_a_wrong_config_is_one_line_with_exit_code_2(
    change: str, message: str, statsprep: StatsprepCommand, tmp_path: Path
) -> None:
    write_demo_corpus(tmp_path / "demo", 40, 1)
    (tmp_path / "prep.yaml").write_text(DEMO, encoding="utf-8")
    [error] = statsprep("run", "prep.yaml", change, code=2).errors
    assert message in error
    assert not (tmp_path / "exp").exists()


RECIPE = """
import json
from pathlib import Path

import numpy as np
import soundfile

from statsprep.data.dataset import ManifestDataset


class Dataset(ManifestDataset):
    def __init__(self, split, **options):
        super().__init__(Path(__file__).parents[1] / "data" / f"{split}.jsonl", **options)


class DatasetBuilder:
    def is_source_prepared(self, recipe_dir, **options):
        return True

    def prepare_source(self, recipe_dir, **options):
        raise AssertionError

    def is_built(self, recipe_dir, num_tones, **options):
        return (Path(recipe_dir) / "data" / "valid.jsonl").is_file()

    def build(self, recipe_dir, num_tones, **options):
        folder = Path(recipe_dir) / "data"
        folder.mkdir()
        for number in range(num_tones):
            tone = np.sin(np.arange(16000) * (number + 1) / 50) / 2
            soundfile.write(folder / f"{number}.wav", tone, 16000, subtype="PCM_16")
        rows = [{"utt_id": f"tone{number}", "audio": f"{number}.wav"} for number in range(num_tones)]
        text = "".join(json.dumps(row) + "\\n" for row in rows)
        for split in ("train", "valid"):
            (folder / f"{split}.jsonl").write_text(text)
"""


@pytest.mark.parametrize("section", ["collect_stats: {}", "prepare: {audio: flac}"])
def test_recipe_builds_its_corpus_before_the_first_run(
    section: str, statsprep: StatsprepCommand, tmp_path: Path
) -> None:
    """From a fresh checkout one command is enough, and the second time nothing is built."""
    for name, content in (
        ("dataset/__init__.py", RECIPE),
        ("conf/training.yaml", f"""
            stats_dir: exp
            output_dir: exp
            dataset:
              train: [{{data_src_args: {{split: train}}}}]
              valid: [{{data_src_args: {{split: valid}}}}]
            create_dataset: {{recipe_dir: ., num_tones: 3}}
            model: {{frontend: {{n_mels: 20}}}}
            {section}
        """),
    ):  # fmt: skip
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(content), encoding="utf-8")
    first = statsprep("run")
    assert "DatasetBuilder of this recipe: build" in first.err
    assert len((tmp_path / "exp" / "train" / "index.arrow").read_bytes()) > 0
    second = statsprep("run")
    assert "build" not in second.err
    assert "train: 3 items, 3 finished before" in second.err
