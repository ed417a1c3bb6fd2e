"""`statsprep check`: what it prints, and its exit codes."""

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from statsprep.cli.main import main


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    soundfile.write(tmp_path / "a.wav", np.sin(np.arange(3600)), 8000)
    rows = [{"utt_id": f"u{number}", "audio": "none.wav" if number else "a.wav"} for number in range(8)]
    path = tmp_path / "m.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_faults_are_counted_and_the_first_are_listed(
    manifest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(manifest), "--jobs", "1"]) == 3
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0] == f"{manifest}: 8 utterances, 0.00 hours of audio"
    assert lines[1] == "unreadable: 7 (audio that is missing or cannot be read)"
    assert lines[2].startswith(f"  {manifest}:2: ")
    assert lines[7] == "  (+2 more; --all lists them)"
    assert err == f"error: {manifest}: 7 faults of 1 kinds; expected none; mend or remove what is listed\n"
    assert main(["check", str(manifest), "--jobs", "1", "--all"]) == 3
    assert capsys.readouterr().out.count("none.wav") == 7


def test_json_holds_the_same(manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(manifest), "--jobs=1", "--json", "--all"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert (found["num_utterances"], found["num_faults"], found["audio_s"]) == (8, 7, 0.45)
    assert [each["utt_id"] for each in found["faults"]["unreadable"]["listed"]] == [
        f"u{i}" for i in range(1, 8)
    ]


def test_a_clean_corpus_ends_with_0(manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest.write_text('{"utt_id":"a","audio":"a.wav","text":"t"}\n')
    assert main(["check", str(manifest), "--jobs", "1"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["no faults"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["none.jsonl"], "manifest none.jsonl does not exist"),
        (["."], "has no wav.scp"),
        (["m.jsonl", "--jobs", "0"], "0 is below 1"),
        (["m.jsonl", "--channel", "left"], "expected a channel counted from 0, or mean"),
        (["m.jsonl", "--silence-dbs", "3"], "unrecognized arguments"),
    ],
)
def test_wrong_use_ends_with_2(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        code = main(["check", *words])
    except SystemExit as stopped:
        code = int(str(stopped.code))
    assert code == 2
    assert message in capsys.readouterr().err
