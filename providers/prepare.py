"""The env of a preparation: one split's dataset, the cleaners and the feature extractor, from plain
configuration.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from statsprep.config.policy import TargetPolicy
from statsprep.config.recipe import dataset_root
from statsprep.config.targets import instantiate, locate
from statsprep.data.cleaners import Cleaner
from statsprep.data.index import IndexSummary
from statsprep.data.organizer import CombinedDataset, DataOrganizer
from statsprep.engine.mirror import fetch_input
from statsprep.engine.provider import EnvironmentProvider
from statsprep.errors import ConfigError, listed, nearest
from statsprep.models.extract import Extractor
from statsprep.providers.stats import ORGANIZER
from statsprep.storage.paths import RunPaths

_ENTRIES = "statsprep.data.organizer.EntriesDataset"
# What stands in a `dataset:` section beside the splits.
_NO_SPLITS = ("_target_", "_recursive_", "preprocessor", "recipe_dir", "recipe_root", "test")


@dataclass(frozen=True, slots=True)
class PrepareSpec:
    """All that a worker needs to build the env, as plain data.

    Attributes:
        split: its name. entries: its entries in the `dataset:` section.
        preprocessor: the section's preprocessor, or None.
        dataset_root: folder that `data_src` is searched from.
        recipe_root: folder of the recipe's modules.
        allow: further packages that a `_target_` may name.
        cleaner: the cleaners' sections in order. features: the extractor's section, or None.
        options: the other keys of the `prepare:` section that results depend on.
        run: the run directory, which holds the index once the run has begun.
        where: what errors begin with, such as `conf/prep.yaml: `.
    """

    split: str
    entries: list[dict[str, Any]]
    preprocessor: dict[str, Any] | None
    dataset_root: Path
    recipe_root: Path
    allow: tuple[str, ...]
    cleaner: list[dict[str, Any]]
    features: dict[str, Any] | None
    options: dict[str, Any]
    run: RunPaths
    where: str = ""

    @property
    def policy(self) -> TargetPolicy:
        return TargetPolicy(self.allow, self.recipe_root)


def read_prepare_spec(content: Mapping[str, Any], paths: RunPaths) -> PrepareSpec:
    """The spec that a run's manifest holds, with the index of the run directory as it lies now."""
    folders = {name: Path(content[name]) for name in ("dataset_root", "recipe_root")}
    return PrepareSpec(**{**content, **folders, "allow": tuple(content["allow"]), "run": paths})


@dataclass(frozen=True, slots=True)
class PrepareInputs:
    """What the driver found out for a run.

    Attributes:
        staged_index: the split's new index, to be put in place when the run begins.
        index: its digest and length.
        steps: what cleaners and extractor say they depend on, besides their arguments.
        ignore: dotted config keys that the fingerprint leaves out.
    """

    staged_index: Path
    index: IndexSummary
    steps: dict[str, Any]
    ignore: tuple[str, ...] = ()


class PrepareProvider(EnvironmentProvider):
    """Provides `dataset`, `cleaners`, `extract` and `options` to PrepareRunner.

    Args:
        config: the resolved configuration, for the manifest.
        spec: what the env is built from.
        inputs: what the driver found out.
    """

    def __init__(self, config: Any, *, spec: PrepareSpec, inputs: PrepareInputs) -> None:
        super().__init__(config)
        self.spec = spec
        self.inputs = inputs

    def build_env_local(self) -> dict[str, Any]:
        return build_prepare_env(self.spec)

    def make_worker_setup_fn(self) -> "functools.partial[dict[str, Any]]":
        return functools.partial(build_prepare_env, self.spec)

    def fingerprint(self) -> dict[str, Any]:
        index = {"index": self.inputs.index.digest, "num_items": self.inputs.index.num_items}
        return {**index, "steps": self.inputs.steps} if self.inputs.steps else index


def build_prepare_env(spec: PrepareSpec) -> dict[str, Any]:
    """Build everything that one process prepares with."""
    dataset = build_dataset(spec)
    dataset.attach_index(fetch_input(spec.run, spec.run.index))
    cleaners, extract = build_steps(spec)
    return {"dataset": dataset, "cleaners": cleaners, "extract": extract, "options": spec.options}


def build_dataset(spec: PrepareSpec) -> CombinedDataset:
    """The split's dataset, in evaluation mode; other splits are not touched."""
    section = {
        "_target_": _ENTRIES,
        "entries": spec.entries,
        "where": f"dataset.{spec.split}",
        "preprocessor": spec.preprocessor,
    }
    where, root = f"{spec.where}dataset", str(spec.dataset_root)
    dataset: CombinedDataset = instantiate(section, where=where, allow=spec.policy, recipe_root=root)
    dataset.set_training(False)
    return dataset


def build_steps(spec: PrepareSpec) -> tuple[list[Cleaner], Extractor | None]:
    """The cleaners in order, and the feature extractor where there is one.

    Raises:
        ConfigError: one cannot be built, or is nothing that can be called.
    """
    nodes = [(f"{spec.where}prepare.cleaner.{i}", node) for i, node in enumerate(spec.cleaner)]
    if spec.features is not None:
        nodes.append((f"{spec.where}prepare.features", spec.features))
    built = [(where, instantiate(node, where=where, allow=spec.policy)) for where, node in nodes]
    for where, step in built:
        if not callable(step):
            raise ConfigError(
                f"{where}: is of type {type(step).__name__}; expected a callable; give its class a __call__, "
                "or name a function with _partial_: true"
            )
    steps = [step for _, step in built]
    return steps[: len(spec.cleaner)], steps[-1] if spec.features is not None else None


def fingerprint_of_steps(spec: PrepareSpec) -> dict[str, Any]:
    """What cleaners and extractor say they depend on by a method `fingerprint`, by their place."""
    cleaners, extract = build_steps(spec)
    named: dict[str, Any] = {f"cleaner.{i}": cleaner for i, cleaner in enumerate(cleaners)}
    named["features"] = extract
    return {name: step.fingerprint() for name, step in named.items() if hasattr(step, "fingerprint")}


def split_entries(dataset: Mapping[str, Any], policy: TargetPolicy, where: str = "") -> dict[str, Any]:
    """The splits of a `dataset:` section and their entries; each of its test sets is one of them.

    Raises:
        ConfigError: the section builds something whose splits cannot be told.
    """
    target = dataset.get("_target_", ORGANIZER)
    if locate(target, policy, where=f"{where}dataset._target_") is not DataOrganizer:
        raise ConfigError(
            f"{where}dataset._target_: {target!r} is no DataOrganizer, so its splits are not known; write "
            "their entries here and leave _target_ out"
        )
    splits = {key: value for key, value in dataset.items() if key not in _NO_SPLITS and value is not None}
    test = dataset.get("test")
    if isinstance(test, Mapping):
        splits |= {name: [entry] for name, entry in test.items() if name not in splits}
    elif test is not None:
        splits["test"] = test
    return splits


def check_split(name: str, splits: Mapping[str, Any], where: str = "") -> None:
    """Refuse a split that the dataset does not have.

    Raises:
        ConfigError: names it and those that are there.
    """
    if name not in splits:
        raise ConfigError(
            f"{where}dataset.{name}: missing; expected a split with entries; the dataset has "
            f"{listed(splits) or 'none'}{nearest(name, splits)}"
        )


def data_root(dataset: Mapping[str, Any], recipe_root: Path) -> Path:
    """Where the section's `data_src` is searched from."""
    return dataset_root(dataset.get("recipe_root") or dataset.get("recipe_dir"), recipe_root)
