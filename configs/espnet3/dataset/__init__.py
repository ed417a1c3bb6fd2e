"""The recipe's dataset and its builder, as ESPnet3 finds them by `data_src` and `data_src_args`."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from statsprep.data.demo_corpus import write_demo_corpus


class Dataset:
    """The utterances of `<data_path>/<split>.jsonl`."""

    def __init__(self, split: str, data_path: str) -> None:
        self._folder = Path(data_path)
        with open(self._folder / f"{split}.jsonl", encoding="utf-8") as lines:
            self._rows = [json.loads(line) for line in lines]

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, idx: int) -> dict[str, Any]:
        row = self._rows[idx]
        audio, _ = soundfile.read(self._folder / row["audio"], dtype="float32")
        return {"speech": np.asarray(audio), "text": row["text"]}

    def utt_ids(self) -> list[str]:
        """ESPnet3 has no use for it; with it, lengths belong to names instead of positions."""
        return [row["utt_id"] for row in self._rows]


class DatasetBuilder:
    """Makes the corpus where it is not there yet; the arguments are those of `create_dataset:`."""

    def is_source_prepared(self, recipe_dir: str, dataset_dir: str) -> bool:
        return (Path(dataset_dir) / "audio").is_dir()

    def prepare_source(self, recipe_dir: str, dataset_dir: str) -> None:
        """Where a corpus would be downloaded or unpacked: here it comes from formulas."""
        write_demo_corpus(Path(dataset_dir).absolute().parent, num_utterances=300, n_workers=2)

    def is_built(self, recipe_dir: str, dataset_dir: str) -> bool:
        return all((Path(dataset_dir) / f"{split}.jsonl").is_file() for split in ("train", "valid"))

    def build(self, recipe_dir: str, dataset_dir: str) -> None:
        """Where manifests would be written from the source: `prepare_source` has written them already."""
