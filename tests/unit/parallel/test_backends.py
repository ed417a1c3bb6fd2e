"""What each env hands to Dask: completed options, errors that name the wrong one, and the job script."""

import os
import re
import stat
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import dask_jobqueue
import pytest
import yaml
from distributed import LocalCluster

from statsprep import get_client
from statsprep.config.presets import PRESETS
from statsprep.config.sections import Environment
from statsprep.engine.executor import make_executor
from statsprep.errors import ConfigError
from statsprep.parallel.backends import backend_of
from statsprep.parallel.batch_backend import Batch
from statsprep.parallel.dask_executor import DaskExecutor
from statsprep.parallel.job_queues import QUEUES
from statsprep.parallel.ssh_backend import Ssh

CONFIGS = Path(__file__).parents[3] / "configs" / "parallel"


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def start(section: dict[str, Any]) -> None:
    with get_client(section):
        raise AssertionError("it started")


def script_of(env: str, **options: Any) -> list[str]:
    """The job script's lines, without the settings and with fixed names for address and keys."""
    section = {**PRESETS[env], "options": {**PRESETS[env]["options"], "interface": "lo", **options}}
    backend = backend_of(section)
    assert isinstance(backend, Batch)
    try:
        with backend.build(getattr(dask_jobqueue, backend.queue.cluster), "cluster") as cluster:
            text = cluster.job_script()
    finally:
        backend.release()
    text = re.sub(r"tls://127.0.0.1:\d+", "tls://HOST:PORT", text.replace(os.getcwd(), "HERE"))
    text = re.sub(r"\.tls-\w+", "KEYS", text.replace(sys.executable, "PYTHON"))
    return [line for line in text.splitlines() if line and "INHERIT_CONFIG" not in line]


THREADS = ["OMP", "MKL", "OPENBLAS", "NUMEXPR", "NUMBA"]
WORKER = (
    "PYTHON -m distributed.cli.dask_worker tls://HOST:PORT --name dummy-name --nthreads 1 "
    "--memory-limit 3.73GiB --nanny --death-timeout 60 --no-dashboard --lifetime 14100s "
    "--lifetime-stagger 120s --interface lo --protocol tls:// "
    "--tls-ca-file HERE/parallel_logs/KEYS/worker-ca_file.pem "
    "--tls-cert HERE/parallel_logs/KEYS/worker-cert.pem --tls-key HERE/parallel_logs/KEYS/worker-key.pem"
)


def exports(number: int) -> str:
    names = [f"{name}_NUM_THREADS={number}" for name in THREADS]
    return " ".join(["export", *names, f"VECLIB_MAXIMUM_THREADS={number}"])


@pytest.mark.parametrize(
    ("env", "head"),
    [
        (
            "slurm",
            """\
            #SBATCH -J statsprep
            #SBATCH -e HERE/parallel_logs/statsprep-%J.err
            #SBATCH -o HERE/parallel_logs/statsprep-%J.out
            #SBATCH -n 1
            #SBATCH --cpus-per-task=1
            #SBATCH --mem=4G
            #SBATCH -t 04:00:00
            #SBATCH --no-requeue""",
        ),
        (
            "pbs",
            """\
            #PBS -N statsprep
            #PBS -l select=1:ncpus=1:mem=3815MB
            #PBS -l walltime=04:00:00
            #PBS -e HERE/parallel_logs/
            #PBS -o HERE/parallel_logs/""",
        ),
        (
            "moab",
            """\
            #PBS -N statsprep
            #PBS -l select=1:ncpus=1:mem=3815MB
            #PBS -l walltime=04:00:00
            #PBS -e HERE/parallel_logs/
            #PBS -o HERE/parallel_logs/""",
        ),
        (
            "sge",
            """\
            #$ -N statsprep
            #$ -l h_rt=04:00:00
            #$ -e HERE/parallel_logs/
            #$ -o HERE/parallel_logs/
            #$ -cwd
            #$ -j y""",
        ),
        (
            "lsf",
            """\
            #BSUB -J statsprep
            #BSUB -e HERE/parallel_logs/dummy-name-%J.err
            #BSUB -o HERE/parallel_logs/dummy-name-%J.out
            #BSUB -n 1
            #BSUB -M 4000000
            #BSUB -W 04:00""",
        ),
        (
            "oar",
            """\
            #OAR -n statsprep
            #OAR -l /nodes=1/core=1,walltime=04:00:00
            #OAR -O HERE/parallel_logs/statsprep-%jobid%.out
            #OAR -E HERE/parallel_logs/statsprep-%jobid%.err""",
        ),
    ],
)
def test_the_job_script_of_each_scheduler(env: str, head: str) -> None:
    lines = [line.strip() for line in head.splitlines()]
    assert script_of(env) == ["#!/usr/bin/env bash", *lines, exports(1), WORKER]


def test_the_submit_description_of_htcondor() -> None:
    lines = script_of("htcondor", job_extra_directives={"request_gpus": 1})
    assert {
        "MY.DaskWorkerCores = 1", "MY.DaskWorkerMemory = 4000000000", "MY.DaskWorkerDisk = 1000000000",
        "LogDirectory = HERE/parallel_logs", "request_gpus = 1", "Executable = /bin/sh",
    } <= {*lines}  # fmt: skip


def test_the_gpu_block_of_espnet3s_guide() -> None:
    """With its unquoted walltime, which YAML reads as the number 1800."""
    options = yaml.safe_load(
        """
        queue: gpu
        cores: 8
        processes: 1
        memory: 16GB
        walltime: 30:00
        job_extra_directives:
          - "--gres=gpu:1"
        """
    )
    lines = script_of("slurm", **options)
    assert {
        "#SBATCH -p gpu", "#SBATCH --cpus-per-task=8", "#SBATCH --mem=15G", "#SBATCH -t 00:30:00",
        "#SBATCH --gres=gpu:1", exports(8),
    } <= {*lines}  # fmt: skip
    assert "--nthreads 1 --memory-limit 14.90GiB" in lines[-1]
    assert "--lifetime 1620s --lifetime-stagger 72s" in lines[-1]


def test_processes_divide_a_jobs_cores_and_memory() -> None:
    lines = script_of("slurm", cores=8, processes=4, memory="8GB")
    assert exports(2) in lines
    assert "--nthreads 1 --memory-limit 1.86GiB --nworkers 4" in lines[-1]


def test_the_users_own_lifetime_stands() -> None:
    lines = script_of("slurm", worker_extra_args=["--lifetime", "50m"], walltime=3600)
    assert lines[-1].count("--lifetime") == 1
    assert "#SBATCH -t 01:00:00" in lines


def test_without_encryption_only_where_it_is_said() -> None:
    assert "tls" not in script_of("slurm", security=False)[-1]
    assert "tls" not in script_of("slurm", protocol="tcp://")[-1]
    with pytest.raises(ConfigError, match=r"parallel\.options\.security: got 'no'; expected true or false"):
        script_of("slurm", security="no")


def test_keys_are_for_this_user_alone_and_go_with_the_cluster() -> None:
    backend = backend_of({**PRESETS["slurm"], "options": {**PRESETS["slurm"]["options"], "interface": "lo"}})
    assert isinstance(backend, Batch)
    with backend.build(dask_jobqueue.SLURMCluster, "cluster"):
        (folder,) = Path("parallel_logs").glob(".tls-*")
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert {path.name for path in folder.iterdir()} == {
            f"worker-{name}.pem" for name in ("ca_file", "cert", "key")
        }
    backend.release()
    assert not list(Path("parallel_logs").iterdir())


@pytest.mark.parametrize("env", QUEUES)
def test_a_misspelt_option_is_named(env: str) -> None:
    with pytest.raises(
        ConfigError,
        match=rf"parallel\.options\.memry: unknown; did you mean 'memory'\?; expected arguments of "
        rf"dask_jobqueue\.{QUEUES[env].cluster}; remove it",
    ):
        start({"env": env, "n_workers": 1, "options": {"cores": 1, "memry": "1GB"}})


@pytest.mark.parametrize("env", QUEUES)
def test_a_host_that_cannot_submit_is_an_error(
    env: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        ConfigError, match=rf"parallel\.env: '{env}' needs the program \w+, which is not on PATH"
    ):
        start(PRESETS[env])


@pytest.mark.parametrize(
    ("env", "module", "pip"),
    [
        ("slurm", "dask_jobqueue", "dask-jobqueue"),
        ("local_gpu", "dask_cuda", "dask-cuda"),
        ("kube", "dask_kubernetes", "dask-kubernetes"),
        ("ssh", "asyncssh", "asyncssh"),
    ],
)
def test_a_missing_package_comes_with_the_command(
    env: str, module: str, pip: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        ConfigError, match=rf"^parallel\.env: '{env}' needs .*not installed; pip install {pip}$"
    ):
        start(PRESETS[env])


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """dask-cuda of a machine with two GPUs."""
    module, utils = ModuleType("dask_cuda"), ModuleType("dask_cuda.utils")
    module.LocalCUDACluster = LocalCluster  # type: ignore[attr-defined]
    utils.get_n_gpus = lambda: 2  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "dask_cuda", module)
    monkeypatch.setitem(sys.modules, "dask_cuda.utils", utils)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_one_worker_a_gpu(cuda: None, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ConfigError, match=r"parallel\.n_workers: got 3, but this machine shows 2 GPUs"):
        start({"env": "local_gpu", "n_workers": 3})
    with get_client({"env": "local_gpu", "n_workers": 1}) as client:
        assert client.submit(int, 7).result() == 7
    assert "parallel.n_workers: 1 of 2 GPUs are used" in caplog.text


def test_pods_are_asked_for_by_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    class KubeCluster(LocalCluster):  # type: ignore[misc]
        def __init__(self, name: str, image: str, n_workers: int = 1) -> None:
            asked.update(name=name, image=image, n_workers=n_workers)
            super().__init__(n_workers=n_workers, dashboard_address=None)

    package, operator = ModuleType("dask_kubernetes"), ModuleType("dask_kubernetes.operator")
    operator.KubeCluster = KubeCluster  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "dask_kubernetes", package)
    monkeypatch.setitem(sys.modules, "dask_kubernetes.operator", operator)
    with get_client({**PRESETS["kube"], "n_workers": 1}) as client:
        assert client.submit(int, 7).result() == 7
    assert asked == {"name": "statsprep", "image": "statsprep:latest", "n_workers": 1}
    with pytest.raises(ConfigError, match=r"parallel\.options\.imag: unknown; did you mean 'image'"):
        start({"env": "kube", "options": {"imag": "x"}})


def test_ssh_workers_take_turns_on_the_hosts() -> None:
    backend = backend_of({"env": "ssh", "n_workers": 3, "options": {"remote_python": ["p0", "p1", "p2"]}})
    assert isinstance(backend, Ssh)
    options = backend.cluster_options(["a", "b", "c"])
    assert options["hosts"] == ["a", "b", "c", "b"]
    assert options["remote_python"] == ["p0", "p1", "p2", "p1"]
    assert backend_of({"env": "ssh", "n_workers": 2}).cluster_options(["a"])["hosts"] == ["a", "a", "a"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (
            {"env": "ssh", "options": {}},
            r"parallel\.options\.hosts: missing with env: ssh; expected a number",
        ),
        (
            {"env": "ssh", "n_workers": {"minimum": 1, "maximum": 2}, "options": {"hosts": ["a"]}},
            r"parallel\.n_workers: a range cannot be had with env: ssh",
        ),
        ({"env": "slurm", "options": {}}, r"parallel\.options: You must specify how much cores and memory"),
    ],
)
def test_what_a_cluster_needs_is_named(
    section: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "sbatch").write_text("#!/bin/sh\n")
    (tmp_path / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(ConfigError, match=message):
        start(section)


def test_every_env_has_an_executor_a_preset_and_a_file_that_agree() -> None:
    for env in Environment.__args__:  # type: ignore[attr-defined]
        if env == "none":
            continue
        assert isinstance(make_executor(PRESETS[env]), DaskExecutor)
        found = yaml.safe_load((CONFIGS / f"{env}.yaml").read_text(encoding="utf-8"))["parallel"]
        if env != "local":  # whose preset takes all of this machine
            assert found == PRESETS[env]


@pytest.mark.parametrize("env", [*QUEUES, "local", "ssh"])
def test_each_option_that_a_file_explains_exists(env: str) -> None:
    """Also those that are commented out: with all of them on, nothing is unknown."""
    text = (CONFIGS / f"{env}.yaml").read_text(encoding="utf-8")
    text = re.sub(r"^    # (?=[\w -]+:|  )", "    ", text, flags=re.M)
    options = yaml.safe_load(text)["parallel"]["options"]
    assert len(options) > 2
    backend = backend_of({"env": env, "options": options})
    seen: list[str] = []
    backend.built = lambda build, takers, **given: seen.append(takers)  # type: ignore[method-assign, assignment]
    if isinstance(backend, Batch):
        backend.build = lambda base, takers: seen.append(takers)  # type: ignore[method-assign, assignment]
        program = getattr(dask_jobqueue, backend.queue.cluster).job_cls.submit_command
        os.environ["PATH"], path = os.getcwd(), os.environ["PATH"]
        Path(program).write_text("#!/bin/sh\n")
        Path(program).chmod(0o755)
        try:
            backend.start()
        finally:
            os.environ["PATH"] = path
    else:
        backend.start()
    assert seen
