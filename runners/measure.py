"""Measuring utterances: from samples to features, and from features to a Record of shapes and moments."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from statsprep.data.manifest import check_utt_id
from statsprep.data.organizer import CombinedDataset
from statsprep.data.tokens import TextPreprocessor
from statsprep.data.verdicts import UtteranceError, Verdict
from statsprep.engine.records import Record
from statsprep.errors import ConfigError, listed
from statsprep.stats.moments import MAX, MIN, measure

LENGTHS = "_lengths"


def find_utt_id(dataset: CombinedDataset, index: int, sample: Mapping[str, Any]) -> str:
    """The dataset's id, or the sample's own where the dataset knows none beforehand."""
    if dataset.has_utt_ids or "utt_id" not in sample:
        return dataset.utt_id(index)
    check_utt_id(sample["utt_id"], f"index {index}")
    return str(sample["utt_id"])


def check_rate(model: Any, sample: Mapping[str, Any], utt_id: str) -> None:
    """Audio of another rate than the front end's gives features that look right and are wrong."""
    expected = getattr(getattr(model, "frontend", None), "sample_rate_hz", None)
    seen = sample.get("sample_rate_hz", expected)
    if expected is not None and seen != expected:
        raise UtteranceError(
            f"utterance {utt_id!r}: its audio has {seen} Hz; the model's front end expects {expected}; set "
            f"sample_rate_hz: {expected} in the dataset's entry to resample, or change the model's",
            kind=Verdict.HEADER_MISMATCH,
        )


def arrays_of(sample: Mapping[str, Any]) -> dict[str, Any]:
    """What can be collated; text fields and plain numbers of the manifest are not for the model."""
    return {key: value for key, value in sample.items() if getattr(value, "shape", ())}


def collect_features(
    model: Any, batches: Sequence[dict[str, Any]], device: str, extra: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """What the model's collect_feats returns for each batch, as numpy arrays."""
    import torch

    # bfloat16 has no form in numpy; float16 would do, but the two should not differ.
    half = (torch.float16, torch.bfloat16)
    collected = []
    with torch.inference_mode():
        for batch in batches:
            clash = batch.keys() & extra.keys()
            if clash:
                raise ConfigError(
                    f"collect_feats: {listed(sorted(clash))} are in the batch and in params; rename the "
                    "params"
                )
            if device != "cpu":
                batch = {
                    key: value.to(device) if hasattr(value, "to") else value for key, value in batch.items()
                }
            feats = model.collect_feats(**batch, **extra)
            if not isinstance(feats, dict):
                raise ConfigError(
                    f"{type(model).__name__}.collect_feats returned {type(feats).__name__}; expected a dict "
                    "of tensors, such as {'feats': ..., 'feats_lengths': ...}"
                )
            collected.append(
                {
                    key: (value.float() if value.dtype in half else value).cpu().numpy()
                    for key, value in feats.items()
                }
            )
    return collected


def measure_features(
    feats: Mapping[str, Any],
    batch: Mapping[str, Any],
    row: int,
    utt_id: str,
    sample: Mapping[str, Any],
    options: Mapping[str, Any],
) -> Record:
    shapes: dict[str, list[int]] = {}
    rows: dict[str, Any] = {}
    side: dict[str, Any] = {}
    for key, values in feats.items():
        if key.endswith(LENGTHS) and key.removesuffix(LENGTHS) in feats:
            continue
        lengths = feats.get(key + LENGTHS)
        frames = values[row : row + 1] if lengths is None else values[row, : lengths[row]]
        if not len(frames):
            raise UtteranceError(
                f"utterance {utt_id!r}: {key} has no frame; expected at least one; remove it",
                kind=Verdict.TOO_SHORT,
            )
        shapes[key] = list(frames.shape)
        rows[key] = measure(frames.reshape(len(frames), -1))
        # A NaN anywhere is the minimum and the maximum of its column.
        if not np.isfinite(rows[key][[MIN, MAX]]).all():
            raise UtteranceError(
                f"utterance {utt_id!r}: {key} holds NaN or infinity; expected finite numbers; look at its "
                "audio",
                kind=Verdict.NON_FINITE,
            )
        if options["write_collected_feats"]:
            side[key] = frames
    for key, tensor in batch.items():
        lengths = batch.get(key + LENGTHS)
        if lengths is not None and key not in feats and not tensor.is_floating_point():
            shapes[key] = [int(lengths[row])]
    result: dict[str, Any] = {"shapes": shapes, "categories": _categories(sample, utt_id, options)}
    if "utt_id" in sample:
        result["utt_id"] = utt_id
    if "duration_s" in sample:
        result["audio_s"] = sample["duration_s"]
    if side:
        result["collected"] = list(side)
    return Record(result, rows, side)


def measure_header(dataset: CombinedDataset, index: int, options: Mapping[str, Any]) -> Record:
    """Lengths from the audio header and the text alone."""
    row = dataset.load(index, audio=False)
    utt_id = dataset.utt_id(index)
    shapes = {"speech": [dataset.num_samples(index)]}
    if isinstance(dataset.preprocessor, TextPreprocessor):
        key = dataset.preprocessor.text_key
        tokens = dataset.preprocessor(utt_id, row).get(key)
        if isinstance(tokens, np.ndarray):
            shapes[key] = [len(tokens)]
    return Record({"shapes": shapes, "categories": _categories(row, utt_id, options)})


def _categories(sample: Mapping[str, Any], utt_id: str, options: Mapping[str, Any]) -> dict[str, str]:
    values = {}
    for name, key in options["categories"].items():
        value = str(sample.get(key, ""))
        if not value or len(value.split()) != 1:
            seen = f"is {value!r}" if key in sample else "is missing"
            raise UtteranceError(
                f"utterance {utt_id!r}: field {key!r} for utt2{name} {seen}; expected one word; add it to "
                f"the manifest or take {name!r} out of collect_stats.categories",
                kind=Verdict.EXCEPTION,
            )
        values[name] = value
    return values
