"""One bad file costs one bad file: named, with its kind, within a limit that decides over the exit code."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.integration.conftest import RunDir, StatsprepCommand

NUM_UTTERANCES = 1000
BAD = {"u0123": "exception", "u0456": "non_finite", "u0789": "unreadable"}

_CODE = """\
import torch

def fail_for_one(sample):
    if sample["utt_id"] == "u0123":
        raise KeyError("transcript of u0123")
    return sample

class Loudness(torch.nn.Module):
    def collect_feats(self, speech, speech_lengths, **batch):
        return {"feats": (speech * speech).log()[..., None], "feats_lengths": speech_lengths}
"""
_CONFIG = """\
stats_dir: exp
dataset:
  _target_: statsprep.data.organizer.DataOrganizer
  train: [{manifest: train.jsonl, transform: {_target_: src.prep.fail_for_one, _partial_: true}}]
  valid: [{manifest: train.jsonl}]
model: {_target_: src.prep.Loudness}
collect_stats: {splits: [train]}
"""


@pytest.fixture
def corpus(tmp_path: Path, recipe: Callable[..., Path]) -> Path:
    """1,000 utterances of ten samples, of which one makes the transform raise, one holds a NaN, one is no
    audio.
    """
    for name, samples in (("good", np.full(10, 0.5)), ("nan", np.array([0.5, np.nan, 0.5]))):
        soundfile.write(tmp_path / f"{name}.wav", samples, 8000, subtype="FLOAT")
    (tmp_path / "text.wav").write_text("this is no audio\n", encoding="utf-8")
    audio = {"u0456": "nan.wav", "u0789": "text.wav"}
    rows = [
        {"utt_id": f"u{number:04d}", "audio": audio.get(f"u{number:04d}", "good.wav")}
        for number in range(NUM_UTTERANCES)
    ]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return recipe(_CODE, _CONFIG)


def test_raise_stops_at_the_first_and_names_it(corpus: Path, statsprep: StatsprepCommand) -> None:
    """on_error: raise ends with 3 and one line with the utterance; what to do instead stands there too."""
    seen = statsprep("run", corpus, "collect_stats.on_error=raise", code=3)
    assert len(seen.errors) == 1
    assert "'u0123' (index 123)" in seen.errors[0]
    assert "on_error: skip" in seen.errors[0]


def test_skip_records_three_and_measures_the_rest(
    corpus: Path, tmp_path: Path, statsprep: StatsprepCommand
) -> None:
    """Within max_errors (1% by default) the run ends with 0 and lists what failed, with kinds and
    tracebacks.
    """
    seen = statsprep("run", corpus)
    found = RunDir(tmp_path / "exp" / "train")
    errors = found.lines("errors.jsonl")
    assert {line["utt_id"]: line["kind"] for line in errors} == BAD
    assert [line["index"] for line in errors] == [123, 456, 789]
    assert "KeyError: 'transcript of u0123'" in errors[0]["message"]
    assert all("Traceback" in line["traceback"] for line in errors)
    for utt_id, kind in BAD.items():
        assert f"{utt_id}: {kind}: " in seen.out
    assert len((found.root / "feats_shape").read_text(encoding="utf-8").splitlines()) == NUM_UTTERANCES - 3
    assert np.load(found.root / "feats_stats.npz")["count"] == 10 * (NUM_UTTERANCES - 3)
    assert json.loads(statsprep("status", "exp", "--json").out)[0]["failures"] == dict.fromkeys(
        BAD.values(), 1
    )


def test_more_than_max_errors_is_an_error_and_the_rest_is_kept(
    corpus: Path, tmp_path: Path, statsprep: StatsprepCommand
) -> None:
    """Above the limit the exit code is 3, but everything good is measured and merged, and a higher limit
    accepts it.
    """
    seen = statsprep("run", corpus, "collect_stats.max_errors=2", code=3)
    assert "3 utterances failed, at most 2 may" in seen.errors[0]
    assert "by kind: 1 exception, 1 non_finite, 1 unreadable" in seen.err
    assert np.load(tmp_path / "exp/train/feats_stats.npz")["count"] == 10 * (NUM_UTTERANCES - 3)
    assert "1,000 finished before" in statsprep("run", corpus, "collect_stats.max_errors=3").err


def test_mended_file_is_measured_by_retry_errors(
    corpus: Path, tmp_path: Path, statsprep: StatsprepCommand
) -> None:
    """--retry_errors measures the failed shards again, and only them."""
    statsprep("run", corpus)
    for name in ("nan.wav", "text.wav"):
        (tmp_path / name).write_bytes((tmp_path / "good.wav").read_bytes())
    assert "1,000 finished before" in statsprep("run", corpus).err
    assert "904 finished before" in statsprep("run", corpus, "--retry_errors").err
    assert [line["utt_id"] for line in RunDir(tmp_path / "exp/train").lines("errors.jsonl")] == ["u0123"]


def test_when_most_fail_the_run_stops_early(
    corpus: Path, tmp_path: Path, statsprep: StatsprepCommand
) -> None:
    """A folder that is not there fails everything: the run says so after a shard, not after the corpus."""
    (tmp_path / "good.wav").unlink()
    seen = statsprep("run", corpus, code=3)
    assert "stopped: 32 of the first 32 utterances failed" in seen.errors[0]
    assert "good.wav" in seen.err
