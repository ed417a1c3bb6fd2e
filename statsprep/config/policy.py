"""Which classes and functions a configuration may name.

Of statsprep: the classes that datasets, models, runners and providers are made of, and no function, for some
of them write files, run commands or read other configurations. Of torch: layers, optimizers, samplers and a
few functions that make tensors, and nothing that loads or compiles code. Everything of the recipe, and of
the packages that a flag allows.
"""

import importlib.util
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from statsprep.config.recipe import recipe_on_path

_OWN = (
    "statsprep.data",
    "statsprep.models",
    "statsprep.providers",
    "statsprep.runners",
    "statsprep.engine.provider",
    "statsprep.engine.runner",
)
_TORCH = ("torch.nn", "torch.optim", "torch.utils.data")
# datapipes, below torch.utils.data as well, has decoders that unpickle.
_TORCH_HOMES = (
    *("torch.nn", "torch._C._nn", "torch.optim"),
    *(f"torch.utils.data.{name}" for name in ("dataloader", "dataset", "distributed", "sampler")),
)
_MAKES_TENSORS = frozenset(
    f"torch.{name}" for name in ("arange", "eye", "full", "linspace", "ones", "tensor", "zeros")
)
_TOPS = ("statsprep", "torch")
_INSTALLED = frozenset({"site-packages", "dist-packages"})


@dataclass(frozen=True, slots=True)
class TargetPolicy:
    """What `_target_` may lead to.

    Attributes:
        prefixes: Packages allowed by `--allow_target`, besides those named above.
        recipe_root: Modules whose source lies in this folder are allowed, installed packages in it are not.
    """

    prefixes: tuple[str, ...] = ()
    recipe_root: Path | None = None

    def allows_name(self, name: str) -> bool:
        """Decide from the dotted name alone; nothing is imported."""
        known = (*_OWN, *_TORCH, *_MAKES_TENSORS, *self._trusted)
        return _is_below(name, known) or self._is_recipe_module(name.split(".")[0])

    def allows_module(self, name: str) -> bool:
        """Decide for a module on the way to what is named: it is allowed, or leads to an allowed one."""
        known = (*_OWN, *_TORCH, *self._trusted)
        return (
            _is_below(name, known) or any(_is_below(each, [name]) for each in known) or self._has_source(name)
        )

    def allows_object(self, found: Any, name: str) -> bool:
        """Decide for what was found under `name`, by the module that defines it."""
        home = getattr(found, "__module__", None)
        if not isinstance(home, str):
            return False
        if _is_below(home, self._trusted) or name in _MAKES_TENSORS or _is_below(home, _TORCH_HOMES):
            return True
        return isinstance(found, type) if _is_below(home, _OWN) else self._has_source(home)

    def tops(self) -> list[str]:
        """The top-level names that a `_target_` may begin with."""
        own = self.recipe_root.glob("*") if self.recipe_root else ()
        modules = (entry.stem for entry in own if entry.suffix == ".py" or entry.is_dir())
        return [*_TOPS, *self.prefixes, *(name for name in modules if name.isidentifier())]

    def described(self) -> str:
        """The allowed places, for error messages."""
        names = ["classes of statsprep", *(f"{name}.*" for name in (*_TORCH, *self.prefixes))]
        place = f" and modules in {self.recipe_root}" if self.recipe_root else ""
        return f"{', '.join(names)}{place}"

    @property
    def _trusted(self) -> tuple[str, ...]:
        return tuple(prefix.rstrip(".") for prefix in self.prefixes)

    def _has_source(self, name: str) -> bool:
        """Whether an imported module's source lies in the recipe."""
        module = sys.modules.get(name)
        if module is None or name.split(".")[0] in _TOPS:
            return False
        file = getattr(module, "__file__", None)
        return self._in_recipe([file] if file else getattr(module, "__path__", ()))

    def _is_recipe_module(self, top: str) -> bool:
        if self.recipe_root is None or top in _TOPS:
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

    def contains(self, folder: Any) -> bool:
        """Whether a folder is the recipe's own or below it."""
        return isinstance(folder, str | os.PathLike) and self._in_recipe([os.fspath(folder)])

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


def _is_below(name: str, prefixes: Iterable[str]) -> bool:
    return any(name == prefix or name.startswith(f"{prefix}.") for prefix in prefixes)
