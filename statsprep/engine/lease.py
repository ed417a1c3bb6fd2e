"""Leases: who works on a run or a shard right now.

A lease is a small JSON file made by a hard link, which fails where one exists. Its owner adds one to
`heartbeat` every 15 seconds. A newcomer takes it over at once when the owner is provably dead (same machine,
same boot, no such process), else after ten heartbeats without a change on the newcomer's own clock; clocks of
two machines are never compared. A lease saves work, it does not guard data: that is done by the one rename
that commits a shard.
"""

import contextlib
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from statsprep.errors import RunInUseError
from statsprep.storage.atomic import disk_errors_named, write_text
from statsprep.storage.digest import json_digest
from statsprep.storage.jsonl import read_json

HEARTBEAT_S = 15.0
_MISSED_HEARTBEATS = 10
_POLL_S = 0.2


@contextlib.contextmanager
def hold_lease(path: Path, *, refuse_live: bool, heartbeat_s: float = HEARTBEAT_S) -> Iterator[None]:
    """Own the lease at `path` inside the block.

    Args:
        path: the lease file; its folder is made.
        refuse_live: raise where another live process owns it; else wait until it is free.
        heartbeat_s: seconds between heartbeats.

    Raises:
        RunInUseError: the owner is alive and `refuse_live` is set.
    """
    claim = {**_this_process(), "token": secrets.token_hex(8), "heartbeat": 0}
    _acquire(path, claim, refuse_live=refuse_live, heartbeat_s=heartbeat_s)
    stop = threading.Event()
    beat = threading.Thread(target=_beat, args=(path, claim, stop, heartbeat_s), daemon=True, name="lease")
    beat.start()
    try:
        yield
    finally:
        stop.set()
        beat.join()
        if (read_json(path) or {}).get("token") == claim["token"]:
            path.unlink(missing_ok=True)


def _acquire(path: Path, claim: dict[str, Any], *, refuse_live: bool, heartbeat_s: float) -> None:
    seen: tuple[Any, Any] | None = None
    seen_since = time.monotonic()
    while not _create(path, claim):
        owner = read_json(path)
        if owner is None and not path.exists():
            continue
        owner = owner if isinstance(owner, dict) else {}
        mark = (owner.get("token"), owner.get("heartbeat"))
        alive = is_alive(owner)
        has_moved = seen is not None and mark != seen
        if mark != seen:
            seen, seen_since = mark, time.monotonic()
        is_silent = time.monotonic() - seen_since > _MISSED_HEARTBEATS * heartbeat_s
        if alive is False or (alive is None and is_silent):
            if _replace_dead(path, owner.get("token"), claim, heartbeat_s):
                return
        elif refuse_live and (alive or has_moved):
            raise RunInUseError(
                f"{path.parent.parent}: process {owner.get('pid')} on {owner.get('host')} works in this run "
                "directory; expected a free one; wait until it ends, stop it, or choose another stats_dir"
            )
        else:
            time.sleep(_POLL_S)


def is_alive(owner: dict[str, Any]) -> bool | None:
    """True or False where this machine can tell, None where it cannot (another machine, another
    container).
    """
    here = _this_process()
    if owner.get("host") != here["host"]:
        return None
    if owner.get("boot_id") != here["boot_id"]:
        return False
    if owner.get("pid_namespace") != here["pid_namespace"]:
        return None
    return _start_ticks(owner.get("pid", -1)) == owner.get("start_ticks")


def _this_process() -> dict[str, Any]:
    return {
        "host": socket.gethostname(),
        "boot_id": _read_line("/proc/sys/kernel/random/boot_id"),
        "pid_namespace": _read_link("/proc/self/ns/pid"),
        "pid": os.getpid(),
        "start_ticks": _start_ticks(os.getpid()),
        "job_id": os.environ.get("SLURM_JOB_ID"),
    }


def _start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None for one that is gone or a zombie.

    A process id alone is not an identity: it is given out again.
    """
    fields = _read_line(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return int(fields[19]) if fields and fields[0] not in "ZX" else None


def _read_line(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as stream:
            return stream.readline().strip()
    except OSError:
        return ""


def _read_link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _create(path: Path, claim: dict[str, Any]) -> bool:
    with disk_errors_named(path):
        try:
            with _draft(path, claim) as draft:
                os.link(draft, path)
            return True
        except FileNotFoundError:
            # The first lease here; or another run ended just now and cleared the folder.
            path.parent.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            pass
    return False


def _replace_dead(path: Path, token: Any, claim: dict[str, Any], heartbeat_s: float) -> bool:
    """Put the claim in a dead owner's place; False where another newcomer did so first.

    Between seeing the dead owner and replacing it, another may have done the same, and its lease is a live
    one. So newcomers line up behind a lease of their own, which is named after the dead owner.
    """
    heir = path.with_name(f"{path.name}.{json_digest(token)[:16]}")
    with hold_lease(heir, refuse_live=False, heartbeat_s=heartbeat_s):
        seen = read_json(path)
        seen = seen if isinstance(seen, dict) else {}
        if not path.exists() or seen.get("token") != token:
            return False
        with contextlib.suppress(FileNotFoundError), disk_errors_named(path), _draft(path, claim) as draft:
            os.replace(draft, path)
            return True
    return False


@contextlib.contextmanager
def _draft(path: Path, claim: dict[str, Any]) -> Iterator[Path]:
    draft = path.with_name(f".{path.name}.{claim['token']}")
    try:
        draft.write_text(json.dumps(claim), encoding="utf-8")
        yield draft
    finally:
        draft.unlink(missing_ok=True)


def _beat(path: Path, claim: dict[str, Any], stop: threading.Event, heartbeat_s: float) -> None:
    heartbeat = 0
    while not stop.wait(heartbeat_s):
        heartbeat += 1
        # A lost or unwritable lease is no reason to stop: the commit is safe without it.
        with contextlib.suppress(OSError):
            if (read_json(path) or {}).get("token") != claim["token"]:
                return
            write_text(path, json.dumps({**claim, "heartbeat": heartbeat}))
