"""Every ESPnet name leads to an object of ours."""

import pytest

from statsprep.config.names import ESPNET_NAMES, PLANNED, resolve_name
from statsprep.config.policy import TargetPolicy
from statsprep.config.targets import locate


@pytest.mark.parametrize("name", ESPNET_NAMES)
def test_an_espnet_name_is_found(name: str) -> None:
    found = locate(name, TargetPolicy())
    assert found.__module__.split(".")[0] == "statsprep"
    assert found.__qualname__ == name.rpartition(".")[2]


def test_other_names_stay_and_no_name_is_in_both_tables() -> None:
    assert resolve_name("src.nets.Net") == "src.nets.Net"
    assert PLANNED.isdisjoint(ESPNET_NAMES)
