"""The env of collect_stats: one split's dataset, the collate function and the model, from plain
configuration.
"""

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from statsprep.config.espnet_model import espnet_frontend, is_espnet_model
from statsprep.config.policy import TargetPolicy
from statsprep.config.recipe import dataset_root
from statsprep.config.targets import instantiate, locate
from statsprep.data.index import IndexSummary
from statsprep.data.organizer import CombinedDataset, DataOrganizer
from statsprep.engine.mirror import fetch_input
from statsprep.engine.provider import EnvironmentProvider
from statsprep.errors import ConfigError, listed, nearest
from statsprep.storage.digest import json_digest
from statsprep.storage.paths import RunPaths

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
        options: of the runner: categories, write_collected_feats, collected_feats_format,
            per_utterance_stats, stats.
        run: the run directory, which holds the index once the run has begun.
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
    run: RunPaths
    token_list: Path | None = None
    where: str = ""

    @property
    def policy(self) -> TargetPolicy:
        return TargetPolicy(self.allow, self.recipe_root)


def read_spec(content: Mapping[str, Any], paths: RunPaths) -> StatsSpec:
    """The spec that a run's manifest holds, with the files of the run directory as it lies now."""
    folders = {"recipe_root": Path(content["recipe_root"]), "run": paths}
    if content["token_list"] is not None:
        folders["token_list"] = paths.root / "token_list"
    return StatsSpec(**{**content, "allow": tuple(content["allow"]), **folders})


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
    if spec.token_list is not None:
        spec = dataclasses.replace(spec, token_list=fetch_input(spec.run, spec.token_list))
    dataset = build_split(spec)
    dataset.attach_index(fetch_input(spec.run, spec.run.index))
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
    section = dict(spec.dataset)
    if spec.token_list is not None:
        section["preprocessor"] = {**section["preprocessor"], "token_list": str(spec.token_list)}
    where = f"{spec.where}dataset"
    is_ours = locate(section["_target_"], spec.policy, where=f"{where}._target_") is DataOrganizer
    # The driver has checked this folder, which a configuration may not name anywhere else.
    root = {"recipe_root": section["recipe_root"]} if is_ours else {}
    organizer = instantiate(section, where=where, allow=spec.policy, **root)
    split = getattr(organizer, spec.split, None)
    if not isinstance(split, CombinedDataset):
        known = [name for name in ("train", "valid") if getattr(organizer, name, None) is not None]
        raise ConfigError(
            f"{spec.where}dataset.{spec.split}: missing; expected a split with entries; the dataset has "
            f"{listed(known) or 'none'}{nearest(spec.split, known)}"
        )
    split.set_training(False)
    return split


def dataset_section(dataset: Mapping[str, Any], policy: TargetPolicy, where: str = "") -> dict[str, Any]:
    """The `dataset:` section with its `_target_`, and without what is no concern of statistics.

    That are the test sets, whose files may be elsewhere, and what ESPnet3's templates write for an organizer
    that builds its parts itself.
    """
    section = {"_target_": ORGANIZER, **dataset}
    if locate(section["_target_"], policy, where=f"{where}dataset._target_") is DataOrganizer:
        given = section.get("recipe_root") or section.pop("recipe_dir", None)
        section["recipe_root"] = str(dataset_root(given, policy.recipe_root or Path.cwd()))
        section.pop("recipe_dir", None)
        section.pop("_recursive_", None)
        section.pop("test", None)
    return section


def model_section(
    model: Mapping[str, Any] | None, where: str = "", task: str | None = None
) -> dict[str, Any] | None:
    """The `model:` section with its `_target_`; without one it means the bundled feature model.

    Raises:
        ConfigError: no `_target_`, and a key that the feature model does not know.
    """
    if model is None and not task:
        return None
    model = model or {}
    if "_target_" in model:
        return dict(model)
    if is_espnet_model(model, task):
        return {"_target_": FEATURE_MODEL, "frontend": espnet_frontend(model, task, where)}
    known = ("frontend", "normalize", "normalize_conf", "encoder")
    for key in model:
        if key not in known:
            raise ConfigError(
                f"{where}model.{key}: the section has no _target_, and the bundled feature model has no "
                f"{key!r}{nearest(key, known)}; expected {listed(known)}, or _target_: src.model.YourModel, "
                "or task: asr above the section for a block of ESPnet's"
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
