"""Top-level keys with a meaning: a near miss of one is a mistake, any other key is the user's variable."""

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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


def check_top_level(tree: Mapping[str, Any], path: Path) -> None:
    """Refuse a top-level key that looks like a misspelt one, e.g. `colect_stats`.

    Raises:
        ConfigError: Names the key and the one that was probably meant.
    """
    for key in tree:
        if key in TOP_LEVEL_KEYS or not isinstance(key, str):
            continue
        close = difflib.get_close_matches(key, TOP_LEVEL_KEYS, n=1, cutoff=0.8)
        if close:
            raise ConfigError(
                f"{path}: unknown key {key!r}; did you mean {close[0]!r}? "
                "(a variable of your own needs a name less like it)"
            )
