"""The files of collect_stats: gathered for one shard, written at its end, and merged over all shards."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from statsprep.engine.attempt import read_done
from statsprep.engine.merge import concatenate, names_in
from statsprep.engine.records import Record
from statsprep.errors import DataError, listed
from statsprep.runners.collected_feats import COLLECTED
from statsprep.stats.moments import Moments, as_row, combine
from statsprep.stats.npz import read_stats, write_stats
from statsprep.storage.atomic import open_private, write_text
from statsprep.storage.categories import invert
from statsprep.storage.rows_npy import merge_rows, write_rows
from statsprep.storage.shapes import arrow_path, load_shapes, merge_arrow, write_shapes


def merge_stats(shard_dirs: Sequence[Path], out_dir: Path) -> None:
    """Join shapes, combine statistics in the order of the shards, invert categories.

    Raises:
        DataError: shards disagree on a dimension, or an id that came with its sample stands twice.
    """
    for name in names_in(shard_dirs, "*_shape"):
        concatenate(shard_dirs, name, out_dir / name)
        parts = [path for folder in shard_dirs if (path := arrow_path(folder / name)).is_file()]
        merge_arrow(parts, arrow_path(out_dir / name))
    if not all(done.extra.get("ids_known", True) for folder in shard_dirs if (done := read_done(folder))):
        for name in names_in(shard_dirs, "*_shape.arrow"):
            check_unique(out_dir / name)
    stats_names = names_in(shard_dirs, "*_stats.npz")
    for name in stats_names:
        moments = [read_stats(path) for folder in shard_dirs if (path := folder / name).is_file()]
        write_stats(out_dir / name, _combine_shards(moments, name))
    keys = [name.removesuffix("_stats.npz") for name in stats_names]
    write_text(out_dir / "stats_keys", "".join(f"{key}\n" for key in keys))
    for name in names_in(shard_dirs, "*_utt_stats.npy"):
        merge_rows([path for folder in shard_dirs if (path := folder / name).is_file()], out_dir / name)
    for name in names_in(shard_dirs, "utt2*"):
        concatenate(shard_dirs, name, out_dir / name)
        invert(out_dir / name, out_dir / f"{name.removeprefix('utt2')}2utt")
    collected = [folder / COLLECTED for folder in shard_dirs]
    for name in names_in(collected, "*.scp"):
        (out_dir / COLLECTED).mkdir(exist_ok=True)
        concatenate(collected, name, out_dir / COLLECTED / name)


def check_unique(path: Path) -> None:
    """Ids that came with the samples were never seen together before.

    Raises:
        DataError: an id stands twice.
    """
    table = load_shapes(path)
    ids = table["utt_id"].to_numpy(zero_copy_only=False).astype(str)
    order = np.argsort(ids, kind="stable")
    twice = np.flatnonzero(ids[order][1:] == ids[order][:-1])
    if len(twice):
        first, second = (table["index"][int(order[row])].as_py() for row in (twice[0], twice[0] + 1))
        raise DataError(
            f"{path.name}: utterance {str(ids[order][twice[0]])!r} appears twice (items {first} and {second} "
            "of the split); ids must be unique; remove one or rename it"
        )


def _combine_shards(parts: Sequence[Moments], name: str) -> Moments:
    if len({part.mean.shape for part in parts}) > 1:
        shapes = listed(sorted({part.mean.shape for part in parts}))
        raise DataError(f"{name}: features of shapes {shapes}; expected one; mend collect_feats")
    rows = np.stack([as_row(part) for part in parts])
    return combine(np.array([part.count for part in parts], np.int64), rows)


@dataclass(slots=True)
class GatheredShard:
    """A shard's results until it is committed."""

    shapes: dict[str, list[tuple[str, int, Sequence[int]]]] = field(default_factory=dict)
    rows: dict[str, list[Any]] = field(default_factory=dict)
    categories: dict[str, list[str]] = field(default_factory=dict)
    audio_s: float = 0.0

    def add(self, record: Record, state: Mapping[str, Any]) -> None:
        utt_id, index = state["utt_id"], state["index"]
        for key, shape in record.result["shapes"].items():
            self.shapes.setdefault(key, []).append((utt_id, index, shape))
        for key, row in record.rows.items():
            before = self.rows.setdefault(key, [])
            if before and before[0].shape != row.shape:
                raise DataError(
                    f"utterance {utt_id!r}: {key} has {row.shape[1]} values a frame, earlier ones "
                    f"{before[0].shape[1]}; expected one number; mend collect_feats"
                )
            before.append(row)
        for name, value in record.result["categories"].items():
            self.categories.setdefault(name, []).append(f"{utt_id} {value}\n")
        self.audio_s += record.result.get("audio_s", 0.0)

    def write(self, folder: Path, *, keep_rows: bool) -> None:
        for key, lines in self.shapes.items():
            write_shapes(folder / f"{key}_shape", lines)
        for key, rows in self.rows.items():
            stacked = np.stack(rows)
            counts = np.array([shape[0] for _, _, shape in self.shapes[key]], np.int64)
            write_stats(folder / f"{key}_stats.npz", combine(counts, stacked))
            if keep_rows:
                write_rows(folder / f"{key}_utt_stats.npy", stacked)
        for name, text in self.categories.items():
            _write_lines(folder / f"utt2{name}", text)


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    with open_private(path) as stream:
        stream.writelines(lines)
