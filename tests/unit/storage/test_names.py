"""File names from ids: safe, unique, and short, whatever an id holds."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statsprep.storage.names import goes_through_link, item_name, stays_below


@given(st.text(), st.integers(0, 10**9))
def test_a_name_is_one_safe_component(utt_id: str, position: int) -> None:
    name = item_name(position, utt_id, ".flac")
    assert name.isascii()
    assert "/" not in name
    assert len(name) <= 80
    assert name.startswith(str(position))
    assert name.endswith(".flac")
    assert not set(name) & set(" \0\n'\"\\")


def test_ids_that_look_the_same_have_names_of_their_own(odd_ids: list[str]) -> None:
    names = {item_name(position, utt_id, ".npy") for position, utt_id in enumerate([*odd_ids, *odd_ids])}
    assert len(names) == 2 * len(odd_ids)


@pytest.mark.parametrize(
    ("utt_id", "name"),
    [
        ("spk/digits/1", "7-spk_digits_1.npy"),
        ("../../etc/passwd", "7-etc_passwd.npy"),
        ("語音", "7.npy"),
        ("x" * 300, f"7-{'x' * 60}.npy"),
    ],
)
def test_what_is_readable_of_an_id_stays(utt_id: str, name: str) -> None:
    assert item_name(7, utt_id, ".npy") == name


@given(st.integers(0, 10**9), st.text())
def test_a_name_that_we_make_stays_below(position: int, utt_id: str) -> None:
    assert stays_below(f"split.0/{item_name(position, utt_id, '.npy')}")


@given(st.lists(st.sampled_from(["..", ".", "", "a", "..a", "a.."])))
def test_a_name_stays_below_only_without_ways_up(parts: list[str]) -> None:
    name = "/".join(parts)
    assert stays_below(name) == (bool(parts) and {"..", ".", ""}.isdisjoint(parts))


def test_a_link_on_the_way_is_seen(tmp_path: Path) -> None:
    (tmp_path / "run" / "real").mkdir(parents=True)
    (tmp_path / "run" / "real" / "link").symlink_to(tmp_path)
    (tmp_path / "linked_run").symlink_to(tmp_path / "run")
    assert goes_through_link(tmp_path / "run", "real/link/f")
    assert not goes_through_link(tmp_path / "run", "real/f")
    assert not goes_through_link(tmp_path / "linked_run", "real/f"), "the run directory itself may be a link"
