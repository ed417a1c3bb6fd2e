"""Top-level keys with a meaning: a near miss of one is a mistake, any other key is the user's variable."""

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from statsprep.config.tree import MISSING
from statsprep.errors import ConfigError

_OWNED = (
    "collect_stats",
    "defaults",
    "fingerprint",
    "indices",
    "output_dir",
    "parallel",
    "prepare",
    "provider",
    "runner",
)
_ESPNET = (
    "best_model_criterion",
    "collect_stats_batch_size",
    "collect_stats_train_mode",
    "create_dataset",
    "data_dir",
    "dataloader",
    "dataset",
    "dataset_dir",
    "exp_dir",
    "exp_tag",
    "fit",
    "init",
    "model",
    "num_device",
    "num_nodes",
    "optimizer",
    "optimizers",
    "recipe_dir",
    "scheduler",
    "scheduler_interval",
    "scheduler_monitor",
    "schedulers",
    "seed",
    "stats_dir",
    "task",
    "tokenizer",
    "trainer",
    "val_scheduler_criterion",
)
TOP_LEVEL_KEYS = (*_OWNED, *_ESPNET)


# What other code goes into without looking; the other sections are checked as a whole.
_MAPPINGS = ("dataloader", "dataset", "model", "provider", "runner")
_TEXTS = ("output_dir", "stats_dir")


def check_top_level(tree: Mapping[str, Any], path: Path) -> None:
    """Refuse a top-level key that looks like a misspelt one, e.g. `colect_stats`, and `model: 5`.

    Raises:
        ConfigError: Names the key, and the one that was probably meant.
    """
    for key in (*_MAPPINGS, *_TEXTS):
        value = tree.get(key)
        if value not in (None, MISSING) and not isinstance(value, Mapping if key in _MAPPINGS else str):
            expected = "a section with keys of its own" if key in _MAPPINGS else "the path of a folder"
            raise ConfigError(f"{path}: {key}: {value!r} is not valid; expected {expected}")
    for key in tree:
        if key in TOP_LEVEL_KEYS or not isinstance(key, str):
            continue
        close = difflib.get_close_matches(key, TOP_LEVEL_KEYS, n=1, cutoff=0.8)
        if close:
            raise ConfigError(
                f"{path}: unknown key {key!r}; did you mean {close[0]!r}? "
                "(a variable of your own needs a name less like it)"
            )
