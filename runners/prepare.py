"""PrepareRunner: load, clean, resample, rewrite audio, extract features; utterance by utterance."""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from statsprep.config.filled import canonical
from statsprep.data.audio import resample
from statsprep.data.cleaners import Cleaner, audio_of, sample_rate_of
from statsprep.data.organizer import CombinedDataset
from statsprep.data.verdicts import Dropped, UtteranceError, Verdict
from statsprep.engine.code_hash import hash_code
from statsprep.engine.fingerprint import Parts, without
from statsprep.engine.plan import Items
from statsprep.engine.records import Record
from statsprep.engine.runner import BaseRunner
from statsprep.errors import ConfigError
from statsprep.models.extract import Extractor
from statsprep.providers.prepare import PrepareProvider
from statsprep.runners.code_parts import recipe_datasets, targets_in
from statsprep.runners.measure import find_utt_id
from statsprep.runners.prepared_files import (
    PreparedShard,
    encode_audio,
    encode_features,
    has_whole_files,
    merge_prepared,
)
from statsprep.runners.split_index import place_index
from statsprep.storage.paths import RunPaths

_PLAIN = (str, bool, int, float, list, dict)


class PrepareRunner(BaseRunner):
    """Prepares each utterance, and lists what came of it as a corpus of its own.

    A result is the utterance's row of `manifest.jsonl`: the fields of its sample, `duration_s`,
    `sample_rate_hz`, `num_samples`, `num_frames`, and the paths of its files from the run directory on. Where
    the audio is not rewritten, the row points at the recording itself.
    """

    results_version = 1

    provider: PrepareProvider

    def begin(self, paths: RunPaths) -> None:
        """Put the index where the workers look for it."""
        place_index(paths, self.provider.inputs.staged_index)

    def fingerprint_parts(self, config: Any, items: Items) -> Parts:
        """The split's entries, and the keys of `prepare:` that say what is made."""
        spec = self.provider.spec
        dataset = {spec.split: spec.entries, "preprocessor": spec.preprocessor}
        steps = {"cleaner": spec.cleaner, "features": spec.features}
        relevant = canonical({"dataset": dataset, "prepare": {**spec.options, **steps}}, spec.policy)
        targets = [type(self), type(self.provider), *targets_in([dataset, steps], spec.policy)]
        code = hash_code(targets) | recipe_datasets(spec.entries, spec.dataset_root)
        parts = super().fingerprint_parts(without(relevant, self.provider.inputs.ignore), items)
        return {**parts, "code": code}

    @staticmethod
    def forward(
        idx: int,
        *,
        dataset: CombinedDataset,
        cleaners: Sequence[Cleaner],
        extract: Extractor | None,
        options: Mapping[str, Any],
    ) -> Record | Dropped | None:
        """Prepare one utterance.

        Raises:
            UtteranceError: it is broken, or has no features.
        """
        sample: dict[str, Any] | Dropped | None = dataset[idx]
        if sample is None or isinstance(sample, Dropped):
            return sample
        utt_id = find_utt_id(dataset, idx, sample)
        cleaned = clean(sample, cleaners)
        if isinstance(cleaned, Dropped):
            return cleaned
        rate_hz = sample_rate_of(cleaned)
        audio = audio_of(cleaned, options["audio_key"])
        if options["sample_rate_hz"] not in (None, rate_hz):
            audio, rate_hz = resample(audio, rate_hz, options["sample_rate_hz"]), options["sample_rate_hz"]
        if not len(audio):
            raise UtteranceError(
                f"utterance {utt_id!r}: no sample is left at {rate_hz} Hz; remove it", kind=Verdict.EMPTY
            )
        row = _describe(cleaned, audio, rate_hz)
        files: dict[str, Any] = {}
        side: dict[str, NDArray[Any]] = {}
        if options["audio"] is not None:
            files["audio"], side["audio"], num_clipped = encode_audio(audio, rate_hz, options["audio"])
            row |= {"num_clipped": num_clipped} if num_clipped else {}
        else:
            row |= dataset.audio_source(idx)
        if extract is not None:
            feats = _extract(extract, audio, rate_hz, utt_id)
            files["feats"], side["feats"] = encode_features(feats, options["features_format"])
            row["num_frames"] = len(feats)
        return Record({"utt_id": utt_id, "row": row, "files": files}, side=side)

    @staticmethod
    def open_writers(shard_dir: Path, **env: Any) -> dict[str, Any]:
        """Gather the shard's lines in memory; its files go straight to the disk."""
        return {"shard": PreparedShard(shard_dir)}

    @staticmethod
    def write_record(
        writers: dict[str, Any], result: Any, state: dict[str, Any], **env: Any
    ) -> dict[str, Any]:
        """Write the utterance's files; results.jsonl holds its manifest row."""
        shard: PreparedShard = writers["shard"]
        return shard.add(result if isinstance(result, Record) else Record(result), state)

    @staticmethod
    def has_files(result: Any, state: dict[str, Any]) -> bool:
        """Whether the files are whole."""
        return has_whole_files(result, state)

    @staticmethod
    def close_writers(writers: dict[str, Any], state: dict[str, Any], **env: Any) -> dict[str, Any]:
        """Write the shard's lists."""
        shard: PreparedShard = writers["shard"]
        shard.close()
        shard.write_lists()
        return {"audio_s": shard.audio_s, "ids_known": getattr(env["dataset"], "has_utt_ids", True)}

    @staticmethod
    def merge_files(shard_dirs: Sequence[Path], out_dir: Path) -> None:
        """Join manifest, SCP files and shapes."""
        merge_prepared(shard_dirs, out_dir)


def clean(sample: dict[str, Any], cleaners: Sequence[Cleaner]) -> dict[str, Any] | Dropped:
    """The sample after all cleaners, or why the first that refuses it does.

    Raises:
        ConfigError: a cleaner returned something else.
    """
    for cleaner in cleaners:
        cleaned = cleaner(sample)
        if cleaned is None:
            return Dropped(_name_of(cleaner))
        if isinstance(cleaned, Dropped):
            return cleaned
        if not isinstance(cleaned, dict):
            raise ConfigError(
                f"cleaner {_name_of(cleaner)} returned {type(cleaned).__name__}; expected the sample, None, "
                "or a Dropped; correct what it returns"
            )
        sample = cleaned
    return sample


def _name_of(cleaner: Cleaner) -> str:
    call: Any = cleaner.func if isinstance(cleaner, functools.partial) else cleaner
    return str(getattr(call, "__name__", type(call).__name__))


def _describe(sample: Mapping[str, Any], audio: NDArray[np.float32], rate_hz: int) -> dict[str, Any]:
    """The sample's plain fields, and what is known of its audio now."""
    plain = {key: value for key, value in sample.items() if isinstance(value, _PLAIN) and key != "utt_id"}
    about = {"duration_s": len(audio) / rate_hz, "sample_rate_hz": rate_hz, "num_samples": len(audio)}
    return plain | about


def _extract(extract: Extractor, audio: NDArray[np.float32], rate_hz: int, utt_id: str) -> NDArray[Any]:
    feats = np.asarray(extract(audio, rate_hz))
    if feats.ndim != 2 or feats.dtype.kind not in "fc":
        raise ConfigError(
            f"prepare.features: {type(extract).__name__} returned {feats.dtype} of shape {feats.shape}; "
            "expected numbers with a point, (frames, dim)"
        )
    if not feats.size:
        raise UtteranceError(
            f"utterance {utt_id!r}: no frame; expected at least one; remove it", kind=Verdict.TOO_SHORT
        )
    if not np.isfinite(feats).all():
        raise UtteranceError(
            f"utterance {utt_id!r}: its features hold NaN or infinity; look at its audio",
            kind=Verdict.NON_FINITE,
        )
    return feats
