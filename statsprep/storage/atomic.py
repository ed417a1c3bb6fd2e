"""The one place that writes files: each appears whole or not at all, and stays after a power cut.

A reader never sees half a file: content goes to a temporary name in the same folder, is flushed to the disk,
and is renamed.
"""

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Literal, overload

from statsprep.errors import StorageError, is_disk_error

TEMPORARY_MARK = ".tmp-"


@contextlib.contextmanager
def disk_errors_named(path: Path) -> Iterator[None]:
    """Turn 'no space left' and its kin into one StorageError that names the path and the way on."""
    try:
        yield
    except OSError as error:
        if is_disk_error(error):
            raise StorageError(
                f"{path}: cannot write ({error.strerror}); free space or choose another folder, "
                "then run the same command again: what was finished is kept"
            ) from error
        raise


@overload
def open_atomic(
    path: Path | str, *, binary: Literal[False] = False
) -> contextlib.AbstractContextManager[IO[str]]: ...
@overload
def open_atomic(
    path: Path | str, *, binary: Literal[True]
) -> contextlib.AbstractContextManager[IO[bytes]]: ...
def open_atomic(path: Path | str, *, binary: bool = False) -> contextlib.AbstractContextManager[IO[Any]]:
    """Open a temporary file beside `path`; on leaving without an error it is fsynced and renamed to
    `path`.
    """
    return _opened(Path(path), binary)


@contextlib.contextmanager
def _opened(path: Path, binary: bool) -> Iterator[IO[Any]]:
    temporary = path.with_name(f".{path.name[:80]}{TEMPORARY_MARK}{secrets.token_hex(4)}")
    with disk_errors_named(path):
        try:
            with _create(temporary, binary) as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        sync_folder(path.parent)


@overload
def open_private(
    path: Path, *, binary: Literal[False] = False
) -> contextlib.AbstractContextManager[IO[str]]: ...
@overload
def open_private(path: Path, *, binary: Literal[True]) -> contextlib.AbstractContextManager[IO[bytes]]: ...
@contextlib.contextmanager
def open_private(path: Path, *, binary: bool = False) -> Iterator[IO[Any]]:
    """Open a new file in a folder that this process alone writes to and then commits as a whole, by a rename
    of its own.
    """
    with disk_errors_named(path), _create(path, binary) as stream:
        yield stream


def _create(path: Path, binary: bool) -> IO[Any]:
    if binary:
        return open(path, "wb")
    return open(path, "w", encoding="utf-8", errors="backslashreplace", newline="\n")


def link_or_copy(source: Path, target: Path) -> None:
    """Give a finished file that nobody changes any more a second place."""
    with disk_errors_named(target):
        try:
            os.link(source, target)
        except OSError:
            shutil.copyfile(source, target)


def write_bytes(path: Path | str, content: bytes) -> None:
    """Write `content` to `path` atomically."""
    with open_atomic(path, binary=True) as stream:
        stream.write(content)


def write_text(path: Path | str, content: str) -> None:
    """Write `content` to `path` atomically, as UTF-8 with newlines as they are."""
    write_bytes(path, content.encode("utf-8", "backslashreplace"))


def sync_file(path: Path | str) -> None:
    """Flush a finished file to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: Path | str) -> None:
    """Flush a folder's entries to the disk, so that a rename in it survives a power cut."""
    sync_file(path)
