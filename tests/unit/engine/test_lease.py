"""Leases: a live owner is left alone, a dead one is replaced at once, an unknown one is given its time."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from statsprep.engine import lease
from statsprep.engine.lease import hold_lease, is_alive
from statsprep.errors import RunInUseError
from statsprep.storage.digest import json_digest

pytestmark = pytest.mark.timeout(30)  # a lease that is wrongly held waits for ever


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / ".leases" / "run.json"


def claim_of_this_process() -> dict[str, Any]:
    return {**lease._this_process(), "token": "theirs", "heartbeat": 3}


def write(path: Path, **changes: Any) -> dict[str, Any]:
    owner = {**claim_of_this_process(), **changes}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(owner))
    return owner


@pytest.fixture
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    """A live process."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def dead_pid() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def held(path: Path, *, refuse_live: bool = True, heartbeat_s: float = 0.05) -> float:
    """Take the lease and give it back; returns the seconds until it was there."""
    began = time.monotonic()
    with hold_lease(path, refuse_live=refuse_live, heartbeat_s=heartbeat_s):
        assert json.loads(path.read_text())["pid"] == os.getpid()
        taken = time.monotonic() - began
    return taken


def test_a_lease_is_there_inside_the_block_and_gone_after_it(path: Path) -> None:
    held(path)
    assert list(path.parent.iterdir()) == []


def test_an_error_in_the_block_releases_it(path: Path) -> None:
    with pytest.raises(KeyError), hold_lease(path, refuse_live=True):
        raise KeyError
    assert not path.exists()


def test_a_live_owner_is_refused_at_once_and_named(path: Path, sleeper: "subprocess.Popen[bytes]") -> None:
    owner = write(path, pid=sleeper.pid, start_ticks=lease._start_ticks(sleeper.pid))
    began = time.monotonic()
    with pytest.raises(RunInUseError) as caught, hold_lease(path, refuse_live=True):
        pass
    assert time.monotonic() - began < 5
    assert str(caught.value).startswith(
        f"{path.parent.parent}: process {sleeper.pid} on {owner['host']} works in this run directory; "
    )
    assert caught.value.exit_code == 4
    assert json.loads(path.read_text()) == owner


def test_a_live_owner_is_waited_for_until_it_ends(path: Path, sleeper: "subprocess.Popen[bytes]") -> None:
    write(path, pid=sleeper.pid, start_ticks=lease._start_ticks(sleeper.pid))
    threading.Timer(0.5, sleeper.kill).start()
    assert 0.4 < held(path, refuse_live=False) < 10


def test_a_dead_owner_is_replaced_at_once(path: Path, dead_pid: int) -> None:
    write(path, pid=dead_pid)
    assert held(path, heartbeat_s=1) < 5


def test_a_process_id_that_was_given_out_again_is_dead(
    path: Path, sleeper: "subprocess.Popen[bytes]"
) -> None:
    ticks = lease._start_ticks(sleeper.pid)
    assert ticks is not None
    write(path, pid=sleeper.pid, start_ticks=ticks - 1)
    assert held(path, heartbeat_s=1) < 5


def test_an_owner_of_an_earlier_boot_is_dead(path: Path) -> None:
    write(path, boot_id="another")
    assert held(path, heartbeat_s=1) < 5


def test_a_zombie_is_dead(path: Path) -> None:
    process = subprocess.Popen(["sleep", "60"])
    ticks = lease._start_ticks(process.pid)
    process.kill()
    while Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.01)
    write(path, pid=process.pid, start_ticks=ticks)
    assert held(path, heartbeat_s=1) < 5
    process.wait()


def test_an_owner_elsewhere_has_ten_silent_heartbeats(path: Path) -> None:
    """Nobody here can tell whether it lives; only its silence on this machine's own clock counts."""
    write(path, host="another-machine")
    assert 10 * 0.05 < held(path, heartbeat_s=0.05) < 5


def test_an_owner_in_another_container_has_ten_silent_heartbeats(path: Path, dead_pid: int) -> None:
    write(path, pid=dead_pid, pid_namespace="pid:[1]")
    assert held(path, heartbeat_s=0.05) > 10 * 0.05


def beat_elsewhere(path: Path, stop: threading.Event) -> None:
    heartbeat = 0
    while not stop.wait(0.02):
        heartbeat += 1
        draft = path.with_name("draft")
        draft.write_text(json.dumps({**claim_of_this_process(), "host": "elsewhere", "heartbeat": heartbeat}))
        os.replace(draft, path)


def test_an_owner_elsewhere_that_beats_is_alive(path: Path) -> None:
    write(path, host="elsewhere", heartbeat=0)
    stop = threading.Event()
    beating = threading.Thread(target=beat_elsewhere, args=(path, stop))
    beating.start()
    try:
        with (
            pytest.raises(RunInUseError, match="on elsewhere works"),
            hold_lease(path, refuse_live=True, heartbeat_s=60),
        ):
            pass
    finally:
        stop.set()
        beating.join()


@pytest.mark.parametrize("content", ["", "{", "null", "[]", "{}"])
def test_a_damaged_lease_ends_after_its_silence(content: str, path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(content)
    assert held(path, heartbeat_s=0.03) > 10 * 0.03


def test_the_heartbeat_counts_up(path: Path) -> None:
    with hold_lease(path, refuse_live=True, heartbeat_s=0.02):
        first = json.loads(path.read_text())["heartbeat"]
        end = time.monotonic() + 10
        while json.loads(path.read_text())["heartbeat"] <= first + 1:
            assert time.monotonic() < end
            time.sleep(0.01)


def test_a_lost_lease_is_left_to_its_new_owner(path: Path) -> None:
    with hold_lease(path, refuse_live=True, heartbeat_s=0.02):
        other = write(path, token="another's")
        time.sleep(0.2)
    assert json.loads(path.read_text()) == other


def test_a_run_directory_removed_under_the_lease_is_no_error(path: Path) -> None:
    with hold_lease(path, refuse_live=True, heartbeat_s=0.02):
        path.unlink()
        path.parent.rmdir()
        time.sleep(0.1)
    assert not path.exists()


def test_a_third_process_that_was_faster_keeps_its_new_lease(path: Path) -> None:
    """This one saw a dead owner; before it replaces the lease, another has done so."""
    owner = write(path, token="the new owner's")
    claim = {**claim_of_this_process(), "token": "ours"}
    assert not lease._replace_dead(lease._LocalLease(path), "the dead owner's", claim, 60)
    assert json.loads(path.read_text()) == owner
    assert lease._replace_dead(lease._LocalLease(path), "the new owner's", claim, 60)
    assert json.loads(path.read_text()) == claim
    path.unlink()
    assert not lease._replace_dead(lease._LocalLease(path), "ours", claim, 60)
    assert list(path.parent.iterdir()) == []


def test_newcomers_wait_for_the_one_that_replaces_a_dead_owner(path: Path, dead_pid: int) -> None:
    """Else the second would take away the lease that the first has just made."""
    dead = write(path, pid=dead_pid)
    taken = threading.Event()

    def take() -> None:
        with hold_lease(path, refuse_live=False, heartbeat_s=60):
            taken.set()

    newcomer = threading.Thread(target=take)
    heir = path.with_name(f"{path.name}.{json_digest(dead['token'])[:16]}")
    with hold_lease(heir, refuse_live=True):
        newcomer.start()
        assert not taken.wait(0.5)
    newcomer.join()
    assert taken.is_set()


def test_one_that_died_while_it_replaced_a_dead_owner_is_replaced(path: Path, dead_pid: int) -> None:
    dead = write(path, pid=dead_pid)
    write(path.with_name(f"{path.name}.{json_digest(dead['token'])[:16]}"), pid=dead_pid, token="heir")
    assert held(path, heartbeat_s=60) < 5
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("number", range(5))
def test_many_newcomers_own_it_one_after_the_other(
    number: int, path: Path, dead_pid: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(path, pid=dead_pid)
    monkeypatch.setattr(lease, "_POLL_S", 0.005)
    owners, most = 0, 0
    guard = threading.Lock()

    def work() -> None:
        nonlocal owners, most
        with hold_lease(path, refuse_live=False, heartbeat_s=60):
            with guard:
                owners += 1
                most = max(most, owners)
            time.sleep(0.02)
            with guard:
                owners -= 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_this_process_is_alive_to_itself() -> None:
    assert is_alive(claim_of_this_process()) is True
    assert is_alive({}) is None
