"""The env of collect_stats: one split's dataset, the collate function and the model, from plain
configuration.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from statsprep.config.policy import TargetPolicy
from statsprep.config.targets import instantiate, locate
from statsprep.data.index import IndexSummary
from statsprep.data.organizer import CombinedDataset, DataOrganizer
from statsprep.engine.provider import EnvironmentProvider
from statsprep.errors import ConfigError, listed, nearest
from statsprep.storage.digest import json_digest

FEATURE_MODEL = "statsprep.models.features.FeatureModel"
ORGANIZER = "statsprep.data.organizer.DataOrganizer"
COLLATE = "statsprep.data.collate.CommonCollateFn"


@dataclass(frozen=True, slots=True)
class StatsSpec:
    """All that a worker needs to build the env, as plain data.

    Attributes:
        dataset: the `dataset:` section. model: the `model:` section, None where only lengths are measured.
        collate_fn: the `dataloader.collate_fn` section.
        split: `train` or `valid`.
        recipe_root: folder of the recipe's modules.
        allow: further packages that a `_target_` may name.
        options: of the runner: categories, write_collected_feats, per_utterance_stats, stats.
        index: the run's index, there once the run has begun.
        token_list: file of the preprocessor's tokens, where it is made by the run.
        where: what errors begin with, such as `conf/training.yaml: `.
    """

    dataset: dict[str, Any]
    model: dict[str, Any] | None
    collate_fn: dict[str, Any]
    split: str
    recipe_root: Path
    allow: tuple[str, ...]
    options: dict[str, Any]
    index: Path
    token_list: Path | None = None
    where: str = ""

    @property
    def policy(self) -> TargetPolicy:
        return TargetPolicy(self.allow, self.recipe_root)


@dataclass(frozen=True, slots=True)
class StatsInputs:
    """What the driver prepared for a run.

    Attributes:
        staged_index: the split's new index, to be put in place when the run begins.
        index: its digest and length.
        tokens: the token list that the run makes, or None where there is none to make.
        ignore: dotted config keys that the fingerprint leaves out.
    """

    staged_index: Path
    index: IndexSummary
    tokens: list[str] | None = None
    ignore: tuple[str, ...] = ()


class CollectStatsProvider(EnvironmentProvider):
    """Provides `dataset`, `collate_fn`, `model`, `device` and `options` to CollectStatsRunner.

    Args:
        config: the resolved configuration, for the manifest.
        spec: what the env is built from.
        inputs: what the driver prepared.
        params: further env entries; they are passed on to the model's collect_feats.
    """

    def __init__(
        self, config: Any, *, spec: StatsSpec, inputs: StatsInputs, params: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(config, params=params)
        self.spec = spec
        self.inputs = inputs

    def build_env_local(self) -> dict[str, Any]:
        return build_env(self.spec, self.params)

    def make_worker_setup_fn(self) -> "functools.partial[dict[str, Any]]":
        return functools.partial(build_env, self.spec, self.params)

    def fingerprint(self) -> dict[str, Any]:
        found = {"index": self.inputs.index.digest, "num_items": self.inputs.index.num_items}
        if self.inputs.tokens is not None:
            found["token_list"] = json_digest(self.inputs.tokens)
        return found


def build_env(spec: StatsSpec, params: Mapping[str, Any]) -> dict[str, Any]:
    """Build everything that one process measures with."""
    dataset = build_split(spec)
    dataset.attach_index(spec.index)
    env = {"dataset": dataset, "options": spec.options, "model": None, "device": "cpu", **params}
    env["collate_fn"] = instantiate(
        spec.collate_fn, where=f"{spec.where}dataloader.collate_fn", allow=spec.policy
    )
    if spec.model is not None:
        import torch

        env["device"] = "cuda" if torch.cuda.is_available() else "cpu"
        env["model"] = build_model(spec).to(env["device"]).eval()
    return env


def build_split(spec: StatsSpec) -> CombinedDataset:
    """The split's dataset, in evaluation mode.

    Raises:
        ConfigError: the section builds something else, or has no such split.
    """
    section = {"_target_": ORGANIZER, **spec.dataset}
    if spec.token_list is not None:
        section["preprocessor"] = {**section["preprocessor"], "token_list": str(spec.token_list)}
    if locate(section["_target_"], spec.policy, where=f"{spec.where}dataset._target_") is DataOrganizer:
        # ESPnet3's templates write these two; our organizer takes built objects and its own spelling.
        section.pop("_recursive_", None)
        section["recipe_root"] = section.pop("recipe_dir", None) or str(spec.recipe_root)
        # The test sets are no concern of statistics, and their files may be elsewhere.
        section.pop("test", None)
    organizer = instantiate(section, where=f"{spec.where}dataset", allow=spec.policy)
    split = getattr(organizer, spec.split, None)
    if not isinstance(split, CombinedDataset):
        known = [name for name in ("train", "valid") if getattr(organizer, name, None) is not None]
        raise ConfigError(
            f"{spec.where}dataset.{spec.split}: missing; expected a split with entries; the dataset has "
            f"{listed(known) or 'none'}"
            f"{nearest(spec.split, known)}"
        )
    split.set_training(False)
    return split


def model_section(model: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """The `model:` section with its `_target_`; without one it means the bundled feature model.

    Raises:
        ConfigError: no `_target_`, and a key that the feature model does not know.
    """
    if "_target_" in model:
        return dict(model)
    known = ("frontend", "normalize", "normalize_conf", "encoder")
    for key in model:
        if key not in known:
            raise ConfigError(
                f"{where}model.{key}: the section has no _target_, and the bundled feature model has no "
                f"{key!r}"
                f"{nearest(key, known)}; expected {listed(known)}, or _target_: src.model.YourModel"
            )
    return {"_target_": FEATURE_MODEL, **model}


def build_model(spec: StatsSpec) -> Any:
    """The model, with a callable collect_feats.

    Raises:
        ConfigError: it has none.
    """
    model = instantiate(spec.model, where=f"{spec.where}model", allow=spec.policy)
    if not callable(getattr(model, "collect_feats", None)):
        raise ConfigError(
            f"{spec.where}model._target_: {type(model).__name__} has no collect_feats; expected a method "
            "collect_feats(**batch) that returns {key: tensor, key_lengths: tensor}; write it"
        )
    return model
