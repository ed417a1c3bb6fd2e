"""Atomic files: whole or absent, whatever happens to the process or to the disk."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from statsprep.errors import StorageError
from statsprep.storage import atomic
from statsprep.storage.atomic import open_atomic, open_private, write_bytes, write_text


def test_content_and_name_survive_odd_folders(weird_tmp_path: Path) -> None:
    write_text(weird_tmp_path / "ü x", "zwei\r\nZeilen\n")
    assert (weird_tmp_path / "ü x").read_bytes() == b"zwei\r\nZeilen\n"
    assert os.listdir(weird_tmp_path) == ["ü x"]


def test_exception_while_writing_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_text(path, "old")

    def write_half() -> None:
        with open_atomic(path) as stream:
            stream.write("new")
            raise RuntimeError("half-way")

    with pytest.raises(RuntimeError, match="half-way"):
        write_half()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_reader_sees_the_old_file_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_text(path, "old")
    with open_atomic(path) as stream:
        stream.write("new")
        stream.flush()
        assert path.read_text() == "old"
    assert path.read_text() == "new"


def test_sigkill_while_writing_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_text(path, "old")
    code = (
        "import os, signal, sys\n"
        "from statsprep.storage.atomic import open_atomic\n"
        "with open_atomic(sys.argv[1], binary=True) as stream:\n"
        "    stream.write(b'x' * 1_000_000)\n"
        "    stream.flush()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, path], check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.read_text() == "old"
    assert [name for name in os.listdir(tmp_path) if atomic.TEMPORARY_MARK not in name] == ["file"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_full_disk_is_a_storage_error_that_names_the_path(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    path = tmp_path / "file"
    write_text(path, "old")
    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StorageError) as caught:
        write_bytes(path, b"new")
    assert str(caught.value).startswith(f"{path}: cannot write ({os.strerror(number)}); free space")
    assert caught.value.exit_code == 4
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_really_full_device_is_a_storage_error() -> None:
    message = r"^/dev/full: cannot write \(No space left"
    with pytest.raises(StorageError, match=message), open_private(Path("/dev/full"), binary=True) as stream:
        stream.write(b"x")


def test_other_errors_keep_their_type(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_text(tmp_path / "missing" / "file", "x")


def test_file_and_folder_are_flushed_in_the_order_that_survives_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, replace = os.fsync, os.replace

    def note_fsync(descriptor: int) -> None:
        is_folder = Path(f"/proc/self/fd/{descriptor}").is_dir()
        steps.append("flush folder" if is_folder else "flush file")
        fsync(descriptor)

    def note_replace(source: Path, target: Path) -> None:
        steps.append("rename")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "replace", note_replace)
    write_text(tmp_path / "file", "x")
    assert steps == ["flush file", "rename", "flush folder"]


def test_text_that_is_no_unicode_is_escaped_rather_than_lost(tmp_path: Path) -> None:
    write_text(tmp_path / "file", "a\udc80b")
    assert (tmp_path / "file").read_text(encoding="utf-8") == "a\\udc80b"


def test_a_name_of_the_longest_length_can_be_written(tmp_path: Path) -> None:
    name = "n" * 255
    write_text(tmp_path / name, "x")
    assert os.listdir(tmp_path) == [name]
