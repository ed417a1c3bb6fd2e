"""Measure or prepare a corpus, or run a recipe's own runner, and merge the results.

CONFIG is a YAML file; by default ./statsprep.yaml, then conf/training.yaml. The splits train and valid are
measured into stats_dir/<split>; a run that was stopped goes on where it was.

  statsprep run
  statsprep run conf/training.yaml --parallel local model.frontend.n_mels=40
  statsprep run conf/training.yaml --splits valid --overwrite
  statsprep run conf/training.yaml --print_config raw > all.yaml
  statsprep run conf/prepare.yaml --parallel local             # with a prepare: section
  statsprep run conf/prep.yaml --parallel conf/parallel.yaml   # with runner: and provider: sections
"""

import argparse
import os
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
    parser.add_argument(
        "--print_config", nargs="?", const="resolved", choices=["raw", "resolved"],
        help="print the whole config with all defaults, with or without `${}` references, and run nothing",
    )  # fmt: skip
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
    config = load_config(path, overrides, extra=extra, may_lack=args.print_config is not None)
    recipe_on_path(config.recipe_root)
    check_top_level(config.tree, path)
    if args.print_config is not None:
        from statsprep.cli.print_config import config_text

        print(config_text(config, tuple(args.allow_target), raw=args.print_config == "raw"), end="")
        return 0
    section = validate_section(ParallelSection, config.tree.get("parallel") or {}, where=path, key="parallel")
    job = _Job(config.tree, config.path, config.recipe_root, args, splits)
    with _open_executor(section.model_dump()) as executor, make_observer() as observer:
        _create_dataset(job)
        reports = _choose(config.tree)(job, executor, observer)
    show_reports(reports)
    return 0


class _Job:
    """The command line and the config together."""

    def __init__(
        self, tree: dict[str, Any], path: Path, recipe_root: Path, args: argparse.Namespace, splits: list[str]
    ) -> None:
        from statsprep.config.policy import TargetPolicy
        from statsprep.config.sections import FingerprintSection, validate_section

        self.tree = tree
        self.path = path
        self.recipe_root = recipe_root
        self.policy = TargetPolicy(tuple(args.allow_target), recipe_root)
        self.splits = splits
        self.run_options = {
            "accept": tuple(args.accept), "overwrite": args.overwrite, "retry_errors": args.retry_errors
        }  # fmt: skip
        fingerprint = validate_section(
            FingerprintSection, tree.get("fingerprint") or {}, where=path, key="fingerprint"
        )
        self.ignore = tuple(fingerprint.ignore)


def _is_override(word: str) -> bool:
    # Not Path.exists(), to which a long value is a file name too long.
    return bool(_OVERRIDE.match(word)) and not os.path.exists(word)


def _open_executor(parallel: Mapping[str, Any]) -> Any:
    import statsprep.parallel  # noqa: F401  registers the executors
    from statsprep.engine.executor import LazyExecutor

    return LazyExecutor(parallel)


def _choose(tree: Mapping[str, Any]) -> Any:
    """What the config is for: a recipe's own runner, a preparation, or statistics."""
    return _run_recipe if "runner" in tree else _prepare if "prepare" in tree else _collect


def _create_dataset(job: _Job) -> None:
    """Let the recipe build its corpus where it is not there yet."""
    dataset, options = job.tree.get("dataset"), job.tree.get("create_dataset")
    output_dir = job.tree.get("stats_dir") or job.tree.get("output_dir")
    has_own_provider = "runner" in job.tree
    if output_dir and (options is not None or (isinstance(dataset, Mapping) and not has_own_provider)):
        from statsprep.runners.create_dataset import create_dataset

        create_dataset(dataset, options, output_dir, policy=job.policy, where=f"{job.path}: ")


def _prepare(job: _Job, executor: Any, observer: Any) -> list[Any]:
    from statsprep.config.sections import PrepareSection, validate_section
    from statsprep.providers.prepare import check_split, split_entries
    from statsprep.runners.prepare_corpus import prepare_corpus

    if "collect_stats" in job.tree:
        raise ConfigError(
            f"{job.path}: has both prepare and collect_stats; expected one of them, as the statistics are of "
            "the prepared corpus; put one into a file of its own"
        )
    section = validate_section(PrepareSection, job.tree.get("prepare") or {}, where=job.path, key="prepare")
    for key, example in (("output_dir", "exp/prepared"), ("dataset", "{train: [{manifest: train.jsonl}]}")):
        if not job.tree.get(key):
            hint = nearest(key, [name for name in job.tree if name != key])
            raise ConfigError(f"{job.path}: {key}: missing{hint}; expected a line such as `{key}: {example}`")
    known = split_entries(job.tree["dataset"], job.policy, f"{job.path}: ")
    splits = job.splits or section.splits or list(known)
    for split in splits:
        check_split(split, known, f"{job.path}: ")
    return [
        prepare_corpus(
            job.tree["dataset"],
            split,
            job.tree["output_dir"],
            recipe_root=job.policy.recipe_root or ".",
            allow_targets=job.policy.prefixes,
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


def _collect(job: _Job, executor: Any, observer: Any) -> list[Any]:
    from statsprep.config.sections import validate_collect_stats
    from statsprep.runners import collect_stats

    section = validate_collect_stats(job.tree, where=job.path)
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
            task=job.tree.get("task"),
            recipe_root=job.recipe_root,
            allow_targets=job.policy.prefixes,
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
    from statsprep.runners.from_config import build_runner

    runner = build_runner(job.tree, job.policy, job.path)
    indices = _indices(job, runner.provider)
    return [runner.run(indices, executor=executor, observer=observer, **job.run_options)]


def _indices(job: _Job, provider: Any) -> Any:
    """`indices: 100`, `indices: [start, stop]`, or all of the env's dataset."""
    given = job.tree.get("indices")
    if given is None:
        dataset = provider.build_env_local().get("dataset")
        if not hasattr(dataset, "__len__"):
            raise ConfigError(
                f"{job.path}: indices: missing, and the provider's env has no dataset with a length; "
                "expected a number of items, or [start, stop]"
            )
        return range(len(dataset))
    if isinstance(given, int):
        return range(given)
    if isinstance(given, list) and len(given) == 2 and all(isinstance(each, int) for each in given):
        return range(*given)
    raise ConfigError(f"{job.path}: indices: got {given!r}; expected a number of items, or [start, stop]")
