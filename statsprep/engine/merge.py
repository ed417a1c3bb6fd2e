"""From `split.N/` to the run's files: streamed, in the plan's order, and put in place file by file.

The merge is a pure function of the committed shards, so it can be killed at any moment and simply runs again.
`merged.json`, written last, says which files it wrote and from what.
"""

import json
import logging
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statsprep.engine.attempt import find_defect, is_counts, read_done
from statsprep.engine.manifest import KEPT, Manifest, remove_files
from statsprep.engine.mirror import fetch_shards, is_on_store, push_merged
from statsprep.errors import WorkerError, listed
from statsprep.storage.atomic import (
    TEMPORARY_MARK,
    disk_errors_named,
    open_private,
    sync_file,
    sync_folder,
    write_text,
)
from statsprep.storage.digest import describe_files, find_mismatch, is_description, json_digest
from statsprep.storage.jsonl import read_json
from statsprep.storage.paths import DROPPED, ERRORS, RESULTS, RunPaths

if TYPE_CHECKING:
    from statsprep.engine.runner import BaseRunner

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Receipt:
    """The contents of merged.json: what was merged, from what."""

    fingerprint: str
    num_shards: int
    inputs: str
    counts: dict[str, int]
    keyed_by: str
    files: dict[str, dict[str, Any]] = field(default_factory=dict)


def merge_run(paths: RunPaths, manifest: Manifest, runner: "type[BaseRunner]") -> Receipt:
    """Merge a run whose shards are all committed; nothing is written where the merged files are good already.

    Raises:
        WorkerError: shards are missing or damaged; the message names them.
    """
    fetch_shards(paths, manifest)
    receipt = _check_shards(paths, manifest)
    if is_merged(paths, receipt):
        return receipt
    for folder in paths.stagings():
        shutil.rmtree(folder, ignore_errors=True)
    staging = paths.staging()
    with disk_errors_named(paths.root):
        staging.mkdir()
        try:
            shard_dirs = [paths.shard(shard.shard_id) for shard in manifest.plan]
            for name in (RESULTS, DROPPED, ERRORS):
                if name != RESULTS or runner.keeps_results:
                    concatenate(shard_dirs, name, staging / name, always=True)
            runner.merge_files(shard_dirs, staging)
            _put_in_place(paths, staging, receipt)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    return receipt


def read_receipt(paths: RunPaths) -> Receipt | None:
    """What the last merge wrote, or None where there was none or merged.json is damaged."""
    try:
        receipt = Receipt(**read_json(paths.receipt))
    except TypeError:
        return None
    texts = (receipt.fingerprint, receipt.inputs, receipt.keyed_by)
    is_whole = (
        all(isinstance(each, str) for each in texts)
        and isinstance(receipt.num_shards, int)
        and is_counts(receipt.counts)
        and is_description(receipt.files)
    )
    return receipt if is_whole else None


def is_merged(paths: RunPaths, wanted: Receipt) -> bool:
    """Whether the merged files are whole and come from just these shards."""
    found = read_receipt(paths)
    if found is None or (found.fingerprint, found.inputs) != (wanted.fingerprint, wanted.inputs):
        return False
    mismatch = find_mismatch(paths.root, found.files, missing_ok=bool(paths.url))
    if mismatch is None and paths.url and not is_on_store(paths, found.files):
        mismatch = "a file is missing on the store"
    if mismatch:
        logger.warning("%s: %s; merging again", paths.place, mismatch)
        return False
    wanted.files = found.files
    return True


def _check_shards(paths: RunPaths, manifest: Manifest) -> Receipt:
    counts: Counter[str] = Counter()
    files = []
    keyed_by = "utt_id"
    bad = []
    for shard in manifest.plan:
        folder = paths.shard(shard.shard_id)
        defect: str | None = "not finished"
        if folder.is_dir():
            defect = find_defect(folder, shard, manifest.trusted, is_partial=bool(paths.url))
        done = read_done(folder)
        if defect or done is None:
            bad.append(f"split.{shard.shard_id} ({defect})")
            continue
        counts.update(done.counts)
        files.append(done.files)
        if done.keyed_by == "position":
            keyed_by = "position"
    if bad:
        raise WorkerError(
            f"{paths.place}: cannot merge {len(bad)} of {len(manifest.shards)} shards: "
            f"{listed(bad).replace(chr(34), '')}; run the same command again to measure them"
        )
    report_strays(paths, manifest)
    return Receipt(manifest.fingerprint, len(manifest.shards), json_digest(files), dict(counts), keyed_by)


def report_strays(paths: RunPaths, manifest: Manifest) -> list[str]:
    """Names of `split.N` folders that the plan does not have; they are left alone and out of the merge."""
    strays = [path.name for number, path in paths.shard_folders().items() if number >= len(manifest.shards)]
    if strays:
        logger.warning(
            "%s: %s not in the plan of %d shards; left out", paths.root, listed(strays), len(manifest.shards)
        )
    return strays


def concatenate(shard_dirs: Iterable[Path], name: str, target: Path, *, always: bool = False) -> bool:
    """Join one file of every shard in order, streamed; a shard without it adds nothing.

    Returns:
        Whether a file was written: where no shard has it, only with `always`.
    """
    parts = [path for path in (folder / name for folder in shard_dirs) if path.is_file()]
    if not parts and not always:
        return False
    with open_private(target, binary=True) as stream:
        for part in parts:
            with open(part, "rb") as source:
                shutil.copyfileobj(source, stream, 1 << 20)
    return True


def names_in(shard_dirs: Sequence[Path], pattern: str) -> list[str]:
    """The names that match `pattern` in any shard, sorted."""
    return sorted({path.name for folder in shard_dirs for path in folder.glob(pattern)})


def _put_in_place(paths: RunPaths, staging: Path, receipt: Receipt) -> None:
    names = [str(path.relative_to(staging)) for path in sorted(staging.rglob("*")) if path.is_file()]
    receipt.files = describe_files(staging, names)
    for name in names:
        sync_file(staging / name)
    earlier = read_receipt(paths)
    paths.receipt.unlink(missing_ok=True)
    for name in names:
        (paths.root / name).parent.mkdir(exist_ok=True)
        os.replace(staging / name, paths.root / name)
    stale = set(earlier.files if earlier else ()) - set(names) - KEPT
    remove_files(paths, stale)
    sync_folder(paths.root)
    write_text(paths.receipt, json.dumps(asdict(receipt), indent=1, sort_keys=True) + "\n")
    push_merged(paths, receipt.files, stale)


def remove_leftovers(paths: RunPaths) -> None:
    """Remove what killed processes left of their work; once a run is merged, nothing of it is needed."""
    for folder in (paths.attempts, *paths.stagings()):
        shutil.rmtree(folder, ignore_errors=True)
    for path in (*paths.root.glob(f".*{TEMPORARY_MARK}*"), *paths.leases.glob("*")):
        if path != paths.run_lease:
            path.unlink(missing_ok=True)
