"""Per-utterance statistics: shards joined are what one shard would be."""

from pathlib import Path

import numpy as np

from statsprep.storage.rows_npy import merge_rows, write_rows


def test_merged_shards_are_the_bytes_of_one_file(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(11, 4, 5))
    write_rows(tmp_path / "whole.npy", rows)
    parts = []
    for start, stop in ((0, 3), (3, 4), (4, 11)):
        parts.append(tmp_path / f"{start}.npy")
        write_rows(parts[-1], rows[start:stop])
    merge_rows(parts, tmp_path / "merged.npy")
    assert (tmp_path / "merged.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()
    np.testing.assert_array_equal(np.load(tmp_path / "merged.npy", mmap_mode="r"), rows)
