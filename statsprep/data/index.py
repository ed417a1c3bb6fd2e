"""The index of a split: which utterance is where. Built once on the driver, memory-mapped by every worker.

An Arrow file of record batches of 65,536 rows with the columns utt_id, source (which dataset of the split),
offset (the row's first byte in that manifest, or its position in that dataset) and duration_s. Sources that
have no file with a row for each utterance, such as Kaldi directories, put it into a further column, row, as
JSON. Neither building nor opening an index keeps a Python object per utterance: duplicates are found by
sorting 64-bit hashes, and rows are read from mapped buffers.
"""

import bisect
import hashlib
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, Protocol, overload

import numpy as np
from numpy.typing import NDArray

from statsprep.errors import DataError
from statsprep.storage.atomic import open_atomic

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 65_536
_BATCH_BITS = 16

KeyedBy = Literal["utt_id", "position"]


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One utterance as its source lists it; `content` is what results depend on, besides the audio itself.

    `row` is kept in the index where the source `keeps_rows`.
    """

    utt_id: str
    offset: int
    duration_s: float | None
    content: bytes
    row: bytes | None = None


class IndexSource(Protocol):
    """One dataset of a split, as far as the index needs it."""

    keyed_by: KeyedBy
    keeps_rows: bool

    def index_entries(self) -> Iterator[IndexEntry]:
        """All utterances in order."""

    def place(self, offset: int) -> str:
        """Where the utterance with this offset is, for a person: `train.jsonl:118`."""


@dataclass(frozen=True, slots=True)
class IndexSummary:
    """What was indexed. `digest` changes with any manifest line, but not with the manifests' folder."""

    num_items: int
    digest: str
    keyed_by: KeyedBy


def build_index(sources: Sequence[IndexSource], path: Path | str) -> IndexSummary:
    """Write the index of `sources`, one after another, to `path`.

    Raises:
        DataError: an id appears twice, a manifest row is malformed, or there is no utterance at all.
    """
    with open_atomic(path, binary=True) as stream:
        return _write_index(sources, stream)


def build_index_in_memory(sources: Sequence[IndexSource]) -> "UtteranceIndex":
    """The same index without a file; it is not pickled to workers."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    _write_index(sources, sink)
    return UtteranceIndex(pa.BufferReader(sink.getvalue()), path=None)


def _write_index(sources: Sequence[IndexSource], stream: "IO[Any] | pa.NativeFile") -> IndexSummary:
    import pyarrow as pa

    fields = [
        ("utt_id", pa.large_string()),
        ("source", pa.int16()),
        ("offset", pa.int64()),
        ("duration_s", pa.float64()),
    ]
    if any(source.keeps_rows for source in sources):
        fields.append(("row", pa.large_binary()))
    schema = pa.schema(fields)
    digest, hashes, num_items = hashlib.sha256(), bytearray(), 0
    with pa.ipc.new_file(stream, schema) as writer:
        for batch in _iter_batches(sources):
            for _, entry in batch:
                hashes += _id_hash(entry.utt_id)
                digest.update(entry.content + b"\n")
            columns: tuple[list[Any], ...] = (
                [entry.utt_id for _, entry in batch],
                [number for number, _ in batch],
                [entry.offset for _, entry in batch],
                [entry.duration_s for _, entry in batch],
                [entry.row for _, entry in batch],
            )
            arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=False)]
            writer.write_batch(pa.record_batch(arrays, schema=schema))
            num_items += len(batch)
    if num_items == 0:
        raise DataError(
            f"{', '.join(source.place(0) for source in sources)}: no utterances; expected at least one row"
        )
    _check_unique(sources, np.frombuffer(hashes, np.uint64))
    keyed_by: KeyedBy = "position" if any(source.keyed_by == "position" for source in sources) else "utt_id"
    return IndexSummary(num_items, digest.hexdigest(), keyed_by)


def _iter_batches(sources: Sequence[IndexSource]) -> Iterator[list[tuple[int, IndexEntry]]]:
    batch: list[tuple[int, IndexEntry]] = []
    for number, source in enumerate(sources):
        for entry in source.index_entries():
            batch.append((number, entry))
            if len(batch) == BATCH_ROWS:
                yield batch
                batch = []
    if batch:
        yield batch


def _id_hash(utt_id: str) -> bytes:
    return hashlib.blake2b(utt_id.encode(), digest_size=8).digest()


def _check_unique(sources: Sequence[IndexSource], hashes: NDArray[np.uint64]) -> None:
    """Equal hashes are only a suspicion: the ids behind them are read again and compared."""
    ordered = np.sort(hashes)
    suspects = set(ordered[1:][ordered[1:] == ordered[:-1]].tolist())
    if not suspects:
        return
    first_seen: dict[str, tuple[IndexSource, int]] = {}
    message, num_more = "", 0
    for source in sources:
        for entry in source.index_entries():
            if int.from_bytes(_id_hash(entry.utt_id), sys.byteorder) not in suspects:
                continue
            here = (source, entry.offset)
            first = first_seen.setdefault(entry.utt_id, here)
            if first is here:
                continue
            if message:
                num_more += 1
            else:
                places = source.place(entry.offset), first[0].place(first[1])
                message = f"{places[0]}: utterance {entry.utt_id!r} appears twice (first at {places[1]})"
    if message:
        more = f" (+{num_more} more)" if num_more else ""
        raise DataError(f"{message}; ids must be unique; remove one or rename it{more}")


class _Batch:
    """One record batch as plain views of its buffers: several times faster than Arrow's own cells."""

    __slots__ = ("durations_s", "id_bytes", "id_offsets", "offsets", "rows", "sources")

    def __init__(self, batch: "pa.RecordBatch") -> None:
        ids = batch.column(0)
        _, id_offsets, id_bytes = ids.buffers()
        self.id_offsets = memoryview(id_offsets).cast("q")[: len(ids) + 1]
        self.id_bytes = memoryview(id_bytes)
        self.sources = memoryview(batch.column(1).buffers()[1]).cast("h")
        self.offsets = memoryview(batch.column(2).buffers()[1]).cast("q")
        self.durations_s: NDArray[np.float64] = batch.column(3).to_numpy(zero_copy_only=False)
        self.rows = batch.column(4) if batch.num_columns > 4 else None


class UtteranceIndex:
    """A built index, memory-mapped. Pickling one that lies in a file passes on the path only."""

    def __init__(self, source: "pa.NativeFile", *, path: str | None) -> None:
        import pyarrow as pa

        self.path = path
        self._reader = pa.ipc.open_file(source)
        self._batches: dict[int, _Batch] = {}
        num_batches = self._reader.num_record_batches
        self._length: int = (num_batches - 1) * BATCH_ROWS + self._reader.get_batch(num_batches - 1).num_rows

    @classmethod
    def open(cls, path: Path | str) -> "UtteranceIndex":
        """Map the index at `path`.

        Raises:
            DataError: the file is missing or no index.
        """
        import pyarrow as pa

        try:
            return cls(pa.memory_map(os.fspath(path)), path=os.path.abspath(path))
        except (OSError, pa.ArrowException, ValueError) as error:
            reason = (
                error.strerror if isinstance(error, OSError) and error.strerror else "not a whole Arrow file"
            )
            raise DataError(
                f"{path}: cannot be opened as an index ({reason}); run the command again to write it"
            ) from error

    def __reduce__(self) -> tuple[object, ...]:
        if self.path is None:
            raise TypeError("an index in memory is not sent to other processes; write it with build_index")
        return (UtteranceIndex.open, (self.path,))

    def __len__(self) -> int:
        return self._length

    def _locate(self, i: int) -> tuple[_Batch, int]:
        if not 0 <= i < self._length:
            raise IndexError(f"index {i} is out of range for {self._length} utterances")
        number = i >> _BATCH_BITS
        batch = self._batches.get(number)
        if batch is None:
            batch = self._batches[number] = self._open_batch(number)
        return batch, i & (BATCH_ROWS - 1)

    def _open_batch(self, number: int) -> _Batch:
        try:
            return _Batch(self._reader.get_batch(number))
        except (OSError, ValueError, TypeError, LookupError, NotImplementedError) as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> DataError:
        return DataError(
            f"{self.path}: is no index of utterances ({' '.join(str(error).split())[:120]}); run the same "
            "command with --overwrite"
        )

    def utt_id(self, i: int) -> str:
        """The id of utterance `i`."""
        return self._utt_id(*self._locate(i))

    def _utt_id(self, batch: _Batch, row: int) -> str:
        try:
            return str(batch.id_bytes[batch.id_offsets[row] : batch.id_offsets[row + 1]], "utf-8")
        except UnicodeDecodeError as error:
            raise self._damaged(error) from error

    def row(self, i: int) -> tuple[str, int, int]:
        """Id, source and offset of utterance `i`."""
        batch, row = self._locate(i)
        return self._utt_id(batch, row), batch.sources[row], batch.offsets[row]

    def kept_row(self, i: int) -> bytes:
        """The row of utterance `i` as JSON; empty where its source keeps none here."""
        batch, row = self._locate(i)
        return b"" if batch.rows is None else batch.rows[row].as_py() or b""

    def source(self, i: int) -> int:
        """The number of the source that utterance `i` comes from."""
        batch, row = self._locate(i)
        source: int = batch.sources[row]
        return source

    def duration_s(self, i: int) -> float | None:
        """How long utterance `i` is according to its manifest, or None where that is not said."""
        batch, row = self._locate(i)
        duration_s = float(batch.durations_s[row])
        return None if np.isnan(duration_s) else duration_s

    def slices(self, num_sources: int) -> "list[IndexSlice]":
        """The rows of each source; a source without utterances has an empty slice."""
        bounds = [
            bisect.bisect_left(range(self._length), number, key=self.source) for number in range(num_sources)
        ]
        bounds.append(self._length)
        return [IndexSlice(self, bounds[number], bounds[number + 1]) for number in range(num_sources)]


@dataclass(frozen=True, slots=True)
class IndexSlice:
    """The consecutive rows of one source, counted from 0."""

    index: UtteranceIndex
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def row(self, i: int) -> tuple[str, int]:
        """Id and offset of the source's utterance `i`."""
        if not 0 <= i < len(self):
            raise IndexError(f"index {i} is out of range for {len(self)} utterances")
        utt_id, _, offset = self.index.row(self.start + i)
        return utt_id, offset

    def kept_row(self, i: int) -> bytes:
        """The row of the source's utterance `i` as JSON; empty where the source keeps none in the index."""
        return self.index.kept_row(self.start + i)

    def utt_id(self, i: int) -> str:
        """Id of the source's utterance `i`; negative positions count from the end."""
        position = i + len(self) if i < 0 else i
        if not 0 <= position < len(self):
            raise IndexError(f"index {i} is out of range for {len(self)} utterances")
        return self.index.utt_id(self.start + position)


class KnowsIds(Protocol):
    """Something with a length and an id for each position."""

    def __len__(self) -> int: ...

    def utt_id(self, i: int) -> str: ...


@dataclass(frozen=True, slots=True)
class UttIds(Sequence[str]):
    """Ids as a read-only sequence; each is read when it is asked for."""

    rows: KnowsIds

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, i: int) -> str: ...
    @overload
    def __getitem__(self, i: slice) -> list[str]: ...
    def __getitem__(self, i: int | slice) -> str | list[str]:
        if isinstance(i, slice):
            return [self.rows.utt_id(position) for position in range(*i.indices(len(self)))]
        return self.rows.utt_id(i)
