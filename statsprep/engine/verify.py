"""Whether a run directory still holds what was committed."""

from statsprep.engine.attempt import find_defect
from statsprep.engine.manifest import read_manifest
from statsprep.engine.merge import read_receipt, report_strays
from statsprep.storage.digest import find_mismatch
from statsprep.storage.paths import RunPaths


def find_problems(paths: RunPaths) -> list[str]:
    """One line per shard or merged file that is missing, damaged or not in the plan; reads every byte.

    Raises:
        DataError: the manifest itself is damaged.
    """
    manifest = read_manifest(paths)
    problems = []
    for shard in manifest.plan:
        folder = paths.shard(shard.shard_id)
        defect = find_defect(folder, shard, manifest.trusted) if folder.is_dir() else "not finished"
        if defect:
            problems.append(f"{folder.name}: {defect}")
    problems += [f"{name}: not in the plan" for name in report_strays(paths, manifest)]
    receipt = read_receipt(paths)
    if receipt is None:
        problems.append("not merged")
    elif mismatch := find_mismatch(paths.root, receipt.files):
        problems.append(f"merged file {mismatch}")
    return problems
