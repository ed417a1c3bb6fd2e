"""Merge the finished shards of a run into its files.

A run merges by itself; this command is for a run that was stopped before, or whose merged files were lost. A
recipe's own runner takes part in the merge: its code is run where it belongs to the recipe of the current
folder, or to one that --recipe names.

  statsprep merge exp/stats
"""

import argparse
from typing import TYPE_CHECKING, Any

from statsprep.errors import ConfigError

if TYPE_CHECKING:
    from statsprep.cli.trust import Trust
    from statsprep.engine.manifest import Manifest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from statsprep.cli.trust import add_trust_arguments

    parser.add_argument("run_dir", metavar="RUN_DIR", help="stats_dir, or stats_dir/<split>")
    add_trust_arguments(parser)


def execute(args: argparse.Namespace) -> int:
    from statsprep.cli.display import say, shorten
    from statsprep.cli.trust import Trust
    from statsprep.engine.manifest import read_manifest
    from statsprep.engine.merge import merge_run
    from statsprep.engine.mirror import owned_run, pull_shards
    from statsprep.storage.paths import find_run_dirs

    trust = Trust.of(args)
    for paths in find_run_dirs(args.run_dir):
        with owned_run(paths):
            manifest = read_manifest(paths)
            runner = find_runner(manifest, trust, paths.place)
            pull_shards(paths, manifest)
            receipt = merge_run(paths, manifest, runner)
        say(f"{shorten(paths.place)}: merged {receipt.num_shards} shards into {len(receipt.files)} files")
    return 0


def find_runner(manifest: "Manifest", trust: "Trust", place: str) -> Any:
    """The runner class that a manifest names, if its code may run.

    Raises:
        ConfigError: it may not, or cannot be imported, as a class of a script's `__main__`.
    """
    from statsprep.config.targets import locate
    from statsprep.engine.runner import BaseRunner

    dotted = manifest.runner
    try:
        found: Any = locate(dotted.replace(":", "."), trust.policy(manifest.recipe_root), where="runner")
    except ConfigError as error:
        if manifest.recipe_root is not None and not trust.covers(manifest.recipe_root):
            raise trust.refusal(place, manifest.recipe_root, error.message) from error
        raise ConfigError(
            f"{place}: the run's runner {dotted} cannot be imported; expected a class of the recipe in "
            f"{trust.recipes[0]}; run the script or command that started the run again instead: it merges as "
            "well",
            detail=f"  {error.message}",
        ) from error
    if not (isinstance(found, type) and issubclass(found, BaseRunner)):
        raise ConfigError(f"{place}: the run's runner {dotted} is no BaseRunner; the manifest is damaged")
    return found
