"""One answer: in process and with any number of Dask workers, a corpus is measured to the same bytes, and
rightly.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.integration.conftest import ROOT, RunDir, StatsprepCommand

CONFIG = ROOT / "configs" / "asterisk" / "stats.yaml"
FRONTEND: dict[str, Any] = {"sample_rate_hz": 8000, "n_fft": 256, "hop_length": 80, "n_mels": 80}
EMPTY_ID = "ru_RU_f_IvrvoiceRU/is"
SPLITS = ("train", "valid")
WORKERS = (0, 1, 2, 7)


def choose_workers(number: int) -> tuple[str, ...]:
    return (f"parallel.env={'local' if number else 'none'}", f"parallel.n_workers={number or 1}")


@pytest.fixture(scope="module")
def measured(asterisk: Path) -> dict[int, Path]:
    """The stats_dir of the real corpus by number of Dask workers, 0 for the driver's own process."""
    statsprep = StatsprepCommand(asterisk)
    for number in WORKERS:
        statsprep("run", CONFIG, *choose_workers(number), f"stats_dir=stats{number}")
    statsprep.end_all()
    return {number: asterisk / f"stats{number}" for number in WORKERS}


@pytest.mark.corpus
@pytest.mark.parametrize("number", WORKERS[1:])
def test_every_mode_writes_the_same_bytes(number: int, measured: dict[int, Path]) -> None:
    """Every merged file, and merged.json with the digests of every shard, is the same with any number of
    workers.
    """
    for split in SPLITS:
        merged = RunDir(measured[number] / split).merged()
        assert merged == RunDir(measured[0] / split).merged()
        assert {
            "feats_shape",
            "feats_stats.npz",
            "utt2category",
            "errors.jsonl",
            "merged.json",
        } <= merged.keys()


@pytest.mark.corpus
def test_every_recording_is_accounted_for(measured: dict[int, Path]) -> None:
    """2,831 recordings go in: 2,830 shapes and one error come out, each id once."""
    ids = [utt_id for split in SPLITS for utt_id in RunDir(measured[0] / split).ids()]
    assert len(ids) == len(set(ids)) == 2831


@pytest.mark.corpus
def test_recording_without_samples_is_an_error_record(measured: dict[int, Path]) -> None:
    """The one empty recording is named with its kind, and costs nothing else."""
    errors = [line for split in SPLITS for line in RunDir(measured[0] / split).lines("errors.jsonl")]
    assert [(line["utt_id"], line["kind"]) for line in errors] == [(EMPTY_ID, "empty")]


@dataclass
class Loop:
    """What a loop over the same recordings finds."""

    frames: dict[str, int]
    mean: Any
    variance: Any
    minimum: Any
    maximum: Any


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """As in a run: with several threads torch rounds in another order."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def read_manifest(path: Path) -> dict[str, str]:
    import json

    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {row["utt_id"]: row["audio"] for row in rows}


def accumulate(manifest: Path) -> Loop:
    """Sums in extended precision over features made one recording at a time."""
    import soundfile
    import torch

    from statsprep.models.frontend import LogMel

    frontend = LogMel(**FRONTEND)
    frames: dict[str, int] = {}
    total = square = np.zeros(FRONTEND["n_mels"], np.longdouble)
    minimum, maximum = np.full((2, FRONTEND["n_mels"]), [[np.inf], [-np.inf]])
    for utt_id, path in read_manifest(manifest).items():
        audio, _ = soundfile.read(path, dtype="float32")
        if not len(audio):
            continue
        feats = frontend(torch.from_numpy(audio)[None], torch.tensor([len(audio)]))[0][0].numpy()
        frames[utt_id] = len(feats)
        exact = feats.astype(np.longdouble)
        total = total + exact.sum(axis=0)
        square = square + (exact * exact).sum(axis=0)
        minimum, maximum = np.minimum(minimum, feats.min(0)), np.maximum(maximum, feats.max(0))
    count = sum(frames.values())
    mean = total / count
    return Loop(frames, mean, square / count - mean * mean, minimum, maximum)


@pytest.mark.corpus
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("split", SPLITS)
def test_statistics_equal_an_independent_accumulation(
    split: str, measured: dict[int, Path], asterisk: Path
) -> None:
    """Lengths, counts and ranges exactly, mean and variance to 1e-12 of their size, against a plain loop."""
    loop = accumulate(asterisk / "data" / "asterisk" / f"stats_{split}.jsonl")
    folder = measured[0] / split
    lines = (folder / "feats_shape").read_text(encoding="utf-8").splitlines()
    assert lines == [f"{utt_id} {number},80" for utt_id, number in loop.frames.items()]
    stats = np.load(folder / "feats_stats.npz")
    assert stats["count"] == sum(loop.frames.values())
    assert np.array_equal(stats["min"], loop.minimum)
    assert np.array_equal(stats["max"], loop.maximum)
    np.testing.assert_allclose(stats["mean"], loop.mean.astype(float), rtol=1e-12)
    np.testing.assert_allclose(stats["m2"] / stats["count"], loop.variance.astype(float), rtol=1e-12)
    np.testing.assert_allclose(stats["sum"], (loop.mean * stats["count"]).astype(float), rtol=1e-12)


@pytest.mark.corpus
def test_front_end_agrees_with_librosa(asterisk: Path) -> None:
    """The logarithm of librosa.feature.melspectrogram with the same options, to 1e-4, over recordings of all
    voices.
    """
    import librosa
    import soundfile
    import torch

    from statsprep.models.frontend import LogMel

    frontend = LogMel(**FRONTEND)
    paths = list(read_manifest(asterisk / "data" / "asterisk" / "stats_valid.jsonl").values())[::4]
    assert len({path.split("/")[5] for path in paths}) == 5
    for path in paths:
        audio, rate_hz = soundfile.read(path, dtype="float32")
        mel = librosa.feature.melspectrogram(
            y=audio.astype(np.float64), sr=rate_hz, n_fft=256, hop_length=80, n_mels=80, pad_mode="reflect"
        )
        feats, _ = frontend(torch.from_numpy(audio)[None], torch.tensor([len(audio)]))
        np.testing.assert_allclose(feats[0].T, np.log(np.maximum(mel, 1e-10)), atol=1e-4)


_HARD_MODEL = """\
import numpy as np
import torch


class Numbers:
    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def utt_ids(self):
        return [f"u{number:04d}" for number in range(self.length)]

    def __getitem__(self, i):
        return {"seed": np.array([i]), "speech": np.zeros(1 + i * 7919 % 50, np.float32)}


class FarFromZero(torch.nn.Module):
    def collect_feats(self, seed, speech, **batch):
        random = np.random.default_rng(int(seed[0, 0]))
        feats = torch.from_numpy(random.normal(1000, 0.1, (1, speech.shape[1], 5)))
        return {"feats": feats.float(), "feats_lengths": batch["speech_lengths"]}
"""
_HARD_CONFIG = """\
stats_dir: exp
dataset:
  _target_: statsprep.data.organizer.DataOrganizer
  train: [{dataset: {_target_: src.prep.Numbers, length: 500}}]
  valid: [{dataset: {_target_: src.prep.Numbers, length: 40}}]
model: {_target_: src.prep.FarFromZero}
"""


def test_large_mean_and_small_deviation_are_measured_exactly(
    tmp_path: Path, recipe: Callable[..., Path], statsprep: StatsprepCommand
) -> None:
    """Features of mean 1000 and deviation 0.1: sums of squares would lose half of the variance's digits; not
    here, and
    not differently by the number of workers."""
    config = recipe(_HARD_MODEL, _HARD_CONFIG)
    for number in (0, 2, 3):
        statsprep("run", config, *choose_workers(number), f"stats_dir=exp{number}")
    runs = {number: RunDir(tmp_path / f"exp{number}" / "train") for number in (0, 2, 3)}
    assert runs[0].merged() == runs[2].merged() == runs[3].merged()
    stats = np.load(runs[0].root / "feats_stats.npz")
    feats = [np.random.default_rng(i).normal(1000, 0.1, (1 + i * 7919 % 50, 5)) for i in range(500)]
    exact = np.concatenate(feats).astype(np.float32).astype(np.longdouble)
    assert stats["count"] == len(exact)
    np.testing.assert_allclose(stats["mean"], exact.mean(axis=0).astype(float), rtol=1e-15)
    np.testing.assert_allclose(stats["m2"] / len(exact), exact.var(axis=0).astype(float), rtol=1e-12)
