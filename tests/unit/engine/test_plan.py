"""The plan: every index in exactly one shard, whatever the numbers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statsprep.engine.plan import Items, Shard, plan_shards
from statsprep.errors import ConfigError


@given(
    num_items=st.integers(0, 3_000_000),
    shard_size=st.none() | st.integers(1, 100_000),
    multiple_of=st.integers(1, 500),
)
def test_every_position_is_in_exactly_one_shard(
    num_items: int, shard_size: int | None, multiple_of: int
) -> None:
    try:
        plan = plan_shards(num_items, shard_size=shard_size, multiple_of=multiple_of)
    except ConfigError:
        assert shard_size is not None
        assert num_items > 10_000 * shard_size
        return
    ends = [0, *(shard.stop for shard in plan)]
    assert [shard.start for shard in plan] == ends[:-1]
    assert ends[-1] == num_items
    assert [shard.shard_id for shard in plan] == list(range(len(plan)))
    assert all(shard.num_items > 0 for shard in plan)
    assert len(plan) <= 10_000
    assert all(shard.num_items % multiple_of == 0 for shard in plan[:-1])
    assert len({shard.num_items for shard in plan[:-1]}) <= 1


@pytest.mark.parametrize(
    ("num_items", "num_shards", "size"),
    [
        (0, 0, None),
        (1, 1, 1),
        (32, 1, 32),
        (33, 2, 32),
        (8192, 256, 32),
        (281_241, 256, 1099),
        (10**8, 256, 390_625),
    ],
)
def test_without_shard_size_there_are_about_256_shards_of_at_least_32(
    num_items: int, num_shards: int, size: int | None
) -> None:
    plan = plan_shards(num_items)
    assert len(plan) == num_shards
    assert not plan or plan[0].num_items == size


def test_a_plan_follows_from_the_number_of_items_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not from processors, workers or batches that divide it: a run may go on with others."""
    plan = plan_shards(100_000)
    monkeypatch.setattr("os.cpu_count", lambda: 1000)
    assert plan_shards(100_000) == plan
    assert plan_shards(100_000, shard_size=391) == plan


@pytest.mark.parametrize("size", [0, -5])
def test_shard_size_must_be_positive(size: int) -> None:
    with pytest.raises(ConfigError, match=f"shard_size: got {size}; expected a positive number"):
        plan_shards(10, shard_size=size)


def test_more_than_ten_thousand_shards_are_refused_with_a_size_that_works() -> None:
    assert len(plan_shards(10_000, shard_size=1)) == 10_000
    with pytest.raises(ConfigError, match=r"makes 10,001 shards of 10,001 items.*give at least 2 or"):
        plan_shards(10_001, shard_size=1)
    assert len(plan_shards(10_001, shard_size=2)) == 5001


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=30), st.integers(1, 7))
def test_items_give_back_the_indices_in_order(indices: list[int], size: int) -> None:
    items = Items.of(indices)
    assert len(items) == len(indices)
    plan = plan_shards(len(items), shard_size=size)
    found = [index for shard in plan for index in items.slice(shard)]
    assert found == indices
    assert all(type(index) is int for index in found)


def test_a_range_is_never_spelled_out() -> None:
    items = Items.of(range(5, 10**15, 3))
    assert len(items) == (10**15 - 5 + 2) // 3
    assert items.slice(Shard(0, 10, 13)) == range(35, 44, 3)
    assert items.describe() == {"range": [5, 10**15, 3]}


def test_any_sequence_of_integers_is_taken() -> None:
    forms: list[Any] = [[3, 1], (3, 1), np.array([3, 1], np.int32), iter([3, 1]), [np.int64(3), np.uint8(1)]]
    for indices in forms:
        assert list(Items.of(indices).slice(Shard(0, 0, 2))) == [3, 1]
    assert len(Items.of([])) == len(Items.of(np.array([]))) == 0


@pytest.mark.parametrize(
    "indices", [[1.0], ["1"], [[1], [2]], [[1], [2, 3]], [None], np.zeros((2, 2), int), [2**70]]
)
def test_what_is_no_list_of_integers_is_refused(indices: object) -> None:
    with pytest.raises(ConfigError, match=r"indices: got .*; expected a flat sequence of integers"):
        Items.of(indices)  # type: ignore[arg-type]


def test_the_description_of_a_list_changes_with_its_numbers_and_order(tmp_path: Path) -> None:
    first, second = Items.of([1, 2, 3]).describe(), Items.of([1, 3, 2]).describe()
    assert first != second
    assert first == Items.of(np.array([1, 2, 3], np.uint16)).describe()
    Items.of([1, 3, 2]).save(tmp_path / "indices.npy")
    assert np.load(tmp_path / "indices.npy").tolist() == [1, 3, 2]
    Items.of(range(3)).save(tmp_path / "none.npy")
    assert not (tmp_path / "none.npy").exists()
