"""The journal: what a killed process leaves is a prefix of what it finished, never anything else."""

import errno
import json
import os
import random
import shutil
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statsprep.errors import StorageError
from statsprep.storage.journal import Entry, JournalWriter, Status, count_entries, read_journal
from statsprep.storage.paths import JOURNAL


def make_entry(position: int, utt_id: str | None = None) -> Entry:
    rows = {
        "feats": np.full((4, 3), position / 7),
        "energy": np.arange(position % 3 * 4, dtype=np.float64).reshape(4, -1),
    }
    if position % 5 == 4:
        return Entry(position, Status.DROPPED, utt_id or f"u{position}", None)
    return Entry(position, Status.OK, utt_id or f"u{position}", {"n": [position, None, "ü\n"]}, rows)


def write(folder: Path, entries: Iterable[Entry], *, at_once: int = 1) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / JOURNAL).unlink(missing_ok=True)
    journal = JournalWriter(folder)
    entries = list(entries)
    for start in range(0, len(entries), at_once):
        journal.append(entries[start : start + at_once])
    journal.close()


def plain(entries: Iterable[Entry]) -> list[Any]:
    return [
        (each.position, each.status, each.utt_id, each.result, {k: v.tolist() for k, v in each.rows.items()})
        for each in entries
    ]


def test_what_was_written_is_read(tmp_path: Path, odd_ids: list[str]) -> None:
    entries = [make_entry(position, utt_id) for position, utt_id in enumerate(odd_ids)]
    write(tmp_path / "a", entries)
    assert plain(read_journal(tmp_path / "a")) == plain(entries)
    assert count_entries(tmp_path / "a") == len(odd_ids)


def test_appending_in_groups_gives_the_same_bytes(tmp_path: Path) -> None:
    entries = [make_entry(position) for position in range(20)]
    write(tmp_path / "one", entries)
    write(tmp_path / "many", entries, at_once=7)
    assert (tmp_path / "one" / JOURNAL).read_bytes() == (tmp_path / "many" / JOURNAL).read_bytes()


def test_rows_keep_every_bit(tmp_path: Path) -> None:
    row = np.array([[0.1, -0.0, 5e-324, np.nextafter(1, 2)]] * 4)
    write(tmp_path / "a", [Entry(0, Status.OK, "u", None, {"feats": row})])
    (entry,) = read_journal(tmp_path / "a")
    assert entry.rows["feats"].tobytes() == row.tobytes()


def test_a_result_given_as_text_is_read_as_its_value(tmp_path: Path) -> None:
    write(tmp_path / "a", [Entry(0, Status.OK, "u", {"x": 1}, text='{"x":1}')])
    assert [entry.result for entry in read_journal(tmp_path / "a")] == [{"x": 1}]


def test_no_journal_is_an_empty_one(tmp_path: Path) -> None:
    assert list(read_journal(tmp_path)) == []
    (tmp_path / JOURNAL).write_text("")
    assert count_entries(tmp_path) == 0


@pytest.mark.parametrize("num_bytes", [1, 8 * 16, 8 * 16 + 1, 8 * 16 + 20])
def test_a_torn_last_entry_is_left_out(num_bytes: int, tmp_path: Path) -> None:
    write(tmp_path, [make_entry(position) for position in range(3)])
    path = tmp_path / JOURNAL
    path.write_bytes(path.read_bytes()[:-num_bytes])
    assert plain(read_journal(tmp_path)) == plain(make_entry(position) for position in range(2))


@pytest.mark.parametrize("part", ["line", "rows"])
def test_other_content_ends_the_prefix(part: str, tmp_path: Path) -> None:
    write(tmp_path, [make_entry(position) for position in range(3)])
    content = bytearray((tmp_path / JOURNAL).read_bytes())
    second = content.index(b'[1,"ok"')
    content[second + (1 if part == "line" else 100)] ^= 1
    (tmp_path / JOURNAL).write_bytes(content)
    assert count_entries(tmp_path) == 1


@pytest.mark.parametrize("positions", [[0, 1, 3], [0, 1, 1], [1, 2], [0, 2, 1]])
def test_positions_that_do_not_count_up_end_the_prefix(positions: list[int], tmp_path: Path) -> None:
    write(tmp_path, [make_entry(position) for position in positions])
    expected = next((n for n, position in enumerate(positions) if n != position), len(positions))
    assert plain(read_journal(tmp_path)) == plain(make_entry(position) for position in range(expected))


@pytest.mark.parametrize(
    "line", ["", "null", "[]", "[1]", '[1,"fine","u",null,{}]', '[1,"ok","u",null,[]]', "\0" * 40]
)
def test_a_line_of_other_shape_ends_the_prefix(line: str, tmp_path: Path) -> None:
    write(tmp_path, [make_entry(0)])
    with open(tmp_path / JOURNAL, "ab") as stream:
        for text in (line, json.dumps([1, "ok", "u", None, {}])):
            body = text.encode() + b"\n"
            stream.write(b"%08x " % zlib.crc32(body) + body)
    assert count_entries(tmp_path) == 1


@given(cut=st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_truncation_at_any_byte_leaves_the_whole_entries(
    cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp() / "truncated"
    entries = [make_entry(position) for position in range(8)]
    write(folder / "whole", entries)
    content = (folder / "whole" / JOURNAL).read_bytes()
    ends = []
    for number in range(len(entries)):
        write(folder / str(number), entries[: number + 1])
        ends.append((folder / str(number) / JOURNAL).stat().st_size)
    kept = content[: cut % (len(content) + 1)]
    (folder / "whole" / JOURNAL).write_bytes(kept)
    num_whole = sum(end <= len(kept) for end in ends)
    assert plain(read_journal(folder / "whole")) == plain(entries[:num_whole])
    shutil.rmtree(folder)


def test_damage_at_any_byte_ends_the_prefix(tmp_path: Path) -> None:
    """No damage stops the next attempt, and none is taken for a result."""
    entries = [make_entry(position) for position in range(4)]
    write(tmp_path, entries)
    content = (tmp_path / JOURNAL).read_bytes()
    draw = random.Random(0)
    for _ in range(600):
        damaged = bytearray(content)
        for _ in range(draw.randint(1, 3)):
            damaged[draw.randrange(len(content))] = draw.choice(b'0123456789.,-e[]{}"\n\xff\0')
        (tmp_path / JOURNAL).write_bytes(damaged)
        found = plain(read_journal(tmp_path))
        assert found == plain(entries[: len(found)])


def test_full_disk_is_a_storage_error_that_names_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = JournalWriter(tmp_path)

    def refuse(descriptor: int, content: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", refuse)
    with pytest.raises(StorageError, match=rf"{JOURNAL}: cannot write"):
        journal.append([make_entry(0)])
    journal.close()
    assert count_entries(tmp_path) == 0


def test_short_writes_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, content: whole(descriptor, content[:5]))
    write(tmp_path, [make_entry(position) for position in range(3)])
    assert plain(read_journal(tmp_path)) == plain(make_entry(position) for position in range(3))
