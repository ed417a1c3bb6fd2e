"""collect_stats on real audio files: shapes and statistics by utterance id, and what may change between two
runs.
"""

import json
import os
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from numpy.typing import NDArray

from statsprep.engine.report import RunReport
from statsprep.errors import ChangedRunError, ConfigError, DataError
from statsprep.models.features import FeatureModel
from statsprep.models.frontend import LogMel
from statsprep.runners import collect_stats
from statsprep.runners.stats import CollectStatsRunner
from statsprep.stats.npz import read_stats
from statsprep.storage.shapes import load_shapes, read_shapes

NUM_MELS = 8
FRONTEND: dict[str, Any] = {"sample_rate_hz": 8000, "n_mels": NUM_MELS}
LENGTHS = [4000, 6500, 3333, 8000, 5210, 2999, 7001]
SPEAKERS = ["bea", "abe"]


@pytest.fixture
def rows(tmp_path: Path) -> list[dict[str, Any]]:
    """Seven recordings with odd ids and texts; the manifests are in data/."""
    (tmp_path / "data").mkdir()
    found = []
    for number, length in enumerate(LENGTHS):
        samples = np.random.default_rng(number).uniform(-0.3, 0.3, length)
        soundfile.write(tmp_path / "data" / f"{number}.wav", samples, 8000, subtype="PCM_16")
        text = "ab cä"[: number % 5 + 1].strip()
        found.append({"utt_id": f"spk/é_{number}", "audio": f"{number}.wav", "text": text,
                      "speaker": SPEAKERS[number % 2]})  # fmt: skip
    return found


Collect = Callable[..., RunReport]


@pytest.fixture
def collect(tmp_path: Path, rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> Iterator[Collect]:
    """Measures `rows` (or other ones) into exp/<mode>; options go to collect_stats."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)

    def run(
        lines: list[dict[str, Any]] | None = None, *, model: Any = None, dataset: Any = None,
        mode: str = "train", **options: Any,
    ) -> RunReport:  # fmt: skip
        manifest = tmp_path / "data" / "train.jsonl"
        text = "".join(json.dumps(row) + "\n" for row in (rows if lines is None else lines))
        manifest.write_text(text, encoding="utf-8")
        entry = [{"manifest": str(manifest)}]
        options = {"output_dir": tmp_path / "exp", "recipe_root": tmp_path, "shard_size": 3, **options}
        section = {"train": entry, "valid": entry, **(dataset or {})}
        return collect_stats(
            {"frontend": FRONTEND} if model is None else model, section, mode=mode, **options
        )

    yield run
    for name in set(sys.modules) - before:
        if name.split(".")[0] == "src":
            del sys.modules[name]


def features_of(tmp_path: Path, row: dict[str, Any]) -> NDArray[np.float64]:
    """One utterance's log-mel, float64 (frames, mels), computed alone."""
    samples, _ = soundfile.read(tmp_path / "data" / row["audio"], dtype="float32")
    with torch.inference_mode():
        feats, lengths = LogMel(**FRONTEND)(torch.from_numpy(samples)[None], torch.tensor([len(samples)]))
    return np.asarray(feats[0, : lengths[0]], np.float64)


def shapes_of(path: Path) -> dict[str, tuple[int, ...]]:
    return dict(read_shapes(path))


def merged(root: Path) -> dict[str, bytes]:
    names = json.loads((root / "merged.json").read_text())["files"]
    return {name: (root / name).read_bytes() for name in names}


def test_shapes_and_statistics_are_those_of_the_features(
    tmp_path: Path, rows: list[dict[str, Any]], collect: Collect
) -> None:
    report = collect()
    root = tmp_path / "exp" / "train"
    feats = {row["utt_id"]: features_of(tmp_path, row) for row in rows}
    assert report.counts == {"ok": 7, "dropped": 0, "error": 0}
    assert shapes_of(root / "feats_shape") == {utt_id: each.shape for utt_id, each in feats.items()}
    assert list(shapes_of(root / "feats_shape")) == [row["utt_id"] for row in rows]
    frames = np.concatenate(list(feats.values()))
    stats = read_stats(root / "feats_stats.npz")
    assert stats.count == len(frames)
    np.testing.assert_allclose(stats.mean, frames.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(stats.variance, frames.var(axis=0), rtol=1e-10)
    np.testing.assert_array_equal(stats.min, frames.min(axis=0))
    np.testing.assert_array_equal(stats.max, frames.max(axis=0))
    assert (root / "stats_keys").read_text() == "feats\n"
    assert report.keyed_by == "utt_id"


def test_the_arrow_file_says_the_same_with_positions(tmp_path: Path, collect: Collect) -> None:
    collect()
    root = tmp_path / "exp" / "train"
    table = load_shapes(root / "feats_shape.arrow").to_pydict()
    assert dict(
        zip(table["utt_id"], zip(table["dim0"], table["dim1"], strict=True), strict=True)
    ) == shapes_of(root / "feats_shape")
    assert table["index"] == list(range(7))


@pytest.mark.parametrize("batch_size", [2, 5])
def test_padding_never_enters_the_statistics(batch_size: int, tmp_path: Path, collect: Collect) -> None:
    """espnet#6571: deviations depended on how much padding a batch had."""
    collect(output_dir=tmp_path / "one")
    collect(output_dir=tmp_path / "many", batch_size=batch_size)
    one, many = (tmp_path / name / "train" for name in ("one", "many"))
    assert (one / "feats_shape").read_bytes() == (many / "feats_shape").read_bytes()
    first, second = read_stats(one / "feats_stats.npz"), read_stats(many / "feats_stats.npz")
    np.testing.assert_allclose(first.mean, second.mean, rtol=1e-5)
    np.testing.assert_allclose(first.variance, second.variance, rtol=1e-4)


def test_shard_size_changes_no_shape_and_no_statistic(tmp_path: Path, collect: Collect) -> None:
    collect(output_dir=tmp_path / "a", shard_size=2)
    collect(output_dir=tmp_path / "b", shard_size=7)
    first, second = (read_stats(tmp_path / name / "train" / "feats_stats.npz") for name in "ab")
    np.testing.assert_allclose(first.m2, second.m2, rtol=1e-13)
    assert (tmp_path / "a/train/feats_shape").read_bytes() == (tmp_path / "b/train/feats_shape").read_bytes()


TOKENS = {"preprocessor": {"_target_": "statsprep.data.tokens.TextPreprocessor", "token_type": "char"}}


def test_texts_have_lengths_and_their_tokens_are_listed(
    tmp_path: Path, rows: list[dict[str, Any]], collect: Collect
) -> None:
    collect(dataset=TOKENS)
    root = tmp_path / "exp" / "train"
    assert shapes_of(root / "text_shape") == {row["utt_id"]: (len(row["text"]),) for row in rows}
    tokens = (root / "token_list").read_text(encoding="utf-8").splitlines()
    assert (tokens[:2], tokens[-1]) == (["<blank>", "<unk>"], "<sos/eos>")
    assert set(tokens[2:-1]) == {"a", "b", "c", "ä", "<space>"}
    assert not (root / "text_stats.npz").exists(), "integers have shapes only"
    assert (root / "stats_keys").read_text() == "feats\n"


def test_categories_are_written_both_ways(
    tmp_path: Path, rows: list[dict[str, Any]], collect: Collect
) -> None:
    collect(categories={"category": "speaker"})
    root = tmp_path / "exp" / "train"
    assert (root / "utt2category").read_text(encoding="utf-8") == "".join(
        f"{row['utt_id']} {row['speaker']}\n" for row in rows
    )
    lines = (root / "category2utt").read_text(encoding="utf-8").splitlines()
    assert lines == [
        " ".join([name, *(r["utt_id"] for r in rows if r["speaker"] == name)]) for name in ("abe", "bea")
    ]


def test_an_utterance_without_its_category_is_named(
    tmp_path: Path, rows: list[dict[str, Any]], collect: Collect
) -> None:
    del rows[2]["speaker"]
    rows[4]["speaker"] = "two words"
    report = collect(categories={"category": "speaker"}, max_errors=2)
    assert report.failed_ids == [rows[2]["utt_id"], rows[4]["utt_id"]]
    text = (tmp_path / "exp/train/errors.jsonl").read_text(encoding="utf-8")
    assert "field 'speaker' for utt2category is missing; expected one word" in text
    assert "is 'two words'" in text


def test_lengths_need_no_model(
    tmp_path: Path, rows: list[dict[str, Any]], collect: Collect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """espnet#4888, #5971: the model was built although every length stands in the file's header."""
    monkeypatch.setattr(FeatureModel, "__init__", lambda *args, **kwargs: pytest.fail("a model was built"))
    monkeypatch.setattr(soundfile, "read", lambda *args, **kwargs: pytest.fail("audio was decoded"))
    collect(stats="lengths", dataset=TOKENS)
    root = tmp_path / "exp" / "train"
    assert shapes_of(root / "speech_shape") == {
        row["utt_id"]: (length,) for row, length in zip(rows, LENGTHS, strict=True)
    }
    assert shapes_of(root / "text_shape") == {row["utt_id"]: (len(row["text"]),) for row in rows}
    assert (root / "stats_keys").read_text() == ""


def test_lengths_run_without_loading_torch(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    (tmp_path / "data" / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    code = (
        "import sys; from statsprep.runners import collect_stats\n"
        "entry = [{'manifest': 'data/train.jsonl'}]\n"
        "collect_stats(None, {'train': entry, 'valid': entry}, output_dir='exp', stats='lengths')\n"
        "print([name for name in ('torch', 'librosa', 'distributed') if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_kept_rows_give_the_statistics_of_any_subset(
    tmp_path: Path, rows: list[dict[str, Any]], collect: Collect
) -> None:
    from statsprep.stats.moments import combine

    collect(per_utterance_stats=True)
    root = tmp_path / "exp" / "train"
    kept = np.load(root / "feats_utt_stats.npy")
    assert kept.shape == (7, 4, NUM_MELS)
    counts = np.array([shape[0] for shape in shapes_of(root / "feats_shape").values()])
    chosen = [number for number, row in enumerate(rows) if row["speaker"] == "abe"]
    frames = np.concatenate([features_of(tmp_path, rows[number]) for number in chosen])
    found = combine(counts[chosen], kept[chosen])
    np.testing.assert_allclose(found.mean, frames.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.variance, frames.var(axis=0), rtol=1e-10)


MODEL = """\
import torch

COUNT = []

class Model(torch.nn.Module):
    results_version = 1

    def __init__(self, fail_at=0, encoder=None):
        super().__init__()
        self.fail_at = fail_at

    @classmethod
    def stats_config(cls, config):
        return {}

    def collect_feats(self, speech, speech_lengths, **batch):
        COUNT.append(len(speech))
        if self.fail_at and len(COUNT) == self.fail_at:
            raise KeyboardInterrupt
        feats = torch.stack([speech[:, :2000], speech[:, 1:2001]], -1)
        return {"feats": feats, "feats_lengths": (speech_lengths // 10).clamp(max=2000)}
"""


@pytest.fixture
def count_calls(tmp_path: Path, collect: Collect) -> Callable[[], int]:
    """A recipe's own model in src/model.py; gives how many utterances it has seen since the last call."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "__init__.py").touch()
    (tmp_path / "src" / "model.py").write_text(MODEL)

    def count() -> int:
        calls = sys.modules["src.model"].COUNT
        total = sum(calls)
        calls.clear()
        return int(total)

    return count


def own_model(**options: Any) -> dict[str, Any]:
    return {"_target_": "src.model.Model", **options}


def test_collected_features_are_kept_by_id(
    tmp_path: Path, rows: list[dict[str, Any]], collect: Collect, count_calls: Callable[[], int]
) -> None:
    collect(model=own_model(), write_collected_feats=True)
    root = tmp_path / "exp" / "train"
    lines = (root / "collect_feats" / "feats.scp").read_text(encoding="utf-8").splitlines()
    assert [line.split(" ")[0] for line in lines] == [row["utt_id"] for row in rows]
    for line, length in zip(lines, LENGTHS, strict=True):
        assert np.load(line.partition(" ")[2]).shape == (length // 10, 2)


@pytest.mark.parametrize("form", ["npy", "ark"])
def test_collected_features_are_taken_over_from_a_killed_attempt(
    tmp_path: Path,
    collect: Collect,
    count_calls: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
    form: str,
) -> None:
    monkeypatch.setattr(CollectStatsRunner, "block_size", 2)
    options = {"write_collected_feats": True, "collected_feats_format": form, "shard_size": 7}
    with pytest.raises(KeyboardInterrupt):
        collect(model=own_model(fail_at=3), **options)
    count_calls()
    collect(model=own_model(), **options)
    assert count_calls() == 5, "two were finished by the killed attempt"
    collect(model=own_model(), **options, output_dir=tmp_path / "undisturbed")
    kept = list((tmp_path / "exp" / "train" / "split.0").rglob(f"*.{form}"))
    for killed in kept:
        whole = tmp_path / "undisturbed" / "train" / killed.relative_to(tmp_path / "exp" / "train")
        assert killed.read_bytes() == whole.read_bytes()
    assert len(kept) == (7 if form == "npy" else 1)


@pytest.mark.parametrize("form", ["npy", "ark"])
def test_features_that_a_killed_attempt_lost_are_measured_again(
    tmp_path: Path,
    collect: Collect,
    count_calls: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
    form: str,
) -> None:
    monkeypatch.setattr(CollectStatsRunner, "block_size", 2)
    options = {"write_collected_feats": True, "collected_feats_format": form, "shard_size": 7}
    with pytest.raises(KeyboardInterrupt):
        collect(model=own_model(fail_at=5), **options)
    if form == "npy":
        next((tmp_path / "exp" / "train" / ".attempts").rglob("1-*.npy")).unlink()
    else:
        archive = next((tmp_path / "exp" / "train" / ".attempts").rglob("*.ark"))
        os.truncate(archive, archive.stat().st_size * 3 // 8)
    count_calls()
    collect(model=own_model(), **options)
    assert count_calls() == 6, "only the first is whole"


def test_a_change_above_the_statistics_resumes(
    tmp_path: Path, collect: Collect, count_calls: Callable[[], int]
) -> None:
    """The model declares what its statistics depend on; its encoder may grow."""
    collect(model=own_model(encoder={"layers": 12}))
    assert count_calls() == 7
    report = collect(model=own_model(encoder={"layers": 18}))
    assert count_calls() == 0
    assert report.num_skipped == 7


def test_the_bundled_models_encoder_may_change_but_not_its_front_end(
    tmp_path: Path, collect: Collect
) -> None:
    collect(model={"frontend": FRONTEND, "encoder": {"layers": 12}})
    before = merged(tmp_path / "exp" / "train")
    assert collect(model={"frontend": FRONTEND, "encoder": {"layers": 18}}).num_skipped == 7
    with pytest.raises(ChangedRunError) as caught:
        collect(model={"frontend": {**FRONTEND, "n_mels": 4}})
    assert caught.value.detail == f"  model.frontend.n_mels: {NUM_MELS} -> 4"
    assert merged(tmp_path / "exp" / "train") == before


def test_a_change_of_the_manifest_is_refused(
    tmp_path: Path, rows: list[dict[str, Any]], collect: Collect
) -> None:
    collect()
    index = (tmp_path / "exp/train/index.arrow").read_bytes()
    changed = [{**row, "text": row["text"] + "x"} for row in rows]
    with pytest.raises(ChangedRunError, match="another data") as caught:
        collect(changed)
    assert "data.index" in caught.value.detail
    assert (tmp_path / "exp/train/index.arrow").read_bytes() == index, "the run keeps its own index"
    assert not list((tmp_path / "exp" / "train").glob(".index*"))


def test_a_reordered_manifest_never_maps_a_length_to_another_utterance(
    tmp_path: Path, rows: list[dict[str, Any]], collect: Collect
) -> None:
    """espnet#6742: shapes were keyed by position."""
    collect()
    before = shapes_of(tmp_path / "exp/train/feats_shape")
    with pytest.raises(ChangedRunError, match="another data"):
        collect(rows[::-1])
    collect(rows[::-1], overwrite=True)
    after = shapes_of(tmp_path / "exp/train/feats_shape")
    assert after == before
    assert list(after) == list(before)[::-1]


def test_the_other_splits_manifest_may_change(
    tmp_path: Path, rows: list[dict[str, Any]], collect: Collect
) -> None:
    other = tmp_path / "data" / "valid.jsonl"
    other.write_text(json.dumps(rows[0]) + "\n")
    collect(dataset={"valid": [{"manifest": str(other)}]})
    other.write_text(json.dumps(rows[1]) + "\n")
    assert collect(dataset={"valid": [{"manifest": str(other)}]}).num_skipped == 7


TRANSFORM = """\
def drop_short(sample):
    return None if len(sample["speech"]) < 4000 else sample
"""


def test_a_transform_that_returns_none_drops_the_utterance(
    tmp_path: Path, rows: list[dict[str, Any]], collect: Collect
) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "__init__.py").touch()
    (tmp_path / "src" / "clean.py").write_text(TRANSFORM)
    entry = {
        "manifest": str(tmp_path / "data" / "train.jsonl"),
        "transform": {"_target_": "src.clean.drop_short", "_partial_": True},
    }
    report = collect(dataset={"train": [entry]})
    short = [row["utt_id"] for row, length in zip(rows, LENGTHS, strict=True) if length < 4000]
    assert report.dropped_ids == short
    assert list(shapes_of(tmp_path / "exp/train/feats_shape")) == [
        row["utt_id"] for row in rows if row["utt_id"] not in short
    ]


def test_broken_audio_costs_one_utterance_each_with_its_kind(
    tmp_path: Path, rows: list[dict[str, Any]], collect: Collect
) -> None:
    (tmp_path / "data" / "1.wav").write_bytes(b"no audio at all")
    soundfile.write(tmp_path / "data" / "3.wav", np.zeros(0), 8000)
    (tmp_path / "data" / "5.wav").unlink()
    soundfile.write(tmp_path / "data" / "6.wav", np.full(4000, np.nan), 8000, subtype="FLOAT")
    report = collect(max_errors=4)
    assert report.counts == {"ok": 3, "dropped": 0, "error": 4}
    records = [json.loads(line) for line in (tmp_path / "exp/train/errors.jsonl").read_text().splitlines()]
    assert [record["kind"] for record in records] == ["unreadable", "empty", "unreadable", "non_finite"]
    assert [record["utt_id"] for record in records] == [rows[number]["utt_id"] for number in (1, 3, 5, 6)]
    with pytest.raises(DataError, match="4 utterances failed, at most 0 may"):
        collect()


def test_parallel_config_works_without_anything_else_imported(
    tmp_path: Path, rows: list[dict[str, Any]]
) -> None:
    (tmp_path / "data" / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    code = (
        "from statsprep.runners import collect_stats\n"
        "entry = [{'manifest': 'data/train.jsonl'}]\n"
        "report = collect_stats(None, {'train': entry, 'valid': entry}, output_dir='exp', stats='lengths',\n"
        "                       parallel_config={'env': 'local', 'n_workers': 1})\n"
        "print(report.counts['ok'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "7"), done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"batch_sizes": 2},
            r"collect_stats: collect_stats: unknown key 'batch_sizes'; did you mean 'batch_size'",
        ),
        ({"output_dir": ""}, "stats_dir: missing; expected a folder"),
        ({"mode": "tain"}, r"dataset\.tain: missing; expected a split with entries.*did you mean 'train'"),
        ({"model": {"fronted": {}}}, r"model\.fronted: the section has no _target_.*did you mean 'frontend'"),
        ({"model": {"_target_": "torch.nn.Identity"}}, r"model\._target_: Identity has no collect_feats"),
        ({"model": {"_target_": "os.system"}}, r"os"),
        (
            {"parallel_config": {"env": "lokal"}},
            r"parallel\.env: 'lokal' is not valid; .*did you mean 'local'",
        ),
    ],
)
def test_mistakes_are_named(options: dict[str, Any], message: str, collect: Collect, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        collect(**options)
    assert not (tmp_path / "exp" / "train" / "split.0").exists()


def test_audio_of_another_rate_than_the_front_end_is_refused(collect: Collect) -> None:
    """Its features would look right and be wrong."""
    with pytest.raises(DataError) as raised:
        collect(model={"frontend": {**FRONTEND, "sample_rate_hz": 16000}})
    assert "its audio has 8000 Hz; the model's front end expects 16000" in raised.value.detail


class _SampleIds:
    """A dataset that knows its ids only once a sample is loaded."""

    def __init__(self, ids: list[str]) -> None:
        self._ids = ids

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, index: int) -> dict[str, Any]:
        speech = np.random.default_rng(index).standard_normal(4000).astype(np.float32)
        return {"utt_id": self._ids[index], "speech": speech}


@pytest.fixture
def collect_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[list[str]], RunReport]:
    """Measures a dataset without utt_ids() whose samples bring their ids."""

    def run(ids: list[str]) -> RunReport:
        module = types.ModuleType("sample_ids_module")
        module.make = lambda: _SampleIds(ids)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
        entry = [{"name": "own", "dataset": {"_target_": f"{module.__name__}.make"}}]
        splits = {"train": entry, "valid": entry}
        model = {"frontend": FRONTEND}
        return collect_stats(
            model, splits, None, "train", tmp_path / "exp", allow_targets=[module.__name__, __name__]
        )

    return run


def test_ids_that_only_samples_know_key_the_shapes(
    tmp_path: Path, collect_samples: Callable[[list[str]], RunReport]
) -> None:
    collect_samples(["c", "a", "b"])
    assert [utt_id for utt_id, _ in read_shapes(tmp_path / "exp" / "train" / "feats_shape")] == [
        "c",
        "a",
        "b",
    ]


def test_an_id_that_two_samples_bring_is_an_error_that_names_both(
    collect_samples: Callable[[list[str]], RunReport],
) -> None:
    with pytest.raises(DataError, match=r"utterance 'a' appears twice \(items 1 and 2 of the split\)"):
        collect_samples(["c", "a", "a"])
