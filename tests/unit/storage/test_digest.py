"""Digests: equal content only, and a mismatch that says what is wrong."""

import hashlib
from pathlib import Path

import pytest

from statsprep.storage.digest import describe_files, file_digest, find_mismatch, is_description, json_digest


def test_json_digest_does_not_depend_on_the_order_of_keys() -> None:
    assert json_digest({"a": 1, "b": [1, "ü"]}) == json_digest({"b": [1, "ü"], "a": 1})
    assert json_digest({"a": 1}) != json_digest({"a": "1"})
    assert json_digest([1, 2]) != json_digest([2, 1])


def test_file_digest_is_sha256(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abc" * 100_000)
    assert file_digest(tmp_path / "f") == hashlib.sha256(b"abc" * 100_000).hexdigest()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b").write_text("bbb")
    (tmp_path / "a").write_text("aaaa")
    return tmp_path


def test_untouched_files_match(folder: Path) -> None:
    files = describe_files(folder, ["sub/b", "a"])
    assert list(files) == ["a", "sub/b"]
    assert find_mismatch(folder, files) is None


def test_each_kind_of_mismatch_is_told(folder: Path) -> None:
    files = describe_files(folder, ["sub/b", "a"])
    (folder / "sub" / "b").write_text("bbc")
    assert find_mismatch(folder, files) == "sub/b has other content than was committed"
    (folder / "sub" / "b").write_text("bb")
    assert find_mismatch(folder, files) == "sub/b holds 2 bytes, 3 were committed"
    (folder / "sub" / "b").unlink()
    assert find_mismatch(folder, files) == "sub/b is missing"
    (folder / "a").unlink()
    (folder / "a").mkdir()
    assert find_mismatch(folder, files) == "a is missing"


def test_only_what_was_described_is_a_description(tmp_path: Path) -> None:
    """What comes from a file of somebody else's may name files anywhere, or be anything."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "f").write_text("x")
    good = describe_files(tmp_path, ["sub/f"])
    assert is_description(good)
    assert is_description({})
    for name in ("../f", "/etc/passwd", "a/../../f", "..", ".", "", "a//b", "a\0b"):
        assert not is_description({name: good["sub/f"]})
    for wrong in (None, [], ["f"], {"f": None}, {"f": {"bytes": 1}}, {"f": {"bytes": "1", "sha256": "0"}}):
        assert not is_description(wrong)
