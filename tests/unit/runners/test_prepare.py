"""Preparation on real audio files: what is written is a corpus that the next stage reads, and every utterance
that is not in it is accounted for.
"""

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kaldiio
import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from statsprep.data.audio import resample
from statsprep.data.dataset import ManifestDataset
from statsprep.data.verdicts import Dropped
from statsprep.engine.report import RunReport
from statsprep.engine.shard import ShardWriters
from statsprep.errors import ChangedRunError, ConfigError, DataError
from statsprep.models.extract import LogMelFeatures, StftFeatures
from statsprep.runners.collect import collect_stats
from statsprep.runners.prepare import clean
from statsprep.runners.prepare_corpus import prepare_corpus
from statsprep.storage.shapes import load_shapes, read_shapes

LENGTHS = [4000, 6500, 1500, 8000, 5210, 2999, 7001]
LOG_MEL = {"_target_": "statsprep.models.extract.LogMelFeatures", "n_mels": 8}
TOO_SHORT = {"_target_": "statsprep.data.cleaners.DurationBounds", "min_s": 0.3}
Prepare = Callable[..., RunReport]


@pytest.fixture
def rows(tmp_path: Path) -> list[dict[str, Any]]:
    """Seven recordings of 8 kHz with odd ids; the third is too short for `TOO_SHORT`."""
    (tmp_path / "data").mkdir()
    ids = ["spk/1", "../../above", "x" * 300, "é", "it's", 'a"b', "NaN"]
    for number, length in enumerate(LENGTHS):
        samples = np.random.default_rng(number).uniform(-0.3, 0.3, length)
        soundfile.write(tmp_path / "data" / f"{number}.wav", samples, 8000, subtype="PCM_16")
    return [
        {"utt_id": utt_id, "audio": f"{number}.wav", "text": f"Text {number}", "speaker": "bea"}
        for number, utt_id in enumerate(ids)
    ]


@pytest.fixture
def prepare(tmp_path: Path, rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> Iterator[Prepare]:
    """Prepares `rows` into exp/train; options go to prepare_corpus."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)

    def run(*, dataset: Any = None, mode: str = "train", **options: Any) -> RunReport:
        manifest = tmp_path / "data" / "train.jsonl"
        manifest.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        options = {"output_dir": tmp_path / "exp", "recipe_root": tmp_path, "shard_size": 3, **options}
        return prepare_corpus(dataset or {"train": [{"manifest": str(manifest)}]}, mode, **options)

    yield run
    for name in set(sys.modules) - before:
        if name.split(".")[0] == "src":
            del sys.modules[name]


def lines_of(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def scp_of(path: Path) -> dict[str, str]:
    pairs = (line.split(" ", 1) for line in path.read_text(encoding="utf-8").splitlines())
    return dict(pairs)


def audio_of(tmp_path: Path, row: dict[str, Any]) -> NDArray[np.float32]:
    return np.asarray(soundfile.read(tmp_path / "data" / row["audio"], dtype="float32")[0])


def contents(root: Path) -> dict[str, bytes]:
    """All that a run keeps; receipts hold times and random names."""
    files = (
        path for path in root.rglob("*") if path.is_file() and path.name not in ("done", "manifest.json")
    )
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in files
        if path.name not in ("merged.json", "index.arrow")
    }


def test_prepared_corpus_is_read_by_the_next_stage(
    tmp_path: Path, rows: list[dict[str, Any]], prepare: Prepare
) -> None:
    """Manifest, SCP files and shapes agree with the audio resampled and its features computed apart."""
    report = prepare(sample_rate_hz=16000, audio="flac", features=LOG_MEL)
    root = tmp_path / "exp" / "train"
    assert report.counts == {"ok": 7, "dropped": 0, "error": 0}
    dataset = ManifestDataset(root / "manifest.jsonl")
    wav, feats = scp_of(root / "wav.scp"), scp_of(root / "feats.scp")
    shapes = dict(read_shapes(root / "feats_shape"))
    assert list(dataset.utt_ids()) == list(wav) == list(feats) == list(shapes) == [r["utt_id"] for r in rows]
    extract = LogMelFeatures(n_mels=8)
    for i, row in enumerate(rows):
        sample, utt_id = dataset[i], row["utt_id"]
        expected = resample(audio_of(tmp_path, row), 8000, 16000)
        np.testing.assert_allclose(sample["speech"], expected, atol=0.6 / 32768)
        np.testing.assert_array_equal(soundfile.read(wav[utt_id], dtype="float32")[0], sample["speech"])
        np.testing.assert_array_equal(np.load(feats[utt_id]), extract(expected, 16000))
        assert shapes[utt_id] == (sample["num_frames"], 8)
        assert (sample["text"], sample["speaker"]) == (row["text"], "bea")
        assert (sample["sample_rate_hz"], sample["num_samples"]) == (16000, len(expected))
    section = {"train": [{"manifest": str(root / "manifest.jsonl")}]}
    measured = collect_stats(
        {"frontend": {"n_mels": 8}}, {**section, "valid": section["train"]}, output_dir=tmp_path / "stats"
    )
    assert measured.counts["ok"] == 7
    assert dict(read_shapes(tmp_path / "stats" / "train" / "feats_shape")) == shapes


def test_results_are_the_manifest_rows_and_shapes_are_there_as_arrow(
    tmp_path: Path, prepare: Prepare
) -> None:
    prepare(audio="wav", features=LOG_MEL | {"sample_rate_hz": 8000})
    root = tmp_path / "exp" / "train"
    results = [{"utt_id": line["utt_id"], **line["result"]} for line in lines_of(root / "results.jsonl")]
    assert results == lines_of(root / "manifest.jsonl")
    assert results[4]["audio"] == "split.1/audio/1-it_s.wav"
    assert load_shapes(root / "speech_shape.arrow")["dim0"].to_pylist() == LENGTHS
    assert load_shapes(root / "feats_shape.arrow").num_rows == 7


@pytest.mark.parametrize("form", ["flac", "wav"])
def test_audio_of_16_bit_at_its_own_rate_stays_bit_by_bit(
    form: str, tmp_path: Path, rows: list[dict[str, Any]], prepare: Prepare
) -> None:
    """Also the loudest sample there is, which a scale of 32767 would change."""
    loud = np.array([-32768, 32767, 0, 1, -1] * 200, np.int16)
    soundfile.write(tmp_path / "data" / "0.wav", loud, 8000, subtype="PCM_16")
    prepare(audio=form)
    for row, path in zip(rows, scp_of(tmp_path / "exp" / "train" / "wav.scp").values(), strict=True):
        before = soundfile.read(tmp_path / "data" / row["audio"], dtype="int16")[0]
        np.testing.assert_array_equal(soundfile.read(path, dtype="int16")[0], before)
        assert soundfile.info(path).subtype == "PCM_16"


def test_samples_too_loud_for_16_bit_are_counted(tmp_path: Path, prepare: Prepare) -> None:
    loud = np.array([1.5, -1.5, 0.5, 0.25] * 1000, np.float32)
    soundfile.write(tmp_path / "data" / "0.wav", loud, 8000, subtype="FLOAT")
    prepare(audio="flac")
    rows = lines_of(tmp_path / "exp" / "train" / "manifest.jsonl")
    assert [row.get("num_clipped") for row in rows] == [2000] + [None] * 6


def test_without_audio_the_manifest_points_at_the_recordings(
    tmp_path: Path, rows: list[dict[str, Any]], prepare: Prepare
) -> None:
    rows[3] |= {"start_s": 0.25, "duration_s": 0.5}
    prepare(cleaner=TOO_SHORT)
    root = tmp_path / "exp" / "train"
    dataset = ManifestDataset(root / "manifest.jsonl")
    assert not (root / "wav.scp").exists()
    assert [len(dataset[i]["speech"]) for i in range(6)] == [4000, 6500, 4000, 5210, 2999, 7001]


def test_dropped_utterances_say_why(tmp_path: Path, rows: list[dict[str, Any]], prepare: Prepare) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "clean.py").write_text(
        "def no_accent(sample):\n    return None if sample['utt_id'] == 'é' else sample\n", encoding="utf-8"
    )
    cleaners = [TOO_SHORT, {"_target_": "src.clean.no_accent", "_partial_": True}]
    report = prepare(cleaner=cleaners, audio="flac")
    expected = [
        {"utt_id": "x" * 300, "index": 2, "step": "duration", "measured": 0.1875, "bound": "min_s 0.3"},
        {"utt_id": "é", "index": 3, "step": "no_accent", "measured": None, "bound": None},
    ]
    assert lines_of(tmp_path / "exp" / "train" / "dropped.jsonl") == report.dropped == expected
    kept = [row["utt_id"] for row in lines_of(tmp_path / "exp" / "train" / "manifest.jsonl")]
    assert kept == [row["utt_id"] for row in rows if row["utt_id"] not in report.dropped_ids]


def test_cleaners_see_the_sample_in_order_until_one_refuses() -> None:
    seen = []

    def first(sample: dict[str, Any]) -> dict[str, Any]:
        seen.append("first")
        return {**sample, "text": sample["text"].lower()}

    def second(sample: dict[str, Any]) -> dict[str, Any] | Dropped:
        seen.append("second")
        return Dropped("language", sample["text"], "english") if sample["text"] == "ja" else sample

    def third(sample: dict[str, Any]) -> None:
        seen.append("third")

    assert clean({"text": "Ja"}, [first, second, third]) == Dropped("language", "ja", "english")
    assert clean({"text": "Yes"}, [first, second]) == {"text": "yes"}
    assert clean({"text": "Yes"}, [third]) == Dropped("third")
    assert seen == ["first", "second", "first", "second", "third"]
    with pytest.raises(ConfigError, match="returned bool; expected the sample, None, or a Dropped"):
        clean({"text": ""}, [lambda sample: True])  # type: ignore[list-item,arg-type,return-value]


def test_a_cleaner_is_a_transform_as_well(tmp_path: Path, prepare: Prepare) -> None:
    """collect_stats drops by the same cleaners, and says why as well."""
    prepare(audio="flac")
    entry = [{"manifest": str(tmp_path / "data" / "train.jsonl"), "transform": TOO_SHORT}]
    options = {"output_dir": tmp_path / "stats", "recipe_root": tmp_path}
    report = collect_stats(
        {"frontend": {"sample_rate_hz": 8000}}, {"train": entry, "valid": entry}, **options
    )
    assert [(line["step"], line["measured"]) for line in report.dropped] == [("duration", 0.1875)]
    assert prepare(dataset={"dev": entry}, mode="dev", audio="flac").dropped == report.dropped


def test_archive_holds_the_same_features(
    tmp_path: Path, rows: list[dict[str, Any]], prepare: Prepare
) -> None:
    options = {"features": LOG_MEL | {"sample_rate_hz": 8000}}
    prepare(**options)
    prepare(**options, features_format="ark", output_dir=tmp_path / "ark")
    files = scp_of(tmp_path / "exp" / "train" / "feats.scp")
    archives = kaldiio.load_scp(str(tmp_path / "ark" / "train" / "feats.scp"))
    assert list(archives) == [row["utt_id"] for row in rows]
    for utt_id, path in files.items():
        np.testing.assert_array_equal(archives[utt_id], np.load(path))
    path = lines_of(tmp_path / "ark" / "train" / "manifest.jsonl")[5]["feats"]
    np.testing.assert_array_equal(
        kaldiio.load_mat(str(tmp_path / "ark" / "train" / path)), np.load(files['a"b'])
    )


def test_complex_features_go_to_npy_only(
    tmp_path: Path, rows: list[dict[str, Any]], prepare: Prepare
) -> None:
    stft = {"_target_": "statsprep.models.extract.StftFeatures", "value": "complex"}
    prepare(features=stft)
    path = scp_of(tmp_path / "exp" / "train" / "feats.scp")["spk/1"]
    np.testing.assert_array_equal(np.load(path), StftFeatures("complex")(audio_of(tmp_path, rows[0]), 8000))
    with pytest.raises(ConfigError, match="ark holds no complex numbers; set it to npy"):
        prepare(features=stft, features_format="ark", output_dir=tmp_path / "ark")


def test_nothing_is_written_outside_the_run_directory(tmp_path: Path, prepare: Prepare) -> None:
    """Whatever the ids are: `../../above`, one of 300 characters, quotes."""
    prepare(audio="flac", features=LOG_MEL, sample_rate_hz=16000)
    assert {path.name for path in tmp_path.iterdir()} == {"data", "exp"}
    assert {path.name for path in (tmp_path / "exp").iterdir()} == {"train"}
    root = tmp_path / "exp" / "train"
    written = [Path(path) for name in ("wav.scp", "feats.scp") for path in scp_of(root / name).values()]
    assert len(set(written)) == 14
    assert all(path.resolve().is_relative_to(root) and path.is_file() for path in written)


@pytest.mark.parametrize("features_format", ["npy", "ark"])
@pytest.mark.parametrize("kill_at", range(7))
def test_killed_run_ends_with_the_same_files(
    kill_at: int, features_format: str, tmp_path: Path, prepare: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever item is lost, finished files are taken over, and no item is prepared twice."""
    options = {
        "cleaner": TOO_SHORT, "audio": "flac", "features": LOG_MEL, "sample_rate_hz": 16000,
        "features_format": features_format,
    }  # fmt: skip
    prepare(**options)
    shutil.move(tmp_path / "exp", tmp_path / "undisturbed")

    class Killed(BaseException):
        pass

    written: list[int] = []
    write = ShardWriters.write

    def counted(self: ShardWriters, entry: Any, side: Any) -> None:
        if len(written) == kill_at and not killed:
            killed.append(True)
            raise Killed
        written.append(entry.position)
        write(self, entry, side)

    killed: list[bool] = []
    monkeypatch.setattr(ShardWriters, "write", counted)
    with pytest.raises(Killed):
        prepare(**options)
    left = list((tmp_path / "exp" / "train").glob(".attempts/*/audio/*.flac"))
    times = [path.stat().st_mtime_ns for path in left]
    prepare(**options)
    assert contents(tmp_path / "exp") == contents_moved(tmp_path / "undisturbed", tmp_path / "exp")
    # A hard link keeps the time: what was finished was taken over, not made again.
    kept = {path.stat().st_mtime_ns for path in (tmp_path / "exp" / "train").glob("split.*/audio/*.flac")}
    assert set(times) <= kept


def contents_moved(root: Path, origin: Path) -> dict[str, bytes]:
    """The files of a run that was moved; nothing in them but the paths of SCP files says where it was."""
    found = contents(root)
    assert all(str(origin).encode() not in text for name, text in found.items() if not name.endswith(".scp"))
    return found


def test_torn_file_of_a_killed_run_is_made_again(
    tmp_path: Path, prepare: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut may keep the journal's line and lose the file's last block."""
    prepare(audio="flac")
    whole = contents(tmp_path / "exp")
    shutil.rmtree(tmp_path / "exp")
    write = ShardWriters.write

    class Killed(BaseException):
        pass

    def killed_at_third(self: ShardWriters, entry: Any, side: Any) -> None:
        if entry.position == 2:
            raise Killed
        write(self, entry, side)

    with monkeypatch.context() as patch:
        patch.setattr(ShardWriters, "write", killed_at_third)
        with pytest.raises(Killed):
            prepare(audio="flac")
    [torn] = (tmp_path / "exp" / "train").glob(".attempts/*/audio/1-*.flac")
    torn.write_bytes(torn.read_bytes()[:-7] + bytes(7))
    prepare(audio="flac")
    assert contents(tmp_path / "exp") == whole


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"audio": "flac", "cleaner": {"_target_": "statsprep.data.cleaners.DurationBounds", "min": 1}},
         "prepare.cleaner.0.min: statsprep.data.cleaners.DurationBounds has no argument 'min'"),
        ({"audio": "flac", "cleaner": {"_target_": "os.system"}}, "'os.system' is not allowed"),
        ({"featuers": LOG_MEL}, "prepare: unknown key 'featuers'; did you mean 'features'?"),
        ({"features": LOG_MEL | {"n_mel": 3}}, "features.n_mel: unknown key; did you mean 'n_mels'?"),
        ({"audio": "mp3"}, "prepare.audio: 'mp3' is not valid; expected one of flac, wav, or null"),
        ({}, "nothing to do; expected at least one of cleaner, audio and features"),
        ({"sample_rate_hz": 16000, "cleaner": TOO_SHORT}, "sample_rate_hz has no effect without audio"),
        ({"audio": "flac", "mode": "tran"},
         "dataset.tran: missing; expected a split with entries; the dataset has 'train'; did you mean"),
        ({"audio": "flac", "output_dir": "a\nb"}, "has a line break, which SCP files cannot hold"),
        ({"audio": "flac", "output_dir": ""}, "output_dir: missing"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_before_anything_is_prepared(
    options: dict[str, Any], message: str, tmp_path: Path, prepare: Prepare
) -> None:
    with pytest.raises(ConfigError) as caught:
        prepare(**options)
    assert message in str(caught.value)
    assert not list((tmp_path / "exp").glob("**/split.*"))


def test_a_wrong_name_of_the_audio_stops_at_the_first_utterance(tmp_path: Path, prepare: Prepare) -> None:
    """It is no bad utterance, of which some would be allowed."""
    with pytest.raises(ConfigError, match="no audio 'speach'; did you mean 'speech'"):
        prepare(audio="flac", audio_key="speach")
    assert not list((tmp_path / "exp" / "train").glob("split.*"))


def test_a_broken_recording_costs_itself_alone(tmp_path: Path, prepare: Prepare) -> None:
    (tmp_path / "data" / "4.wav").write_bytes(b"RIFF")
    report = prepare(audio="flac", features=LOG_MEL, sample_rate_hz=16000, max_errors=1)
    assert report.counts == {"ok": 6, "dropped": 0, "error": 1}
    assert report.failed_ids == ["it's"]
    with pytest.raises(DataError, match="it's"):
        prepare(audio="flac", on_error="raise", output_dir=tmp_path / "other")


def test_audio_too_short_for_the_features_is_an_error_and_writes_nothing(
    tmp_path: Path, rows: list[dict[str, Any]], prepare: Prepare
) -> None:
    soundfile.write(tmp_path / "data" / "6.wav", np.ones(100) / 2, 8000)
    report = prepare(audio="flac", features=LOG_MEL, sample_rate_hz=16000, max_errors=1)
    [error] = lines_of(tmp_path / "exp" / "train" / "errors.jsonl")
    assert (error["utt_id"], error["kind"]) == ("NaN", "too_short")
    assert report.counts["ok"] == len(list((tmp_path / "exp").rglob("*.flac"))) == 6


def test_changed_rules_or_options_stop_the_run(tmp_path: Path, prepare: Prepare) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text("lowercase: true", encoding="utf-8")
    options: dict[str, Any] = {
        "cleaner": {"_target_": "statsprep.data.text_rules.TextRules", "path": str(rules)}, "audio": "flac"
    }  # fmt: skip
    prepare(**options)
    assert lines_of(tmp_path / "exp" / "train" / "manifest.jsonl")[0]["text"] == "text 0"
    assert prepare(**options).num_skipped == 7
    rules.write_text("{lowercase: true, test_cases: [{in: A, out: a}]}", encoding="utf-8")
    assert prepare(**options).num_skipped == 7
    rules.write_text("lowercase: false", encoding="utf-8")
    with pytest.raises(ChangedRunError) as caught:
        prepare(**options)
    assert "cleaner.0.lowercase: True -> False" in caught.value.detail
    rules.write_text("lowercase: true", encoding="utf-8")
    with pytest.raises(ChangedRunError) as caught:
        prepare(**options | {"audio": "wav"})
    assert "prepare.audio: flac -> wav" in caught.value.detail


def test_writing_out_a_default_is_no_change(prepare: Prepare) -> None:
    prepare(features=LOG_MEL | {"sample_rate_hz": 8000})
    full = LogMelFeatures.filled_config({"n_mels": 8, "sample_rate_hz": 8000})
    assert prepare(features={"_target_": LOG_MEL["_target_"], **full}).num_skipped == 7


def test_dataset_of_a_recipe_with_ids_in_its_samples(tmp_path: Path, prepare: Prepare) -> None:
    """Any map-style dataset will do; an id twice is found when all shards are there."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "tones.py").write_text(
        "import numpy as np\n\n\n"
        "class Tones:\n"
        "    def __init__(self, ids):\n        self.ids = ids\n\n"
        "    def __len__(self):\n        return len(self.ids)\n\n"
        "    def __getitem__(self, i):\n"
        "        audio = np.sin(np.arange(4000) * (i + 1) / 9).astype(np.float32) / 2\n"
        "        return {'utt_id': self.ids[i], 'wave': audio, 'sample_rate_hz': 8000, 'speaker': 'tone'}\n",
        encoding="utf-8",
    )
    tones = {"_target_": "src.tones.Tones", "ids": list("abcd")}
    prepare(dataset={"tones": [{"dataset": tones}]}, mode="tones", audio="flac", audio_key="wave")
    dataset = ManifestDataset(tmp_path / "exp" / "tones" / "manifest.jsonl")
    assert list(dataset.utt_ids()) == list("abcd")
    assert dataset[3]["speaker"] == "tone"
    with pytest.raises(DataError, match="utterance 'a' appears twice"):
        prepare(
            dataset={"tones": [{"dataset": tones | {"ids": list("abca")}}]}, mode="tones", audio="flac",
            audio_key="wave", output_dir=tmp_path / "twice",
        )  # fmt: skip
    with pytest.raises(DataError, match=r"has no audio_source\(i\)"):
        prepare(
            dataset={"tones": [{"dataset": tones}]}, mode="tones", cleaner=TOO_SHORT | {"audio_key": "wave"},
            audio_key="wave", output_dir=tmp_path / "none", on_error="raise",
        )  # fmt: skip


def test_test_sets_are_splits_of_their_own(tmp_path: Path, prepare: Prepare) -> None:
    prepare(audio="flac")
    entry = {"manifest": str(tmp_path / "data" / "train.jsonl")}
    assert prepare(dataset={"test": {"clean": entry}}, mode="clean", audio="flac").counts["ok"] == 7
    assert prepare(dataset={"test": [entry]}, mode="test", audio="flac").counts["ok"] == 7
