"""The fingerprint: what changed, in the user's own words, and what may be accepted."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statsprep.engine.fingerprint import Change, digest_of, find_changes, is_accepted, without

SCALARS = st.integers(2, 9) | st.text(max_size=3)
TREES = st.recursive(
    SCALARS,
    lambda child: st.lists(child, max_size=3) | st.dictionaries(st.sampled_from("abc"), child, max_size=3),
    max_leaves=8,
)


def test_a_changed_value_reads_as_the_user_wrote_it() -> None:
    old = {"config": {"model": {"frontend": {"n_mels": 80, "hop": 160}}}, "code": {}}
    new = {"config": {"model": {"frontend": {"n_mels": 40, "hop": 160}}}, "code": {}}
    assert [str(change) for change in find_changes(old, new)] == ["model.frontend.n_mels: 80 -> 40"]


def test_added_removed_and_moved_leaves_are_told() -> None:
    old = {"config": {"a": 1, "list": ["x", "y"]}, "code": {"m.R": "1", "m.S": "2"}, "data": {"index": "d1"}}
    new = {"config": {"b": 1, "list": ["y", "x"]}, "code": {"m.R": "9", "m.T": "3"}, "data": {"index": "d2"}}
    assert [str(change) for change in find_changes(old, new)] == [
        "code m.R: changed",
        "code m.S: removed",
        "code m.T: added",
        "a: 1 -> absent",
        "b: absent -> 1",
        "list.0: x -> y",
        "list.1: y -> x",
        "data.index: d1 -> d2",
    ]


def test_long_values_are_cut() -> None:
    (change,) = find_changes({"config": {"a": "x" * 500}}, {"config": {"a": "y"}})
    assert str(change) == f"a: {'x' * 57}... -> y"


@given(TREES, TREES)
def test_changes_are_found_where_and_only_where_fingerprints_differ(old: Any, new: Any) -> None:
    assert find_changes({"config": old}, {"config": old}) == []
    is_equal = digest_of({"config": old}) == digest_of({"config": new})
    assert bool(find_changes({"config": old}, {"config": new})) is not is_equal


def test_a_key_given_as_null_is_the_same_as_none_given() -> None:
    assert find_changes({"config": {"a": None, "b": 2}}, {"config": {"b": 2}}) == []


def test_ignored_keys_are_left_out_wherever_they_are() -> None:
    config = {
        "model": {"encoder": {"layers": 12}, "n": 1},
        "train": [{"manifest": "a", "x": 1}, {"x": 2}],
        "seed": 1,
    }
    found = without(
        config, ["model.encoder", "seed", "train.0.x", "not.there", "model.n.deeper", "train.7.x"]
    )
    assert found == {"model": {"n": 1}, "train": [{"manifest": "a"}, {"x": 2}]}
    assert config["seed"] == 1
    assert config["model"]["encoder"] == {"layers": 12}  # type: ignore[index]


def test_an_ignored_list_entry_leaves_the_others_where_they_are() -> None:
    assert without({"a": [1, 2, 3]}, ["a.0"]) == {"a": [None, 2, 3]}


@pytest.mark.parametrize(
    ("key", "accepted", "is_covered"),
    [
        ("config.model.n_mels", ["model.n_mels"], True),
        ("config.model.n_mels", ["model"], True),
        ("config.model.n_mels", ["model.n"], False),
        ("config.model.n_mels", ["n_mels"], False),
        ("config.model.n_mels", ["code"], False),
        ("config.model.n_mels", [], False),
        ("code.src.prep.Measure", ["code"], True),
        ("code.src.prep.Measure", ["model"], False),
        ("config.code.version", ["code"], False),
        ("data.index", ["data"], False),
        ("data.index", ["data.index"], False),
        ("data.index", ["code"], False),
    ],
)
def test_acceptance_covers_a_key_and_what_is_below_it_but_never_data(
    key: str, accepted: list[str], is_covered: bool
) -> None:
    assert is_accepted(Change(key, 1, 2), accepted) is is_covered
