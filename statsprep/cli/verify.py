"""Check every committed shard and merged file of a run against its checksums.

Exit code 0 where all is whole, 3 where something is missing, damaged or left over.

  statsprep verify exp/stats
"""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_dir", metavar="RUN_DIR", help="stats_dir, or stats_dir/<split>")


def execute(args: argparse.Namespace) -> int:
    from statsprep.cli.display import shorten
    from statsprep.engine.mirror import copy_for_reading
    from statsprep.engine.verify import find_problems
    from statsprep.errors import DataError
    from statsprep.storage.paths import find_run_dirs

    num_problems = 0
    for paths in find_run_dirs(args.run_dir):
        problems = find_problems(copy_for_reading(paths, contents=True))
        num_problems += len(problems)
        for problem in problems:
            print(f"{shorten(paths.place)}: {problem}")
        if not problems:
            print(f"{shorten(paths.place)}: all shards and merged files are whole")
    if num_problems:
        raise DataError(
            f"{args.run_dir}: {num_problems} problems; expected none; run the same `statsprep run` command "
            "again to repair them"
        )
    return 0
