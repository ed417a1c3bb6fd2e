"""References become values once, on the whole tree; one that leads nowhere is named with its nearest key."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from statsprep.config.resolve import resolve
from statsprep.errors import ConfigError

Write = Callable[[str, str], Path]

PATH = Path("conf/training.yaml")


def test_references_become_plain_values_and_the_source_stays() -> None:
    tree = {
        "exp": "e",
        "stats_dir": "${exp}/stats",
        "files": ["${stats_dir}/train"],
        "copy": "${files}",
        "n": {1: 2},
    }
    resolved = resolve(tree, PATH)
    assert resolved == {
        "exp": "e",
        "stats_dir": "e/stats",
        "files": ["e/stats/train"],
        "copy": ["e/stats/train"],
        "n": {1: 2},
    }
    assert type(resolved["copy"]) is list
    assert tree["stats_dir"] == "${exp}/stats"


def test_espnet3_resolvers_work_and_are_gone_afterwards(write: Write) -> None:
    from omegaconf import OmegaConf

    write("tokens.txt", "a\nb\n")
    tree = {"exp_tag": "${self_name:}", "tokens": "${load_line:tokens.txt}"}
    assert resolve(tree, PATH) == {"exp_tag": "training", "tokens": ["a", "b"]}
    assert not OmegaConf.has_resolver("self_name")


def test_a_users_own_resolver_is_used_and_kept() -> None:
    from omegaconf import OmegaConf

    OmegaConf.register_new_resolver("self_name", lambda: "mine")
    try:
        assert resolve({"a": "${self_name:}"}, PATH) == {"a": "mine"}
        assert OmegaConf.has_resolver("self_name")
    finally:
        OmegaConf.clear_resolver("self_name")


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        (
            {"stats_dir": "x", "a": {"b": ["${stat_dir}/q"]}},
            "conf/training.yaml: a.b.0: '${stat_dir}/q' refers to 'stat_dir', "
            "which the configuration does not have; did you mean 'stats_dir'?",
        ),
        (
            {"model": {"n_mels": 80}, "dim": "${model.mels}"},
            "conf/training.yaml: dim: '${model.mels}' refers to 'model.mels', "
            "which the configuration does not have; did you mean 'model.n_mels'?",
        ),
        (
            {"a": "${zzzz.qqqq}"},
            "conf/training.yaml: a: '${zzzz.qqqq}' refers to 'zzzz.qqqq', "
            "which the configuration does not have; add that key or write the value out",
        ),
        (
            {"a": "${b}", "b": "${a}"},
            "conf/training.yaml: a: '${b}' cannot be resolved: Recursive interpolation detected"
            "; write the value out or correct it",
        ),
        (
            {"a": "${b"},
            "conf/training.yaml: a: '${b' cannot be resolved: no viable alternative at input '${b'"
            "; write the value out or correct it",
        ),
        (
            {"a": "${oc.env:STATSPREP_NOT_SET}"},
            "conf/training.yaml: a: '${oc.env:STATSPREP_NOT_SET}' cannot be resolved: "
            "\"Environment variable 'STATSPREP_NOT_SET' not found\"; write the value out or correct it",
        ),
        (
            {"a": "${nope:1}"},
            "conf/training.yaml: a: '${nope:1}' cannot be resolved: Unsupported interpolation type nope"
            "; write the value out or correct it",
        ),
        (
            {"dotted.key": "${nope}"},
            "conf/training.yaml: dotted.key: '${nope}' refers to 'nope', "
            "which the configuration does not have; add that key or write the value out",
        ),
        (
            {"a": "???", "l": [1, {"q": "???"}], "r": "${a}"},
            "conf/training.yaml: no value for 'a', 'l.1.q'; replace '???' or pass e.g. a=VALUE",
        ),
    ],
)
def test_what_cannot_be_resolved_is_named(tree: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(tree, PATH)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("${eval:1+1}", "Unsupported interpolation type eval"),
        ("${python:os.system}", "Unsupported interpolation type python"),
        ("${oc.env:STATSPREP_NOT_SET}", "STATSPREP_NOT_SET"),
    ],
)
def test_a_reference_reads_values_and_runs_nothing(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve({"a": text}, Path("c.yaml"))
    assert str(caught.value).startswith(f"c.yaml: a: '{text}' cannot be resolved: ")
    assert message in str(caught.value)


def test_an_environment_variable_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATSPREP_TEST", "${oc.env:HOME}; rm -rf /")
    assert resolve({"a": "${oc.env:STATSPREP_TEST}"}, Path("c.yaml")) == {"a": "${oc.env:HOME}; rm -rf /"}
