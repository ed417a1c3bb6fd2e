"""Dotted keys reach every value, overrides set exactly what they name, merging never shares."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statsprep.config.tree import apply_overrides, leaves, merged, set_value
from statsprep.errors import ConfigError

NAMES = st.text("abc", min_size=1, max_size=2)
TREES = st.recursive(
    st.integers() | st.none() | st.text(max_size=3),
    lambda inner: st.dictionaries(NAMES, inner, max_size=3) | st.lists(inner, max_size=3),
    max_leaves=8,
)
MAPPINGS = st.dictionaries(NAMES, TREES, max_size=4)


@given(MAPPINGS, st.data())
def test_setting_a_key_changes_that_value_and_no_other(tree: dict[str, Any], data: st.DataObject) -> None:
    known = dict(leaves(tree))
    if not known:
        return
    key = data.draw(st.sampled_from(sorted(known)))
    changed = copy.deepcopy(tree)
    set_value(changed, key, "new", where="test")
    after = dict(leaves(changed))
    assert after[key] == "new"
    related = [name for name in known if f"{name}.".startswith(f"{key}.") or f"{key}.".startswith(f"{name}.")]
    assert {name: known[name] for name in known if name not in related} == {
        name: after[name] for name in after if name not in related
    }


@given(MAPPINGS, MAPPINGS, MAPPINGS)
def test_merging_is_associative_and_keeps_every_key(
    one: dict[str, Any], two: dict[str, Any], three: dict[str, Any]
) -> None:
    both = merged(one, two)
    assert both.keys() == one.keys() | two.keys()
    assert merged(one, one) == one
    if all(isinstance(value, dict) for tree in (one, two, three) for _, value in leaves(tree)):
        assert merged(both, three) == merged(one, merged(two, three))


def test_merging_goes_into_mappings_and_replaces_lists_and_values() -> None:
    base = {"a": {"x": 1, "y": [1, 2]}, "b": {"z": 1}, "c": 1}
    over = {"a": {"y": [3]}, "b": None, "c": {"d": 1}}
    assert merged(base, over) == {"a": {"x": 1, "y": [3]}, "b": None, "c": {"d": 1}}


def test_a_merged_tree_shares_nothing_with_its_sources() -> None:
    base, over = {"a": {"x": [1]}}, {"b": {"y": [2]}}
    result = merged(base, over)
    result["a"]["x"].append(9)
    result["b"]["y"].append(9)
    assert (base, over) == ({"a": {"x": [1]}}, {"b": {"y": [2]}})


def test_overrides_reach_lists_make_mappings_and_win_in_order() -> None:
    tree: dict[str, Any] = {
        "train": [{"manifest": "a"}, {"manifest": "b"}],
        "collect_stats": None,
        "x": "???",
    }
    apply_overrides(
        tree,
        [
            "train.1.manifest=c.jsonl",
            "train[0].manifest=d=e",
            "collect_stats.batch_size=4",
            "collect_stats.batch_size=8",
            "x.y=[1, z]",
            "new.deep.key=${train}",
        ],
    )
    assert tree == {
        "train": [{"manifest": "d=e"}, {"manifest": "c.jsonl"}],
        "collect_stats": {"batch_size": 8},
        "x": {"y": [1, "z"]},
        "new": {"deep": {"key": "${train}"}},
    }


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("foo", "override 'foo': expected key=value, e.g. collect_stats.batch_size=4"),
        ("=1", "override '=1': expected key=value, e.g. collect_stats.batch_size=4"),
        (
            "a..b=1",
            "override 'a..b=1': key 'a..b' has an empty part; expected e.g. collect_stats.batch_size",
        ),
        (
            "seed.x=1",
            "override 'seed.x=1': 'seed' is 3, which has no key 'x'; set 'seed' itself",
        ),
        (
            "train.2.manifest=x",
            "override 'train.2.manifest=x': 'train' is a list of 2 and has no item '2'; "
            "expected an index from 0 to 1",
        ),
        (
            "train.-1.manifest=x",
            "override 'train.-1.manifest=x': 'train' is a list of 2 and has no item '-1'; "
            "expected an index from 0 to 1",
        ),
        (
            "test.0=x",
            "override 'test.0=x': 'test' is an empty list and has no item '0'; "
            "set the whole list, e.g. test=[...]",
        ),
        (
            "a={",
            "override 'a={': the value is not YAML: expected the node content, but found '<stream end>' "
            "(while parsing a flow node); put it in quotes",
        ),
    ],
)
def test_a_wrong_override_says_what_is_there(override: str, message: str) -> None:
    tree: dict[str, Any] = {"seed": 3, "train": [{}, {}], "test": []}
    with pytest.raises(ConfigError) as caught:
        apply_overrides(tree, [override])
    assert str(caught.value) == message
