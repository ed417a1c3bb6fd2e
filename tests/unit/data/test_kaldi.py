"""Kaldi directories: joined in any order, refused where ambiguous, counted where incomplete."""

import logging
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kaldiio
import numpy as np
import pytest
import soundfile

from statsprep.data.faults import Fault, FaultKind
from statsprep.data.kaldi import KaldiDirectory
from statsprep.data.kaldi_dataset import KaldiDataset
from statsprep.data.organizer import DataOrganizer
from statsprep.data.verdicts import UtteranceError, Verdict
from statsprep.errors import ConfigError, DataError

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a directory of the given files (`_` for `.` in names) and three recordings of 1 s each."""
    monkeypatch.chdir(tmp_path)
    for name in "abc":
        soundfile.write(tmp_path / f"{name}.wav", np.full(8000, 0.25), 8000)

    def make(**files: str) -> Path:
        folder = tmp_path / "data"
        folder.mkdir(exist_ok=True)
        for name, content in files.items():
            (folder / name.replace("_", ".")).write_bytes(content.encode())
        return folder

    return make


def samples(folder: Path, **options: Any) -> list[dict[str, Any]]:
    dataset = KaldiDataset(folder, **options)
    return [dataset[i] for i in range(len(dataset))]


def without_audio(folder: Path) -> list[dict[str, Any]]:
    return [{key: value for key, value in each.items() if key != "speech"} for each in samples(folder)]


def test_all_files_are_joined_in_whatever_order_they_stand(write: Write) -> None:
    files = {
        "segments": [
            f"{name}-{part}\t{name}\t{part / 4} {part / 4 + 0.25}" for name in "abc" for part in range(4)
        ],
        "wav_scp": [f"{name} {name}.wav" for name in "abc"],
    }
    ids = [line.split()[0] for line in files["segments"]]
    files["text"] = [f"{utt_id} words of {utt_id}" for utt_id in ids]
    files["utt2spk"] = [f"{utt_id} {utt_id[0]}" for utt_id in ids]
    files["utt2lang"] = [f"{utt_id} en" for utt_id in ids]
    files["utt2dur"] = [f"{utt_id} 0.26" for utt_id in ids]
    joined = without_audio(write(**{name: "\n".join(lines) for name, lines in files.items()}))
    assert joined == [
        {
            "utt_id": utt_id, "text": f"words of {utt_id}", "speaker": utt_id[0], "language": "en",
            "duration_s": 0.25, "sample_rate_hz": 8000,
        }
        for utt_id in ids
    ]  # fmt: skip
    shuffle = random.Random(0).shuffle
    for name in files:
        if name != "segments":
            shuffle(files[name])
    assert without_audio(write(**{name: "\r\n".join(lines) for name, lines in files.items()})) == joined


def test_a_segment_holds_its_samples(write: Write, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.arange(8000) / 8000, 8000, subtype="FLOAT")
    folder = write(wav_scp="a a.wav", segments="x a 0.25 0.5\ny a 0.5 -1\nz a 0.75 1.004")
    found = samples(folder)
    assert [(len(each["speech"]), round(float(each["speech"][0]), 3)) for each in found] == [
        (2000, 0.25),
        (4000, 0.5),
        (2000, 0.75),
    ], "times rounded to 1/100 s may end a little behind the file"


def test_relative_paths_begin_here_or_else_at_the_directory(write: Write, tmp_path: Path) -> None:
    folder = write(wav_scp="a a.wav\nb b.wav")
    assert KaldiDataset(folder).entry(0)["audio"] == str(tmp_path / "a.wav")
    (tmp_path / "a.wav").rename(folder / "a.wav")
    (tmp_path / "b.wav").rename(folder / "b.wav")
    assert KaldiDataset(folder).entry(1)["audio"] == str(folder / "b.wav")
    assert len(KaldiDataset(folder)[1]["speech"]) == 8000


def test_digest_changes_with_the_joined_content_alone(write: Write, tmp_path: Path) -> None:
    def digest(**files: str) -> str:
        split = DataOrganizer(train=[{"kaldi": str(write(**files))}], valid=[{"kaldi": "data"}]).train
        assert split is not None
        return split.build_index(tmp_path / "index.arrow").digest

    first = digest(wav_scp="a a.wav\nb b.wav", text="a x\nb y")
    assert digest(wav_scp="a a.wav\nb b.wav", text="b y\n\na x\nother z") == first
    assert digest(wav_scp="a a.wav\nb b.wav", text="a x\nb z") != first


def test_workers_need_only_the_index(write: Write, tmp_path: Path) -> None:
    folder = write(wav_scp="a a.wav\nb b.wav", text="a x\nb y")
    split = DataOrganizer(train=[{"kaldi": str(folder)}], valid=[{"kaldi": str(folder)}]).train
    assert split is not None
    split.build_index(tmp_path / "index.arrow")
    copied = pickle.loads(pickle.dumps(split))
    for path in folder.iterdir():
        path.write_text("")
    assert [copied[i]["text"] for i in (0, 1)] == ["x", "y"]


def test_gaps_are_counted_and_named_once(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    folder = write(wav_scp="a a.wav\nb b.wav", text="a x\nz y", utt2spk="a s\nb s\ny s")
    logging.getLogger("statsprep").propagate = True
    assert [sample.get("text") for sample in samples(folder)] == ["x", None]
    assert [record.message.removeprefix(f"{folder}: ") for record in caplog.records] == [
        "1 recordings without a transcript: 'b'",
        "1 transcripts without a recording: 'z'",
        "1 utterances that one of the files knows and another does not: 'y'",
    ]


def test_a_segment_without_its_recording_is_one_bad_utterance(write: Write) -> None:
    dataset = KaldiDataset(write(wav_scp="a a.wav", segments="x a 0 1\ny b 0 1"))
    assert len(dataset[0]["speech"]) == 8000
    for read in (lambda: dataset[1], lambda: dataset.num_samples(1)):
        with pytest.raises(UtteranceError, match="recording 'b' has no line in") as caught:
            read()
        assert caught.value.kind is Verdict.UNREADABLE


@pytest.mark.parametrize(
    ("claim", "is_accepted"), [("1", True), ("1.015", True), ("0.98", True), ("1.05", False)]
)
@pytest.mark.parametrize("segments", ["", "a a 0 1"])
def test_utt2dur_is_a_claim_that_kaldi_rounds(
    write: Write, claim: str, is_accepted: bool, segments: str
) -> None:
    files = {"wav_scp": "a a.wav", "utt2dur": f"a {claim}"} | ({"segments": segments} if segments else {})
    dataset = KaldiDataset(write(**files))
    for read in (lambda: dataset[0], lambda: dataset.num_samples(0)):
        if is_accepted:
            read()
        else:
            with pytest.raises(UtteranceError) as caught:
                read()
            assert caught.value.kind is Verdict.HEADER_MISMATCH


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"wav_scp": "a"}, r"wav\.scp:1: '' is no path"),
        ({"wav_scp": "a a.wav", "segments": "x a 0"}, r"segments:1: has 'a 0'; expected `utt_id recording"),
        ({"wav_scp": "a a.wav", "segments": "x a one 2"}, r"segments:1: has 'a one 2'"),
        ({"wav_scp": "a a.wav", "segments": "x a 2 1"}, "begins at 2 s and ends at 1 s"),
        ({"wav_scp": "a a.wav", "segments": "x a nan 1"}, "begins at nan s"),
        ({"wav_scp": "a a.wav", "utt2dur": "a long"}, "line of 'a' has 'long'; expected a number"),
        ({"wav_scp": "a\u00a0b a.wav"}, r"wav\.scp:1: utt_id .* holds white space"),
        ({"wav_scp": "a a.wav", "text": "a x\nb y\na z"}, r"text:3: 'a' appears twice \(first at .*text:1\)"),
        ({"wav_scp": "a a.wav\na b.wav"}, r"wav\.scp:2: utterance 'a' appears twice"),
        (
            {"wav_scp": "a sox a.wav |"},
            r"wav\.scp:1: wav\.scp has the command 'sox a\.wav \|'; .*allow_pipes: true",
        ),
        ({"wav_scp": "a | sox a.wav"}, "which reads instead of writing"),
        ({"wav_scp": "a -"}, "standard input"),
        ({"feats_scp": "a cat x |"}, "features are read from files alone"),
        ({"wav_scp": ""}, "has no lines"),
    ],
)
def test_what_is_ambiguous_stops_with_file_and_line(
    write: Write, files: dict[str, str], message: str
) -> None:
    with pytest.raises(DataError, match=message) as caught:
        len(KaldiDataset(write(**files)))
    assert "\n" not in caught.value.message


def test_text_that_is_no_utf8_is_named(write: Write) -> None:
    folder = write(wav_scp="a a.wav")
    (folder / "text").write_bytes(b"a caf\xe9\n")
    with pytest.raises(DataError, match=r"line of 'a' 'caf.*is no UTF-8"):
        len(KaldiDataset(folder))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kaldi": "none"}, "kaldi none is no folder"),
        ({"kaldi": None}, "kaldi is None; expected the path of a data directory"),
        ({"kaldi": "."}, "has no wav.scp; expected a Kaldi data directory"),
        ({"kaldi": "data", "use": "feats"}, "has no feats.scp"),
        ({"kaldi": "data", "use": "both"}, "use is 'both'; expected audio or feats"),
        ({"kaldi": "data", "allow_pipes": "yes"}, "allow_pipes is 'yes'; expected true or false"),
        ({"kaldi": "data", "alow_pipes": True}, "unknown key; did you mean 'allow_pipes'"),
    ],
)
def test_wrong_entries_are_named(write: Write, options: dict[str, Any], message: str) -> None:
    write(wav_scp="a a.wav")
    with pytest.raises(ConfigError, match=message):
        DataOrganizer(train=[options], valid=[options])


def test_every_fault_is_reported_where_the_report_goes_on(write: Write) -> None:
    folder = write(
        wav_scp="a a.wav\nb b.wav\nc c.wav\nd evil |",
        segments="x a 0 1\ny b 1\nz q 0 1\nw d 0 1",
        text="x one\nx two\nv none\nz",
        utt2spk="x s",
    )
    found: list[Fault] = []
    rows = [row.row["utt_id"] for row in KaldiDirectory(folder).rows(found.append)]
    assert rows == ["x", "z"]
    assert sorted((fault.kind, fault.where.rpartition("/")[2], fault.utt_id) for fault in found) == sorted([
        (FaultKind.DUPLICATE_ID, "text:2", "x"),
        (FaultKind.MALFORMED_ROW, "segments:2", "y"),
        (FaultKind.NOT_LISTED, "segments:3", "z"),
        (FaultKind.COMMAND_PIPE, "segments:4", "w"),
        (FaultKind.NO_RECORDING, "text:3", "v"),
        (FaultKind.EMPTY_TRANSCRIPT, "text:4", "z"),
        (FaultKind.UNUSED_RECORDING, "wav.scp:3", "c"),
    ])  # fmt: skip


def test_features_come_as_feats(write: Write, tmp_path: Path) -> None:
    arrays = {"a": np.arange(30, dtype="f4").reshape(10, 3), "b": np.ones((4, 3))}
    kaldiio.save_ark("f.ark", arrays, scp="f.scp")
    entries = (tmp_path / "f.scp").read_text()
    first = entries.split()[1]
    folder = write(feats_scp=f"{entries}c {first}[2:3]\nd {first}[2:3,0:1]\n", text="a x\nb y\nc z\nd w")
    found = samples(folder)
    assert [each["text"] for each in found] == ["x", "y", "z", "w"]
    for each, feats in zip(
        found, [arrays["a"], arrays["b"], arrays["a"][2:4], arrays["a"][2:4, :2]], strict=True
    ):
        np.testing.assert_array_equal(each["feats"], feats.astype("f4"), strict=True)
    write(wav_scp="a a.wav")
    assert "speech" in KaldiDataset(folder)[0]
    assert "feats" in KaldiDataset(folder, use="feats")[0]


@pytest.mark.parametrize(
    ("entry", "kind"),
    [
        ("none.ark:5", Verdict.UNREADABLE),
        ("f.ark:0", Verdict.UNREADABLE),
        ("f.ark:99999", Verdict.UNREADABLE),
        ("f.ark:2[1:2:3]", Verdict.UNREADABLE),
        ("f.ark:2[20:30]", Verdict.EMPTY),
    ],
)
def test_features_that_cannot_be_read_are_one_bad_utterance(write: Write, entry: str, kind: Verdict) -> None:
    kaldiio.save_ark("f.ark", {"a": np.ones((4, 3), "f4")})
    dataset = KaldiDataset(write(feats_scp=f"a {entry}"))
    with pytest.raises(UtteranceError) as caught:
        dataset[0]
    assert caught.value.kind is kind
    assert str(caught.value).count("\n") == 0
