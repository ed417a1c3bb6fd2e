"""A text file of lines `key value`, found by key, with 18 bytes a line in memory and none of its text."""

import hashlib
import mmap
import os
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from statsprep.data.manifest import iter_lines

Line = tuple[bytes, bytes]


class KeyedFile:
    """Lines by key, in whatever order they stand.

    Keys are found by a 64 bit hash and compared; where a key stands twice, its first line counts. A file of
    Kaldi's is split at ASCII white space only: a text may hold others.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        hashes, offsets, is_empty = bytearray(), array("q"), bytearray()
        for _, offset, line in iter_lines(path):
            key, value = split_line(line)
            hashes += _hash(key)
            offsets.append(offset)
            is_empty.append(not value)
        found = np.frombuffer(hashes, np.uint64)
        order = np.argsort(found, kind="stable")
        self._hashes = found[order]
        self._offsets: NDArray[np.int64] = np.frombuffer(offsets, np.int64)[order]
        self._is_empty = np.frombuffer(is_empty, np.bool_)[order]
        self._is_used = np.zeros(len(order), np.bool_)
        with open(path, "rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            self._bytes = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) if size else None

    def __len__(self) -> int:
        return len(self._offsets)

    def find(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The value of each key, None where it has no line."""
        wanted = np.frombuffer(b"".join(map(_hash, keys)), np.uint64)
        starts = np.searchsorted(self._hashes, wanted)
        return [
            self._value(key, start, hash_) for key, start, hash_ in zip(keys, starts, wanted, strict=True)
        ]

    def _value(self, key: bytes, position: int, hash_: np.uint64) -> bytes | None:
        first = None
        while position < len(self) and self._hashes[position] == hash_:
            found, value = self._line_at(int(self._offsets[position]))
            if found == key:
                self._is_used[position] = True
                first = value if first is None else first
            position += 1
        return first

    def _line_at(self, offset: int) -> Line:
        assert self._bytes is not None
        end = self._bytes.find(b"\n", offset)
        return split_line(self._bytes[offset : end if end >= 0 else len(self._bytes)].rstrip(b"\r\n"))

    def unused(self) -> Iterator[tuple[str, str]]:
        """`file:line` and key of the lines that `find` has never met, in the file's order."""
        for where, key in self._places(~self._is_used):
            yield where, key.decode("utf-8", "backslashreplace")

    def empty(self) -> Iterator[tuple[str, str]]:
        """`file:line` and key of the lines without a value."""
        for where, key in self._places(self._is_empty):
            yield where, key.decode("utf-8", "backslashreplace")

    def repeated(self) -> Iterator[tuple[str, str, str]]:
        """`file:line` of each line whose key stood before, of the first such line, and the key."""
        is_suspect = np.zeros(len(self), np.bool_)
        equal = np.flatnonzero(self._hashes[1:] == self._hashes[:-1])
        is_suspect[equal] = is_suspect[equal + 1] = True
        first: dict[bytes, str] = {}
        for where, key in self._places(is_suspect):
            if first.setdefault(key, where) is not where:
                yield where, first[key], key.decode("utf-8", "backslashreplace")

    def _places(self, is_wanted: NDArray[np.bool_]) -> Iterator[tuple[str, bytes]]:
        if not is_wanted.any():
            return
        offsets = iter(np.sort(self._offsets[is_wanted]).tolist())
        sought = next(offsets)
        for number, offset, line in iter_lines(self.path):
            if offset == sought:
                yield f"{self.path}:{number}", split_line(line)[0]
                sought = next(offsets, None)


def split_line(line: bytes) -> Line:
    """Key and value of a line that is not blank; the value of a line without one is empty."""
    key, *value = line.split(None, 1)
    return key, value[0].rstrip() if value else b""


def _hash(key: bytes) -> bytes:
    return hashlib.blake2b(key, digest_size=8).digest()
