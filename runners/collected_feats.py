"""Features that collect_stats keeps: one `.npy` a feature, or one Kaldi archive a shard, each with an SCP
file.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from statsprep.engine.records import Record
from statsprep.storage.atomic import link_or_copy, open_private
from statsprep.storage.kaldi_files import ArkWriter, has_record
from statsprep.storage.names import item_name

COLLECTED = "collect_feats"


class CollectedFeats:
    """Writes the features of one shard as they come, or takes them over from the attempt that measured them.

    Args:
        form: `npy` or `ark`.
    """

    def __init__(self, form: str) -> None:
        self._form = form
        self._archives: dict[str, ArkWriter] = {}
        self._lines: dict[str, list[str]] = {}

    def save(self, record: Record, state: Mapping[str, Any]) -> None:
        """Keep an utterance's features, by key."""
        for key in record.result.get("collected", ()):
            save = self._save_ark if self._form == "ark" else self._save_npy
            self._lines.setdefault(key, []).append(save(key, record, state))

    def _save_npy(self, key: str, record: Record, state: Mapping[str, Any]) -> str:
        name = _npy_name(key, state)
        path = Path(state["shard_dir"]) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if key in record.side:
            with open_private(path, binary=True) as stream:
                np.save(stream, record.side[key])
        else:
            link_or_copy(Path(state["previous_dir"]) / name, path)
        return f"{state['utt_id']} {state['final_dir']}/{name}\n"

    def _save_ark(self, key: str, record: Record, state: Mapping[str, Any]) -> str:
        name = _ark_name(key)
        if key not in self._archives:
            path = Path(state["shard_dir"]) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            self._archives[key] = ArkWriter(path, f"{state['final_dir']}/{name}")
        if key in record.side:
            return self._archives[key].write(state["utt_id"], record.side[key])
        return self._archives[key].copy(state["utt_id"], Path(state["previous_dir"]) / name)

    def write_scp(self, folder: Path) -> None:
        """Write the shard's SCP files, and close its archives."""
        self.close()
        for key, lines in self._lines.items():
            with open_private(folder / COLLECTED / f"{key}.scp") as stream:
                stream.writelines(lines)

    def close(self) -> None:
        for archive in self._archives.values():
            archive.close()


def has_collected(result: Mapping[str, Any], state: Mapping[str, Any]) -> bool:
    """Whether a killed attempt's folder still holds an utterance's features."""
    previous = Path(state["previous_dir"])
    return all(
        (previous / _npy_name(key, state)).is_file()
        or has_record(previous / _ark_name(key), state["utt_id"], tuple(result["shapes"][key]))
        for key in result.get("collected", ())
    )


def _npy_name(key: str, state: Mapping[str, Any]) -> str:
    return f"{COLLECTED}/data_{key}/{item_name(state['position'], state['utt_id'], '.npy')}"


def _ark_name(key: str) -> str:
    return f"{COLLECTED}/data_{key}.ark"
