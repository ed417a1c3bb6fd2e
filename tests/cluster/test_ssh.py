"""`env: ssh` over a real sshd on loopback: the bytes of one process, encrypted, and no process left."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.cluster.conftest import processes_of
from tests.integration.conftest import RunDir, StatsprepCommand, wait_until
from tests.storage.conftest import sftp_env  # noqa: F401  fixture

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]


@pytest.fixture
def ssh_file(tmp_path: Path, sftp_env: dict[str, str]) -> Path:  # noqa: F811
    """A `--parallel` file for this host, three times."""
    connect = {
        "port": int(sftp_env["FSSPEC_SFTP_PORT"]),
        "username": sftp_env["FSSPEC_SFTP_USERNAME"],
        "client_keys": [sftp_env["FSSPEC_SFTP_KEY_FILENAME"]],
        "known_hosts": None,
    }
    section = {
        "env": "ssh", "n_workers": 2,
        "options": {
            "hosts": ["127.0.0.1", "127.0.0.1"], "connect_options": connect,
            "scheduler_options": {"host": "127.0.0.1"}, "worker_options": {"host": "127.0.0.1"},
        },
    }  # fmt: skip
    path = tmp_path / "ssh.yaml"
    path.write_text(yaml.safe_dump(section), encoding="utf-8")
    return path


@pytest.fixture
def statsprep(tmp_path: Path) -> Iterator[StatsprepCommand]:
    command = StatsprepCommand(tmp_path / 'it\'s "here"')
    yield command
    command.end_all()


def test_workers_over_ssh_give_the_bytes_of_one_process(
    cheap_recipe: Callable[..., Path], tmp_path: Path, statsprep: StatsprepCommand, ssh_file: Path
) -> None:
    cheap_recipe()
    statsprep.folder.mkdir()
    for name in ("src", "prep.yaml"):
        (tmp_path / name).rename(statsprep.folder / name)
    statsprep("run", "prep.yaml", "stats_dir=alone")
    started = statsprep.start("run", "prep.yaml", "--parallel", ssh_file)
    remote = wait_until(lambda: [line for line in commands() if "dask_spec tls://127" in line], poll_s=0.05)
    started.wait().check()
    assert remote
    assert RunDir(statsprep.folder / "exp").merged() == RunDir(statsprep.folder / "alone").merged()
    assert not list(statsprep.folder.glob(".tls-*")), "the keys are gone"
    wait_until(lambda: not [line for line in commands() if "dask_spec" in line], timeout_s=20)


def commands() -> list[str]:
    return list(processes_of("SSH_CONNECTION").values())


def test_a_host_that_lets_nobody_in_ends_the_run(
    cheap_recipe: Callable[..., Path], tmp_path: Path, statsprep: StatsprepCommand, ssh_file: Path
) -> None:
    section = yaml.safe_load(ssh_file.read_text(encoding="utf-8"))
    section["options"]["connect_options"]["username"] = "nobody-of-that-name"
    ssh_file.write_text(yaml.safe_dump(section), encoding="utf-8")
    statsprep.folder = tmp_path
    done = statsprep("run", cheap_recipe(), "--parallel", ssh_file, code=4)
    assert done.errors[0].startswith("error: the ssh cluster did not start: ")
    assert "Permission denied" in done.errors[0]
    assert not list(tmp_path.glob(".tls-*"))
