"""Whether a run directory still holds what was committed, and making room for what it does not."""

from statsprep.engine.attempt import find_defect, set_aside
from statsprep.engine.manifest import Manifest, read_manifest
from statsprep.engine.merge import read_receipt, report_strays
from statsprep.engine.mirror import owned_run, withdraw_shard
from statsprep.storage.digest import find_mismatch
from statsprep.storage.paths import RunPaths


def find_problems(paths: RunPaths) -> list[str]:
    """One line per shard or merged file that is missing, damaged or not in the plan; reads every byte.

    Raises:
        DataError: the manifest itself is damaged.
    """
    manifest = read_manifest(paths)
    problems = [
        f"split.{shard_id}: {defect}" for shard_id, defect in _find_bad_shards(paths, manifest).items()
    ]
    problems += [f"{name}: not in the plan" for name in report_strays(paths, manifest)]
    receipt = read_receipt(paths)
    if receipt is None:
        problems.append("not merged")
    elif mismatch := find_mismatch(paths.root, receipt.files):
        problems.append(f"merged file {mismatch}")
    return problems


def remove_bad_shards(paths: RunPaths, copy: RunPaths) -> list[str]:
    """Remove damaged shards, so that the next run measures them again; returns their names.

    Args:
        paths: the run directory.
        copy: where its files are on this machine; of a local run the same.

    Raises:
        RunInUseError: a live process works there.
    """
    with owned_run(paths):
        bad = _find_bad_shards(copy, read_manifest(copy))
        for shard_id in bad:
            set_aside(paths, paths.shard(shard_id))
            withdraw_shard(paths, shard_id)
    return [f"split.{shard_id}" for shard_id in bad]


def _find_bad_shards(paths: RunPaths, manifest: Manifest) -> dict[int, str]:
    found = {}
    for shard in manifest.plan:
        folder = paths.shard(shard.shard_id)
        defect: str | None = "not finished"
        if folder.is_dir():
            defect = find_defect(folder, shard, manifest.trusted, whole=True)
        if defect:
            found[shard.shard_id] = defect
    return found
