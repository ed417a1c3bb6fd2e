"""Short forms mean what they say, exactly."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statsprep.config.values import max_errors_allowed, share_of, walltime_text
from statsprep.config.yaml_file import parse_value


@given(st.integers(0, 100), st.integers(0, 10**9))
def test_a_share_of_the_items_rounds_down_and_a_count_stays(percent: int, num_items: int) -> None:
    assert max_errors_allowed(f"{percent}%", num_items) == num_items * percent // 100
    assert max_errors_allowed(percent, num_items) == percent


@pytest.mark.parametrize(
    ("max_errors", "num_items", "allowed"),
    [("0.29%", 10_000, 29), ("1%", 99, 0), ("1%", 100, 1), ("100%", 7, 7)],
)
def test_shares_are_exact_where_floats_are_not(max_errors: str, num_items: int, allowed: int) -> None:
    assert max_errors_allowed(max_errors, num_items) == allowed


@pytest.mark.parametrize("text", ["1", "%", "-1%", "1 %", "1%%", "one%", ""])
def test_anything_else_is_no_share(text: str) -> None:
    assert share_of(text) is None
    with pytest.raises(ValueError, match="expected a count such as 20 or a share such as 1%"):
        max_errors_allowed(text, 10)


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("30:00", "0:30:00"),
        ("1:30:00", "1:30:00"),
        ("48:00:00", "48:00:00"),
        ("04:00:00", "04:00:00"),
        ('"30:00"', "30:00"),
        ("1-12:00:00", "1-12:00:00"),
        ("90", "0:01:30"),
    ],
)
def test_a_walltime_survives_yaml_with_or_without_quotes(written: str, text: str) -> None:
    assert walltime_text(parse_value(written)) == text
