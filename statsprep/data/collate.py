"""Samples of different lengths to one padded batch."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from statsprep.errors import ConfigError, DataError, listed

if TYPE_CHECKING:
    import torch

LENGTHS_SUFFIX = "_lengths"


class CommonCollateFn:
    """Stacks the arrays of samples, padded at their ends, with ESPnet's keys and padding values.

    Args:
        float_pad_value: padding of floating arrays.
        int_pad_value: padding of integer and boolean arrays (booleans become int64).
        not_sequence: keys that get no `_lengths`.
        not_process: keys that are handed on as a tuple of the samples' values.
    """

    def __init__(
        self,
        float_pad_value: float = 0.0,
        int_pad_value: int = -32768,
        not_sequence: Collection[str] = (),
        not_process: Collection[str] = (),
    ) -> None:
        for name, keys in (("not_sequence", not_sequence), ("not_process", not_process)):
            if isinstance(keys, str):
                raise ConfigError(
                    f"collate_fn.{name}: is {keys!r}; expected a list of keys, such as [{keys}]"
                )
        self.float_pad_value = float_pad_value
        self.int_pad_value = int_pad_value
        self.not_sequence = frozenset(not_sequence)
        self.not_process = frozenset(not_process)

    def __call__(self, batch: Sequence[tuple[str, dict[str, Any]]]) -> tuple[list[str], dict[str, Any]]:
        """Collate `(utt_id, {key: array})` pairs.

        Returns:
            The ids, and for each key a tensor (batch, max length, ...) and `key_lengths`, int64 (batch,).

        Raises:
            DataError: the samples do not fit together; names utterance and key.
        """
        if not batch:
            raise DataError("collate: the batch has no samples; expected at least one")
        uids = [uid for uid, _ in batch]
        first_uid, first = batch[0]
        for uid, sample in batch[1:]:
            if sample.keys() != first.keys():
                differing = sorted(sample.keys() ^ first.keys())
                raise DataError(
                    f"utterances {first_uid!r} and {uid!r}: only one of them has {listed(differing)}; "
                    "all samples of a batch need the same keys"
                )
        collated: dict[str, Any] = {}
        for key in first:
            if key.endswith(LENGTHS_SUFFIX):
                raise DataError(
                    f"utterance {first_uid!r}: key {key!r} ends in {LENGTHS_SUFFIX}, "
                    "which is kept for lengths; rename it"
                )
            if key in self.not_process:
                collated[key] = tuple(sample[key] for _, sample in batch)
                continue
            tensors = [_to_tensor(sample[key], uid, key) for uid, sample in batch]
            collated[key] = self._pad(tensors, uids, key)
            if key not in self.not_sequence:
                collated[key + LENGTHS_SUFFIX] = _lengths(tensors)
        return uids, collated

    def _pad(self, tensors: "list[torch.Tensor]", uids: list[str], key: str) -> "torch.Tensor":
        first = tensors[0]
        if len(tensors) == 1:
            return first.unsqueeze(0)
        for uid, tensor in zip(uids, tensors, strict=True):
            if tensor.shape[1:] != first.shape[1:] or tensor.dtype != first.dtype:
                raise DataError(
                    f"utterance {uid!r}: {key} is {_describe(tensor)}, but that of {uids[0]!r} is "
                    f"{_describe(first)}; only the first dimension may differ"
                )
        pad_value = self.float_pad_value if first.is_floating_point() else self.int_pad_value
        padded = first.new_full((len(tensors), max(map(len, tensors)), *first.shape[1:]), pad_value)
        for row, tensor in zip(padded, tensors, strict=True):
            row[: len(tensor)] = tensor
        return padded


def _lengths(tensors: "list[torch.Tensor]") -> "torch.Tensor":
    import torch

    return torch.tensor([len(tensor) for tensor in tensors], dtype=torch.int64)


def _to_tensor(value: Any, uid: str, key: str) -> "torch.Tensor":
    """The value as a tensor, sharing memory where that is possible."""
    import torch

    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        # torch knows neither negative strides nor read-only memory.
        value = torch.from_numpy(
            value if value.flags.writeable and min(value.strides, default=0) >= 0 else value.copy()
        )
    if not isinstance(value, torch.Tensor):
        raise DataError(
            f"utterance {uid!r}: {key} is of type {type(value).__name__}; expected an array of numbers; "
            "convert it in a transform, or list the key in not_process"
        )
    if value.ndim == 0:
        raise DataError(
            f"utterance {uid!r}: {key} has no dimension; expected at least one, such as shape (1,)"
        )
    return value.to(torch.int64) if value.dtype == torch.bool else value


def _describe(tensor: "torch.Tensor") -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"
