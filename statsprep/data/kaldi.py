"""Kaldi data directories: their files joined to rows as a JSONL manifest has them, streamed.

`segments` lists the utterances, or else `wav.scp`; `feats.scp` where features are used. To each belong, where
these files are there, its transcript from `text`, speaker from `utt2spk`, language from `utt2lang`, and the
duration that `utt2dur` claims, in whatever order their lines stand. All other files are left alone.

- A relative path in wav.scp or feats.scp is relative to the current folder, as in Kaldi; where the first such
  path is not there but below the data directory, all of them are relative to that.
- An end of -1 in `segments` means the recording's end.
- A line of `text`, `utt2spk`, ... without its utterance is left out, and an utterance without a line in one
  of them goes without; a warning counts both. A segment whose recording is missing is an utterance that
  cannot be read.
"""

import itertools
import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from statsprep.data.faults import Fault, FaultKind, Report
from statsprep.data.feats import split_entry
from statsprep.data.keyed_file import KeyedFile, split_line
from statsprep.data.manifest import check_utt_id, iter_lines
from statsprep.errors import ConfigError, DataError
from statsprep.storage.stores import is_url, local

Use = Literal["audio", "feats"]
# A key of a row, by the file that it comes from.
_SIDE_FILES = {"text": "text", "speaker": "utt2spk", "language": "utt2lang", "claimed_s": "utt2dur"}
_BATCH_LINES = 4096
_encode = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class KaldiRow:
    """One utterance.

    Attributes:
        where: `file:line` of the list of utterances; offset: the line's first byte there.
        row: as in a manifest: utt_id, audio (a path in full, or a command with its `|`) or feats (an entry
            of an archive), start_s and duration_s of a segment, text, speaker, language; `claimed_s` from
            utt2dur, and `is_missing` where there is no such recording and `audio` is its name.
        encoded: the row as JSON. content: the same with paths as they are written.
    """

    where: str
    offset: int
    row: dict[str, Any]
    encoded: bytes
    content: bytes


class KaldiDirectory:
    """A data directory's rows.

    Args:
        folder: the directory.
        use: `audio` (wav.scp) or `feats` (feats.scp); by default audio where there is a wav.scp.
        allow_pipes: let commands stand in wav.scp in the place of files.

    Raises:
        ConfigError: there is no such directory, or it has not the file that `use` needs.
    """

    def __init__(self, folder: Path | str, *, use: Use | None = None, allow_pipes: bool = False) -> None:
        if not isinstance(folder, str | os.PathLike):
            raise ConfigError(f"dataset: kaldi is {folder!r}; expected the path of a data directory")
        self.folder = Path(local(folder))
        self.allow_pipes = allow_pipes
        if not self.folder.is_dir():
            raise ConfigError(
                f"dataset: kaldi {self.folder} is no folder (searched from {Path.cwd()}); correct the path"
            )
        if use not in (None, "audio", "feats"):
            raise ConfigError(f"{self.folder}: use is {use!r}; expected audio or feats")
        if not isinstance(allow_pipes, bool):
            raise ConfigError(f"{self.folder}: allow_pipes is {allow_pipes!r}; expected true or false")
        self.use: Use = use or ("audio" if self._has("wav.scp") or not self._has("feats.scp") else "feats")
        self.list = self.folder / ("wav.scp" if self.use == "audio" else "feats.scp")
        if not self.list.is_file():
            raise ConfigError(
                f"{self.folder}: has no {self.list.name}; expected a Kaldi data directory with wav.scp or "
                "feats.scp"
            )
        self._has_segments = self.use == "audio" and self._has("segments")
        if self._has_segments:
            self.list = self.folder / "segments"
        self._base: Path | None = None

    def _has(self, name: str) -> bool:
        return (self.folder / name).is_file()

    def rows(self, report: Report) -> Iterator[KaldiRow]:
        """All utterances in the order of their list; what is wrong goes to `report`, which may raise.

        In memory are 18 bytes for each line of the other files, and no row.
        """
        sides = {key: KeyedFile(self.folder / name) for key, name in _SIDE_FILES.items() if self._has(name)}
        recordings = KeyedFile(self.folder / "wav.scp") if self._has_segments else None
        for keyed in [*sides.values(), *([recordings] if recordings else [])]:
            for where, first, key in keyed.repeated():
                report(Fault(FaultKind.DUPLICATE_ID, where, key, repeated_text(key, first)))
        lines = iter_lines(self.list)
        while batch := list(itertools.islice(lines, _BATCH_LINES)):
            yield from self._join(batch, sides, recordings, report)
        self._report_unused(sides, recordings, report)

    def _join(
        self,
        lines: Sequence[tuple[int, int, bytes]],
        sides: dict[str, KeyedFile],
        recordings: KeyedFile | None,
        report: Report,
    ) -> Iterator[KaldiRow]:
        pairs = [split_line(line) for _, _, line in lines]
        sought = [key for key, _ in pairs]
        found = {name: keyed.find(sought) for name, keyed in sides.items()}
        names = [next(iter(value.split(None, 1)), b"") for _, value in pairs]
        places = recordings.find(names) if recordings else None
        for position, ((number, offset, _), (key, value)) in enumerate(zip(lines, pairs, strict=True)):
            where = f"{self.list}:{number}"
            given = {name: values[position] for name, values in found.items()}
            try:
                utt_id = _decode(key, f"{where}: id")
                check_utt_id(utt_id, where)
                row: dict[str, Any] = {"utt_id": utt_id}
                if places is None:
                    written, place = self._locate(value, where)
                else:
                    recording, times = _parse_segment(value, where)
                    location = places[position]
                    row |= times
                    missing = {"audio": recording, "is_missing": True}
                    written, place = (missing, missing) if location is None else self._locate(location, where)
                for name, content in given.items():
                    if content is not None:
                        row[name] = _parse_side(name, content, f"{sides[name].path}: line of {utt_id!r}")
            except _CommandError as error:
                report(Fault(FaultKind.COMMAND_PIPE, where, _shown(key), error.message))
                continue
            except DataError as error:
                what = error.message.removeprefix(f"{where}: ")
                report(Fault(FaultKind.MALFORMED_ROW, where, _shown(key), what))
                continue
            for name in given.keys() - row.keys():
                kind = FaultKind.NO_TRANSCRIPT if name == "text" else FaultKind.NOT_LISTED
                what = f"utterance {utt_id!r} has no line in {_SIDE_FILES[name]}"
                report(Fault(kind, where, utt_id, what))
            encoded = _encode(row | place).encode()
            written_down = encoded if written == place else _encode(row | written).encode()
            yield KaldiRow(where, offset, row | place, encoded, written_down)

    def _locate(self, location: bytes, where: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Where the audio or the features are: as it is written, and in full."""
        key = self.use
        text = os.fsdecode(location)
        if not text or "\0" in text:
            raise DataError(f"{where}: {_shown(location)!r} is no path; expected the path of a file")
        if text.endswith("|") or text.startswith("|"):
            if key == "feats" or not self.allow_pipes or text.startswith("|"):
                raise _CommandError(_refusal(text, key, self._scp))
            return {key: text}, {key: text}
        if text == "-":
            raise _CommandError(
                "is -, standard input, which workers have none of; expected the path of a file"
            )
        text = text.removeprefix("file://") if text.startswith("file:///") else text
        try:
            path, rest = split_entry(text) if key == "feats" else (text, "")
        except ValueError as error:
            raise DataError(f"{where}: {error}") from None
        return {key: text}, {key: f"{self._in_full(path)}{rest}"}

    @property
    def _scp(self) -> str:
        return "wav.scp" if self.use == "audio" else "feats.scp"

    def _in_full(self, path: str) -> str:
        if os.path.isabs(path) or is_url(path):
            return path
        if self._base is None:
            is_below = not os.path.exists(path) and (self.folder / path).exists()
            self._base = self.folder.absolute() if is_below else Path.cwd()
        return os.path.join(self._base, path)

    def _report_unused(
        self, sides: dict[str, KeyedFile], recordings: KeyedFile | None, report: Report
    ) -> None:
        owner = "recording" if self.use == "audio" else "features"
        for name, keyed in sides.items():
            kind = FaultKind.NO_RECORDING if name == "text" else FaultKind.NOT_LISTED
            for where, key in keyed.unused():
                report(Fault(kind, where, key, f"{key!r} has no {owner} in {self.list.name}"))
        for where, key in sides["text"].empty() if "text" in sides else ():
            report(Fault(FaultKind.EMPTY_TRANSCRIPT, where, key, f"the transcript of {key!r} is empty"))
        for where, key in recordings.unused() if recordings else ():
            what = f"recording {key!r} has no segment in {self.list.name}"
            report(Fault(FaultKind.UNUSED_RECORDING, where, key, what))


class _CommandError(DataError):
    """A command stands where a file is expected."""


def repeated_text(utt_id: str, first: str) -> str:
    """What is wrong with an id that stands twice."""
    return f"{utt_id!r} appears twice (first at {first}); ids must be unique; remove one or rename it"


def _refusal(text: str, key: str, scp: str) -> str:
    seen = f"{scp} has the command {text[:80]!r}"
    if key == "feats":
        return f"{seen}; expected an entry such as feats.ark:1234; features are read from files alone"
    if text.startswith("|"):
        return f"{seen}, which reads instead of writing; expected the path of a file, or `command |`"
    return (
        f"{seen}; expected the path of a file; write its output to files, or set allow_pipes: true if you "
        "trust it"
    )


def _parse_segment(value: bytes, where: str) -> tuple[str, dict[str, float]]:
    """The recording, and start_s and duration_s, of `recording start end`."""
    text = _decode(value, where)
    try:
        recording, start, end = text.split()
        start_s, end_s = float(start), float(end)
    except ValueError:
        raise DataError(f"{where}: has {text[:80]!r}; expected `utt_id recording start_s end_s`") from None
    if not math.isfinite(start_s) or start_s < 0 or (end_s != -1 and not start_s < end_s < math.inf):
        raise DataError(
            f"{where}: begins at {start_s:g} s and ends at {end_s:g} s; expected 0 <= start < end, or an end "
            "of -1"
        )
    if end_s == -1:
        return recording, {"start_s": start_s}
    # As people write numbers: 0.3 - 0.1 is 0.19999999999999998.
    return recording, {"start_s": start_s, "duration_s": round(end_s - start_s, 9)}


def _parse_side(name: str, value: bytes, where: str) -> Any:
    text = _decode(value, where)
    if name != "claimed_s":
        return text
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not math.isfinite(seconds) or seconds < 0:
        raise DataError(f"{where} has {text[:40]!r}; expected a number of seconds")
    return seconds


def _decode(text: bytes, where: str) -> str:
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError:
        raise DataError(f"{where} {_shown(text)[:80]!r} is no UTF-8; save the file as UTF-8") from None


def _shown(text: bytes) -> str:
    return text.decode("utf-8", "backslashreplace")
