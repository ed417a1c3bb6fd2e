"""Which indices a run handles, and how they are cut into shards.

The cut follows from the number of indices alone, never from the workers, so a run may go on with any number
of them and the merged bytes stay the same.
"""

import hashlib
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from statsprep.errors import ConfigError
from statsprep.storage.atomic import write_bytes

_TYPICAL_SHARDS = 256
_SMALLEST_SHARD = 32
_MOST_SHARDS = 10_000


@dataclass(frozen=True, slots=True)
class Shard:
    """A contiguous range of positions: `start` to `stop` (exclusive)."""

    shard_id: int
    start: int
    stop: int

    @property
    def num_items(self) -> int:
        return self.stop - self.start


def plan_shards(num_items: int, *, shard_size: int | None = None, multiple_of: int = 1) -> list[Shard]:
    """Cut `num_items` positions into shards: about 256 of at least 32 items, never more than 10,000.

    Args:
        num_items: positions 0 .. num_items - 1.
        shard_size: items per shard instead of the rule above.
        multiple_of: batch size; every shard but the last is a multiple of it, so that no batch is cut short.

    Raises:
        ConfigError: `shard_size` is not positive, or makes more than 10,000 shards.
    """
    size = shard_size
    if size is None:
        size = max(_SMALLEST_SHARD, -(-num_items // _TYPICAL_SHARDS))
    elif size < 1:
        raise ConfigError(f"shard_size: got {size}; expected a positive number of items")
    size = -(-size // multiple_of) * multiple_of
    if -(-num_items // size) > _MOST_SHARDS:
        raise ConfigError(
            f"shard_size: {size} makes {-(-num_items // size):,} shards of {num_items:,} items; at most "
            f"{_MOST_SHARDS:,} are allowed; give at least {-(-num_items // _MOST_SHARDS)} or leave it out"
        )
    starts = range(0, num_items, size)
    return [Shard(number, start, min(start + size, num_items)) for number, start in enumerate(starts)]


@dataclass(frozen=True, slots=True)
class Items:
    """The indices of a run: a range, or int64 numbers in the order given."""

    values: range | NDArray[np.int64]

    @classmethod
    def of(cls, indices: Iterable[int]) -> "Items":
        """Take any sequence of integers; a range stays a range, whatever its length.

        Raises:
            ConfigError: something in it is no integer.
        """
        if isinstance(indices, range):
            return cls(indices)
        listed = indices if isinstance(indices, np.ndarray) else list(indices)
        try:
            values = np.asarray(listed) if len(listed) else np.empty(0, np.int64)
        except ValueError:  # lists of different lengths inside
            values = np.asarray(listed, object)
        if values.ndim != 1 or values.dtype.kind not in "iu":
            raise ConfigError(
                f"indices: got {values.dtype} of {values.ndim} dimensions; expected a flat sequence of "
                "integers"
            )
        return cls(values.astype(np.int64))

    def __len__(self) -> int:
        return len(self.values)

    def slice(self, shard: Shard) -> Sequence[int]:
        """The shard's indices as Python ints."""
        part = self.values[shard.start : shard.stop]
        return part if isinstance(part, range) else [int(value) for value in part]

    def describe(self) -> dict[str, Any]:
        """What the manifest says of the indices: a range's ends, or a digest of the numbers."""
        if isinstance(self.values, range):
            return {"range": [self.values.start, self.values.stop, self.values.step]}
        return {"file": "indices.npy", "sha256": hashlib.sha256(self.values.tobytes()).hexdigest()}

    def save(self, path: Path) -> None:
        """Write the numbers beside the manifest; a range needs no file."""
        if not isinstance(self.values, range):
            buffer = io.BytesIO()
            np.save(buffer, self.values)
            write_bytes(path, buffer.getvalue())
