"""Which modules a configuration may name: statsprep's, torch's, the recipe's own, those allowed by flag."""

import importlib.util
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from statsprep.config.recipe import recipe_on_path

_ALWAYS = ("statsprep", "torch")
_INSTALLED = frozenset({"site-packages", "dist-packages"})


@dataclass(frozen=True, slots=True)
class TargetPolicy:
    """The modules that `_target_` may lead to.

    Attributes:
        prefixes: Packages allowed by `--allow_target`, besides `statsprep` and `torch`.
        recipe_root: Modules whose source lies in this folder are allowed, installed packages in it are not.
    """

    prefixes: tuple[str, ...] = ()
    recipe_root: Path | None = None

    def allows_name(self, name: str) -> bool:
        """Decide from the dotted name alone; nothing is imported."""
        return self._has_prefix(name) or self._is_recipe_module(name.split(".")[0])

    def allows_module(self, name: str) -> bool:
        """Decide for a module that is imported already, by its name and by its source file."""
        if self._has_prefix(name):
            return True
        module = sys.modules.get(name)
        if module is None:
            return False
        file = getattr(module, "__file__", None)
        return self._in_recipe([file] if file else getattr(module, "__path__", ()))

    def tops(self) -> list[str]:
        """The top-level names that a `_target_` may begin with."""
        own = self.recipe_root.glob("*") if self.recipe_root else ()
        modules = (entry.stem for entry in own if entry.suffix == ".py" or entry.is_dir())
        return [*_ALWAYS, *self.prefixes, *(name for name in modules if name.isidentifier())]

    def described(self) -> str:
        """The allowed places, for error messages."""
        names = ", ".join(f"{name}.*" for name in (*_ALWAYS, *self.prefixes))
        return f"{names} and modules in {self.recipe_root}" if self.recipe_root else names

    def _has_prefix(self, name: str) -> bool:
        prefixes = (*_ALWAYS, *(prefix.rstrip(".") for prefix in self.prefixes))
        return any(name == prefix or name.startswith(f"{prefix}.") for prefix in prefixes)

    def _is_recipe_module(self, top: str) -> bool:
        if self.recipe_root is None:
            return False
        recipe_on_path(self.recipe_root)
        try:
            spec = importlib.util.find_spec(top)
        except (ImportError, ValueError):  # ValueError: `__main__` and its kin have no spec
            return False
        if spec is None:
            return False
        has_file = spec.has_location and spec.origin is not None
        return self._in_recipe([spec.origin] if has_file else spec.submodule_search_locations or ())

    def _in_recipe(self, files: Iterable[str | None]) -> bool:
        if self.recipe_root is None:
            return False
        # A linked folder in the recipe counts as the recipe's, and so does a recipe reached through a link.
        pairs = [
            (spelled(file), spelled(self.recipe_root))
            for file in files
            if file is not None
            for spelled in (os.path.abspath, os.path.realpath)
        ]
        return any(
            Path(file).is_relative_to(root) and _INSTALLED.isdisjoint(Path(file).relative_to(root).parts)
            for file, root in pairs
        )
