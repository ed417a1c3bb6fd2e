"""What a run directory says of its run, without any process: read from the manifest, `done` files, attempts
and leases.
"""

import shlex
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from statsprep.engine.attempt import read_done
from statsprep.engine.lease import is_alive
from statsprep.engine.limits import read_errors
from statsprep.engine.manifest import Manifest, read_manifest
from statsprep.engine.merge import read_receipt, report_strays
from statsprep.storage.journal import count_entries
from statsprep.storage.jsonl import read_json
from statsprep.storage.paths import ERRORS, RunPaths


@dataclass(slots=True)
class RunStatus:
    """How far one run is.

    Attributes:
        state: `merged`, `running`, `unmerged` (all shards are there) or `unfinished`.
        counts: items of finished shards by status.
        num_in_attempts: items that unfinished attempts have journaled; the next run takes them over.
        damaged: shards whose `done` is missing or speaks of another run.
        strays: `split.N` folders that the plan does not have.
        failures: failed utterances by kind.
        owner: who works in the directory now.
    """

    run_dir: str
    state: str
    num_items: int
    num_finished: int
    num_in_attempts: int
    num_shards: int
    num_shards_finished: int
    counts: dict[str, int]
    keyed_by: str
    damaged: list[str] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)
    failures: dict[str, int] = field(default_factory=dict)
    owner: dict[str, Any] | None = None
    accepted: list[dict[str, Any]] = field(default_factory=list)
    next_command: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def read_status(paths: RunPaths) -> RunStatus:
    """Look at one run directory.

    Raises:
        DataError: its manifest is damaged.
    """
    manifest = read_manifest(paths)
    counts: Counter[str] = Counter()
    failures: Counter[str] = Counter()
    damaged: list[str] = []
    num_shards_finished = num_in_attempts = 0
    keyed_by = "utt_id"
    for shard in manifest.plan:
        folder = paths.shard(shard.shard_id)
        if not folder.is_dir():
            num_in_attempts += max(map(count_entries, paths.earlier_attempts(shard.shard_id)), default=0)
            continue
        done = read_done(folder)
        if done is None or done.fingerprint not in manifest.trusted or done.num_items != shard.num_items:
            damaged.append(folder.name)
            continue
        num_shards_finished += 1
        counts.update(done.counts)
        if done.keyed_by == "position":
            keyed_by = "position"
        if done.counts.get("error"):
            failures.update(record["kind"] for record in read_errors(folder / ERRORS))
    status = RunStatus(
        run_dir=paths.place,
        state="unfinished",
        num_items=manifest.num_items,
        num_finished=sum(counts.values()),
        num_in_attempts=num_in_attempts,
        num_shards=len(manifest.shards),
        num_shards_finished=num_shards_finished,
        counts=dict(counts),
        keyed_by=keyed_by,
        damaged=damaged,
        strays=report_strays(paths, manifest),
        failures=dict(failures.most_common()),
        owner=_owner(paths),
        accepted=manifest.lineage,
    )
    status.state, status.next_command = _judge(paths, manifest, status)
    return status


def _owner(paths: RunPaths) -> dict[str, Any] | None:
    """Who holds the run's lease, unless provably dead."""
    lease = read_json(paths.run_lease)
    if not isinstance(lease, dict) or is_alive(lease) is False:
        return None
    return {key: lease.get(key) for key in ("host", "pid", "heartbeat")}


def _judge(paths: RunPaths, manifest: Manifest, status: RunStatus) -> tuple[str, str]:
    if status.owner is not None:
        return "running", shlex.join(["statsprep", "status", paths.place])
    if status.num_shards_finished < status.num_shards:
        return "unfinished", shlex.join(_command(manifest))
    receipt = read_receipt(paths)
    if receipt is None or receipt.fingerprint != manifest.fingerprint:
        return "unmerged", shlex.join(["statsprep", "merge", paths.place])
    return "merged", shlex.join(["statsprep", "inspect", paths.place])


def _command(manifest: Manifest) -> list[str]:
    program, *arguments = manifest.argv or ["statsprep"]
    name = program.rpartition("/")[2]
    is_ours = name in ("statsprep", "__main__.py")
    return [*(["statsprep"] if is_ours else ["python", program]), *arguments]
