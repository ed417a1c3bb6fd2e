"""JSON lines, and the one spelling of JSON that results are kept in."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from statsprep.errors import DataError


def compact(value: Any) -> str:
    """JSON on one line without spaces; text stays readable UTF-8."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def read_jsonl(path: Path) -> Iterator[Any]:
    """Each line's value, streamed.

    Raises:
        DataError: a line is no JSON; the message names file and line.
    """
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield json.loads(line)
            except (ValueError, RecursionError) as error:
                reason = getattr(error, "msg", None) or str(error).partition(";")[0]
                raise DataError(f"{path}:{number}: not JSON ({reason}); the file is damaged") from error


def read_json(path: Path) -> Any:
    """A JSON file's value, or None where it is missing, no regular file, or not whole JSON."""
    try:
        # A FIFO would never answer, and a device never end.
        return json.loads(path.read_bytes()) if path.is_file() else None
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
        return None
