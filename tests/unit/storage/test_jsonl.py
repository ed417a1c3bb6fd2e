"""JSON lines: one spelling, streamed, and damage named by line."""

from pathlib import Path

import pytest

from statsprep.errors import DataError
from statsprep.storage.jsonl import compact, read_json, read_jsonl


def test_compact_is_one_readable_line() -> None:
    assert compact({"text": "語\n", "n": [1, 2.5, None]}) == '{"text":"語\\n","n":[1,2.5,null]}'


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text('{"a": 1}\n{"a": \n')
    lines = read_jsonl(path)
    assert next(lines) == {"a": 1}
    with pytest.raises(DataError, match=r"results\.jsonl:2: not JSON"):
        next(lines)


def test_missing_and_torn_files_are_none(tmp_path: Path) -> None:
    assert read_json(tmp_path / "missing") is None
    (tmp_path / "torn").write_text('{"a": 1')
    assert read_json(tmp_path / "torn") is None
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    assert read_json(tmp_path / "bytes") is None
    assert read_json(tmp_path / "torn" / "below_a_file") is None
