"""The recipe that a configuration belongs to: its root folder, its modules, and its dataset classes."""

import hashlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from statsprep.errors import ConfigError, listed

_ROOT_MARKS = ("src", "conf", "dataset")


def find_recipe_root(config_path: Path) -> Path:
    """The nearest parent of the configuration that holds `src/`, `conf/` or `dataset/`, else its own folder.

    The result is absolute and never `/`, whose `/src` on some machines has nothing to do with the recipe.
    """
    folder = Path(os.path.abspath(config_path)).parent
    for candidate in (folder, *folder.parents[:-1]):
        if any((candidate / mark).is_dir() for mark in _ROOT_MARKS):
            return candidate
    return folder


def recipe_on_path(root: Path) -> None:
    """Put `root` first on the module search path, once, so that the recipe's `src` package imports."""
    entry = str(root)
    if sys.path[:1] != [entry]:
        sys.path[:] = [entry, *(other for other in sys.path if other != entry)]


def find_dataset_class(data_src: str | None, root: Path) -> type:
    """The `Dataset` class of the recipe that `data_src` names, e.g. `my_recipe/asr`; None names this recipe.

    The recipe is `root` itself where its path ends so, else a folder of that name under `root` or one of its
    parents. Its dataset is `dataset/__init__.py` or `dataset.py`. Dashes may stand for underscores.

    Raises:
        ConfigError: There is no such module, it cannot be imported, or it has no class `Dataset`.
    """
    where = f"data_src {data_src!r}" if data_src else "dataset entry without data_src"
    tried = []
    for file in _dataset_files(data_src, Path(os.path.abspath(root)), where):
        tried.append(str(file))
        if file.is_file():
            break
    else:
        raise ConfigError(
            f"{where}: no dataset module; looked for {listed(tried, limit=8)}; "
            "create one of them with a class Dataset"
        )
    module = _import_file(file, where)
    found = getattr(module, "Dataset", None)
    if not isinstance(found, type):
        raise ConfigError(f"{where}: {file} has no class 'Dataset'; define or import one there")
    return found


def _dataset_files(data_src: str | None, root: Path, where: str) -> Iterator[Path]:
    folders = [root]
    if data_src is not None:
        parts = data_src.strip("/").split("/")
        if data_src.startswith("/") or not {"", ".", ".."}.isdisjoint(parts):
            raise ConfigError(f"{where}: expected a recipe and a task such as my_recipe/asr, not a path")
        spellings = dict.fromkeys((tuple(parts), tuple(part.replace("-", "_") for part in parts)))
        own = [root] if any(root.parts[-len(spelling) :] == spelling for spelling in spellings) else []
        below = (folder.joinpath(*spelling) for folder in (root, *root.parents) for spelling in spellings)
        folders = list(dict.fromkeys([*own, *below]))
    for folder in folders:
        yield folder / "dataset" / "__init__.py"
        yield folder / "dataset.py"


def _import_file(file: Path, where: str) -> ModuleType:
    """Import a file under a name of its own: every recipe calls its module `dataset`."""
    name = f"statsprep_recipe_{file.parent.name}_{hashlib.sha256(str(file).encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    is_package = file.name == "__init__.py"
    spec = importlib.util.spec_from_file_location(
        name, file, submodule_search_locations=[str(file.parent)] if is_package else None
    )
    if spec is None or spec.loader is None:
        raise ConfigError(f"{where}: {file} cannot be imported as a Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise ConfigError(
            f"{where}: {file} cannot be imported: {type(error).__name__}: {error}; correct that module"
        ) from error
    return module
