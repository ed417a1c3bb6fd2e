"""create_dataset: a recipe builds its corpus before the first run, as ESPnet3's stage of that name does.

The module that an entry's `data_src` names may have, beside `Dataset`, a class `DatasetBuilder`:

    class DatasetBuilder:
        def is_source_prepared(self, recipe_dir, **options) -> bool: ...    # is the raw corpus here?
        def prepare_source(self, recipe_dir, **options) -> None: ...        # fetch or unpack it
        def is_built(self, recipe_dir, **options) -> bool: ...              # are the manifests here?
        def build(self, recipe_dir, **options) -> None: ...                 # write them

The options are the keys of the `create_dataset:` section; `recipe_dir` is the recipe's folder where the
section does not say it. A recipe without builder may name a function instead: `create_dataset: {func:
src.creating_dataset.create_dataset, ...}`. As a function does not say whether it is done,
`create_dataset.json` in the output folder does: with what arguments and code it returned.
"""

import contextlib
import inspect
import json
import logging
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from statsprep.config.names import resolve_name
from statsprep.config.policy import TargetPolicy
from statsprep.config.recipe import find_dataset_builder
from statsprep.config.targets import locate
from statsprep.engine.code_hash import hash_code
from statsprep.engine.lease import hold_lease
from statsprep.engine.manifest import check_run_dir
from statsprep.errors import ConfigError, DataError, StatsprepError, listed, nearest
from statsprep.providers.prepare import data_root
from statsprep.providers.stats import ORGANIZER
from statsprep.storage.atomic import write_text
from statsprep.storage.jsonl import read_json
from statsprep.storage.paths import RunPaths

logger = logging.getLogger(__name__)

_STEPS = (("is_source_prepared", "prepare_source"), ("is_built", "build"))
_RECEIPT = "create_dataset.json"


def create_dataset(
    dataset: Any, options: Any, output_dir: str | Path, *, policy: TargetPolicy, where: str = ""
) -> None:
    """Build what is not built yet; nothing happens where all is there.

    Args:
        dataset: the `dataset:` section; the builders of its train and valid entries are asked.
        options: the `create_dataset:` section, or None.
        output_dir: folder of the run's results, for the lease that keeps two runs from building at once.
        policy: what `func` may name.
        where: what errors begin with, such as `conf/training.yaml: `.

    Raises:
        ConfigError: an option is unknown or missing, or `func` may not be called.
        DataError: the recipe's code failed, or says that what it has built is not there.
    """
    if not isinstance(options or {}, Mapping):
        raise ConfigError(f"{where}create_dataset: is {options!r}; expected a mapping of options, or null")
    arguments = dict(options or {})
    func = arguments.pop("func", None)
    if arguments.get("recipe_dir") in (None, "."):
        arguments["recipe_dir"] = str(policy.recipe_root or Path.cwd())
    paths = RunPaths.at(output_dir)
    builders = list(_find_builders(dataset, policy))
    for name, builder in builders:
        _run_builder(builder, arguments, paths, f"{where}create_dataset: {name}")
    if func is not None and builders:
        logger.warning(
            "%screate_dataset.func has no effect: the dataset's module has a DatasetBuilder; remove one",
            where,
        )
    elif func is not None:
        _run_function(func, arguments, paths, policy, f"{where}create_dataset.func")
    elif options and not builders:
        logger.warning(
            "%screate_dataset has no effect: it has no func, and no module of an entry's data_src has a "
            "DatasetBuilder; take the section out, or write one of them",
            where,
        )


def _find_builders(dataset: Any, policy: TargetPolicy) -> Iterator[tuple[str, Any]]:
    """Each data_src's builder once, and its name."""
    if not isinstance(dataset, Mapping) or resolve_name(dataset.get("_target_", ORGANIZER)) != ORGANIZER:
        return
    root = data_root(dataset, policy.recipe_root or Path.cwd())
    splits = [dataset.get(name) for name in ("train", "valid")]
    entries = [entry for split in splits if isinstance(split, list) for entry in split]
    sources = dict.fromkeys(
        entry.get("data_src")
        for entry in entries
        if isinstance(entry, Mapping) and ("data_src" in entry or "data_src_args" in entry)
    )
    for source in sources:
        builder = find_dataset_builder(source, root)
        if builder is not None:
            yield f"DatasetBuilder of {source or 'this recipe'}", builder()


def _run_builder(builder: Any, arguments: Mapping[str, Any], paths: RunPaths, where: str) -> None:
    methods: dict[str, Any] = {name: getattr(builder, name, None) for step in _STEPS for name in step}
    missing = [name for name, method in methods.items() if not callable(method)]
    if missing:
        raise ConfigError(f"{where} has no {listed(missing)}; write {'it' if len(missing) == 1 else 'them'}")
    _check_options(methods, arguments, where)
    for is_done, do in _STEPS:
        if _call(methods[is_done], arguments, where):
            continue
        with _one_at_a_time(paths):
            if _call(methods[is_done], arguments, where):
                continue  # another run was faster
            logger.info("%s: %s", where, do)
            _call(methods[do], arguments, where)
            if not _call(methods[is_done], arguments, where):
                raise DataError(
                    f"{where}: {do} returned, and {is_done} still says no; expected yes; correct one of them"
                )


def _run_function(
    name: Any, arguments: dict[str, Any], paths: RunPaths, policy: TargetPolicy, where: str
) -> None:
    func = locate(name, policy, where=where)
    _check_options({"func": func}, arguments, where)
    wanted = {"func": name, "arguments": arguments, "code": hash_code([func])}
    if read_json(paths.root / _RECEIPT) == wanted:
        return
    with _one_at_a_time(paths):
        if read_json(paths.root / _RECEIPT) == wanted:
            return
        logger.info("%s: %s", where, name)
        _call(func, arguments, where)
        write_text(paths.root / _RECEIPT, json.dumps(wanted, indent=1) + "\n")


@contextlib.contextmanager
def _one_at_a_time(paths: RunPaths) -> Iterator[None]:
    check_run_dir(paths)
    with hold_lease(paths.leases / _RECEIPT, refuse_live=False):
        yield
    with contextlib.suppress(OSError):
        paths.leases.rmdir()


def _check_options(
    methods: Mapping[str, Callable[..., Any]], arguments: Mapping[str, Any], where: str
) -> None:
    """Refuse an option that none of the methods takes; `recipe_dir` is ours to offer."""
    known = {name for method in methods.values() for name in _taken(method, arguments)}
    for key in arguments:
        if key not in known and key != "recipe_dir":
            names = {name for method in methods.values() for name in inspect.signature(method).parameters}
            raise ConfigError(
                f"{where}: takes no option {key!r}{nearest(key, names)}; it takes {listed(sorted(names))}"
            )


def _taken(method: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the arguments that a method takes."""
    parameters = inspect.signature(method).parameters.values()
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return dict(arguments)
    return {each.name: arguments[each.name] for each in parameters if each.name in arguments}


def _call(method: Callable[..., Any], arguments: Mapping[str, Any], where: str) -> Any:
    taken = _taken(method, arguments)
    try:
        inspect.signature(method).bind(**taken)
    except TypeError as error:
        raise ConfigError(f"{where}: {method.__name__}: {error}; add it to create_dataset") from error
    try:
        return method(**taken)
    except StatsprepError:
        raise
    except Exception as error:
        raise DataError(
            f"{where}: {method.__name__} failed: {type(error).__name__}: {error}; mend the recipe, its "
            "options in create_dataset, or its source",
            detail=traceback.format_exc(),
        ) from error
