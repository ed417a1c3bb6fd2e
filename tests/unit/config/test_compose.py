"""`defaults:` files come first, the file itself over them, and circles are named."""

from collections.abc import Callable
from pathlib import Path

import pytest

from statsprep.config.compose import compose
from statsprep.errors import ConfigError

Write = Callable[[str, str], Path]


def test_a_file_wins_over_its_defaults_which_win_in_order_and_may_nest(write: Write) -> None:
    write("conf/shared/root.yaml", "a: root\nr: root\n")
    write("conf/one.yaml", "defaults: [shared/root.yaml]\na: one\nb: one\nm: {x: 1, y: 1}\n")
    write("conf/two.yaml", "b: two\nc: two\n")
    path = write("conf/training.yaml", "defaults: [one.yaml, two]\nc: own\nm: {y: 2}\n")
    assert compose(path) == {"a": "one", "r": "root", "b": "two", "c": "own", "m": {"x": 1, "y": 2}}


def test_groups_and_self_mean_what_they_mean_in_hydra(write: Write) -> None:
    write("conf/optim/adam.yaml", "lr: 1\n")
    write("conf/late.yaml", "a: late\n")
    path = write(
        "conf/training.yaml", "defaults: [optim: adam, scheduler: null, _self_, late]\na: own\nb: own\n"
    )
    assert compose(path) == {"optim": {"lr": 1}, "a": "late", "b": "own"}


def test_a_shared_default_is_no_circle(write: Write) -> None:
    write("root.yaml", "a: 1\n")
    write("one.yaml", "defaults: [root]\nb: 1\n")
    assert compose(write("top.yaml", "defaults: [one, root]\nc: 1\n")) == {"a": 1, "b": 1, "c": 1}


@pytest.mark.parametrize(
    ("defaults", "message"),
    [
        ("base.yaml", "top.yaml: defaults: 'base.yaml' is not a list; expected e.g. defaults: [base.yaml]"),
        ("[3]", "top.yaml: defaults.0: 3 is not a file name; expected e.g. base.yaml"),
        ("[{a: 3}]", "top.yaml: defaults.0: {'a': 3} is not a file name; expected e.g. base.yaml"),
        ("[nope]", "top.yaml: defaults.0: 'nope' asks for nope.yaml, which is not there; check the name"),
        (
            "[top]",
            "top.yaml: 'defaults' includes itself: top.yaml -> top.yaml; remove one of these entries",
        ),
        (
            "[other]",
            "other.yaml: 'defaults' includes itself: top.yaml -> other.yaml -> top.yaml; "
            "remove one of these entries",
        ),
    ],
)
def test_a_wrong_entry_names_the_file_that_asks(write: Write, defaults: str, message: str) -> None:
    write("other.yaml", "defaults: [top]\n")
    with pytest.raises(ConfigError) as caught:
        compose(write("top.yaml", f"defaults: {defaults}\n"))
    assert str(caught.value) == message


def test_a_circle_through_a_link_is_found(write: Write) -> None:
    path = write("top.yaml", "defaults: [link]\n")
    Path("link.yaml").symlink_to("top.yaml")
    with pytest.raises(ConfigError) as caught:
        compose(path)
    assert str(caught.value) == (
        "top.yaml: 'defaults' includes itself: top.yaml -> link.yaml; remove one of these entries"
    )
