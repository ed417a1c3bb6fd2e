"""Show how far a run is, what failed, and what to type next.

RUN_DIR is a run directory (stats_dir/train) or a stats_dir. Works while the run goes on, and without any
process.

  statsprep status exp/stats
  statsprep status exp/stats/train --json
"""

import argparse
import json
import sys


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_dir", metavar="RUN_DIR", help="stats_dir, or stats_dir/<split>")
    parser.add_argument("--json", action="store_true", help="print one JSON list for programs")


def execute(args: argparse.Namespace) -> int:
    from statsprep.engine.mirror import copy_for_reading
    from statsprep.engine.status import read_status
    from statsprep.storage.paths import find_run_dirs

    found = [read_status(copy_for_reading(paths)) for paths in find_run_dirs(args.run_dir)]
    if args.json:
        json.dump([status.to_json() for status in found], sys.stdout, indent=1)
        print()
        return 0
    from statsprep.cli.display import print_table, say, shorten

    rows = [
        [shorten(each.run_dir), each.state, f"{each.num_finished:,}/{each.num_items:,}",
         f"{each.num_in_attempts:,}", f"{each.num_shards_finished}/{each.num_shards}",
         f"{each.counts.get('dropped', 0):,}", f"{each.counts.get('error', 0):,}"]
        for each in found
    ]  # fmt: skip
    print_table("status", ["run", "state", "items", "begun", "shards", "dropped", "failed"], rows)
    for each in found:
        name = shorten(each.run_dir)
        if each.failures:
            say(f"{name}: failed by kind: {', '.join(f'{n} {kind}' for kind, n in each.failures.items())}")
        if each.damaged:
            say(f"{name}: damaged, measured again by the next run: {', '.join(each.damaged)}")
        if each.strays:
            say(f"{name}: not in the plan, left out: {', '.join(each.strays)}")
        if each.keyed_by == "position":
            say(f"{name}: keyed by position; give the dataset utt_ids() to key by utterance id")
        for entry in each.accepted:
            say(f"{name}: accepted at {entry['at']}: {'; '.join(entry['changes'])}")
        if each.owner:
            say(f"{name}: process {each.owner['pid']} on {each.owner['host']} works here")
        say(f"{name}: next: {each.next_command}")
    return 0
