"""ManifestDataset: samples by position, lazily, also after pickling and with the driver's index."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from statsprep.data import dataset as dataset_module
from statsprep.data.dataset import ManifestDataset
from statsprep.data.index import UtteranceIndex, build_index
from statsprep.data.verdicts import UtteranceError, Verdict
from statsprep.errors import ConfigError, DataError

ROWS: list[dict[str, Any]] = [
    {"utt_id": "first", "audio": "wav/a.wav", "text": "hello", "speaker": "s1", "snr": 3},
    {"utt_id": "part", "audio": "wav/a.wav", "start_s": 0.25, "duration_s": 0.5},
    {"utt_id": "long-" + "x" * 5000, "audio": "wav/a.wav"},
    {"utt_id": "text-only", "text": "no audio"},
]
ROWS[2] = {"utt_id": "long", "audio": "wav/a.wav", "text": "語" * 5000}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "wav").mkdir()
    soundfile.write(tmp_path / "wav" / "a.wav", np.linspace(-0.5, 0.5, 8000), 8000)
    manifest = tmp_path / "m.jsonl"
    manifest.write_bytes(
        b"\xef\xbb\xbf" + "\r\n".join(json.dumps(r, ensure_ascii=False) for r in ROWS).encode()
    )
    return manifest


def test_sample_holds_audio_and_the_rows_keys(path: Path) -> None:
    sample = ManifestDataset(path)[0]
    assert sample.pop("speech").shape == (8000,)
    assert sample.pop("duration_s") == 1.0
    assert sample.pop("sample_rate_hz") == 8000
    assert sample == {"utt_id": "first", "text": "hello", "speaker": "s1", "snr": 3}


def test_start_and_duration_read_a_part_and_leave_the_sample(path: Path) -> None:
    dataset = ManifestDataset(path)
    assert set(dataset[1]) == {"utt_id", "speech", "duration_s", "sample_rate_hz"}
    assert dataset[1]["duration_s"] == 0.5
    np.testing.assert_array_equal(dataset[1]["speech"], dataset[0]["speech"][2000:6000])
    assert dataset.num_samples(1) == 4000


def test_rows_longer_than_a_read_block_are_whole(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ManifestDataset(path)[2]["text"] == "語" * 5000
    for size in (1, 7, len(json.dumps(ROWS[0])) + 1):
        monkeypatch.setattr(dataset_module, "_READ_BYTES", size)
        dataset = ManifestDataset(path)
        assert [dataset.entry(i) for i in range(4)] == ROWS


def test_negative_positions_count_from_the_end_and_others_are_index_errors(path: Path) -> None:
    dataset = ManifestDataset(path)
    assert dataset[-1] == {"utt_id": "text-only", "text": "no audio"}
    assert dataset[np.int64(-4)]["utt_id"] == "first"
    for outside in (4, -5):
        with pytest.raises(IndexError):
            dataset[outside]
    assert len([sample for sample in dataset]) == 4  # noqa: C416 (the old iteration protocol ends at IndexError)


def test_options_reach_the_reader(path: Path) -> None:
    dataset = ManifestDataset(path, sample_rate_hz=16000, audio_key="audio")
    assert len(dataset[1]["audio"]) == dataset.num_samples(1) == 8000
    with pytest.raises(ConfigError, match="sample_rate_hz is -1"):
        ManifestDataset(path, sample_rate_hz=-1)
    with pytest.raises(ConfigError, match="audio_key is 'utt_id'"):
        ManifestDataset(path, audio_key="utt_id")


def test_duration_without_start_is_a_claim_about_the_whole_file(path: Path) -> None:
    path.write_text('{"utt_id": "a", "audio": "wav/a.wav", "duration_s": 0.5}\n')
    with pytest.raises(UtteranceError) as caught:
        ManifestDataset(path)[0]
    assert caught.value.kind is Verdict.HEADER_MISMATCH


def test_constructor_reads_nothing_and_names_a_missing_manifest(tmp_path: Path) -> None:
    (tmp_path / "m.jsonl").write_text("not json")
    dataset = ManifestDataset(tmp_path / "m.jsonl")
    with pytest.raises(DataError, match=r"m\.jsonl:1: not JSON"):
        len(dataset)
    with pytest.raises(ConfigError, match=r"no\.jsonl does not exist"):
        ManifestDataset(tmp_path / "no.jsonl")


def test_attached_index_spares_reading_the_manifest(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build_index([ManifestDataset(path)], path.with_suffix(".arrow"))
    monkeypatch.setattr(dataset_module, "iter_lines", lambda path: pytest.fail("the manifest was read"))
    dataset = ManifestDataset(path)
    dataset.attach_index(UtteranceIndex.open(path.with_suffix(".arrow")).slices(1)[0])
    for copy in (dataset, pickle.loads(pickle.dumps(dataset))):
        assert [copy.entry(i)["utt_id"] for i in range(4)] == ["first", "part", "long", "text-only"]


def test_pickle_is_small_and_survives_another_working_folder(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    dataset = ManifestDataset("m.jsonl")
    assert dataset[0]["utt_id"] == "first"
    pickled = pickle.dumps(dataset)
    assert len(pickled) < 1000
    monkeypatch.chdir("/")
    assert pickle.loads(pickled).entry(3)["utt_id"] == "text-only"
    assert len(dataset[1]["speech"]) == 4000


def test_manifest_that_changed_after_indexing_is_noticed(path: Path) -> None:
    dataset = ManifestDataset(path)
    assert len(dataset) == 4
    path.write_bytes(path.read_bytes().replace(b'"part"', b'"tarp"'))
    with pytest.raises(DataError, match="no longer begins the row of 'part'; the manifest changed"):
        dataset[1]


def test_length_of_text_is_an_error(path: Path) -> None:
    with pytest.raises(DataError, match="'text-only' has no audio"):
        ManifestDataset(path).num_samples(3)
