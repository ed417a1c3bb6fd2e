"""One attempt at a shard on disk: taking over what an earlier attempt finished, and the commit by one
rename.
"""

import contextlib
import errno
import json
import os
import resource
import shutil
import socket
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from statsprep.engine.plan import Shard
from statsprep.errors import WorkerError
from statsprep.storage.atomic import disk_errors_named, open_private
from statsprep.storage.digest import describe_files, find_mismatch, is_description
from statsprep.storage.journal import Status, count_entries
from statsprep.storage.names import stays_below
from statsprep.storage.paths import DONE, JOURNAL, RunPaths

# What a rename says where the shard is there already, as a folder or as a file.
_IN_THE_WAY = frozenset({errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR})


@dataclass(slots=True)
class Done:
    """The contents of a shard's `done`: why its files can be trusted."""

    shard_id: int
    fingerprint: str
    attempt: str
    counts: dict[str, int]
    files: dict[str, dict[str, Any]]
    seconds: float
    num_resumed: int
    max_rss_bytes: int
    host: str
    keyed_by: str
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def num_items(self) -> int:
        return sum(self.counts.values())


def read_done(folder: Path) -> Done | None:
    """A shard's `done`, or None where it is missing or damaged."""
    path = folder / DONE
    try:
        return parse_done(path.read_bytes()) if path.is_file() else None
    except FileNotFoundError:
        return None


def parse_done(content: bytes | None) -> Done | None:
    """The content of a `done`, or None where there is none, it is damaged, or it names files elsewhere."""
    try:
        done = Done(**json.loads(content or b""))
    except (TypeError, ValueError, RecursionError):
        return None
    texts = (done.fingerprint, done.attempt, done.host, done.keyed_by)
    numbers = (done.shard_id, done.seconds, done.num_resumed, done.max_rss_bytes)
    is_whole = (
        all(isinstance(each, str) for each in texts)
        and all(isinstance(each, int | float) for each in numbers)
        and stays_below(done.attempt)
        and "/" not in done.attempt
        and is_counts(done.counts)
        and is_description(done.files)
        and isinstance(done.extra, dict)
    )
    return done if is_whole else None


def is_counts(counts: Any) -> bool:
    """Whether a value read from a file says how many items have which status."""
    return isinstance(counts, dict) and all(
        name in set(Status) and isinstance(count, int) and count >= 0 for name, count in counts.items()
    )


def is_merged(name: str) -> bool:
    """Whether a merge reads a shard's file: lists and tables in the folder itself, and lists of files below
    it, but not the utterances' own files, which may be terabytes.
    """
    return name.endswith(".scp") or ("/" not in name and not name.endswith(".ark"))


def find_defect(
    folder: Path,
    shard: Shard,
    trusted: frozenset[str],
    *,
    is_partial: bool = False,
    whole: bool = False,
) -> str | None:
    """Why a committed shard cannot be trusted, or None where it can.

    What a merge reads is compared by digest, all else by size.

    Args:
        folder: `split.N`.
        shard: what the plan says of it.
        trusted: fingerprints whose results belong to the run.
        is_partial: files may lie on a store alone; those that are here are checked.
        whole: compare everything by digest.
    """
    done = read_done(folder)
    if done is None:
        return f"{DONE} is missing or damaged"
    if done.shard_id != shard.shard_id or done.num_items != shard.num_items:
        return f"{DONE} has {done.num_items} items of shard {done.shard_id}, the plan has {shard.num_items}"
    if done.fingerprint not in trusted:
        return "it was measured with another config, code or data"
    return find_mismatch(
        folder, done.files, missing_ok=is_partial, sizes_only=lambda name: not whole and not is_merged(name)
    )


class Attempt:
    """A private folder in `.attempts`; nobody else writes there."""

    def __init__(self, paths: RunPaths, shard: Shard, fingerprint: str) -> None:
        self._paths = paths
        self._shard = shard
        self._fingerprint = fingerprint
        self._began = time.perf_counter()
        self.folder = paths.new_attempt(shard.shard_id, fingerprint)
        with disk_errors_named(self.folder):
            self.folder.mkdir(parents=True)
        self.previous = self._best_earlier()

    @property
    def final_place(self) -> str:
        """The path or URL of the folder once it is committed."""
        name = f"split.{self._shard.shard_id}"
        if self._paths.url:
            return f"{self._paths.url}/{name}/{self._token}"
        return str(self._paths.root / name)

    @property
    def _token(self) -> str:
        return self.folder.name.rpartition(".")[2]

    def _best_earlier(self) -> Path | None:
        """The earlier attempt of this fingerprint that got furthest; all others are removed."""
        shard_id = self._shard.shard_id
        usable = self._paths.earlier_attempts(shard_id, self._fingerprint)
        lengths = {
            folder: count_entries(folder) if folder in usable else 0
            for folder in self._paths.earlier_attempts(shard_id)
            if folder != self.folder
        }
        best = max(lengths, key=lambda folder: lengths[folder], default=None)
        for folder, length in lengths.items():
            if folder != best or not length:
                shutil.rmtree(folder, ignore_errors=True)
        return best if best is not None and lengths[best] else None

    def commit(
        self, *, counts: dict[str, int], num_resumed: int, keyed_by: str, extra: dict[str, Any]
    ) -> Done:
        """Write `done` with every file's digest, and rename the folder to `split.N`.

        Nothing waits for the disk: a shard is trusted for its digests, so what a power cut tears is found and
        measured again, at the cost of the last seconds before it. The merge, which people build on, does
        flush its files.

        Where another attempt was faster and its shard is good, this one is discarded and the other's `done`
        returned.
        """
        (self.folder / JOURNAL).unlink()
        folders = [Path(root) for root, _, _ in os.walk(self.folder)]
        names = [
            str(path.relative_to(self.folder))
            for folder in folders
            for path in folder.iterdir()
            if path.is_file()
        ]
        done = Done(
            shard_id=self._shard.shard_id,
            fingerprint=self._fingerprint,
            attempt=self._token,
            counts=counts,
            files=describe_files(self.folder, names),
            seconds=round(time.perf_counter() - self._began, 4),
            num_resumed=num_resumed,
            max_rss_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            host=socket.gethostname(),
            keyed_by=keyed_by,
            extra=extra,
        )
        with open_private(self.folder / DONE) as stream:
            stream.write(json.dumps(asdict(done), indent=1) + "\n")
        committed = self._rename(done)
        if self.previous is not None:
            shutil.rmtree(self.previous, ignore_errors=True)
        return committed

    def _rename(self, done: Done) -> Done:
        target = self._paths.shard(self._shard.shard_id)
        # Twice: once for a bad shard in the way, which is set aside first.
        for _ in range(2):
            try:
                os.rename(self.folder, target)
            except OSError as error:
                if error.errno not in _IN_THE_WAY:
                    raise
            else:
                return done
            if find_defect(target, self._shard, frozenset({self._fingerprint})) is None:
                shutil.rmtree(self.folder, ignore_errors=True)
                winner = read_done(target)
                return winner if winner is not None else done
            set_aside(self._paths, target)
        raise WorkerError(
            f"{target}: another process keeps writing there; expected one run in this directory; stop the "
            "other and run the same command again"
        )


def set_aside(paths: RunPaths, folder: Path) -> None:
    """Take a bad `split.N` out of the way and remove it."""
    paths.attempts.mkdir(exist_ok=True)
    aside = paths.attempts / f"bad.{folder.name}.{os.getpid()}.{time.monotonic_ns()}"
    with contextlib.suppress(FileNotFoundError):
        os.rename(folder, aside)
    shutil.rmtree(aside, ignore_errors=True)
    if aside.is_file():
        aside.unlink()
