r"""The journal of one attempt at a shard: what is finished, item by item, whatever kills the process next.

An entry is one line, and after it the bytes of the item's float64 rows:

    crc32 [position, status, utt_id, result, {row key: shape}]\n
    rows

with the checksum, eight hex digits, over all that follows it. Every append goes straight to the operating
system, so a killed process loses no finished item. A reader trusts the longest prefix whose entries match
their checksums and count up from 0.
"""

import functools
import itertools
import json
import os
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from statsprep.storage.atomic import disk_errors_named
from statsprep.storage.paths import JOURNAL


class Status(StrEnum):
    """What became of an item."""

    OK = "ok"
    DROPPED = "dropped"
    ERROR = "error"


@dataclass(slots=True)
class Entry:
    """One item's outcome. `result` is JSON (of an error: its record), `rows` are float64 arrays.

    `text` is the result as JSON text, where somebody has it already.
    """

    position: int
    status: Status
    utt_id: str
    result: Any
    rows: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    text: str | None = None


class JournalWriter:
    """Appends entries, write-through."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / JOURNAL
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)

    def append(self, entries: Iterable[Entry]) -> None:
        """Add finished items.

        Raises:
            StorageError: the disk is full.
        """
        content = bytearray()
        for entry in entries:
            result = entry.text if entry.text is not None else json.dumps(entry.result)
            shapes = _shapes_text(tuple((key, row.shape) for key, row in entry.rows.items()))
            line = f'[{entry.position},"{entry.status}",{json.dumps(entry.utt_id)},{result},{shapes}]\n'
            body = b"".join([line.encode(), *(row.tobytes() for row in entry.rows.values())])
            content += b"%08x " % zlib.crc32(body) + body
        with disk_errors_named(self._path):
            _write_all(self._descriptor, bytes(content))

    def close(self) -> None:
        os.close(self._descriptor)


@functools.lru_cache
def _shapes_text(shapes: tuple[tuple[str, tuple[int, ...]], ...]) -> str:
    return json.dumps(dict(shapes))


def _write_all(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]


def read_journal(folder: Path) -> Iterator[Entry]:
    """The entries of the journal's valid prefix, streamed; nothing where there is no journal."""
    try:
        stream = open(folder / JOURNAL, "rb")  # noqa: SIM115  closed below
    except FileNotFoundError:
        return
    with stream:
        for expected in itertools.count():
            entry = _read_entry(stream)
            if entry is None or entry.position != expected:
                return
            yield entry


def _read_entry(stream: IO[bytes]) -> Entry | None:
    checksum, _, line = stream.readline().partition(b" ")
    try:
        position, status, utt_id, result, shapes = json.loads(line)
        sizes = {key: (tuple(shape), int(np.prod(shape)) * 8) for key, shape in shapes.items()}
        blob = stream.read(sum(size for _, size in sizes.values()))
        if not line.endswith(b"\n") or checksum != b"%08x" % zlib.crc32(blob, zlib.crc32(line)):
            return None
        entry = Entry(position, Status(status), utt_id, result)
        offset = 0
        for key, (shape, size) in sizes.items():
            entry.rows[key] = np.frombuffer(blob, np.float64, size // 8, offset).reshape(shape)
            offset += size
    except (ValueError, TypeError, AttributeError, OverflowError, MemoryError):
        return None
    return entry


def count_entries(folder: Path) -> int:
    """How many items the journal's valid prefix holds."""
    return sum(1 for _ in read_journal(folder))
