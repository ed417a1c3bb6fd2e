"""What became of a run, for people and programs."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from statsprep.storage.jsonl import read_jsonl
from statsprep.storage.paths import DROPPED, ERRORS, RunPaths


@dataclass(slots=True)
class RunReport:
    """What became of a run.

    Attributes:
        counts: items by status: ok, dropped, error.
        num_skipped: items whose shards were finished before.
        keyed_by: `utt_id`, or `position` where neither dataset nor results know ids.
        paths: the run directory, or None where results stayed in memory.
    """

    counts: dict[str, int]
    num_skipped: int = 0
    keyed_by: str = "utt_id"
    seconds: float = 0.0
    paths: RunPaths | None = None
    num_shards: int = 0
    memory_ids: dict[str, list[str]] = field(default_factory=dict)
    memory_dropped: list[dict[str, Any]] = field(default_factory=list)

    @property
    def num_items(self) -> int:
        return sum(self.counts.values())

    @property
    def num_failed(self) -> int:
        return self.counts.get("error", 0)

    @property
    def shard_dirs(self) -> list[Path]:
        return [self.paths.shard(number) for number in range(self.num_shards)] if self.paths else []

    @property
    def dropped_ids(self) -> list[str]:
        """Ids whose `forward` returned None, in index order."""
        return self._ids("dropped", DROPPED)

    @property
    def dropped(self) -> list[dict[str, Any]]:
        """utt_id, and where it is known the step, the measured value and the bound, of each dropped item."""
        if self.paths is None:
            return self.memory_dropped
        return list(read_jsonl(self.paths.root / DROPPED))

    @property
    def failed_ids(self) -> list[str]:
        """Ids whose `forward` raised, in index order."""
        return self._ids("error", ERRORS)

    def _ids(self, status: str, name: str) -> list[str]:
        if self.paths is None:
            return self.memory_ids.get(status, [])
        return [line["utt_id"] for line in read_jsonl(self.paths.root / name)]
