"""`manifest.json`: what a run is, written before any work; and the check of a later run against it."""

import dataclasses
import datetime
import inspect
import json
import os
import platform
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from statsprep.engine.fingerprint import Parts, digest_of, find_changes, is_accepted
from statsprep.engine.plan import Shard
from statsprep.errors import ChangedRunError, ConfigError, DataError, StorageError
from statsprep.storage.atomic import write_text
from statsprep.storage.jsonl import read_json
from statsprep.storage.names import goes_through_link, stays_below
from statsprep.storage.paths import DROPPED, ERRORS, RESULTS, RunPaths

LAYOUT = 1
# What a merge never writes, and so never takes away, whatever an earlier merged.json lists.
KEPT = frozenset({"manifest.json", "index.arrow", "indices.npy"})
_FIXED_NAMES = (RESULTS, DROPPED, ERRORS, "stats_keys", "token_list", "index.arrow", "indices.npy")


@dataclass(slots=True)
class Manifest:
    """The contents of manifest.json.

    Attributes:
        fingerprint: digest of `parts`, which hold what the results depend on.
        num_items: positions 0 .. num_items - 1, in the order of `items`.
        items: a range's ends or the digest of indices.npy.
        shards: [start, stop] of each shard.
        runner: dotted path of the runner's class; `provider` likewise.
        recipe_root: the folder that makes the recipe's modules importable, or None.
        config: the resolved configuration of the run, for the reader.
        origin: how the command line built provider and runner, for `replay`; None for a run from Python.
        lineage: accepted changes, oldest first; each keeps the fingerprint that it replaced.
    """

    fingerprint: str
    parts: Parts
    num_items: int
    items: dict[str, Any]
    shards: list[list[int]]
    runner: str
    provider: str
    recipe_root: str | None = None
    config: Any = None
    origin: dict[str, Any] | None = None
    layout: int = LAYOUT
    created: str = ""
    argv: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    lineage: list[dict[str, Any]] = field(default_factory=list)

    @property
    def plan(self) -> list[Shard]:
        return [Shard(number, start, stop) for number, (start, stop) in enumerate(self.shards)]

    @property
    def trusted(self) -> frozenset[str]:
        """Fingerprints whose shards count as this run's: its own and those it accepted."""
        return frozenset({self.fingerprint, *(entry["fingerprint"] for entry in self.lineage)})


def open_run(
    paths: RunPaths, wanted: Manifest, *, accept: Sequence[str] = (), overwrite: bool = False
) -> Manifest:
    """Begin a run, or go on with the one that the directory holds.

    Args:
        paths: the run directory; made where it is missing.
        wanted: the manifest of what is to be run now.
        accept: `code` or dotted config keys whose change is accepted.
        overwrite: remove an earlier run's results first.

    Raises:
        ChangedRunError: the directory holds results of something else; `detail` is the difference.
    """
    check_run_dir(paths)
    if overwrite:
        remove_results(paths)
    existing = read_manifest(paths) if paths.manifest.exists() else None
    if existing is None:
        paths.root.mkdir(parents=True, exist_ok=True)
        return _write(paths, _stamped(wanted))
    changes = find_changes(existing.parts, wanted.parts)
    if not changes:
        return existing
    rejected = [change for change in changes if not is_accepted(change, accept)]
    if rejected:
        ways = "another stats_dir, or --overwrite to measure anew"
        if all(change.part != "data" for change in rejected):
            keys = sorted({"code" if change.part == "code" else change.name for change in rejected})
            ways += f", or {' '.join(f'--accept {key}' for key in keys[:3])} to keep the finished shards"
        raise ChangedRunError(
            f"{paths.place}: holds results of another "
            f"{' and '.join(sorted({each.part for each in rejected}))}; "
            f"expected no change ({len(rejected)} found); choose {ways}",
            detail="\n".join(f"  {change}" for change in rejected),
        )
    entry = {
        "fingerprint": existing.fingerprint,
        "accepted": list(accept),
        "changes": [str(change) for change in changes],
        "at": _now(),
    }
    # The shards that are kept were cut by the old plan, whatever shard_size or batch_size say now.
    accepted = dataclasses.replace(
        _stamped(wanted), shards=existing.shards, lineage=[*existing.lineage, entry]
    )
    return _write(paths, accepted)


def check_run_dir(paths: RunPaths) -> None:
    """Refuse a path that cannot be a run directory: a file is there or above it, or nothing can be
    written.
    """
    for path in (paths.root, *paths.root.parents):
        if path.exists():
            if not path.is_dir():
                raise ConfigError(
                    f"{path}: is a file; expected a folder for results; choose another stats_dir"
                )
            if not os.access(path, os.W_OK | os.X_OK):
                raise StorageError(
                    f"{path}: cannot write (read-only, or no permission); expected a folder of yours; choose "
                    "another stats_dir"
                )
            return


def read_manifest(paths: RunPaths) -> Manifest:
    """Read a run's manifest.

    Raises:
        DataError: it is damaged, or of another program or layout.
    """
    content = read_json(paths.manifest)
    known = {each.name for each in dataclasses.fields(Manifest)}
    needed = {
        name for name, each in inspect.signature(Manifest).parameters.items() if each.default is each.empty
    }
    if (
        not isinstance(content, dict)
        or content.get("layout") != LAYOUT
        or not needed <= content.keys() <= known
    ):
        seen = f"layout {content.get('layout')}" if isinstance(content, dict) else "no JSON object"
        raise DataError(
            f"{paths.manifest}: {seen}; expected a statsprep manifest of layout {LAYOUT}; choose another "
            "stats_dir, or --overwrite to replace what is there"
        )
    manifest = Manifest(**content)
    if fault := _find_fault(manifest):
        raise DataError(
            f"{paths.manifest}: {fault}; the file was edited or is damaged; restore it or use --overwrite"
        )
    if digest_of(manifest.parts) != manifest.fingerprint:
        raise DataError(
            f"{paths.manifest}: its parts do not have its fingerprint; the file was edited or is damaged; "
            "restore it or use --overwrite"
        )
    return manifest


def _find_fault(manifest: Manifest) -> str | None:
    """What no run can have written: the commands rely on these types and ranges."""
    for name in ("fingerprint", "runner", "provider", "created"):
        if not isinstance(getattr(manifest, name), str):
            return f"{name} is no text"
    for name, kind in (
        ("parts", dict),
        ("items", dict),
        ("argv", list),
        ("versions", dict),
        ("lineage", list),
    ):
        if not isinstance(getattr(manifest, name), kind):
            return f"{name} is no {'list' if kind is list else 'mapping'}"
    if not isinstance(manifest.recipe_root, str | None) or not isinstance(manifest.origin, dict | None):
        return "recipe_root is no path, or origin no mapping"
    if not all(isinstance(each, str) for each in manifest.argv):
        return "argv is no list of words"
    known = {"fingerprint": str, "accepted": list, "changes": list, "at": str}
    for entry in manifest.lineage:
        if not isinstance(entry, dict) or any(
            not isinstance(entry.get(key), kind) for key, kind in known.items()
        ):
            return "lineage has an entry that is no accepted change"
    ends = manifest.items.get("range")
    if ends is not None and not (_are_ints(ends, 3) and ends[2] != 0):
        return f"items.range is {str(ends)[:80]}"
    if not _are_ints([manifest.num_items], 1) or not isinstance(manifest.shards, list):
        return "num_items is no number, or shards no list"
    position = 0
    for shard in manifest.shards:
        if not _are_ints(shard, 2) or shard[0] != position or shard[1] <= position:
            return f"shards has {str(shard)[:80]} after item {position}"
        position = shard[1]
    return (
        None
        if position == manifest.num_items
        else f"its shards hold {position} of {manifest.num_items} items"
    )


def _are_ints(values: Any, number: int) -> bool:
    return (
        isinstance(values, list)
        and len(values) == number
        and all(isinstance(each, int) and abs(each) < 1 << 63 for each in values)
    )


def remove_results(paths: RunPaths) -> None:
    """Remove an earlier run's files, the manifest first, so that a kill half-way leaves nothing to be
    trusted.

    Files and folders that no run makes are left alone.
    """
    paths.manifest.unlink(missing_ok=True)
    for folder in (paths.attempts, *paths.stagings(), *paths.shard_folders().values()):
        shutil.rmtree(folder, ignore_errors=True)
    receipt = read_json(paths.receipt)
    merged = receipt.get("files") if isinstance(receipt, dict) else None
    paths.receipt.unlink(missing_ok=True)
    shapes_and_stats = [
        path.name for mask in ("*_shape", "*_shape.arrow", "*_stats.npz") for path in paths.root.glob(mask)
    ]
    listed = filter(stays_below, merged if isinstance(merged, dict) else ())
    remove_files(paths, {*listed, *shapes_and_stats, *_FIXED_NAMES})


def remove_files(paths: RunPaths, names: Iterable[str]) -> None:
    """Remove files of a run directory; what is a folder, or lies behind a link, is left alone."""
    for name in names:
        path = paths.root / name
        if not goes_through_link(paths.root, name) and (path.is_file() or path.is_symlink()):
            path.unlink()


def _stamped(wanted: Manifest) -> Manifest:
    packages = ("statsprep", "numpy", "torch", "librosa", "soundfile", "dask", "distributed")
    versions = {"python": platform.python_version()}
    for name in packages:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return dataclasses.replace(
        wanted, created=_now(), argv=[os.fspath(each) for each in sys.argv], versions=versions
    )


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _write(paths: RunPaths, manifest: Manifest) -> Manifest:
    write_text(paths.manifest, json.dumps(dataclasses.asdict(manifest), indent=1, ensure_ascii=False) + "\n")
    return manifest
