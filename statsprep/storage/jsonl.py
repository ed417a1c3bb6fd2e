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
            except json.JSONDecodeError as error:
                raise DataError(f"{path}:{number}: not JSON ({error.msg}); the file is damaged") from error


def read_json(path: Path) -> Any:
    """A JSON file's value, or None where it is missing or not whole JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError, json.JSONDecodeError):
        return None
