"""What `statsprep run --print_config` prints: a configuration that says everything and runs as it is.

Sections that this command does not read, such as `optimizer`, are filled in where their classes are known,
and never get a `???`. `resolved` has values in place of `${}`; `raw` keeps every reference that was written.
"""

from collections.abc import Mapping
from typing import Any

from statsprep.config.espnet_model import filled_espnet_model, is_espnet_model
from statsprep.config.filled import filled, overlaid
from statsprep.config.load import LoadedConfig
from statsprep.config.policy import TargetPolicy
from statsprep.config.sections import (
    FingerprintSection,
    ParallelSection,
    PrepareSection,
    validate_collect_stats,
    validate_section,
)
from statsprep.config.tree import MISSING
from statsprep.config.yaml_file import dump


def config_text(config: LoadedConfig, allow: tuple[str, ...], *, raw: bool) -> str:
    """YAML text; read as a configuration it gives the same run with the same fingerprint.

    Raises:
        ConfigError: a section that statsprep owns is wrong.
    """
    policy = TargetPolicy(allow, config.recipe_root)
    if "runner" in config.tree:
        full = _filled_recipe(config, policy)
    elif "prepare" in config.tree:
        full = _filled_preparation(config, policy)
    else:
        full = _filled_stats(config, policy)
    for key, section in (("parallel", ParallelSection), ("fingerprint", FingerprintSection)):
        found = validate_section(section, full.get(key) or {}, where=config.path, key=key)
        full[key] = found.model_dump()
    return dump(overlaid(config.raw, full) if raw else _escaped(full))


def _filled_recipe(config: LoadedConfig, policy: TargetPolicy) -> dict[str, Any]:
    from statsprep.runners.from_config import filled_recipe

    full = filled_recipe(config.tree, policy, mark_missing=True)
    if not config.tree.get("output_dir"):
        full.setdefault("stats_dir", MISSING)
    return full


def _filled_preparation(config: LoadedConfig, policy: TargetPolicy) -> dict[str, Any]:
    from statsprep.providers.stats import ORGANIZER

    tree = {"output_dir": MISSING, "dataset": MISSING, **config.tree}
    full: dict[str, Any] = {key: filled(value, policy) for key, value in tree.items()}
    section = validate_section(PrepareSection, tree["prepare"] or {}, where=config.path, key="prepare")
    full["prepare"] = filled(section.model_dump(), policy, mark_missing=True)
    if isinstance(tree["dataset"], Mapping):
        full["dataset"] = filled({"_target_": ORGANIZER, **tree["dataset"]}, policy, mark_missing=True)
    return full


def _filled_stats(config: LoadedConfig, policy: TargetPolicy) -> dict[str, Any]:
    from statsprep.providers.stats import COLLATE, ORGANIZER

    owned = ("dataset", "model", "dataloader")
    tree = {"stats_dir": MISSING, "dataset": None, "model": None, "dataloader": None, **config.tree}
    full: dict[str, Any] = {
        key: value if key in owned else filled(value, policy) for key, value in tree.items()
    }
    section = validate_collect_stats(tree, where=config.path)
    full["collect_stats"] = section.model_dump()
    if isinstance(tree["dataset"], Mapping):
        full["dataset"] = filled({"_target_": ORGANIZER, **tree["dataset"]}, policy, mark_missing=True)
    else:
        full["dataset"] = MISSING
    loader = filled(tree["dataloader"] or {}, policy)
    collate = loader.get("collate_fn") or {"_target_": COLLATE}
    full["dataloader"] = {**loader, "collate_fn": filled(collate, policy, mark_missing=True)}
    if section.stats == "lengths" and tree["model"] is None:
        del full["model"]
    else:
        full["model"] = _filled_model(tree["model"], tree.get("task"), policy)
    return full


def _filled_model(model: Any, task: str | None, policy: TargetPolicy) -> Any:
    from statsprep.providers.stats import FEATURE_MODEL

    if model is None and not task:
        return MISSING
    if not isinstance(model or {}, Mapping):
        return model
    model = model or {}
    if is_espnet_model(model, task):
        return filled_espnet_model(model)
    return filled({"_target_": FEATURE_MODEL, **model}, policy, mark_missing=True)


def _escaped(node: Any) -> Any:
    """What looks like a reference now is text, and is to stay so when it is read again."""
    if isinstance(node, Mapping):
        return {key: _escaped(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_escaped(value) for value in node]
    return node.replace("${", "\\${") if isinstance(node, str) else node
