"""A runner with its provider from the `runner:` and `provider:` sections of a configuration."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from statsprep.config.filled import filled, renamed
from statsprep.config.policy import TargetPolicy
from statsprep.config.targets import check_targets, instantiate, locate
from statsprep.engine.provider import EnvironmentProvider
from statsprep.engine.runner import BaseRunner
from statsprep.errors import ConfigError

# Arguments of a runner that say where its results go and when it gives up, never what comes out.
_NOT_RESULTS = frozenset({"max_errors", "on_error", "output_dir", "resume", "shard_subdir"})


def build_runner(tree: Mapping[str, Any], policy: TargetPolicy, path: Path) -> BaseRunner:
    """The runner, which knows how it was built.

    Args:
        tree: the resolved configuration.
        policy: what a `_target_` may name.
        path: the configuration's file, for messages.

    Raises:
        ConfigError: a section is wrong.
    """
    provider = build_provider(tree, policy, path)
    if not isinstance(tree["runner"], Mapping):
        raise ConfigError(
            f"{path}: runner: {tree['runner']!r} is no mapping; expected `runner: {{_target_: "
            "src.prep.MyRunner}`"
        )
    section = dict(tree["runner"])
    if not section.get("output_dir"):
        section["output_dir"] = tree.get("output_dir") or tree.get("stats_dir")
    if not section["output_dir"]:
        raise ConfigError(f"{path}: runner.output_dir: missing; expected a folder for the results")
    runner: BaseRunner = instantiate(section, where=f"{path}: runner", allow=policy, provider=provider)
    if not isinstance(runner, BaseRunner):
        raise ConfigError(
            f"{path}: runner._target_: {section['_target_']!r} is no BaseRunner; derive it from "
            "statsprep.BaseRunner"
        )
    runner.origin = {
        "kind": "recipe",
        "config_path": str(path),
        "cwd": os.getcwd(),
        "recipe_root": str(policy.recipe_root),
        "allow_targets": list(policy.prefixes),
    }
    full = filled_recipe(tree, policy)
    results = {key: value for key, value in full["runner"].items() if key not in _NOT_RESULTS}
    runner.filled_config = renamed(full | {"runner": results})
    return runner


def filled_recipe(
    tree: Mapping[str, Any], policy: TargetPolicy, *, mark_missing: bool = False
) -> dict[str, Any]:
    """The configuration with the defaults of its classes; `config` and `provider` are handed over by us."""
    full: dict[str, Any] = {}
    for key, value in tree.items():
        if key == "runner":
            full[key] = filled(value, policy, mark_missing=mark_missing, given=("provider",))
        elif key == "provider" and isinstance(value, Mapping):
            params = filled(value.get("params"), policy, mark_missing=mark_missing)
            full[key] = {**value, "params": params}
        else:
            full[key] = filled(value, policy)
    return full


def build_provider(tree: Mapping[str, Any], policy: TargetPolicy, path: Path) -> EnvironmentProvider:
    """The provider with the objects that its `params` name.

    Raises:
        ConfigError: the section is wrong.
    """
    node = tree.get("provider")
    if not isinstance(node, Mapping) or "_target_" not in node:
        raise ConfigError(
            f"{path}: provider: missing; expected `provider: {{_target_: src.prep.MyProvider}}`"
        )
    unknown = [key for key in node if key not in ("_target_", "params")]
    if unknown:
        raise ConfigError(f"{path}: provider.{unknown[0]}: unknown key; expected _target_ and params")
    params = node.get("params") or {}
    check_targets(params, where=f"{path}: provider.params", allow=policy)
    built = {
        key: instantiate(value, where=f"{path}: provider.params.{key}", allow=policy)
        if isinstance(value, Mapping) and "_target_" in value
        else value
        for key, value in params.items()
    }
    provider_class = locate(node["_target_"], policy, where=f"{path}: provider._target_")
    if not (isinstance(provider_class, type) and issubclass(provider_class, EnvironmentProvider)):
        raise ConfigError(
            f"{path}: provider._target_: {node['_target_']!r} is no EnvironmentProvider; derive it from "
            "statsprep.EnvironmentProvider"
        )
    return provider_class(tree, params=built)
