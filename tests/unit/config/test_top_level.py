"""A misspelt top-level key is caught, a variable of the user's own is not."""

from pathlib import Path

import pytest

from statsprep.config.top_level import TOP_LEVEL_KEYS, check_top_level
from statsprep.errors import ConfigError

PATH = Path("conf/training.yaml")


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("colect_stats", "collect_stats"),
        ("stat_dir", "stats_dir"),
        ("paralel", "parallel"),
        ("models", "model"),
    ],
)
def test_a_near_miss_of_a_known_key_is_an_error(key: str, meant: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_top_level({"seed": 1, key: {}}, PATH)
    assert str(caught.value) == (
        f"conf/training.yaml: unknown key {key!r}; did you mean {meant!r}? "
        "(a variable of your own needs a name less like it)"
    )


def test_known_keys_and_own_variables_are_allowed() -> None:
    check_top_level(dict.fromkeys(TOP_LEVEL_KEYS), PATH)
    check_top_level({"sample_rate_hz": 8000, "corpus": "asterisk", "data_dir": "data"}, PATH)


@pytest.mark.parametrize("value", [5, "x", [1], True, 1.5])
@pytest.mark.parametrize("key", ["dataset", "model", "dataloader", "provider", "runner"])
def test_a_section_is_a_mapping(key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"conf/training.yaml: {key}: .* is not valid; expected a section"):
        check_top_level({key: value}, PATH)


@pytest.mark.parametrize("value", [5, [1], {"a": 1}, True])
@pytest.mark.parametrize("key", ["stats_dir", "output_dir"])
def test_a_folder_is_text(key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"conf/training.yaml: {key}: .* expected the path of a folder"):
        check_top_level({key: value}, PATH)
