"""Leases: who works on a run or a shard right now.

A lease is a small JSON file that only one of several processes can make: by a hard link, which fails where
one exists, or by a store's own means. Its owner adds one to `heartbeat` every 15 seconds. A newcomer takes it
over at once when the owner is provably dead (same machine, same boot, no such process), else after ten
heartbeats without a change on the newcomer's own clock; clocks of two machines are never compared. A lease
saves work, it does not guard data: that is done by the one step that commits a shard.
"""

import contextlib
import json
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from statsprep.errors import RunInUseError, StorageError
from statsprep.storage.atomic import disk_errors_named, write_text
from statsprep.storage.digest import json_digest
from statsprep.storage.jsonl import read_json
from statsprep.storage.stores import Store

logger = logging.getLogger(__name__)

HEARTBEAT_S = 15.0
_MISSED_HEARTBEATS = 10
_POLL_S = 0.2


class LeaseFile(Protocol):
    """Where a lease lies."""

    def read(self) -> dict[str, Any] | None:
        """Its content, empty where that is damaged; None where there is no file."""

    def create(self, claim: dict[str, Any]) -> bool:
        """Write it unless it is there; whether this call made it."""

    def replace(self, claim: dict[str, Any]) -> None:
        """Write it, whatever was there."""

    def remove(self) -> None: ...

    def heir(self, token: str) -> "LeaseFile":
        """The lease of those who want to replace the owner with this token."""


@contextlib.contextmanager
def hold_lease(
    file: "Path | LeaseFile", *, refuse_live: bool, heartbeat_s: float = HEARTBEAT_S, where: str = ""
) -> Iterator[None]:
    """Own the lease inside the block.

    Args:
        file: the lease file; of a path, its folder is made.
        refuse_live: raise where another live process owns it; else wait until it is free.
        heartbeat_s: seconds between heartbeats.
        where: what is owned, for messages; by default the folder above the leases.

    Raises:
        RunInUseError: the owner is alive and `refuse_live` is set.
    """
    if isinstance(file, Path):
        where = where or str(file.parent.parent)
        file = _LocalLease(file)
    claim = {**_this_process(), "token": secrets.token_hex(8), "heartbeat": 0}
    _acquire(file, claim, refuse_live=refuse_live, heartbeat_s=heartbeat_s, where=where)
    stop = threading.Event()
    beat = threading.Thread(target=_beat, args=(file, claim, stop, heartbeat_s), daemon=True, name="lease")
    beat.start()
    try:
        yield
    finally:
        stop.set()
        beat.join()
        if (file.read() or {}).get("token") == claim["token"]:
            file.remove()


def _acquire(
    file: LeaseFile, claim: dict[str, Any], *, refuse_live: bool, heartbeat_s: float, where: str
) -> None:
    seen: tuple[Any, Any] | None = None
    seen_since, has_said = time.monotonic(), False
    while not file.create(claim):
        owner = file.read()
        if owner is None:
            continue
        mark = (owner.get("token"), owner.get("heartbeat"))
        alive = is_alive(owner)
        has_moved = seen is not None and mark != seen
        if mark != seen:
            seen, seen_since = mark, time.monotonic()
        is_silent = time.monotonic() - seen_since > _MISSED_HEARTBEATS * heartbeat_s
        if alive is False or (alive is None and is_silent):
            if _replace_dead(file, owner.get("token"), claim, heartbeat_s):
                return
        elif refuse_live and (alive or has_moved):
            raise RunInUseError(
                f"{where}: process {owner.get('pid')} on {owner.get('host')} works in this run directory; "
                "expected a free one; wait until it ends, stop it, or choose another stats_dir"
            )
        else:
            if refuse_live and not has_said:
                has_said = True
                logger.warning(
                    "%s: process %s on %s may work in this run directory; watching for up to %.0f s",
                    where,
                    owner.get("pid"),
                    owner.get("host"),
                    _MISSED_HEARTBEATS * heartbeat_s,
                )
            time.sleep(_POLL_S)


def _replace_dead(file: LeaseFile, token: Any, claim: dict[str, Any], heartbeat_s: float) -> bool:
    """Put the claim in a dead owner's place; False where another newcomer did so first.

    Between seeing the dead owner and replacing it, another may have done the same, and its lease is a live
    one. So newcomers line up behind a lease of their own, which is named after the dead owner.
    """
    with hold_lease(file.heir(json_digest(token)[:16]), refuse_live=False, heartbeat_s=heartbeat_s):
        seen = file.read()
        if seen is None or seen.get("token") != token:
            return False
        file.replace(claim)
        return True


def _beat(file: LeaseFile, claim: dict[str, Any], stop: threading.Event, heartbeat_s: float) -> None:
    heartbeat = 0
    while not stop.wait(heartbeat_s):
        heartbeat += 1
        # A lost or unwritable lease is no reason to stop: the commit is safe without it.
        with contextlib.suppress(OSError, StorageError):
            if (file.read() or {}).get("token") != claim["token"]:
                return
            file.replace({**claim, "heartbeat": heartbeat})


class _LocalLease:
    """A lease in a folder of this machine or of a shared disk."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> dict[str, Any] | None:
        found = read_json(self._path)
        if isinstance(found, dict):
            return found
        return {} if self._path.exists() else None

    def create(self, claim: dict[str, Any]) -> bool:
        draft = self._path.with_name(f".{self._path.name}.{claim['token']}")
        with disk_errors_named(self._path):
            try:
                draft.write_text(json.dumps(claim), encoding="utf-8")
                os.link(draft, self._path)
                return True
            except FileNotFoundError:
                # The first lease here; or another run ended just now and cleared the folder.
                self._path.parent.mkdir(parents=True, exist_ok=True)
            except FileExistsError:
                pass
            finally:
                draft.unlink(missing_ok=True)
        return False

    def replace(self, claim: dict[str, Any]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_text(self._path, json.dumps(claim))

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)

    def heir(self, token: str) -> "_LocalLease":
        return _LocalLease(self._path.with_name(f"{self._path.name}.{token}"))


class StoredLease:
    """A lease on a store."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name

    def read(self) -> dict[str, Any] | None:
        content = self._store.read(self._name)
        if content is None:
            return None
        try:
            found = json.loads(content)
        except ValueError:
            found = {}
        return found if isinstance(found, dict) else {}

    def create(self, claim: dict[str, Any]) -> bool:
        return self._store.create(self._name, json.dumps(claim).encode())

    def replace(self, claim: dict[str, Any]) -> None:
        self._store.put(self._name, json.dumps(claim).encode())

    def remove(self) -> None:
        self._store.remove([self._name])

    def heir(self, token: str) -> "StoredLease":
        return StoredLease(self._store, f"{self._name}.{token}")


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
    pid = owner.get("pid")
    return isinstance(pid, int) and _start_ticks(pid) == owner.get("start_ticks")


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
