"""A dataset over one JSONL manifest. Each row is read from disk when it is asked for, by its byte offset."""

import operator
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from statsprep.data.audio import AudioPath, Channel, check_reading_options, num_samples, read_audio
from statsprep.data.faults import Fault, FaultKind, Report
from statsprep.data.index import IndexEntry, IndexSlice, KeyedBy, UttIds, build_index_in_memory
from statsprep.data.manifest import (
    audio_path,
    check_manifest_exists,
    iter_lines,
    parse_checked_line,
)
from statsprep.data.nemo import convert_row, is_nemo, row_reader
from statsprep.errors import ConfigError, DataError
from statsprep.storage.stores import BlockReader, LocalReader, absolute, is_url, parent, read_ahead

_READ_BYTES = 4096
_READING_KEYS = frozenset({"audio", "start_s", "duration_s"})


class ManifestDataset:
    """The utterances of a manifest, in its order.

    Opening it costs nothing: the constructor checks that the file exists. Without an attached index, one is
    built in memory at the first access. Instances may be pickled and forked.

    Args:
        manifest: JSONL file or its URL, see `statsprep.data.manifest`.
        sample_rate_hz: resample all audio to this rate; None keeps each file's own.
        channel: which channel of files with several, from 0, or "mean".
        audio_key: name of the audio in a sample.
    """

    keyed_by: KeyedBy = "utt_id"
    keeps_rows = False

    def __init__(
        self,
        manifest: Path | str,
        *,
        sample_rate_hz: int | None = None,
        channel: Channel | None = None,
        audio_key: str = "speech",
    ) -> None:
        check_reading_options(sample_rate_hz, channel, where=str(manifest))
        if audio_key == "utt_id":
            raise ConfigError(f"{manifest}: audio_key is 'utt_id'; expected another name, such as speech")
        self.manifest = check_manifest_exists(manifest, where="dataset")
        self.sample_rate_hz = sample_rate_hz
        self.channel = channel
        self.audio_key = audio_key
        self._path = os.fspath(absolute(self.manifest))
        self._folder = parent(self._path)
        self._rows: IndexSlice | None = None
        self._reader: BlockReader | LocalReader | None = None

    def __getstate__(self) -> dict[str, Any]:
        state = {**self.__dict__, "_reader": None}
        if self._rows is not None and self._rows.index.path is None:
            state["_rows"] = None
        return state

    def attach_index(self, rows: IndexSlice) -> None:
        """Use the driver's index instead of reading the whole manifest."""
        self._rows = rows

    def _indexed(self) -> IndexSlice:
        if self._rows is None:
            index = build_index_in_memory([self])
            self._rows = IndexSlice(index, 0, len(index))
        return self._rows

    def index_entries(self) -> Iterator[IndexEntry]:
        """Read and check the whole manifest, row by row."""
        read_row = row_reader(self._path, str(self.manifest))
        number = 0
        for number, offset, line in iter_lines(self._path):
            row = read_row(line, f"{self.manifest}:{number}")
            yield IndexEntry(row["utt_id"], offset, row.get("duration_s"), line)
        if number == 0:
            raise DataError(f"{self.manifest}: has no rows; expected one JSON object a line")

    def scan(self, report: Report) -> Iterator[tuple[str, dict[str, Any]]]:
        """`manifest:line` and row of every row that can be understood; the others go to `report`."""
        read_row = row_reader(self._path, str(self.manifest))
        for number, _, line in iter_lines(self._path):
            where = f"{self.manifest}:{number}"
            try:
                row = read_row(line, where)
            except DataError as error:
                report(Fault(FaultKind.MALFORMED_ROW, where, "", error.message.removeprefix(f"{where}: ")))
            else:
                yield where, row

    def place(self, offset: int) -> str:
        """`manifest:line` of the row that begins at `offset`."""
        for number, begin, _ in iter_lines(self._path):
            if begin >= offset:
                return f"{self.manifest}:{number}"
        return str(self.manifest)

    def __len__(self) -> int:
        return len(self._indexed())

    def utt_ids(self) -> Sequence[str]:
        """All ids in order, without a Python object for each."""
        return UttIds(self._indexed())

    def utt_id(self, i: int) -> str:
        """The id of utterance `i`."""
        return self.utt_ids()[i]

    def entry(self, i: int) -> dict[str, Any]:
        """Row `i` of the manifest, as it is written there.

        Raises:
            IndexError: there is no such row.
            DataError: the manifest has changed since it was indexed.
        """
        rows = self._indexed()
        position = operator.index(i)
        utt_id, offset = rows.row(position + len(rows) if position < 0 else position)
        row = parse_checked_line(self._read_line(offset))
        if is_nemo(row):
            row = convert_row(row, utt_id)
        if row.get("utt_id") != utt_id:
            raise DataError(
                f"{self.manifest}: byte {offset} no longer begins the row of {utt_id!r}; "
                "the manifest changed after it was indexed; start a new run"
            )
        return row

    def _read_line(self, offset: int) -> bytes:
        if self._reader is None:
            self._reader = BlockReader(self._path) if is_url(self._path) else LocalReader(self._path)
        block = self._reader.pread(_READ_BYTES, offset)
        line = block
        while b"\n" not in block and block:
            block = self._reader.pread(_READ_BYTES, offset + len(line))
            line += block
        return line.partition(b"\n")[0]

    def __getitem__(self, i: int) -> dict[str, Any]:
        """Utterance `i` as `{"utt_id", audio_key: float32 (samples,), and the row's other keys}`.

        `duration_s` and `sample_rate_hz` are those of the audio read, whatever the row says.

        Raises:
            IndexError: there is no such row.
            UtteranceError: its audio cannot be used.
        """
        row = self.entry(i)
        sample = {key: value for key, value in row.items() if key not in _READING_KEYS}
        if "audio" in row:
            audio, rate_hz = self.read_row(row)
            sample[self.audio_key] = audio
            sample["duration_s"] = len(audio) / rate_hz
            sample["sample_rate_hz"] = rate_hz
        return sample

    def read_ahead(self, positions: Sequence[int]) -> None:
        """Fetch the audio of utterances that are asked for next; it does nothing where the first one's is on
        this machine.
        """
        audio: list[str] = []
        for i in positions:
            row = self.entry(i)
            place = self._audio_of(row) if "audio" in row else ""
            if isinstance(place, str) and is_url(place):
                audio.append(place)
            elif not audio:
                return
        read_ahead(audio)

    def read_row(self, row: dict[str, Any]) -> tuple[NDArray[np.float32], int]:
        """The audio of a row of this manifest, float32 (samples,), and its rate in Hz.

        Raises:
            UtteranceError: it cannot be used.
        """
        return read_audio(self._audio_of(row), **self._reading_options(row))

    def audio_source(self, i: int) -> dict[str, Any]:
        """The keys of row `i` that say where its audio is, with the path in full; without audio none."""
        row = self.entry(i)
        if "audio" not in row:
            return {}
        return {key: row[key] for key in row.keys() & _READING_KEYS} | {
            "audio": audio_path(row, self._folder)
        }

    def num_samples(self, i: int) -> int:
        """The length of utterance `i` as `[i]` returns it, from its audio header.

        Raises:
            UtteranceError: its audio cannot be used, as far as the header shows it.
            DataError: the row has no audio.
        """
        row = self.entry(i)
        if "audio" not in row:
            raise DataError(
                f"{self.manifest}: utterance {row['utt_id']!r} has no audio; its length is unknown"
            )
        return num_samples(self._audio_of(row), **self._reading_options(row))

    def _audio_of(self, row: dict[str, Any]) -> AudioPath:
        return audio_path(row, self._folder)

    def _reading_options(self, row: dict[str, Any]) -> dict[str, Any]:
        duration_s = row.get("duration_s")
        options = {"sample_rate_hz": self.sample_rate_hz, "channel": self.channel}
        if "start_s" in row:
            return options | {"start_s": float(row["start_s"]), "duration_s": duration_s}
        return options | {"claimed_s": duration_s}
