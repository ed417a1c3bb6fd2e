"""Manifests of the real corpus: all recordings once, the documented gaps reported, and readable audio."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from statsprep.data.dataset import ManifestDataset
from statsprep.data.organizer import DataOrganizer
from statsprep.data.verdicts import UtteranceError, Verdict

SOUNDS = Path("/usr/share/asterisk/sounds")
pytestmark = pytest.mark.corpus
SCRIPT = Path(__file__).parents[2] / "deploy" / "corpora" / "asterisk.py"

if not SOUNDS.is_dir():
    if os.environ.get("CI"):
        pytest.fail(f"{SOUNDS} is missing, and CI must not skip it", pytrace=False)
    pytest.skip(f"{SOUNDS} is missing: asterisk-core-sounds-*-wav is not installed", allow_module_level=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("asterisk")
    done = subprocess.run([sys.executable, SCRIPT, path], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("2831 recordings\n")
    return path


def rows(path: Path) -> dict[str, dict[str, Any]]:
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {line["utt_id"]: line for line in lines}


def test_every_recording_is_in_one_stats_manifest(folder: Path) -> None:
    train, valid = rows(folder / "stats_train.jsonl"), rows(folder / "stats_valid.jsonl")
    assert len(train) + len(valid) == 2831
    assert not train.keys() & valid.keys()
    assert 0.08 < len(valid) / 2831 < 0.12
    recorded = {str(path) for path in SOUNDS.rglob("*.wav") if not path.is_symlink()}
    assert {row["audio"] for row in (train | valid).values()} == recorded
    assert "en_US_f_Allison/digits/1" in train | valid


def test_asr_manifests_hold_what_has_a_transcript_in_the_same_split(folder: Path) -> None:
    for split in ("train", "valid"):
        every = rows(folder / f"stats_{split}.jsonl")
        assert rows(folder / f"{split}.jsonl") == {
            utt_id: row for utt_id, row in every.items() if "text" in row
        }


def test_gaps_of_the_corpus_are_reported(folder: Path) -> None:
    left_out = json.loads((folder / "report.json").read_text(encoding="utf-8"))["left_out"]
    counts = {reason: len(ids) for reason, ids in left_out.items()}
    assert counts == {
        "no_transcript": 93,
        "empty_transcript": 8,
        "no_recording": 17,
        "repeated_transcript": 1,
    }
    assert left_out["repeated_transcript"] == ["es_MX_f_Allison/digits/0"]
    assert "ru_RU_f_IvrvoiceRU/is" in left_out["empty_transcript"]
    title = "it_IT_m_Carlo/\ufeff;_Core_Asterisk_Sounds_in_Italian"
    assert title in left_out["empty_transcript"], "a byte order mark makes the list's title an entry"
    assert title in left_out["no_recording"]


def test_one_speaker_speaks_two_languages(folder: Path) -> None:
    pairs = {(row["speaker"], row["language"]) for row in rows(folder / "stats_train.jsonl").values()}
    assert pairs == {
        ("Allison", "en"),
        ("Allison", "es"),
        ("June", "fr"),
        ("Carlo", "it"),
        ("IvrvoiceRU", "ru"),
    }


def test_all_but_the_empty_recording_can_be_read(folder: Path) -> None:
    entries = [{"manifest": folder / "stats_train.jsonl"}, {"manifest": folder / "stats_valid.jsonl"}]
    dataset = DataOrganizer(train=entries, valid=entries).train
    assert dataset is not None
    assert dataset.build_index(folder / "index.arrow").num_items == 2831
    failed, num_samples = [], 0
    for i in range(len(dataset)):
        try:
            num_samples += dataset.num_samples(i)
        except UtteranceError as error:
            failed.append((dataset.utt_id(i), error.kind))
    assert failed == [("ru_RU_f_IvrvoiceRU/is", Verdict.EMPTY)]
    assert round(num_samples / 8000 / 60) == 131
    assert len(ManifestDataset(folder / "train.jsonl")[0]["speech"]) > 0


def test_missing_packages_are_named(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, tmp_path, "--sounds", tmp_path / "none"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert done.stderr.startswith(f"error: {tmp_path}/none: no recordings; install them with: apt install ")
    assert "Traceback" not in done.stderr
