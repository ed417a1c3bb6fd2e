"""Batches: padding, lengths, and which utterance does not fit."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from statsprep.data.collate import CommonCollateFn
from statsprep.errors import ConfigError, DataError


@given(st.lists(st.integers(0, 9), min_size=1, max_size=5))
def test_every_sample_comes_back_after_cutting_to_its_length(lengths: list[int]) -> None:
    samples = [
        (f"u{i}", {"speech": np.full((n, 2), i + 1.0, np.float32), "text": np.arange(n)})
        for i, n in enumerate(lengths)
    ]
    uids, batch = CommonCollateFn(float_pad_value=-1.0, int_pad_value=-7)(samples)
    assert uids == [uid for uid, _ in samples]
    assert list(batch) == ["speech", "speech_lengths", "text", "text_lengths"]
    for key, pad_value in (("speech", -1.0), ("text", -7)):
        assert batch[key].shape[:2] == (len(lengths), max(lengths))
        assert batch[f"{key}_lengths"].tolist() == lengths
        assert batch[f"{key}_lengths"].dtype == torch.int64
        for row, (_, sample), length in zip(batch[key], samples, lengths, strict=True):
            np.testing.assert_array_equal(row[:length], sample[key])
            assert (row[length:] == pad_value).all()


def test_default_padding_is_espnets() -> None:
    samples = [("a", {"x": np.ones(2), "t": np.ones(2, int)}), ("b", {"x": np.ones(1), "t": np.ones(1, int)})]
    _, batch = CommonCollateFn()(samples)
    assert (batch["x"][1, 1], batch["t"][1, 1]) == (0.0, -32768)
    assert (batch["x"].dtype, batch["t"].dtype) == (torch.float64, torch.int64)


def test_one_sample_is_not_copied() -> None:
    speech = np.ones(5, np.float32)
    _, batch = CommonCollateFn()([("a", {"speech": speech})])
    assert batch["speech"].shape == (1, 5)
    assert batch["speech"].data_ptr() == speech.ctypes.data


def test_arrays_that_torch_cannot_share_are_copied() -> None:
    read_only = np.arange(3.0)
    read_only.flags.writeable = False
    _, batch = CommonCollateFn()([("a", {"x": read_only, "y": np.arange(3.0)[::-1], "b": np.array([True])})])
    assert (batch["x"].tolist(), batch["y"].tolist()) == ([[0, 1, 2]], [[2, 1, 0]])
    assert batch["b"].dtype == torch.int64


def test_keys_without_lengths_and_without_processing() -> None:
    samples: list[tuple[str, dict[str, Any]]] = [
        ("a", {"speaker": np.array([1]), "note": "x", "t": torch.ones(2)}),
        ("b", {"speaker": np.array([2]), "note": "y", "t": torch.ones(1)}),
    ]
    _, batch = CommonCollateFn(not_sequence=["speaker"], not_process=["note"])(samples)
    assert set(batch) == {"speaker", "note", "t", "t_lengths"}
    assert (batch["speaker"].tolist(), batch["note"]) == ([[1], [2]], ("x", "y"))


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([], "collate: the batch has no samples; expected at least one"),
        (
            [("a", {"x": np.ones(1)}), ("b", {"y": np.ones(1)})],
            "utterances 'a' and 'b': only one of them has 'x', 'y'; "
            "all samples of a batch need the same keys",
        ),
        (
            [("a", {"x_lengths": np.ones(1)})],
            "utterance 'a': key 'x_lengths' ends in _lengths, which is kept for lengths; rename it",
        ),
        (
            [("a", {"x": np.float32(1)})],
            "utterance 'a': x is of type float32; expected an array of numbers; "
            "convert it in a transform, or list the key in not_process",
        ),
        (
            [("a", {"x": np.array(1.0)})],
            "utterance 'a': x has no dimension; expected at least one, such as shape (1,)",
        ),
        (
            [("a", {"x": np.ones((1, 2))}), ("b", {"x": np.ones((1, 3))})],
            "utterance 'b': x is float64 (1, 3), but that of 'a' is float64 (1, 2); "
            "only the first dimension may differ",
        ),
        (
            [("a", {"x": np.ones(1)}), ("b", {"x": np.ones(1, int)})],
            "utterance 'b': x is int64 (1,), but that of 'a' is float64 (1,); "
            "only the first dimension may differ",
        ),
    ],
)
def test_what_does_not_fit_is_named(samples: list[Any], message: str) -> None:
    with pytest.raises(DataError) as caught:
        CommonCollateFn()(samples)
    assert caught.value.message == message


def test_a_bare_string_of_keys_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"collate_fn.not_sequence: is 'sid'; expected a list"):
        CommonCollateFn(not_sequence="sid")
