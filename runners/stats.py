"""CollectStatsRunner: shapes and statistics of a split's features, utterance by utterance."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from statsprep.config.filled import canonical
from statsprep.config.targets import locate
from statsprep.data.organizer import CombinedDataset
from statsprep.engine.code_hash import hash_code
from statsprep.engine.fingerprint import Parts, without
from statsprep.engine.plan import Items
from statsprep.engine.records import Dropped, Record
from statsprep.engine.runner import BaseRunner
from statsprep.errors import ConfigError
from statsprep.providers.stats import CollectStatsProvider
from statsprep.runners.code_parts import recipe_datasets, targets_in
from statsprep.runners.collected_feats import CollectedFeats, has_collected
from statsprep.runners.measure import (
    arrays_of,
    check_rate,
    collect_features,
    find_utt_id,
    measure_features,
    measure_header,
)
from statsprep.runners.split_index import place_index
from statsprep.runners.stats_files import GatheredShard, merge_stats
from statsprep.storage.atomic import write_text
from statsprep.storage.paths import RunPaths


class CollectStatsRunner(BaseRunner):
    """Measures what `model.collect_feats(**batch)` returns for each utterance.

    In a shard and, merged, in the run directory it writes, for every feature key, `<key>_shape` (text and
    Arrow) and `<key>_stats.npz`; for integer streams of the batch `<key>_shape` alone; and `utt2<name>` for
    each category.
    """

    results_version = 1
    keeps_results = False
    block_size = 16

    provider: CollectStatsProvider

    def begin(self, paths: RunPaths) -> None:
        """Put the index and the token list where the workers look for them."""
        inputs = self.provider.inputs
        place_index(paths, inputs.staged_index)
        if inputs.tokens is not None:
            write_text(paths.root / "token_list", "".join(f"{token}\n" for token in inputs.tokens))

    def fingerprint_parts(self, config: Any, items: Items) -> Parts:
        """Of the model only what it says its statistics depend on; of the dataset only this split."""
        spec = self.provider.spec
        dataset = {
            key: value
            for key, value in canonical(spec.dataset, spec.policy).items()
            if key in ("_target_", spec.split, "preprocessor")
        }
        relevant: dict[str, Any] = {"dataset": dataset, "collect_stats": spec.options}
        targets = [type(self), type(self.provider), *targets_in(dataset, spec.policy)]
        if spec.model is not None:
            model = canonical(spec.model, spec.policy)
            model_class = locate(model["_target_"], spec.policy, where=f"{spec.where}model._target_")
            own = {key: value for key, value in model.items() if key != "_target_"}
            relevant["model"] = {"_target_": model["_target_"], **_declared(model_class, own, spec.where)}
            relevant["dataloader"] = {"collate_fn": canonical(spec.collate_fn, spec.policy)}
            targets += targets_in([spec.model, spec.collate_fn], spec.policy)
        relevant = without(relevant, self.provider.inputs.ignore)
        root = Path(spec.dataset.get("recipe_root") or spec.recipe_root)
        code = hash_code(targets) | recipe_datasets(dataset.get(spec.split), root)
        return {**super().fingerprint_parts(relevant, items), "code": code}

    @staticmethod
    def forward(
        idx: list[int],
        *,
        dataset: CombinedDataset,
        collate_fn: Callable[..., Any],
        model: Any,
        device: str,
        options: Mapping[str, Any],
        **extra: Any,
    ) -> list[Record | Dropped | None]:
        """Measure some utterances; one that a transform turned into None or a Dropped is dropped.

        Each step is done for all of them before the next one: a loop that stays in one step keeps the
        processor's caches warm, and 16 utterances take a fifth less time than one by one. The model still
        gets `batch_size` at once.

        Raises:
            UtteranceError: an utterance is broken.
        """
        if options["stats"] == "lengths":
            return [measure_header(dataset, index, options) for index in idx]
        records: dict[int, Record | Dropped | None] = dict.fromkeys(idx)
        if hasattr(dataset, "read_ahead"):
            dataset.read_ahead(idx)
        samples = []
        for index in idx:
            sample = dataset[index]
            if isinstance(sample, Dropped):
                records[index] = sample
            elif sample is not None:
                utt_id = find_utt_id(dataset, index, sample)
                check_rate(model, sample, utt_id)
                samples.append((index, utt_id, sample))
        groups = [
            samples[start : start + options["batch_size"]]
            for start in range(0, len(samples), options["batch_size"])
        ]
        batches = [
            collate_fn([(utt_id, arrays_of(sample)) for _, utt_id, sample in group])[1] for group in groups
        ]
        feats = collect_features(model, batches, device, extra)
        for group, batch, found in zip(groups, batches, feats, strict=True):
            for row, (index, utt_id, sample) in enumerate(group):
                records[index] = measure_features(found, batch, row, utt_id, sample, options)
        return [records[index] for index in idx]

    @staticmethod
    def open_writers(shard_dir: Path, **env: Any) -> dict[str, Any]:
        """Gather the shard's lines in memory; a shard is small."""
        form = (env.get("options") or {}).get("collected_feats_format", "npy")
        return {"shard": GatheredShard(), "collected": CollectedFeats(form)}

    @staticmethod
    def write_record(writers: dict[str, Any], result: Any, state: dict[str, Any], **env: Any) -> None:
        record = result if isinstance(result, Record) else Record(result)
        writers["shard"].add(record, state)
        writers["collected"].save(record, state)

    @staticmethod
    def has_files(result: Any, state: dict[str, Any]) -> bool:
        """Whether the collected features are still there."""
        return has_collected(result, state)

    @staticmethod
    def close_writers(
        writers: dict[str, Any], state: dict[str, Any], options: Mapping[str, Any] | None = None, **env: Any
    ) -> dict[str, Any]:
        """Write the shard's files."""
        shard: GatheredShard = writers["shard"]
        shard.write(Path(state["shard_dir"]), keep_rows=bool((options or {}).get("per_utterance_stats")))
        writers["collected"].write_scp(Path(state["shard_dir"]))
        dataset = env.get("dataset")
        return {"audio_s": shard.audio_s, "ids_known": getattr(dataset, "has_utt_ids", True)}

    @staticmethod
    def merge_files(shard_dirs: Sequence[Path], out_dir: Path) -> None:
        """Join shapes, combine statistics in the order of the shards, invert categories."""
        merge_stats(shard_dirs, out_dir)


def _declared(model_class: Any, section: dict[str, Any], where: str) -> dict[str, Any]:
    """What the model says its statistics depend on; the whole section where it says nothing."""
    stats_config = getattr(model_class, "stats_config", None)
    if stats_config is None:
        return section
    try:
        return dict(stats_config(section))
    except ConfigError as error:
        raise ConfigError(f"{where}{error.message}", detail=error.detail) from error
