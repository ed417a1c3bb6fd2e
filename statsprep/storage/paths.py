"""The names of everything in a run directory, in one place."""

import functools
import hashlib
import itertools
import os
import re
import secrets
import tempfile
from dataclasses import dataclass
from pathlib import Path

from statsprep.errors import ConfigError
from statsprep.storage.stores import Store, StorePath, check_url, is_url, local

DONE = "done"
RESULTS = "results.jsonl"
DROPPED = "dropped.jsonl"
ERRORS = "errors.jsonl"
JOURNAL = "journal"

_SHARD_NAME = re.compile(r"split\.(\d+)")


@dataclass(frozen=True, slots=True)
class RunPaths:
    """Paths of one run directory, `stats_dir/<split>` for a measured split.

    Attributes:
        root: the folder on this machine; of a run on a store its mirror.
        url: where the run is, if on a store.
        mirror_token: of the driver that works there; a worker knows its mirror by it.
    """

    root: Path
    url: str = ""
    mirror_token: str = ""

    @classmethod
    def at(cls, folder: StorePath, subdir: str = "") -> "RunPaths":
        """The run directory `folder/subdir`, on this machine or on a store.

        Raises:
            ConfigError: the URL is not one of a known store.
        """
        if not is_url(folder):
            return cls(Path(local(folder)).absolute() / subdir)
        url = f"{os.fspath(folder).rstrip('/')}/{subdir}".rstrip("/")
        check_url(url)
        digest = hashlib.sha256(url.encode()).hexdigest()[:16]
        return cls(_mirror_folder() / digest / url.rpartition("/")[2], url, _process_token())

    @property
    def place(self) -> str:
        """What people call it: the path, or the URL."""
        return self.url or str(self.root)

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


@functools.cache
def _process_token() -> str:
    return secrets.token_hex(8)


def _mirror_folder() -> Path:
    """Where runs on stores have their mirrors: a folder of this user's alone.

    Raises:
        ConfigError: somebody else's folder has its name.
    """
    folder = Path(tempfile.gettempdir()) / f"statsprep-{os.getuid()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise ConfigError(f"{folder}: belongs to another user; expected a folder of yours; set TMPDIR")
    return folder


_SPLIT_ORDER = {"train": 0, "valid": 1}


def find_run_dirs(path: StorePath) -> list[RunPaths]:
    """The run directories that `path` means: itself, or each split below a `stats_dir`.

    Raises:
        ConfigError: nothing below `path` looks like a run.
    """
    if is_url(path):
        runs, seen = _find_on_store(os.fspath(path).rstrip("/")), "holds no manifest.json"
    else:
        folder = Path(local(path))
        if (folder / "manifest.json").is_file():
            return [RunPaths(folder)]
        found = sorted(folder.glob("*/manifest.json")) if folder.is_dir() else []
        runs = [RunPaths(each.parent) for each in found]
        seen = "holds no manifest.json, nor does a folder in it" if folder.exists() else "does not exist"
        below = next(
            itertools.chain(folder.glob("*/*/manifest.json"), folder.glob("*/*/*/manifest.json")), None
        )
        if below is not None and not runs:
            seen += f"; did you mean {str(below.parent.parent)!r}?"
    if not runs:
        raise ConfigError(
            f"{path}: {seen}; expected a run directory (stats_dir/<split>) or a stats_dir; give its path"
        )
    return sorted(runs, key=lambda run: (_SPLIT_ORDER.get(run.root.name, 2), run.root.name))


def _find_on_store(url: str) -> list[RunPaths]:
    check_url(url)
    names = [name for name in Store(url).sizes() if name.count("/") <= 1]
    if "manifest.json" in names:
        return [RunPaths.at(url)]
    return [RunPaths.at(url, name.partition("/")[0]) for name in names if name.endswith("/manifest.json")]
