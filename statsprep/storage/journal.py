r"""The journal of one attempt at a shard: what is finished, item by item, whatever kills the process next.

`journal.jsonl` has one line per item, in item order:

    [position, status, utt_id, result, {row key: shape}, crc32 of the item's rows]

and `rows.bin` the float64 rows that belong to these lines, one after the other. Every append goes straight to
the operating system, rows before their line, so a killed process loses no finished item. A reader trusts the
longest prefix whose lines parse, count up from 0 and match their rows' checksum.
"""

import itertools
import json
import os
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from statsprep.storage.atomic import disk_errors_named
from statsprep.storage.paths import JOURNAL, ROWS


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
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._lines = os.open(self._path, flags, 0o666)
        self._rows = os.open(folder / ROWS, flags, 0o666)

    def append(self, entries: Iterable[Entry]) -> None:
        """Add finished items.

        Raises:
            StorageError: the disk is full.
        """
        lines: list[str] = []
        rows: list[bytes] = []
        for entry in entries:
            blob = b"".join(row.tobytes() for row in entry.rows.values())
            shapes = {key: row.shape for key, row in entry.rows.items()}
            result = entry.text if entry.text is not None else json.dumps(entry.result)
            lines.append(
                f'[{entry.position},"{entry.status}",{json.dumps(entry.utt_id)},{result},{json.dumps(shapes)},'
                f"{zlib.crc32(blob)}]"
            )
            rows.append(blob)
        with disk_errors_named(self._path):
            _write_all(self._rows, b"".join(rows))
            _write_all(self._lines, ("\n".join(lines) + "\n").encode())

    def close(self) -> None:
        for descriptor in (self._lines, self._rows):
            os.close(descriptor)


def _write_all(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]


def read_journal(folder: Path) -> Iterator[Entry]:
    """The entries of the journal's valid prefix, streamed; nothing where there is no journal."""
    if not (folder / JOURNAL).exists() or not (folder / ROWS).exists():
        return
    with open(folder / JOURNAL, "rb") as lines, open(folder / ROWS, "rb") as rows:
        for expected in itertools.count():
            entry = _parse_entry(lines.readline(), rows)
            if entry is None or entry.position != expected:
                return
            yield entry


def _parse_entry(line: bytes, rows: Any) -> Entry | None:
    if not line.endswith(b"\n"):
        return None
    try:
        position, status, utt_id, result, shapes, checksum = json.loads(line)
        sizes = {key: (tuple(shape), int(np.prod(shape)) * 8) for key, shape in shapes.items()}
        blob = rows.read(sum(size for _, size in sizes.values()))
        if zlib.crc32(blob) != checksum:
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
