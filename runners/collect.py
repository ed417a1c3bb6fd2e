"""collect_stats: measure one split of a configuration, from Python or from the command line."""

import contextlib
import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import statsprep.parallel  # noqa: F401  registers the executors
from statsprep.config.policy import TargetPolicy
from statsprep.config.sections import CollectStatsSection, ParallelSection, validate_section
from statsprep.config.targets import check_targets, locate
from statsprep.data.tokens import TextPreprocessor, build_token_list
from statsprep.engine.executor import Executor, make_executor
from statsprep.engine.manifest import check_run_dir
from statsprep.engine.plain import plain_config
from statsprep.engine.progress import Observer
from statsprep.engine.report import RunReport
from statsprep.errors import ConfigError
from statsprep.providers.stats import (
    COLLATE,
    CollectStatsProvider,
    StatsInputs,
    StatsSpec,
    build_split,
    dataset_section,
    model_section,
)
from statsprep.runners.split_index import staging_file
from statsprep.runners.stats import CollectStatsRunner
from statsprep.storage.paths import RunPaths


def collect_stats(
    model_config: Any,
    dataset_config: Any,
    dataloader_config: Any = None,
    mode: str = "train",
    output_dir: str | Path = "",
    *,
    task: str | None = None,
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
    """Measure one split into `output_dir/<mode>`, or go on with what is there.

    Example:
        >>> collect_stats({"frontend": {"n_mels": 80}}, {"train": [{"manifest": "train.jsonl"}],
        ...               "valid": [{"manifest": "valid.jsonl"}]}, mode="train", output_dir="exp/stats")

    Args:
        model_config: the `model:` section; may be None with `stats="lengths"`.
        dataset_config: the `dataset:` section.
        dataloader_config: the `dataloader:` section, of which only `collate_fn` counts here.
        mode: the split, `train` or `valid`.
        output_dir: the `stats_dir`.
        task: ESPnet's task, for a `model:` section without `_target_`.
        parallel_config: a `parallel:` section; by default what `set_parallel` chose.
        recipe_root: folder of the recipe's modules.
        allow_targets: further packages that a `_target_` may name.
        ignore: dotted config keys whose change does not matter.
        executor: workers that are up already, for several splits in a row.
        observer: is told of progress.
        accept: changes since the earlier run that do not matter: `code` or dotted config keys.
        overwrite: remove an earlier run's results first.
        retry_errors: measure those shards anew that hold failed utterances.
        full_config: what the manifest records as the run's configuration; by default the sections given.
        config_path: the file that errors are to name.
        **options: of the `collect_stats:` section, such as `batch_size=1`, `on_error="skip"`,
            `stats="lengths"`.

    Raises:
        StatsprepError: as `BaseRunner.run`.
    """
    where = f"{config_path}: " if config_path is not None else ""
    section = validate_section(
        CollectStatsSection, options, where=config_path or Path("collect_stats"), key="collect_stats"
    )
    if not output_dir:
        raise ConfigError(f"{where}stats_dir: missing; expected a folder for the results, such as exp/stats")
    if not isinstance(dataset_config, Mapping):
        raise ConfigError(f"{where}dataset: missing; expected a section with train and valid entries")
    paths = RunPaths.at(output_dir, mode)
    check_run_dir(paths)
    wants_features = section.stats == "features"
    if wants_features and model_config is None and not task:
        raise ConfigError(
            f"{where}model: missing; expected a section such as {{frontend: {{n_mels: 80}}}}; for lengths "
            "alone set collect_stats.stats: lengths"
        )
    collate = (plain_config(dataloader_config) or {}).get("collate_fn") or {"_target_": COLLATE}
    policy = TargetPolicy(tuple(allow_targets), Path(recipe_root).absolute())
    spec = StatsSpec(
        dataset=dataset_section(plain_config(dataset_config), policy, where),
        model=model_section(plain_config(model_config), where, task) if wants_features else None,
        collate_fn=collate,
        split=mode,
        recipe_root=policy.recipe_root or Path.cwd(),
        allow=policy.prefixes,
        options=section.model_dump(
            include={
                "stats",
                "batch_size",
                "categories",
                "write_collected_feats",
                "collected_feats_format",
                "per_utterance_stats",
            }
        ),
        run=paths,
        where=where,
    )
    check_targets(spec.model, where=f"{where}model", allow=spec.policy)
    check_targets(spec.dataset, where=f"{where}dataset", allow=spec.policy)
    check_targets(spec.collate_fn, where=f"{where}dataloader.collate_fn", allow=spec.policy)
    tokens = _missing_tokens(spec)
    if tokens is not None:
        spec = dataclasses.replace(spec, token_list=paths.root / "token_list")
    with contextlib.ExitStack() as stack:
        staged = stack.enter_context(staging_file(paths))
        summary = build_split(spec).build_index(staged)
        config = full_config if full_config is not None else {"model": spec.model, "dataset": spec.dataset}
        inputs = StatsInputs(staged, summary, tokens, tuple(ignore))
        runner = CollectStatsRunner(
            CollectStatsProvider(config, spec=spec, inputs=inputs),
            batch_size=None if section.batch_size == 1 else section.batch_size,
            output_dir=output_dir,
            shard_subdir=mode,
            shard_size=section.shard_size,
            on_error=section.on_error,
            max_errors=section.max_errors,
        )
        runner.origin = {
            "kind": "collect_stats",
            "cwd": os.getcwd(),
            "recipe_root": str(spec.recipe_root),
            "spec": plain_config(spec),
        }
        if executor is None and parallel_config is not None:
            parallel = validate_section(
                ParallelSection,
                plain_config(parallel_config),
                where=config_path or Path("collect_stats"),
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


def _missing_tokens(spec: StatsSpec) -> list[str] | None:
    """The token list of the train texts, where the preprocessor is ours and has none."""
    node = spec.dataset.get("preprocessor")
    if not isinstance(node, dict) or "_target_" not in node or node.get("token_list") is not None:
        return None
    call = locate(node["_target_"], spec.policy, where=f"{spec.where}dataset.preprocessor._target_")
    if call is not TextPreprocessor:
        return None
    bare = {key: value for key, value in spec.dataset.items() if key != "preprocessor"}
    train = build_split(dataclasses.replace(spec, dataset=bare, split="train"))
    key = node.get("text_key", "text")
    texts = (str(text) for index in range(len(train)) if (text := train.load(index, audio=False).get(key)))
    options = {name: node[name] for name in ("space_symbol",) if name in node}
    return build_token_list(texts, node.get("token_type", "char"), **options)
