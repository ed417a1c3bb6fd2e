"""Real stores on loopback: Ceph's radosgw as S3, OpenSSH's sshd for sftp."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import fsspec
import pytest

from tests.integration.conftest import ROOT, StatsprepCommand, wait_until

RGW = ROOT / "deploy" / "storage" / "rgw.sh"


def require(*programs: str) -> None:
    """Skip where a program is missing, and fail on CI, which must not skip this suite."""
    missing = [name for name in programs if shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin") is None]
    if missing:
        reason = f"{', '.join(missing)} not installed; .ci/run lists the Debian packages"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)


def free_ports(number: int) -> int:
    """The first of so many free ports in a row."""
    for first in range(20_000 + os.getpid() % 1000 * 10, 60_000, 10):
        with contextlib.ExitStack() as stack:
            try:
                for port in range(first, first + number):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise AssertionError("no free ports")


@dataclass
class Place:
    """A folder on a store, and the environment with which fsspec finds it."""

    url: str
    env: dict[str, str]

    def filesystem(self) -> tuple[fsspec.AbstractFileSystem, str]:
        """A fresh one, so that nothing is remembered from before."""
        fsspec.config.conf.clear()
        fsspec.config.set_conf_env(fsspec.config.conf, self.env)
        filesystem, path = fsspec.core.url_to_fs(self.url)
        filesystem.invalidate_cache()
        return filesystem, path

    def names(self, below: str = "") -> list[str]:
        """Every file below the folder."""
        filesystem, path = self.filesystem()
        root = f"{path}/{below}".rstrip("/")
        return [name.removeprefix(f"{root}/") for name in filesystem.find(root)]

    def files(self, below: str = "") -> dict[str, bytes]:
        """Every file below the folder by its name."""
        filesystem, path = self.filesystem()
        root = f"{path}/{below}".rstrip("/")
        return {name: filesystem.cat_file(f"{root}/{name}") for name in self.names(below)}

    def upload(self, source: Path, name: str) -> None:
        filesystem, path = self.filesystem()
        for file in source.rglob("*"):
            if file.is_file():
                filesystem.put_file(str(file), f"{path}/{name}/{file.relative_to(source)}")


@pytest.fixture(scope="session")
def s3_env() -> Iterator[dict[str, str]]:
    require("ceph-mon", "ceph-osd", "ceph-mgr", "radosgw", "radosgw-admin", "curl", "uuidgen")
    folder = tempfile.mkdtemp(prefix="rgw", dir="/tmp")  # sockets' paths are short
    port = free_ports(3)
    with open(Path(folder) / "rgw.log", "w") as log:
        try:
            subprocess.run([RGW, "up", folder, str(port)], check=True, timeout=120, stdout=log, stderr=log)
            yield {
                "FSSPEC_S3_ENDPOINT_URL": f"http://127.0.0.1:{port}",
                "FSSPEC_S3_KEY": "statsprep",
                "FSSPEC_S3_SECRET": "statsprep",
            }
        finally:
            subprocess.run([RGW, "down", folder], timeout=60, stdout=log, stderr=log)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def sftp_env(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    require("sshd", "ssh-keygen")
    folder = tmp_path_factory.mktemp("sshd")
    port = free_ports(1)
    for name in ("host", "user"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name]
        subprocess.run(command, check=True)
    shutil.copy(folder / "user.pub", folder / "authorized")
    Path("/run/sshd").mkdir(exist_ok=True)
    (folder / "sshd.conf").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nPidFile {folder}/pid\n"
        f"AuthorizedKeysFile {folder}/authorized\nPermitRootLogin prohibit-password\n"
        "PasswordAuthentication no\nUsePAM no\nStrictModes no\nMaxStartups 100\nMaxSessions 100\n"
        "Subsystem sftp internal-sftp\n"
    )
    subprocess.run(["/usr/sbin/sshd", "-f", folder / "sshd.conf", "-E", folder / "log"], check=True)
    try:
        wait_until(lambda: _answers(port), timeout_s=20)
        yield {
            "FSSPEC_SFTP_PORT": str(port),
            "FSSPEC_SFTP_USERNAME": os.environ.get("USER", "root"),
            "FSSPEC_SFTP_KEY_FILENAME": str(folder / "user"),
        }
    finally:
        os.kill(int((folder / "pid").read_text()), signal.SIGTERM)


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in ("s3", "sftp")])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty folder on each of the stores in turn."""
    if request.param == "s3":
        found = Place(f"s3://bucket-{tmp_path.name.replace('_', '-').lower()[-40:]}/data", {})
        found.env = request.getfixturevalue("s3_env")
        filesystem, path = found.filesystem()
        filesystem.mkdir(path.partition("/")[0])
        return found
    (tmp_path / "remote").mkdir()
    return Place(f"sftp://127.0.0.1{tmp_path}/remote", request.getfixturevalue("sftp_env"))


@pytest.fixture
def statsprep(tmp_path: Path, place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[StatsprepCommand]:
    """The command, with the store's address in its environment and mirrors of its own."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "here").mkdir()
    command = StatsprepCommand(tmp_path / "here")
    command.env = {**command.env, **place.env, "TMPDIR": str(tmp_path / "tmp")}
    yield command
    command.end_all()
