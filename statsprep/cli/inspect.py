"""Show what a run measured: totals, lengths, statistics, failures.

RUN_DIR is a run directory (stats_dir/train) or a stats_dir; its runs must be finished.

  statsprep inspect exp/stats
  statsprep inspect exp/stats/train
"""

import argparse
from pathlib import Path
from typing import Any

_BAR_WIDTH = 40
_NUM_BINS = 12
_NUM_EXTREMES = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_dir", metavar="RUN_DIR", help="stats_dir, or stats_dir/<split>")


def execute(args: argparse.Namespace) -> int:
    from statsprep.engine.mirror import copy_for_reading
    from statsprep.engine.status import read_status
    from statsprep.errors import DataError
    from statsprep.storage.paths import find_run_dirs

    for found in find_run_dirs(args.run_dir):
        paths = copy_for_reading(found)
        status = read_status(paths)
        if status.state != "merged":
            raise DataError(
                f"{paths.place}: is {status.state} ({status.num_finished:,} of {status.num_items:,} items); "
                f"expected a merged run; type `{status.next_command}`"
            )
        _show(paths)
    return 0


def _show(paths: Any) -> None:
    from statsprep.cli.display import say, shorten
    from statsprep.engine.limits import summarise_errors
    from statsprep.engine.merge import read_receipt
    from statsprep.storage.journal import Status

    receipt = read_receipt(paths)
    counts = receipt.counts if receipt else {}
    total = ", ".join(f"{counts[status]:,} {status}" for status in Status if status in counts)
    say(f"== {shorten(paths.place)}: {sum(counts.values()):,} utterances: {total}")
    for shape_file in sorted(paths.root.glob("*_shape.arrow")):
        _show_lengths(shape_file)
    for stats_file in sorted(paths.root.glob("*_stats.npz")):
        _show_stats(stats_file)
    errors = summarise_errors(paths)
    if errors:
        say(f"failed:\n{errors}")


def _show_lengths(path: Path) -> None:
    import numpy as np

    from statsprep.cli.display import say
    from statsprep.storage.shapes import load_shapes

    table = load_shapes(path)
    lengths = table["dim0"].to_numpy()
    key = path.name.removesuffix("_shape.arrow")
    dims = ",".join(str(table[name][0].as_py()) for name in table.column_names[3:])
    say(
        f"{key}: {len(lengths):,} utterances, {int(lengths.sum()):,} in total, shortest {lengths.min()}, "
        f"mean {lengths.mean():.1f}, longest {lengths.max()}" + (f", each of {dims}" if dims else "")
    )
    numbers, edges = np.histogram(lengths, bins=min(_NUM_BINS, int(lengths.max() - lengths.min()) + 1))
    for number, low, high in zip(numbers, edges, edges[1:], strict=False):
        bar = "#" * round(_BAR_WIDTH * number / numbers.max())
        say(f"  {low:9.0f} to {high:9.0f} {number:9,} {bar}")
    order = np.argsort(lengths, kind="stable")
    for title, chosen in (("shortest", order[:_NUM_EXTREMES]), ("longest", order[::-1][:_NUM_EXTREMES])):
        names = [f"{table['utt_id'][int(row)].as_py()} ({lengths[row]})" for row in chosen]
        say(f"  {title}: {', '.join(names)}")


def _show_stats(path: Path) -> None:
    import numpy as np

    from statsprep.cli.display import say
    from statsprep.stats.npz import read_stats

    moments = read_stats(path)
    deviation = np.sqrt(moments.variance)
    say(
        f"{path.name.removesuffix('_stats.npz')} statistics: {moments.count:,} frames; "
        f"means {moments.mean.min():.4g} to {moments.mean.max():.4g}; "
        f"deviations {deviation.min():.4g} to {deviation.max():.4g}; "
        f"values {moments.min.min():.4g} to {moments.max.max():.4g}"
    )
