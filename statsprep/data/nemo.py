"""NeMo's manifests: `audio_filepath`, `duration`, `text`, `offset`, `lang`, and ids made from file names.

A manifest is NeMo's where its first row has `audio_filepath` and no `audio`. `duration` alone states how long
the file is; with `offset` the row is that part of the file. A row's `utt_id`, where it has one, is its id.
Else the id is the file's name without folder and suffix; where two rows of the manifest would have the same
one, each row's is its path below the folder that all of them share, without suffix. Behind it stands `-` and
the offset in seconds where that is above 0. White space becomes `_`. So ids depend on the set of files, and
on neither their order nor the manifest's place.
"""

import hashlib
import os
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from statsprep.data.manifest import LONGEST_S, check_row, iter_lines, parse_line, parse_object
from statsprep.errors import DataError

AUDIO = "audio_filepath"
_NAMES = {AUDIO: "audio", "duration": "duration_s", "offset": "start_s", "lang": "language"}
_WHITE = re.compile(r"\s+")

RowReader = Callable[[bytes, str], dict[str, Any]]


def is_nemo(row: dict[str, Any]) -> bool:
    """Whether a row is NeMo's."""
    return AUDIO in row and "audio" not in row


def row_reader(path: str, shown: str) -> RowReader:
    """What reads the rows of a manifest, ours or NeMo's: a function of line and place that returns our row.

    Raises:
        DataError: a row of NeMo's has no file name.
    """
    for number, _, line in iter_lines(path):
        try:
            if not is_nemo(parse_object(line, f"{shown}:{number}")):
                return parse_line
        except DataError:
            return parse_line
        return NemoReader(path)
    return parse_line


class NemoReader:
    """Reads NeMo's rows; knows by a first pass over the manifest how they are called."""

    def __init__(self, path: str) -> None:
        hashes = bytearray()
        shared: list[str] | None = None
        for _, _, line in iter_lines(path):
            try:
                row = parse_object(line, "")
                audio = _audio_of(row, "")
            except DataError:
                continue  # to be named when it is read
            if row.get("utt_id") is None:
                hashes += hashlib.blake2b(_name(row, _stem(audio)).encode(), digest_size=8).digest()
                folders = audio.split("/")[:-1]
                shared = folders if shared is None else shared[: _num_equal(shared, folders)]
        ordered = np.sort(np.frombuffer(hashes, np.uint64))
        self._are_stems_unique = not bool((ordered[1:] == ordered[:-1]).any())
        self._num_shared = len(shared or ())

    def __call__(self, line: bytes, where: str) -> dict[str, Any]:
        """A row of ours.

        Raises:
            DataError: names the place, what was seen and what was expected.
        """
        row = parse_object(line, where)
        audio = _audio_of(row, where)
        if row.get("utt_id") is not None:
            utt_id = row["utt_id"]
        elif self._are_stems_unique:
            utt_id = _name(row, _stem(audio))
        else:
            below = "/".join(audio.split("/")[self._num_shared :])
            utt_id = _name(row, os.path.splitext(below)[0])
        return check_row(_renamed(row, utt_id), where, may_last_0_s=True)


def convert_row(row: dict[str, Any], utt_id: str) -> dict[str, Any]:
    """Our row of one of NeMo's that is known by `utt_id`; without an id where it cannot be that one."""
    own = row.get("utt_id")
    if own is None and utt_id.endswith(_name(row, _stem(str(row[AUDIO])))):
        own = utt_id
    return _renamed(row, own)


def _renamed(row: dict[str, Any], utt_id: Any) -> dict[str, Any]:
    renamed = {_NAMES.get(key, key): value for key, value in row.items() if value is not None}
    if isinstance(renamed.get("speaker"), int):
        renamed["speaker"] = str(renamed["speaker"])
    return {**renamed, "utt_id": utt_id}


def _audio_of(row: dict[str, Any], where: str) -> str:
    audio = row.get(AUDIO)
    if row.get("shard_id") is not None:
        raise DataError(
            f"{where}: has a shard_id: its audio lies in a tar file; expected the path of an audio file; "
            "unpack the tar files and write a manifest of what is in them"
        )
    if not isinstance(audio, str) or not audio:
        raise DataError(f"{where}: {AUDIO} is {audio!r}; expected the path of a file, as in the rows before")
    return audio


def _stem(audio: str) -> str:
    return os.path.splitext(audio.rpartition("/")[2])[0]


def _name(row: dict[str, Any], base: str) -> str:
    offset = row.get("offset")
    if isinstance(offset, int | float) and 0 < offset <= LONGEST_S:
        base = f"{base}-{float(offset)!r}"
    return _WHITE.sub("_", base)


def _num_equal(left: list[str], right: list[str]) -> int:
    for number, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return number
    return min(len(left), len(right))
