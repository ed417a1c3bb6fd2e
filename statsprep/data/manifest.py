"""Manifest rows: one JSON object a line, checked when it is read.

A row holds `utt_id` and `audio` (text-only rows may leave it out), and where known `text`, `speaker`,
`language`, `dataset`, `start_s` and `duration_s`; further keys are kept. A relative `audio` is relative to
the manifest's folder. With `start_s` the row is the part of the file that begins there; `duration_s` alone
states how long the whole file is. `null` is the same as leaving the key out. A byte order mark, CRLF line
ends and blank lines are accepted. NeMo's manifests are read too, see `statsprep.data.nemo`.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from statsprep.errors import ConfigError, DataError
from statsprep.storage.stores import is_url, join, local, open_lines, read_head

MAX_ID_BYTES = 4096
# 31 years: what is longer is no length of a recording, and may be no float either.
LONGEST_S = 1e9
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_TEXT_KEYS = ("text", "speaker", "language", "dataset")
# Shape files split at white space, and are UTF-8: an id with any of these could not be read back.
_BREAKS_TEXT_FILES = re.compile(r"[\s\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def check_manifest_exists(manifest: Path | str, *, where: str) -> Path | str:
    """The manifest as a path, or its URL.

    Raises:
        ConfigError: there is no such file.
    """
    if is_url(manifest):
        try:
            read_head(str(manifest), 1)
        except (FileNotFoundError, PermissionError) as error:
            raise ConfigError(f"{where}: manifest {manifest} does not exist; correct the URL") from error
        return str(manifest)
    path = Path(local(manifest))
    if path.is_dir():
        raise ConfigError(f"{where}: manifest {path} is a folder; expected a JSONL file")
    if not path.exists():
        raise ConfigError(
            f"{where}: manifest {path} does not exist (searched from {Path.cwd()}); correct the path"
        )
    if not path.is_file():
        raise ConfigError(f"{where}: manifest {path} is no regular file; expected a JSONL file")
    return path


def iter_lines(manifest: Path | str) -> Iterator[tuple[int, int, bytes]]:
    """Line number (from 1), byte offset and content of each line that is not blank, without its line end."""
    try:
        with open_lines(str(manifest)) if is_url(manifest) else open(manifest, "rb") as lines:
            offset = 0
            for number, line in enumerate(lines, 1):
                begin = offset
                offset += len(line)
                if number == 1 and line.startswith(_BYTE_ORDER_MARK):
                    begin, line = len(_BYTE_ORDER_MARK), line[len(_BYTE_ORDER_MARK) :]
                line = line.rstrip(b"\r\n")
                if line and not line.isspace():
                    yield number, begin, line
    except OSError as error:
        raise DataError(
            f"{manifest}: cannot be read ({error.strerror}); correct the path or its permissions"
        ) from error


def parse_line(raw: bytes, where: str) -> dict[str, Any]:
    """One manifest row.

    Args:
        raw: the line, UTF-8.
        where: `path:line` for messages.

    Raises:
        DataError: names the place, what was seen and what was expected.
    """
    return check_row(parse_object(raw, where), where)


def parse_object(raw: bytes, where: str) -> dict[str, Any]:
    """A line's JSON object, unchecked.

    Raises:
        DataError: it is none.
    """
    try:
        row = json.loads(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise DataError(
            f"{where}: byte {error.start + 1} of the line is no UTF-8; save the manifest as UTF-8"
        ) from error
    except json.JSONDecodeError as error:
        raise DataError(
            f"{where}: not JSON at column {error.colno} ({error.msg}); expected one object a line, such as "
            '{"utt_id": "a", "audio": "a.wav"}'
        ) from error
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{where}: holds a number of thousands of digits, or brackets nested a thousand deep; expected "
            'one plain object a line, such as {"utt_id": "a", "audio": "a.wav"}'
        ) from error
    if not isinstance(row, dict):
        raise DataError(
            f"{where}: holds {_describe(row)}; expected an object, such as "
            '{"utt_id": "a", "audio": "a.wav"}'
        )
    return row


def check_row(row: dict[str, Any], where: str, *, may_last_0_s: bool = False) -> dict[str, Any]:
    """A row without its nulls.

    Raises:
        DataError: names the place, what was seen and what was expected.
    """
    check_utt_id(row.get("utt_id"), where)
    if None in row.values():
        row = {key: value for key, value in row.items() if value is not None}
    for key in _TEXT_KEYS:
        if key in row and not isinstance(row[key], str):
            raise DataError(f"{where}: {key} is {_describe(row[key])}; expected a string")
    if "audio" not in row:
        if "text" not in row:
            raise DataError(f"{where}: has neither audio nor text; add the path of its recording as audio")
        if "start_s" in row or "duration_s" in row:
            raise DataError(f"{where}: has start_s or duration_s but no audio; add audio or remove them")
        return row
    if not isinstance(row["audio"], str) or not row["audio"] or "\0" in row["audio"]:
        raise DataError(f"{where}: audio is {_describe(row['audio'])}; expected the path of a file")
    _check_seconds(row, "start_s", where, zero_allowed=True)
    _check_seconds(row, "duration_s", where, zero_allowed=may_last_0_s)
    return row


def parse_checked_line(raw: bytes) -> dict[str, Any]:
    """A row that `parse_line` has taken before, without checking it again; empty where it is none any
    more.
    """
    try:
        row = json.loads(raw)
    except ValueError:
        return {}
    return {key: value for key, value in row.items() if value is not None} if isinstance(row, dict) else {}


def check_utt_id(utt_id: object, where: str) -> None:
    """Refuse an id that the text files of a run could not hold.

    Raises:
        DataError: names the place and the id.
    """
    if utt_id is None:
        raise DataError(f"{where}: has no utt_id; add one, unique among all rows")
    if not isinstance(utt_id, str):
        raise DataError(f"{where}: utt_id is {_describe(utt_id)}; expected a string")
    if not utt_id:
        raise DataError(f"{where}: utt_id is empty; expected at least one character")
    if _BREAKS_TEXT_FILES.search(utt_id):
        raise DataError(
            f"{where}: utt_id {utt_id[:80]!r} holds white space or a control character; "
            "replace it, for example by _"
        )
    if len(utt_id) > MAX_ID_BYTES // 4 and len(utt_id.encode()) > MAX_ID_BYTES:
        raise DataError(
            f"{where}: utt_id {utt_id[:20]!r}... has {len(utt_id.encode())} bytes; "
            f"expected at most {MAX_ID_BYTES}"
        )


def audio_path(row: dict[str, Any], folder: str) -> str:
    """Where a row's audio lies; a relative path starts at the folder, or URL, of the manifest."""
    return join(folder, row["audio"])


def _check_seconds(row: dict[str, Any], key: str, where: str, *, zero_allowed: bool) -> None:
    value = row.get(key)
    if value is None:
        return
    expected = "a number of seconds, at least 0" if zero_allowed else "a number of seconds above 0"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DataError(f"{where}: {key} is {_describe(value)}; expected {expected}")
    if not 0 <= value <= LONGEST_S or (value == 0 and not zero_allowed):
        raise DataError(f"{where}: {key} is {str(value)[:40]}; expected {expected}")


def _describe(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else text[:40] + "..."
