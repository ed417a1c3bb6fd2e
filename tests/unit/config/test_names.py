"""Every ESPnet name leads to an object of ours."""

import importlib

import pytest

from statsprep.config.names import ESPNET_NAMES, PLANNED, resolve_name
from statsprep.config.policy import TargetPolicy
from statsprep.config.targets import locate
from statsprep.errors import ConfigError


@pytest.mark.parametrize("name", ESPNET_NAMES)
def test_an_espnet_name_leads_to_ours_of_the_same_name(name: str) -> None:
    module, _, attribute = resolve_name(name).rpartition(".")
    found = getattr(importlib.import_module(module), attribute)
    assert found.__module__.split(".")[0] == "statsprep"
    assert found.__qualname__ == name.rpartition(".")[2]


@pytest.mark.parametrize("name", ESPNET_NAMES)
def test_a_configuration_may_build_the_classes_and_call_no_function(name: str) -> None:
    if name.rpartition(".")[2][0].isupper():
        assert isinstance(locate(name, TargetPolicy()), type)
    else:
        with pytest.raises(ConfigError, match=f"^_target_: '{name}' is (not allowed|a function of)"):
            locate(name, TargetPolicy())


def test_other_names_stay_and_no_name_is_in_both_tables() -> None:
    assert resolve_name("src.nets.Net") == "src.nets.Net"
    assert PLANNED.isdisjoint(ESPNET_NAMES)
