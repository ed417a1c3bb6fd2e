"""Merge the finished shards of a run into its files.

A run merges by itself; this command is for a run that was stopped before, or whose merged files were lost.

  statsprep merge exp/stats
"""

import argparse
import importlib
import sys
from typing import Any


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_dir", metavar="RUN_DIR", help="stats_dir, or stats_dir/<split>")


def execute(args: argparse.Namespace) -> int:
    from statsprep.cli.display import shorten
    from statsprep.engine.manifest import read_manifest
    from statsprep.engine.merge import merge_run
    from statsprep.engine.mirror import owned_run, pull_shards
    from statsprep.storage.paths import find_run_dirs

    for paths in find_run_dirs(args.run_dir):
        with owned_run(paths):
            manifest = read_manifest(paths)
            pull_shards(paths, manifest)
            receipt = merge_run(paths, manifest, find_runner(manifest.runner, manifest.recipe_root))
        print(f"{shorten(paths.place)}: merged {receipt.num_shards} shards into {len(receipt.files)} files")
    return 0


def find_runner(dotted: str, recipe_root: str | None) -> Any:
    """The runner class that a manifest names.

    Raises:
        ConfigError: it cannot be imported, as a class of a script's `__main__`.
    """
    from statsprep.errors import ConfigError

    module_name, _, qualname = dotted.partition(":")
    if recipe_root and recipe_root not in sys.path:
        sys.path.insert(0, recipe_root)
    try:
        found: Any = importlib.import_module(module_name)
        for name in qualname.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"the run's runner {dotted} cannot be imported ({error}); expected a module on the path; "
            "run the script or command that started the run again instead: it merges as well"
        ) from error
    return found
