"""The names of everything in a run directory, in one place."""

import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

from statsprep.errors import ConfigError

DONE = "done"
RESULTS = "results.jsonl"
DROPPED = "dropped.jsonl"
ERRORS = "errors.jsonl"
JOURNAL = "journal"

_SHARD_NAME = re.compile(r"split\.(\d+)")


@dataclass(frozen=True, slots=True)
class RunPaths:
    """Paths of one run directory, `stats_dir/<split>` for a measured split."""

    root: Path

    @property
    def manifest(self) -> Path:
        return self.root / "manifest.json"

    @property
    def index(self) -> Path:
        return self.root / "index.arrow"

    @property
    def indices(self) -> Path:
        return self.root / "indices.npy"

    @property
    def receipt(self) -> Path:
        """What the last merge wrote, and from which shards."""
        return self.root / "merged.json"

    @property
    def attempts(self) -> Path:
        return self.root / ".attempts"

    @property
    def leases(self) -> Path:
        return self.root / ".leases"

    @property
    def run_lease(self) -> Path:
        return self.leases / "run.json"

    def shard(self, shard_id: int) -> Path:
        return self.root / f"split.{shard_id}"

    def shard_lease(self, shard_id: int) -> Path:
        return self.leases / f"split.{shard_id}.json"

    def new_attempt(self, shard_id: int, fingerprint: str) -> Path:
        """A fresh name that says whose results the folder will hold."""
        return self.attempts / f"split.{shard_id}.{fingerprint[:16]}.{secrets.token_hex(6)}"

    def earlier_attempts(self, shard_id: int, fingerprint: str = "") -> list[Path]:
        """Folders of unfinished attempts at a shard, of one fingerprint or any, in a stable order."""
        prefix = f"split.{shard_id}.{fingerprint[:16]}"
        try:
            names = os.listdir(self.attempts)
        except FileNotFoundError:
            return []
        return [self.attempts / name for name in sorted(names) if name.startswith(prefix)]

    def staging(self) -> Path:
        """A fresh folder for a merge to write into before its files get their names."""
        return self.root / f".merge.{secrets.token_hex(6)}"

    def stagings(self) -> list[Path]:
        return sorted(self.root.glob(".merge.*"))

    def shard_folders(self) -> dict[int, Path]:
        """Every committed `split.N` on disk, planned or stray. For reports only: a merge reads the plan."""
        if not self.root.is_dir():
            return {}
        found = {}
        for path in self.root.iterdir():
            match = _SHARD_NAME.fullmatch(path.name)
            if match and path.is_dir():
                found[int(match[1])] = path
        return dict(sorted(found.items()))


def find_run_dirs(path: Path) -> list[RunPaths]:
    """The run directories that `path` means: itself, or each split below a `stats_dir`.

    Raises:
        ConfigError: nothing below `path` looks like a run.
    """
    if (path / "manifest.json").is_file():
        return [RunPaths(path)]
    runs = [RunPaths(found.parent) for found in sorted(path.glob("*/manifest.json"))] if path.is_dir() else []
    if not runs:
        seen = "does not exist" if not path.exists() else "holds no manifest.json, nor does a folder in it"
        raise ConfigError(
            f"{path}: {seen}; expected a run directory (stats_dir/<split>) or a stats_dir; give its path"
        )
    order = {"train": 0, "valid": 1}
    return sorted(runs, key=lambda run: (order.get(run.root.name, 2), run.root.name))
