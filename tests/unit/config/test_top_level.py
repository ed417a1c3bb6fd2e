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
