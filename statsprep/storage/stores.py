"""Files on object stores and servers, by fsspec URL: the few operations that statsprep needs of them.

A file appears whole or not at all, and of several processes that `create` the same one, one succeeds. Where
the store is, and with which credentials, is fsspec's business: `FSSPEC_S3_ENDPOINT_URL=...` and the like in
the environment, or `~/.config/fsspec/*.json`.
"""

import contextlib
import io
import os
import secrets
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from statsprep.errors import ConfigError, StatsprepError, StorageError, listed, nearest
from statsprep.storage.atomic import TEMPORARY_MARK
from statsprep.storage.names import stays_below

# Protocols whose files are plain bytes in one place. Others of fsspec's, such as `github` or the chained
# `simplecache::`, would let a manifest make this machine fetch or write what it likes.
_EXTRAS = {
    "s3": "s3",
    "s3a": "s3",
    "sftp": "sftp",
    "ssh": "sftp",
    "memory": "",
    "gs": "",
    "abfs": "",
    "az": "",
}
_LOCAL = "file://"
_BLOCK_BYTES = 1 << 20
_AHEAD_BYTES = 1 << 22

StorePath = str | os.PathLike[str]


def is_url(path: StorePath) -> bool:
    """Whether a path is a URL rather than a place on this machine; `file:///data/a.wav` is one here."""
    return (
        isinstance(path, str)
        and "://" in path
        and "/" not in path.partition("://")[0]
        and not path.startswith(_LOCAL)
    )


def local(path: StorePath) -> StorePath:
    """A place on this machine without the `file://` that it may be written with; a URL as it is.

    Raises:
        ConfigError: it is one of another machine, or relative.
    """
    if not isinstance(path, str) or not path.startswith(_LOCAL):
        return path
    place = path.removeprefix(_LOCAL)
    if not place.startswith("/"):
        raise ConfigError(f"{path}: is no path from / on; expected one such as {_LOCAL}/data/train.jsonl")
    return place


def join(folder: StorePath, name: str) -> str:
    """`name` below a folder or URL; an absolute name or a URL stays what it is."""
    if name.startswith(f"{_LOCAL}/"):
        return name.removeprefix(_LOCAL)
    if is_url(name) or not is_url(folder):
        return name if is_url(name) else os.path.join(folder, name)
    return name if name.startswith("/") else f"{os.fspath(folder).rstrip('/')}/{name}"


def absolute(path: StorePath) -> Path | str:
    """A path from the root on, or the URL as it is."""
    return os.fspath(path) if is_url(path) else Path(local(path)).absolute()


def parent(path: StorePath) -> str:
    """The folder of a path or URL."""
    return os.fspath(path).rpartition("/")[0] if is_url(path) else os.path.dirname(os.path.abspath(path))


def check_url(url: str, *, where: str = "") -> None:
    """Refuse what is no URL of a known store.

    Raises:
        ConfigError: names the protocol, or the `..` in it.
    """
    protocol = url.partition("://")[0]
    if protocol not in _EXTRAS:
        raise ConfigError(
            f"{where}{url}: {protocol!r} is no known store{nearest(protocol, _EXTRAS)}; expected one of "
            f"{listed(_EXTRAS, limit=10)}, or a path on this machine"
        )
    if ".." in url.split("/"):
        raise ConfigError(f"{where}{url}: stores have no '..'; write the URL out")


@contextlib.contextmanager
def store_errors_named(url: str) -> Iterator[None]:
    """Turn what a store's library raises into one StorageError that names the URL; a missing file stays a
    FileNotFoundError, and one that may not be read a PermissionError.
    """
    try:
        yield
    except (FileNotFoundError, PermissionError, StatsprepError):
        raise
    except ImportError as error:
        extra = _EXTRAS.get(url.partition("://")[0])
        way = f"pip install 'statsprep[{extra}]'" if extra else "install fsspec's package for it"
        raise ConfigError(f"{url}: its store needs a package that is missing ({error}); {way}") from error
    except Exception as error:
        text = " ".join(str(error).split()) or "no reason given"
        raise StorageError(
            f"{url}: {type(error).__name__}: {text}; check address, credentials and network, then run the "
            "same command again: what was finished is kept"
        ) from error


def _open_filesystem(url: str) -> tuple[Any, str]:
    """fsspec's object for this thread, which it keeps, and the path there. Listings are never remembered:
    another process's files would stay unseen.
    """
    import fsspec

    check_url(url)
    filesystem, path = fsspec.core.url_to_fs(url)
    filesystem.invalidate_cache()
    return filesystem, path


_ahead = threading.local()


def read_ahead(urls: Sequence[str]) -> None:
    """Fetch files side by side that `read_bytes` is asked for next in this thread: an object store answers
    many requests in the time of one. Of a long file only the beginning is fetched.
    """
    _ahead.contents = {}
    if len(urls) < 2:
        return
    with store_errors_named(urls[0]):
        filesystem, _ = _open_filesystem(urls[0])
        if not filesystem.async_impl:
            return
        paths = [filesystem._strip_protocol(url) for url in urls]
        found = filesystem.cat_ranges(paths, 0, _AHEAD_BYTES, on_error="return")
        # Whatever is wrong with one of them is told when it is read.
        contents = {url: each for url, each in zip(urls, found, strict=True) if isinstance(each, bytes)}
        _ahead.contents = contents


def read_bytes(url: str) -> bytes:
    """A file's content.

    Raises:
        FileNotFoundError: there is none.
        StorageError: the store cannot be reached.
    """
    begin: bytes = getattr(_ahead, "contents", {}).pop(url, b"")
    if 0 < len(begin) < _AHEAD_BYTES:
        return begin
    with store_errors_named(url):
        filesystem, path = _open_filesystem(url)
        if hasattr(filesystem, "ftp"):
            with filesystem.ftp.open(path, "rb") as stream:
                # All requests on their way at once; fsspec waits for each of 32 kB.
                size = stream.stat().st_size
                stream.prefetch(size)
                content: bytes = stream.read(size)
                return content
        content = filesystem.cat_file(path)
        return content


def read_head(url: str, num_bytes: int) -> tuple[int, bytes]:
    """A file's size, and its first bytes.

    Raises:
        FileNotFoundError: there is none.
        StorageError: the store cannot be reached.
    """
    with store_errors_named(url):
        filesystem, path = _open_filesystem(url)
        size: int = filesystem.size(path)
        return size, filesystem.cat_file(path, start=0, end=min(num_bytes, size)) if size else b""


def open_lines(url: str) -> Any:
    """A binary stream of a file, read ahead in blocks.

    Raises:
        FileNotFoundError: there is none.
        StorageError: the store cannot be reached.
    """
    with store_errors_named(url):
        filesystem, path = _open_filesystem(url)
        return io.BufferedReader(filesystem.open(path, "rb"), _BLOCK_BYTES)


class BlockReader:
    """Reads ranges of one file on a store, and keeps the last block: neighbouring ranges cost one request."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._start = 0
        self._block = b""

    def pread(self, num_bytes: int, offset: int) -> bytes:
        """Up to `num_bytes` bytes from `offset` on; none behind the file's end."""
        begin = offset - self._start
        if not 0 <= begin < len(self._block):
            with store_errors_named(self._url):
                filesystem, path = _open_filesystem(self._url)
                if offset >= filesystem.size(path):
                    return b""
                self._block = filesystem.cat_file(path, start=offset, end=offset + _BLOCK_BYTES)
            self._start, begin = offset, 0
        return self._block[begin : begin + num_bytes]


class LocalReader:
    """The same for a file of this machine, which the system keeps at hand."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._descriptor)

    def pread(self, num_bytes: int, offset: int) -> bytes:
        """Up to `num_bytes` bytes from `offset` on; none behind the file's end."""
        return os.pread(self._descriptor, num_bytes, offset)


@dataclass(frozen=True, slots=True)
class Store:
    """A folder on a store. Names are relative to it, with `/` inside."""

    url: str

    def child(self, name: str) -> "Store":
        return Store(f"{self.url}/{name}")

    def at(self, name: str) -> str:
        """The URL of a file."""
        return f"{self.url}/{name}"

    def read(self, name: str) -> bytes | None:
        """A file's content, or None where it is missing."""
        try:
            return read_bytes(self.at(name))
        except FileNotFoundError:
            return None

    def read_many(self, names: Iterable[str]) -> dict[str, bytes]:
        """Contents by name, fetched side by side where the store can; missing files are left out."""
        names = list(names)
        with store_errors_named(self.url):
            filesystem, root = _open_filesystem(self.url)
            if not names:
                return {}
            if hasattr(filesystem, "ftp"):
                return {name: content for name in names if (content := self.read(name)) is not None}
            found = filesystem.cat([f"{root}/{name}" for name in names], on_error="omit")
            return {path.removeprefix(f"{root}/"): content for path, content in found.items()}

    def sizes(self) -> dict[str, int]:
        """Bytes of every file below the folder, from one listing."""
        with store_errors_named(self.url):
            filesystem, root = _open_filesystem(self.url)
            try:
                found = filesystem.find(root, detail=True)
            except FileNotFoundError:
                return {}
            sizes = {path.removeprefix(f"{root}/"): each["size"] for path, each in found.items()}
            # Keys of object stores may hold `..`, which a folder of this machine would follow.
            return {name: size for name, size in sizes.items() if stays_below(name)}

    def put(self, name: str, content: bytes) -> None:
        """Write a file, whatever was there."""
        url = self.at(name)
        with store_errors_named(url):
            filesystem, path = _open_filesystem(url)
            if hasattr(filesystem, "ftp"):
                with _sftp_draft(filesystem, path, io.BytesIO(content)) as draft:
                    filesystem.ftp.posix_rename(draft, path)
            else:
                filesystem.pipe_file(path, content)

    def create(self, name: str, content: bytes) -> bool:
        """Write a file unless it is there; whether this call made it."""
        url = self.at(name)
        with store_errors_named(url):
            filesystem, path = _open_filesystem(url)
            try:
                if hasattr(filesystem, "ftp"):
                    with _sftp_draft(filesystem, path, io.BytesIO(content)) as draft:
                        filesystem.ftp.rename(draft, path)  # unlike posix_rename it replaces nothing
                else:
                    filesystem.pipe_file(path, content, mode="create")
            except OSError:
                # Stores say "it exists" in many ways: FileExistsError, EINVAL, "Failure".
                if self.read(name) is None:
                    raise
                return False
            return True

    def upload(self, source: Path, name: str) -> None:
        """Copy a local file to the store."""
        url = self.at(name)
        with store_errors_named(url):
            filesystem, path = _open_filesystem(url)
            if hasattr(filesystem, "ftp"):
                with open(source, "rb") as stream, _sftp_draft(filesystem, path, stream) as draft:
                    filesystem.ftp.posix_rename(draft, path)
            else:
                filesystem.put_file(str(source), path)

    def download(self, name: str, target: Path) -> None:
        """Copy a file from the store; `target` is a private name.

        Raises:
            FileNotFoundError: there is no such file.
        """
        url = self.at(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        with store_errors_named(url):
            filesystem, path = _open_filesystem(url)
            filesystem.get_file(path, str(target))

    def remove(self, names: Iterable[str]) -> None:
        """Remove files; those that are gone already are no error."""
        names = list(names)
        if not names:
            return
        with store_errors_named(self.url):
            filesystem, root = _open_filesystem(self.url)
            if hasattr(filesystem, "ftp"):
                for name in names:
                    with contextlib.suppress(FileNotFoundError):
                        filesystem.ftp.remove(f"{root}/{name}")
                self._remove_empty_folders(filesystem, root, names)
            else:
                try:
                    filesystem.rm([f"{root}/{name}" for name in names])
                except FileNotFoundError:
                    for name in names:
                        with contextlib.suppress(FileNotFoundError):
                            filesystem.rm_file(f"{root}/{name}")

    def _remove_empty_folders(self, filesystem: Any, root: str, names: list[str]) -> None:
        folders = {str(each) for name in names for each in PurePosixPath(name).parents} - {"."}
        for folder in sorted(folders, key=len, reverse=True):
            with contextlib.suppress(OSError):  # not empty, or gone
                filesystem.ftp.rmdir(f"{root}/{folder}")


@contextlib.contextmanager
def _sftp_draft(filesystem: Any, path: str, stream: Any) -> Iterator[str]:
    """A file beside `path` with the stream's content, removed again unless the block renames it.

    fsspec's own file objects write one packet after the other, sixty times slower.
    """
    folder, _, name = path.rpartition("/")
    draft = f"{folder}/.{name[:80]}{TEMPORARY_MARK}{secrets.token_hex(4)}"
    try:
        try:
            filesystem.ftp.putfo(stream, draft, confirm=False)
        except FileNotFoundError:
            _make_sftp_folders(filesystem, folder)
            stream.seek(0)
            filesystem.ftp.putfo(stream, draft, confirm=False)
        yield draft
    finally:
        with contextlib.suppress(OSError):
            filesystem.ftp.remove(draft)


def _make_sftp_folders(filesystem: Any, folder: str) -> None:
    for parent_folder in reversed([folder, *map(str, PurePosixPath(folder).parents)]):
        try:
            filesystem.ftp.stat(parent_folder)
        except FileNotFoundError:
            with contextlib.suppress(OSError):  # another process was faster; else the write says why
                filesystem.ftp.mkdir(parent_folder)
