"""NeMo's manifests: recognised by their keys, with ids that depend on the set of files alone."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from statsprep.data.dataset import ManifestDataset
from statsprep.data.verdicts import UtteranceError, Verdict
from statsprep.errors import DataError


def manifest(folder: Path, *rows: dict[str, Any] | str) -> ManifestDataset:
    path = folder / "m.json"
    lines = [{"audio_filepath": row} if isinstance(row, str) else row for row in rows]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return ManifestDataset(path)


def test_all_fields_are_read(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.arange(8000) / 8000, 8000, subtype="FLOAT")
    dataset = manifest(
        tmp_path,
        {"audio_filepath": "a.wav", "duration": 1.0, "text": "x", "speaker": 7, "lang": "en", "snr": 3},
        {"audio_filepath": "a.wav", "duration": 0.25, "offset": 0.5, "text": "y", "speaker": None},
    )
    first, second = (pickle.loads(pickle.dumps(dataset))[i] for i in (0, 1))
    assert len(first.pop("speech")) == 8000
    assert first == {
        "utt_id": "a", "text": "x", "speaker": "7", "language": "en", "snr": 3, "duration_s": 1.0,
        "sample_rate_hz": 8000,
    }  # fmt: skip
    assert second["utt_id"] == "a-0.5"
    assert (len(second["speech"]), float(second["speech"][0])) == (2000, 0.5)


@pytest.mark.parametrize(
    ("paths", "ids"),
    [
        (["x/a.wav", "y/b.flac"], ["a", "b"]),
        (["/d/x/a.wav", "/d/y/a.wav", "/d/y/b.wav"], ["x/a", "y/a", "y/b"]),
        (["/d/x/a.wav", "x/a.wav"], ["/d/x/a", "x/a"]),
        (["a b.wav", "c.d.wav", "noext"], ["a_b", "c.d", "noext"]),
    ],
)
def test_ids_are_file_names_or_else_paths(tmp_path: Path, paths: list[str], ids: list[str]) -> None:
    assert list(manifest(tmp_path, *paths).utt_ids()) == ids


@given(
    paths=st.lists(
        st.from_regex(r"(/?[ab]/){0,2}[a-c]\.wav", fullmatch=True), min_size=1, max_size=8, unique=True
    ),
    data=st.data(),
)
def test_ids_do_not_depend_on_the_order(
    tmp_path_factory: pytest.TempPathFactory, paths: list[str], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("m")
    ids = dict(zip(paths, manifest(folder, *paths).utt_ids(), strict=True))
    assert len(set(ids.values())) == len(paths)
    shuffled = data.draw(st.permutations(paths))
    assert dict(zip(shuffled, manifest(folder, *shuffled).utt_ids(), strict=True)) == ids


def test_own_ids_are_kept(tmp_path: Path) -> None:
    dataset = manifest(tmp_path, {"audio_filepath": "a.wav", "utt_id": "mine"}, "b.wav")
    assert [dataset.entry(i)["utt_id"] for i in (0, 1)] == ["mine", "b"]


def test_duration_is_a_claim_and_zero_may_be_one(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.zeros(8000), 8000)
    soundfile.write(tmp_path / "empty.wav", np.zeros(0), 8000)
    dataset = manifest(
        tmp_path,
        {"audio_filepath": "a.wav", "duration": 1.5},
        {"audio_filepath": "empty.wav", "duration": 0.0},
    )
    for i, kind in enumerate((Verdict.HEADER_MISMATCH, Verdict.EMPTY)):
        with pytest.raises(UtteranceError) as caught:
            dataset[i]
        assert caught.value.kind is kind


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"audio_filepath": "b.wav", "shard_id": 0}, r"m\.json:2: has a shard_id: its audio lies in a tar"),
        ({"audio": "b.wav", "utt_id": "b"}, r"m\.json:2: audio_filepath is None; expected"),
        ({"audio_filepath": 3}, r"m\.json:2: audio_filepath is 3; expected"),
        ({"audio_filepath": "b.wav", "duration": -1}, r"m\.json:2: duration_s is -1; expected"),
        ({"audio_filepath": "a.wav"}, r"m\.json:2: utterance 'a' appears twice \(first at .*m\.json:1\)"),
    ],
)
def test_wrong_rows_are_named(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        len(manifest(tmp_path, "a.wav", row))


def test_a_manifest_that_changed_is_noticed(tmp_path: Path) -> None:
    dataset = manifest(tmp_path, "a.wav", "b.wav")
    assert len(dataset) == 2
    manifest(tmp_path, "c.wav", "d.wav")
    with pytest.raises(DataError, match="changed after it was indexed"):
        dataset.entry(0)
