"""Values that are written in a short form: `1%` of the items, `30:00` of walltime."""

import re
from fractions import Fraction

_PERCENT = re.compile(r"(\d+(?:\.\d+)?)%")


def share_of(text: str) -> Fraction | None:
    """The exact share that `1%` or `0.5%` is, None for anything else."""
    percent = _PERCENT.fullmatch(text)
    return Fraction(percent[1]) / 100 if percent else None


def max_errors_allowed(max_errors: int | str, num_items: int) -> int:
    """How many of `num_items` may fail: a count as it is, a share such as `1%` rounded down.

    Raises:
        ValueError: `max_errors` is neither a count nor a share.
    """
    if isinstance(max_errors, int):
        return max_errors
    share = share_of(max_errors)
    if share is None:
        raise ValueError(
            f"max_errors: {max_errors!r} is not valid; expected a count such as 20 or a share such as 1%"
        )
    return int(share * num_items)


def walltime_text(value: int | float | str) -> str:
    """A walltime as schedulers read it.

    YAML reads an unquoted `30:00` as the number 1800, which becomes `0:30:00` again; text stays as it is.
    """
    if isinstance(value, str):
        return value
    minutes, seconds = divmod(int(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}"
