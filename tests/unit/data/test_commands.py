"""Commands in wav.scp run where they are allowed, and fail as one bad utterance each."""

import os
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile

from statsprep.data import commands
from statsprep.data.kaldi_dataset import KaldiDataset
from statsprep.data.verdicts import UtteranceError, Verdict
from statsprep.errors import DataError


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    soundfile.write("a.wav", np.arange(-400, 400) / 1000, 8000)
    return tmp_path


def dataset(folder: Path, command: str, **files: str) -> KaldiDataset:
    (folder / "wav.scp").write_text(f"a {command} |\n")
    for name, content in files.items():
        (folder / name).write_text(content)
    return KaldiDataset(folder, allow_pipes=True)


def test_output_of_a_command_is_read_as_the_file_would_be(directory: Path) -> None:
    expected, _ = soundfile.read(directory / "a.wav", dtype="float32")
    piped = dataset(directory, "cat a.wav | cat")
    np.testing.assert_array_equal(piped[0]["speech"], expected)
    assert piped.num_samples(0) == 800
    part = dataset(directory, "cat a.wav", segments="x a 0.05 0.1\n")
    np.testing.assert_array_equal(part[0]["speech"], expected[400:])


def test_a_command_is_no_source_that_a_manifest_could_hold(directory: Path) -> None:
    with pytest.raises(DataError, match="is a command, which no manifest holds"):
        dataset(directory, "cat a.wav").audio_source(0)


def test_a_command_gets_no_input(directory: Path) -> None:
    assert len(dataset(directory, "cat; cat a.wav")[0]["speech"]) == 800


@pytest.mark.parametrize(
    ("command", "message", "kind"),
    [
        (
            "cat a.wav; echo one >&2; echo two >&2; exit 3",
            r"exit code 3 \(two\); run it by hand",
            Verdict.UNREADABLE,
        ),
        ("no_such_command_here", "exit code 127", Verdict.UNREADABLE),
        ("head -c 300 a.wav", "header says", Verdict.TRUNCATED),
        ("true", "has no bytes", Verdict.EMPTY),
        ("echo no audio at all, only text", "cannot be read", Verdict.UNREADABLE),
    ],
)
def test_a_failing_command_is_one_bad_utterance(
    directory: Path, command: str, message: str, kind: Verdict
) -> None:
    with pytest.raises(UtteranceError, match=message) as caught:
        dataset(directory, command)[0]
    assert caught.value.kind is kind
    assert repr(command) in caught.value.message
    assert "/tmp" not in caught.value.message.replace(str(directory), ""), "the same text in every run"


def test_a_command_that_hangs_is_stopped_with_its_children(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "TIMEOUT_S", 0.2)
    with pytest.raises(UtteranceError, match=r"still running after 0\.2 s"):
        dataset(directory, "sleep 600 & echo $! > pid; sleep 600")[0]
    pid = int((directory / "pid").read_text())
    end = time.monotonic() + 20
    while _is_alive(pid):
        assert time.monotonic() < end, "a child outlived its command"
        time.sleep(0.01)


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_descriptors_are_closed(directory: Path) -> None:
    piped = dataset(directory, "cat a.wav")
    piped[0]
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        piped[0]
    assert len(os.listdir("/proc/self/fd")) == before
