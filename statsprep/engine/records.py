"""What `forward` returned, as JSON, and what went wrong, as a record."""

import json
import re
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from statsprep.data.verdicts import Dropped
from statsprep.errors import ConfigError

__all__ = ["Dropped", "Record", "error_record", "to_json"]


@dataclass(slots=True)
class Record:
    """What `forward` may return instead of plain JSON, where numbers belong to a result.

    Args:
        result: JSON.
        rows: float64 arrays, a few numbers per key, kept in the journal with the result.
        side: larger arrays for `write_record` alone, which writes them to files below the shard's folder.
    """

    result: Any
    rows: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    side: Mapping[str, NDArray[Any]] = field(default_factory=dict)


def to_json(result: Any, where: str) -> tuple[Any, str]:
    """`result` as JSON reads it back, and its text: tuples are lists, numpy scalars are numbers, in every
    mode alike.

    Raises:
        ConfigError: something in it has no JSON form; `where` names the utterance.
    """
    try:
        text = _ENCODER.encode(result)
        return json.loads(text), text
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"{where}: forward returned what is no JSON ({error}); return numbers, text, lists and dicts, "
            "turn small arrays into lists with .tolist(), write large ones to a file and return its path"
        ) from error


def _convert(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if hasattr(value, "__fspath__"):
        return value.__fspath__()
    raise TypeError(f"{type(value).__module__}.{type(value).__qualname__}")


_ENCODER = json.JSONEncoder(default=_convert, allow_nan=False, separators=(",", ":"))


# `<Model object at 0x7f12a4c0>`: another in each process, and errors.jsonl is to be the same in all modes.
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,16}\b")


def error_record(error: BaseException, *, utt_id: str, index: int) -> dict[str, Any]:
    """What `errors.jsonl` says of one failed utterance. `kind` is the error's own, else `exception`."""
    return {
        "utt_id": utt_id,
        "index": index,
        "kind": str(getattr(error, "kind", "exception")),
        "type": type(error).__name__,
        "message": _ADDRESS.sub("0x...", str(error)),
        "traceback": _ADDRESS.sub("0x...", "".join(traceback.format_exception(error))),
    }
