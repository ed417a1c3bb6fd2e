"""Check every committed shard and merged file of a run against its checksums.

Exit code 0 where all is whole, 3 where something is missing, damaged or left over. Every byte is read; a run
itself reads again only what it merges, and looks at the size of the utterances' own files.

  statsprep verify exp/stats
  statsprep verify exp/stats --repair     # remove damaged shards, which the next run measures again
"""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_dir", metavar="RUN_DIR", help="stats_dir, or stats_dir/<split>")
    parser.add_argument("--repair", action="store_true", help="remove damaged shards")


def execute(args: argparse.Namespace) -> int:
    from statsprep.cli.display import say, shorten
    from statsprep.engine.mirror import copy_for_reading
    from statsprep.engine.verify import find_problems, remove_bad_shards
    from statsprep.errors import DataError, listed
    from statsprep.storage.paths import find_run_dirs

    num_problems = 0
    for paths in find_run_dirs(args.run_dir):
        copy = copy_for_reading(paths, contents=True)
        problems = find_problems(copy)
        num_problems += len(problems)
        for problem in problems:
            say(f"{shorten(paths.place)}: {problem}")
        if problems and args.repair:
            removed = remove_bad_shards(paths, copy)
            say(f"{shorten(paths.place)}: removed {listed(removed) if removed else 'nothing'}")
        if not problems:
            say(f"{shorten(paths.place)}: all shards and merged files are whole")
    if num_problems:
        way = "run the same `statsprep run` command again" if args.repair else "repair them with --repair"
        raise DataError(f"{args.run_dir}: {num_problems} problems; expected none; {way}")
    return 0
