"""Lines found by key, in any order, with equal hashes, and what is left over."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statsprep.data import keyed_file
from statsprep.data.keyed_file import KeyedFile, split_line

KEYS = st.lists(st.sampled_from(["a", "b", "c", "ä", "d/e"]), max_size=12)


def keyed(path: Path, keys: list[str]) -> KeyedFile:
    path.write_bytes("".join(f"{key} v{number}\r\n\n" for number, key in enumerate(keys)).encode())
    return KeyedFile(path)


@pytest.mark.parametrize("hashes_are_equal", [False, True])
@given(keys=KEYS, wanted=KEYS)
def test_first_line_of_each_key_is_found(
    tmp_path_factory: pytest.TempPathFactory, keys: list[str], wanted: list[str], hashes_are_equal: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if hashes_are_equal:
            patch.setattr(keyed_file, "_hash", lambda key: bytes(8))
        path = tmp_path_factory.mktemp("k") / "text"
        file = keyed(path, keys)
        found = file.find([key.encode() for key in wanted])
        assert found == [f"v{keys.index(key)}".encode() if key in keys else None for key in wanted]
        lines = [(f"{path}:{2 * number + 1}", key) for number, key in enumerate(keys)]
        assert list(file.unused()) == [(where, key) for where, key in lines if key not in wanted]
        assert list(file.repeated()) == [
            (where, lines[keys.index(key)][0], key)
            for number, (where, key) in enumerate(lines)
            if key in keys[:number]
        ]


def test_lines_split_at_ascii_white_space_alone() -> None:
    assert split_line("a\t b\u3000c  d \t".encode()) == (b"a", "b\u3000c  d".encode())
    assert split_line(b"alone ") == (b"alone", b"")


def test_lines_without_a_value_are_known(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("a\nb x\nc \n")
    assert list(KeyedFile(tmp_path / "text").empty()) == [
        (f"{tmp_path}/text:1", "a"),
        (f"{tmp_path}/text:3", "c"),
    ]
