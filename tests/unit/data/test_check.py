"""`check_corpus` finds every fault at once, each where it is, the same with several processes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from statsprep.data.check import Findings, check_corpus
from statsprep.data.faults import Fault, FaultKind
from statsprep.errors import DataError

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a manifest, with audio of every kind beside it."""
    tone = np.sin(np.arange(8000) / 10) / 2
    soundfile.write(tmp_path / "good.wav", tone, 8000)
    soundfile.write(tmp_path / "fast.wav", tone, 16000)
    soundfile.write(tmp_path / "quiet.wav", tone / 4000, 8000)
    soundfile.write(tmp_path / "stereo.wav", np.stack([tone, tone], 1), 8000)
    soundfile.write(tmp_path / "empty.wav", np.zeros(0), 8000)
    soundfile.write(tmp_path / "nan.wav", np.full(9, np.nan), 8000, subtype="FLOAT")
    (tmp_path / "cut.wav").write_bytes((tmp_path / "good.wav").read_bytes()[:4000])

    def make(*rows: dict[str, Any] | str) -> Path:
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        (tmp_path / "m.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return tmp_path / "m.jsonl"

    return make


def kinds(findings: Findings) -> dict[str, list[int]]:
    """Line numbers by kind."""
    return {
        str(kind): [int(fault.where.rpartition(":")[2]) for fault in faults]
        for kind, _, faults in findings.by_kind()
    }


def every_fault(write: Write) -> Path:
    def row(utt_id: str, audio: str = "good.wav", **more: Any) -> dict[str, Any]:
        return {"utt_id": utt_id, "audio": audio, "text": "words", **more}

    return write(
        row("a"),
        "{broken",
        {"audio": "good.wav"},
        row("a"),
        row("d", "none.wav"),
        row("e", "empty.wav"),
        row("f", "cut.wav"),
        row("g", "nan.wav"),
        row("h", duration_s=3),
        row("i", "quiet.wav"),
        row("j", "fast.wav"),
        row("k", "stereo.wav"),
        {"utt_id": "l", "audio": "good.wav"},
        {"utt_id": "m", "text": "words"},
        row("n") | {"text": " "},
        row("o") | {"text": "caf\u00c3\u00a9"},
        row("p", "fast.wav", start_s=0, duration_s=0.3),
        row("q", "fast.wav", start_s=0.3, duration_s=0.1),
        row("r", "fast.wav", start_s=0.2, duration_s=0.05),
        row("s") | {"text": "a\x07"},
        row("t") | {"text": "a\ufffd"},
    )


@pytest.mark.parametrize("num_jobs", [1, 2])
def test_every_fault_is_found_at_once(write: Write, num_jobs: int) -> None:
    found = check_corpus(every_fault(write), num_jobs=num_jobs)
    assert found.num_utterances == 19
    assert kinds(found) == {
        "malformed_row": [2, 3],
        "duplicate_id": [4],
        "unreadable": [5],
        "empty": [6],
        "truncated": [7],
        "header_mismatch": [9, 12],
        "non_finite": [8],
        "near_silent": [10],
        "mixed_rates": [11, 17, 18, 19],
        "no_transcript": [13],
        "no_recording": [14],
        "empty_transcript": [15],
        "odd_text": [16, 20, 21],
        "overlapping_segments": [19],
    }


def test_faults_say_what_was_seen(write: Write) -> None:
    found = {str(kind): faults[0].line for kind, _, faults in check_corpus(every_fault(write)).by_kind()}
    assert found["duplicate_id"].endswith(
        "m.jsonl:4: 'a' appears twice (first at " + found["duplicate_id"].partition(":4: ")[0] + ":1); "
        "ids must be unique; remove one or rename it"
    )
    assert "level of -80.8 dBFS (root mean square), below -60; " in found["near_silent"]
    assert "fast.wav has 16000 Hz, most have 8000" in found["mixed_rates"]
    assert "begins 0.050 s before an earlier segment" in found["overlapping_segments"]
    assert "holds 'Ã©' at character 4" in found["odd_text"]


def test_options_say_what_is_a_fault(write: Write) -> None:
    path = write({"utt_id": "a", "audio": "quiet.wav"}, {"utt_id": "b", "audio": "stereo.wav"})
    assert kinds(check_corpus(path)) == {"header_mismatch": [2], "near_silent": [1]}
    assert kinds(check_corpus(path, silence_dbfs=-90, channel="mean")) == {}


def test_what_no_row_has_is_not_missed(write: Write) -> None:
    assert not check_corpus(write({"utt_id": "a", "audio": "good.wav"})).counts
    assert not check_corpus(write({"utt_id": "a", "text": "words"})).counts


def test_a_corpus_without_rows_is_no_clean_one(write: Write) -> None:
    with pytest.raises(DataError, match="has no rows; expected at least one utterance"):
        check_corpus(write(""))


def test_kept_faults_are_bounded_and_all_are_counted() -> None:
    findings = Findings(limit=2)
    for number in range(9):
        findings.add(Fault(FaultKind.EMPTY, f"m:{number}", "a", "b"))
    assert [(count, len(faults)) for _, count, faults in findings.by_kind()] == [(9, 2)]


def test_segments_of_a_kaldi_directory_overlap(write: Write, tmp_path: Path) -> None:
    folder = tmp_path / "kaldi"
    folder.mkdir()
    (tmp_path / "long.wav").write_bytes((tmp_path / "good.wav").read_bytes())
    (folder / "wav.scp").write_text(f"r {tmp_path}/good.wav\ns {tmp_path}/long.wav\n")
    (folder / "segments").write_text(
        "a r 0 0.5\nb r 0.1 0.2\nc s 0 0.5\nd r 0.4 0.6\ne s 0.5 -1\nf r 0.6 1\n"
    )
    assert kinds(check_corpus(folder)) == {"overlapping_segments": [2, 4]}
