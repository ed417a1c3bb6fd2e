"""The recipe that a configuration belongs to: its root folder, its modules, and its dataset classes."""

import hashlib
import importlib
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
    """The `Dataset` class of the recipe that `data_src` names; None names the recipe of `root` itself.

    `my_recipe/asr` is `root` where its path ends so, else a folder of that name in `root` or a folder at most
    as far above it as the name is long. Its module is `dataset/__init__.py` or `dataset.py`, and dashes may
    stand for underscores. A dotted name is a module of this recipe, such as `src.corpus`, or, after `egs3.`,
    of another one: `egs3.my_recipe.asr.dataset`.

    Raises:
        ConfigError: There is no such module, it cannot be imported, or it has no class `Dataset`.
    """
    file, module = _dataset_module(data_src, root)
    found = getattr(module, "Dataset", None)
    if not isinstance(found, type):
        raise ConfigError(
            f"{_entry_name(data_src)}: {file} has no class 'Dataset'; define or import one there"
        )
    return found


def find_dataset_builder(data_src: str | None, root: Path) -> type | None:
    """The class `DatasetBuilder` of the module that `find_dataset_class` reads, or None where it has none.

    Raises:
        ConfigError: There is no such module, or it cannot be imported.
    """
    found = getattr(_dataset_module(data_src, root)[1], "DatasetBuilder", None)
    return found if isinstance(found, type) else None


def _entry_name(data_src: str | None) -> str:
    return f"data_src {data_src!r}" if data_src else "dataset entry without data_src"


def _dataset_module(data_src: str | None, root: Path) -> tuple[Path, ModuleType]:
    where = _entry_name(data_src)
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
    is_own = data_src is not None and "." in data_src and "/" not in data_src and data_src[:5] != "egs3."
    return file, _imported(file, where, root=root, name=data_src if is_own else None)


def dataset_root(recipe_dir: str | None, recipe_root: Path) -> Path:
    """Where a section's `data_src` is searched from.

    That is its `recipe_dir` where this is a recipe; ESPnet3's usual `.` is one only in the recipe's folder,
    and from elsewhere the folder that the configuration belongs to is meant.

    Raises:
        ConfigError: It is a recipe neither below the current folder nor of this configuration, whose code a
            configuration alone must not run.
    """
    if not isinstance(recipe_dir, str | None):
        raise ConfigError(f"dataset.recipe_dir: {recipe_dir!r} is not valid; expected the path of a folder")
    folder = Path(os.path.abspath(recipe_dir or ""))
    if recipe_dir is None or not any(file.is_file() for file in _modules(folder, "dataset")):
        return recipe_root
    if not folder.is_relative_to(Path.cwd()) and not folder.is_relative_to(recipe_root):
        raise ConfigError(
            f"dataset.recipe_dir: {recipe_dir!r} lies neither in the current folder nor in {recipe_root}, "
            "the configuration's recipe; its code is not run; run from there, or name the recipe by data_src"
        )
    return folder


def _dataset_files(data_src: str | None, root: Path, where: str) -> Iterator[Path]:
    if data_src is None:
        yield from _modules(root, "dataset")
        return
    if "/" not in data_src and "." in data_src:
        parts = data_src.split(".")
        if not all(part.isidentifier() for part in parts):
            raise ConfigError(f"{where}: is no module; expected a dotted name such as src.corpus")
        if parts[0] != "egs3" or len(parts) < 3:
            yield from _modules(root.joinpath(*parts[:-1]), parts[-1])
            return
        folder, module = tuple(parts[1:-1]), parts[-1]
    else:
        folder, module = tuple(data_src.strip("/").split("/")), "dataset"
        if data_src.startswith("/") or not {"", ".", ".."}.isdisjoint(folder):
            raise ConfigError(f"{where}: expected a recipe and a task such as my_recipe/asr, not a path")
    spellings = dict.fromkeys((folder, tuple(part.replace("-", "_") for part in folder)))
    own = [root] if any(root.parts[-len(spelling) :] == spelling for spelling in spellings) else []
    # No further up: a configuration is not to run whatever lies in /tmp or in another user's home.
    near = (root, *root.parents[: len(folder)])
    below = [above.joinpath(*spelling) for above in near for spelling in spellings]
    for candidate in dict.fromkeys([*own, *below]):
        yield from _modules(candidate, module)


def _modules(folder: Path, name: str) -> tuple[Path, Path]:
    return folder / name / "__init__.py", folder / f"{name}.py"


def _imported(file: Path, where: str, *, root: Path, name: str | None) -> ModuleType:
    """The module of a file: a recipe's own by its dotted name, else under a name that no other recipe has."""
    try:
        if name is not None:
            recipe_on_path(root)
            return importlib.import_module(name)
        return _import_file(file)
    except Exception as error:
        remedy = "correct that module"
        if isinstance(error, ModuleNotFoundError) and str(error.name).split(".")[0] in ("espnet2", "espnet3"):
            remedy = "install ESPnet, or import the same name from statsprep, which has most of them"
        raise ConfigError(
            f"{where}: {file} cannot be imported: {type(error).__name__}: {error}; {remedy}"
        ) from error


def _import_file(file: Path) -> ModuleType:
    """Every recipe calls its module `dataset`."""
    digest = hashlib.sha256(str(file).encode()).hexdigest()[:12]
    name = f"statsprep_recipe_{file.parent.name}_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    is_package = file.name == "__init__.py"
    spec = importlib.util.spec_from_file_location(
        name, file, submodule_search_locations=[str(file.parent)] if is_package else None
    )
    if spec is None or spec.loader is None:
        raise ImportError("no Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
