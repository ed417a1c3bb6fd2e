"""Measure a corpus, or run a recipe's own runner, and merge the results.

CONFIG is a YAML file; by default ./statsprep.yaml, then conf/training.yaml. The splits train and valid are
measured into stats_dir/<split>; a run that was stopped goes on where it was.

  statsprep run
  statsprep run conf/training.yaml --parallel local model.frontend.n_mels=40
  statsprep run conf/training.yaml --splits valid --overwrite
  statsprep run conf/prep.yaml --parallel conf/parallel.yaml   # with runner: and provider: sections
"""

import argparse
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from statsprep.errors import ConfigError, listed, nearest

_OVERRIDE = re.compile(r"[\w.]+=")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words", nargs="*", metavar="CONFIG key=value", help="config file, and values to change in it"
    )
    parser.add_argument(
        "--parallel", metavar="FILE|NAME", help="where to run: a YAML file, or `local`, `none`"
    )
    parser.add_argument("--splits", nargs="+", metavar="SPLIT", help="only these, such as `valid`")
    parser.add_argument(
        "--overwrite", action="store_true", help="remove an earlier run's results and measure anew"
    )
    parser.add_argument(
        "--accept", action="append", default=[], metavar="KEY",
        help="keep finished shards although this changed: `code` or a dotted config key; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--retry_errors", action="store_true", help="measure shards again that hold failed utterances"
    )
    parser.add_argument(
        "--allow_target", action="append", default=[], metavar="PKG", help="packages that a _target_ may name"
    )


def execute(args: argparse.Namespace) -> int:
    from statsprep.cli.display import make_observer, show_reports
    from statsprep.config.load import find_config, load_config, load_parallel
    from statsprep.config.recipe import recipe_on_path
    from statsprep.config.sections import ParallelSection, validate_section
    from statsprep.config.top_level import check_top_level

    splits = [name for word in args.splits or () if "=" not in word for name in word.split(",")]
    overrides = [word for word in [*args.words, *(args.splits or ())] if _is_override(word)]
    files = [word for word in args.words if not _is_override(word)]
    if len(files) > 1:
        raise ConfigError(f"got {listed(files)}; expected one CONFIG, and values to change as key=value")
    path = find_config(files[0] if files else None)
    extra = {"parallel": load_parallel(args.parallel, config_dir=path.parent)} if args.parallel else None
    config = load_config(path, overrides, extra=extra)
    recipe_on_path(config.recipe_root)
    check_top_level(config.tree, path)
    section = validate_section(ParallelSection, config.tree.get("parallel") or {}, where=path, key="parallel")
    job = _Job(config.tree, config.path, config.recipe_root, args, splits)
    with _open_executor(section.model_dump()) as executor, make_observer() as observer:
        run = _run_recipe if "runner" in config.tree else _collect
        reports = run(job, executor, observer)
    show_reports(reports)
    return 0


class _Job:
    """The command line and the config together."""

    def __init__(
        self, tree: dict[str, Any], path: Path, recipe_root: Path, args: argparse.Namespace, splits: list[str]
    ) -> None:
        from statsprep.config.sections import FingerprintSection, validate_section

        self.tree = tree
        self.path = path
        self.recipe_root = recipe_root
        self.splits = splits
        self.allow = tuple(args.allow_target)
        self.run_options = {
            "accept": tuple(args.accept), "overwrite": args.overwrite, "retry_errors": args.retry_errors
        }  # fmt: skip
        fingerprint = validate_section(
            FingerprintSection, tree.get("fingerprint") or {}, where=path, key="fingerprint"
        )
        self.ignore = tuple(fingerprint.ignore)


def _is_override(word: str) -> bool:
    return bool(_OVERRIDE.match(word)) and not Path(word).exists()


def _open_executor(parallel: Mapping[str, Any]) -> Any:
    import statsprep.parallel  # noqa: F401  registers the executors
    from statsprep.engine.executor import LazyExecutor

    return LazyExecutor(parallel)


def _collect(job: _Job, executor: Any, observer: Any) -> list[Any]:
    from statsprep.config.sections import CollectStatsSection, validate_section
    from statsprep.runners import collect_stats

    section = validate_section(
        CollectStatsSection, job.tree.get("collect_stats") or {}, where=job.path, key="collect_stats"
    )
    for key in ("stats_dir", "dataset"):
        if not job.tree.get(key):
            hint = nearest(key, [name for name in job.tree if name != key])
            example = (
                "stats_dir: exp/stats" if key == "stats_dir" else "dataset: {train: [...], valid: [...]}"
            )
            raise ConfigError(f"{job.path}: {key}: missing{hint}; expected a line such as `{example}`")
    splits = job.splits or [name for name in section.splits if job.tree["dataset"].get(name)]
    for name in splits:
        if not job.tree["dataset"].get(name):
            known = [key for key in ("train", "valid") if job.tree["dataset"].get(key)]
            raise ConfigError(
                f"{job.path}: dataset.{name}: missing; --splits got {name!r}; expected one of {listed(known)}"
                f"{nearest(name, known)}"
            )
    return [
        collect_stats(
            job.tree.get("model"),
            job.tree["dataset"],
            job.tree.get("dataloader"),
            split,
            job.tree["stats_dir"],
            recipe_root=job.recipe_root,
            allow_targets=job.allow,
            ignore=job.ignore,
            executor=executor,
            observer=observer,
            full_config=job.tree,
            config_path=job.path,
            **job.run_options,
            **section.model_dump(exclude={"splits"}),
        )
        for split in splits
    ]


def _run_recipe(job: _Job, executor: Any, observer: Any) -> list[Any]:
    """Run the config's own `runner:` with its `provider:` over its `indices:`."""
    from statsprep.config.policy import TargetPolicy
    from statsprep.config.targets import instantiate, locate

    policy = TargetPolicy(job.allow, job.recipe_root)
    node = job.tree.get("provider")
    if not isinstance(node, dict) or "_target_" not in node:
        raise ConfigError(
            f"{job.path}: provider: missing; expected `provider: {{_target_: src.prep.MyProvider}}`"
        )
    unknown = [key for key in node if key not in ("_target_", "params")]
    if unknown:
        raise ConfigError(f"{job.path}: provider.{unknown[0]}: unknown key; expected _target_ and params")
    params = {
        key: instantiate(value, where=f"{job.path}: provider.params.{key}", allow=policy)
        if isinstance(value, dict) and "_target_" in value
        else value
        for key, value in (node.get("params") or {}).items()
    }
    provider_class = locate(node["_target_"], policy, where=f"{job.path}: provider._target_")
    provider = provider_class(job.tree, params=params)
    runner_node = dict(job.tree["runner"])
    if not runner_node.get("output_dir"):
        runner_node["output_dir"] = job.tree.get("output_dir") or job.tree.get("stats_dir")
    if not runner_node["output_dir"]:
        raise ConfigError(f"{job.path}: runner.output_dir: missing; expected a folder for the results")
    runner = instantiate(runner_node, where=f"{job.path}: runner", allow=policy, provider=provider)
    indices = _indices(job, provider)
    return [runner.run(indices, executor=executor, observer=observer, **job.run_options)]


def _indices(job: _Job, provider: Any) -> Any:
    """`indices: 100`, `indices: [start, stop]`, or all of the env's dataset."""
    given = job.tree.get("indices")
    if given is None:
        dataset = provider.build_env_local().get("dataset")
        if not hasattr(dataset, "__len__"):
            raise ConfigError(
                f"{job.path}: indices: missing, and the provider's env has no dataset with a length; "
                "expected a number of "
                "items, or [start, stop]"
            )
        return range(len(dataset))
    if isinstance(given, int):
        return range(given)
    if isinstance(given, list) and len(given) == 2 and all(isinstance(each, int) for each in given):
        return range(*given)
    raise ConfigError(f"{job.path}: indices: got {given!r}; expected a number of items, or [start, stop]")
