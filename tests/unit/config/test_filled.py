"""A filled configuration says everything, means the same, and stays as it is when it is filled again."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from statsprep.config.filled import canonical, filled, overlaid
from statsprep.config.policy import TargetPolicy
from statsprep.config.tree import MISSING

Write = Callable[[str, str], Path]
NETS = """
class Net:
    def __init__(self, size, depth=2, *, sizes=(1, 2), table={"a": [None]}, made=object(), text="plain",
                 ref="${x}", **more):
        ...


class Knowing:
    def __init__(self, options=None):
        ...

    @classmethod
    def filled_config(cls, section):
        return {**section, "options": {"size": 3, **(section["options"] or {})}}
"""
NET = "src.nets.Net"
DEFAULTS = {"depth": 2, "sizes": [1, 2], "table": {"a": [None]}, "text": "plain"}


@pytest.fixture
def allow(write: Write, folder: Path) -> TargetPolicy:
    write("src/nets.py", NETS)
    return TargetPolicy(recipe_root=folder)


def test_defaults_come_from_the_signature_in_yamls_types(allow: TargetPolicy) -> None:
    assert filled({"_target_": NET, "size": 1}, allow) == {"_target_": NET, "size": 1, **DEFAULTS}
    given = {"_target_": NET, "size": 1, **DEFAULTS, "depth": 9, "extra": 1}
    assert filled(given, allow) == given


def test_required_arguments_are_marked_only_where_that_is_asked_for(allow: TargetPolicy) -> None:
    node = {"_target_": NET}
    assert "size" not in filled(node, allow)
    assert filled(node, allow, mark_missing=True)["size"] == MISSING
    assert "size" not in filled(node, allow, mark_missing=True, given=("size",))
    assert "size" not in filled({**node, "_partial_": True}, allow, mark_missing=True)
    assert "size" not in filled({**node, "_args_": [3]}, allow, mark_missing=True)
    assert "depth" not in filled({**node, "_args_": [3, 4]}, allow)


def test_nested_nodes_are_filled_too_but_not_those_that_are_handed_on_as_they_are(
    allow: TargetPolicy,
) -> None:
    inner = {"_target_": "src.nets.Knowing"}
    full = {"_target_": "src.nets.Knowing", "options": {"size": 3}}
    assert filled([{"a": inner}], allow) == [{"a": full}]
    assert filled({"_target_": NET, "size": inner}, allow)["size"] == full
    assert filled({"_target_": NET, "size": inner, "_recursive_": False}, allow)["size"] == inner


def test_what_cannot_be_named_stays_as_it_is(allow: TargetPolicy) -> None:
    tree: dict[str, Any] = {
        "a": {"_target_": "os.system", "command": "true"},
        "b": {"_target_": "src.nets.Gone"},
        "c": {"_target_": "espnet2.iterators.sequence_iter_factory.SequenceIterFactory", "shuffle": True},
        "d": {"_target_": 3},
        "e": {"_target_": "lightning.pytorch.loggers.TensorBoardLogger"},
    }
    assert filled(tree, allow, mark_missing=True) == tree


def test_filling_twice_changes_nothing_and_the_input_is_left_alone(allow: TargetPolicy) -> None:
    node = {"_target_": NET, "size": {"_target_": "src.nets.Knowing"}}
    once = filled(node, allow, mark_missing=True)
    assert filled(once, allow, mark_missing=True) == once
    assert node == {"_target_": NET, "size": {"_target_": "src.nets.Knowing"}}


def test_one_class_has_one_name_in_a_canonical_tree(allow: TargetPolicy) -> None:
    espnet = {"_target_": "espnet2.train.collate_fn.CommonCollateFn"}
    ours = {"_target_": "statsprep.data.collate.CommonCollateFn", "int_pad_value": -32768}
    assert canonical(espnet, allow) == canonical(ours, allow)


def test_what_was_written_stays_and_the_rest_is_added() -> None:
    raw = {"a": "${b}", "l": [{"x": "${b}"}], "n": [1], "own": {"k": 1}}
    full = {"a": {"deep": 1}, "l": [{"x": 5, "y": 6}], "n": [1, 2], "own": {"k": 2, "j": 3}, "new": 4}
    assert overlaid(raw, full) == {
        "a": "${b}", "l": [{"x": "${b}", "y": 6}], "n": [1], "own": {"k": 1, "j": 3}, "new": 4
    }  # fmt: skip


def test_a_wrong_node_stays_as_it_is_for_its_builder_to_report(allow: TargetPolicy) -> None:
    node = {"_target_": "statsprep.models.features.FeatureModel", "frontend": {"n_mel": 40}}
    assert filled(node, allow, mark_missing=True) == node
