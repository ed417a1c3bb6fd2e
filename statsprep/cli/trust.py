"""Whose code `merge` and `replay` run.

A run directory says itself which modules made it, and run directories are given away. So its word is not
enough: code is run of statsprep, of the recipe of the current folder, and of what the command line names.
"""

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from statsprep.config.policy import TargetPolicy
from statsprep.config.recipe import find_recipe_root
from statsprep.errors import ConfigError

# No module can lie below it.
_NOWHERE = Path(os.devnull)


def add_trust_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--recipe", action="append", default=[], metavar="DIR",
        help="recipe whose code may run, besides that of the current folder; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--allow_target", action="append", default=[], metavar="PKG",
        help="installed packages whose code may run, as with `statsprep run`",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Trust:
    """What the command line trusts: folders of recipes, the current one first, and packages."""

    recipes: tuple[Path, ...]
    packages: tuple[str, ...]

    @classmethod
    def of(cls, args: argparse.Namespace) -> "Trust":
        here = find_recipe_root(Path.cwd() / "statsprep.yaml")
        return cls((here, *map(Path, map(os.path.abspath, args.recipe))), tuple(args.allow_target))

    def covers(self, recipe_root: str | None) -> bool:
        """Whether a run's recipe is one of these. A run from Python has none: it is of the current one."""
        real = map(os.path.realpath, self.recipes)
        return recipe_root is None or os.path.realpath(recipe_root) in set(real)

    def root(self, recipe_root: str | None) -> Path:
        """The folder whose modules may be imported for a run of that recipe."""
        if recipe_root is None:
            return self.recipes[0]
        return Path(recipe_root) if self.covers(recipe_root) else _NOWHERE

    def policy(self, recipe_root: str | None) -> TargetPolicy:
        return TargetPolicy(self.packages, self.root(recipe_root))

    def refusal(self, place: str, recipe_root: str, reason: str) -> ConfigError:
        """Why a run cannot be rebuilt whose recipe is none of these."""
        return ConfigError(
            f"{place}: was made with code in {recipe_root}, which is not the recipe of the current folder "
            f"({self.recipes[0]}); nothing of it was run; if you trust it, go there, or pass --recipe "
            f"{recipe_root}",
            detail=f"  {reason}",
        )


def runs_commands(config: Any) -> bool:
    """Whether a configuration lets the commands run that stand in a wav.scp."""
    if isinstance(config, Mapping):
        return bool(config.get("allow_pipes")) or any(map(runs_commands, config.values()))
    return isinstance(config, list) and any(map(runs_commands, config))
