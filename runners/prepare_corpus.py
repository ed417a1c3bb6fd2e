"""prepare_corpus: prepare one split of a configuration, from Python or from the command line."""

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import statsprep.parallel  # noqa: F401  registers the executors
from statsprep.config.policy import TargetPolicy
from statsprep.config.sections import ParallelSection, PrepareSection, validate_section
from statsprep.config.targets import check_targets
from statsprep.engine.executor import Executor, make_executor
from statsprep.engine.manifest import check_run_dir
from statsprep.engine.plain import plain_config
from statsprep.engine.progress import Observer
from statsprep.engine.report import RunReport
from statsprep.errors import ConfigError
from statsprep.providers.prepare import (
    PrepareInputs,
    PrepareProvider,
    PrepareSpec,
    build_dataset,
    check_split,
    data_root,
    fingerprint_of_steps,
    split_entries,
)
from statsprep.runners.prepare import PrepareRunner
from statsprep.runners.prepared_files import check_final_dir
from statsprep.runners.split_index import staging_file
from statsprep.storage.paths import RunPaths

_RESULT_OPTIONS = {"sample_rate_hz", "audio", "features_format", "audio_key"}


def prepare_corpus(
    dataset_config: Any,
    mode: str = "train",
    output_dir: str | Path = "",
    *,
    parallel_config: Any = None,
    recipe_root: str | Path = ".",
    allow_targets: Sequence[str] = (),
    ignore: Sequence[str] = (),
    executor: Executor | None = None,
    observer: Observer | None = None,
    accept: Sequence[str] = (),
    overwrite: bool = False,
    retry_errors: bool = False,
    full_config: Any = None,
    config_path: Path | None = None,
    **options: Any,
) -> RunReport:
    """Prepare one split into `output_dir/<mode>`, or go on with what is there.

    Example:
        >>> prepare_corpus({"train": [{"manifest": "train.jsonl"}]}, "train", "exp/prepared", audio="flac",
        ...                sample_rate_hz=16000)

    Args:
        dataset_config: the `dataset:` section.
        mode: the split, any that the section has.
        output_dir: where the splits go, a folder or the URL of one.
        parallel_config: a `parallel:` section; by default what `set_parallel` chose.
        recipe_root: folder of the recipe's modules.
        allow_targets: further packages that a `_target_` may name.
        ignore: dotted config keys whose change does not matter.
        executor: workers that are up already, for several splits in a row.
        observer: is told of progress.
        accept: changes since the earlier run that do not matter: `code` or dotted config keys.
        overwrite: remove an earlier run's results first.
        retry_errors: prepare those shards anew that hold failed utterances.
        full_config: what the manifest records as the run's configuration; by default the sections given.
        config_path: the file that errors are to name.
        **options: of the `prepare:` section, such as `cleaner=[...]`, `features={...}`, `on_error="skip"`.

    Raises:
        StatsprepError: as `BaseRunner.run`.
    """
    where = f"{config_path}: " if config_path is not None else ""
    section = validate_section(
        PrepareSection, plain_config(options), where=config_path or Path("prepare_corpus"), key="prepare"
    )
    if not output_dir:
        raise ConfigError(
            f"{where}output_dir: missing; expected a folder for the results, such as exp/prepared"
        )
    paths = RunPaths.at(output_dir, mode)
    check_final_dir(paths.place)
    check_run_dir(paths)
    policy = TargetPolicy(tuple(allow_targets), Path(recipe_root).absolute())
    spec = _read_spec(plain_config(dataset_config), mode, section, policy, paths, where)
    with contextlib.ExitStack() as stack:
        staged = stack.enter_context(staging_file(paths))
        steps = fingerprint_of_steps(spec)
        summary = build_dataset(spec).build_index(staged)
        config = full_config
        if config is None:
            config = {"dataset": plain_config(dataset_config), "prepare": section.model_dump()}
        runner = PrepareRunner(
            PrepareProvider(config, spec=spec, inputs=PrepareInputs(staged, summary, steps, tuple(ignore))),
            output_dir=output_dir,
            shard_subdir=mode,
            shard_size=section.shard_size,
            on_error=section.on_error,
            max_errors=section.max_errors,
        )
        runner.origin = {
            "kind": "prepare",
            "cwd": os.getcwd(),
            "recipe_root": str(spec.recipe_root),
            "spec": plain_config(spec),
        }
        if executor is None and parallel_config is not None:
            parallel = validate_section(
                ParallelSection,
                plain_config(parallel_config),
                where=config_path or Path("prepare_corpus"),
                key="parallel",
            )
            executor = stack.enter_context(make_executor(parallel.model_dump()))
        return runner.run(
            range(summary.num_items),
            executor=executor,
            observer=observer,
            accept=accept,
            overwrite=overwrite,
            retry_errors=retry_errors,
        )


def _read_spec(
    dataset: Any, mode: str, section: PrepareSection, policy: TargetPolicy, paths: RunPaths, where: str
) -> PrepareSpec:
    if not isinstance(dataset, Mapping):
        raise ConfigError(
            f"{where}dataset: missing; expected a section such as {{train: [{{manifest: ...}}]}}"
        )
    splits = split_entries(dataset, policy, where)
    check_split(mode, splits, where)
    recipe_root = policy.recipe_root or Path.cwd()
    spec = PrepareSpec(
        split=mode,
        entries=splits[mode],
        preprocessor=dataset.get("preprocessor"),
        dataset_root=data_root(dataset, recipe_root),
        recipe_root=recipe_root,
        allow=policy.prefixes,
        cleaner=section.cleaner,
        features=section.features,
        options=section.model_dump(include=_RESULT_OPTIONS),
        run=paths,
        where=where,
    )
    check_targets(spec.entries, where=f"{where}dataset.{mode}", allow=policy)
    for i, node in enumerate(spec.cleaner):
        check_targets(node, where=f"{where}prepare.cleaner.{i}", allow=policy)
    check_targets(spec.features, where=f"{where}prepare.features", allow=policy)
    return spec
