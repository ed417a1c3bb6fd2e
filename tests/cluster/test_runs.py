"""Runs on a real Slurm: the bytes of one process, the options of ESPnet3's guide, encrypted and placed as
asked for.
"""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.conftest import Slurm, processes_of
from tests.integration.conftest import ROOT, RunDir, Started, StatsprepCommand, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]


def wait_for_jobs(slurm: Slurm, number: int, started: Started) -> dict[int, str]:
    """So many running jobs of a run, each with its node."""

    def running() -> dict[int, str]:
        found = slurm.jobs("RUNNING")
        return found if len(found) >= number or not started.is_running else {}

    found: dict[int, str] = wait_until(running, timeout_s=60, poll_s=0.1)
    assert len(found) >= number, started.wait().err
    return found


def worker_of(job: int) -> int:
    """The process of a job's worker: the one that a nanny spawned."""

    def spawned() -> list[int]:
        found = processes_of("SLURM_JOB_ID", str(job))
        return [pid for pid, line in found.items() if "spawn_main" in line]

    found: list[int] = wait_until(spawned, poll_s=0.1)
    return found[0]


def driver_address(slurm: Slurm) -> str:
    """Where the workers of the running jobs were told to find the scheduler."""
    lines = wait_until(lambda: list(processes_of("SLURM_JOB_NAME", "statsprep").values()), poll_s=0.1)
    return next(word for line in lines for word in line.split() if "://" in word)


# The GPU block of ESPnet3's guide, with its unquoted `walltime: 30:00`, cut to this Slurm's size.
GUIDE = """\
parallel:
  env: slurm
  n_workers: 2
  options:
    queue: cpu
    cores: {cores}
    processes: 1
    memory: 2GB
    walltime: 30:00
    interface: lo
    job_extra_directives:
      - "--gres=gpu:1"
"""


def test_the_real_corpus_gives_the_bytes_of_one_process(
    asterisk: Path, statsprep: StatsprepCommand, slurm: Slurm, parallel: Callable[..., Path]
) -> None:
    """Whatever number of threads the jobs' cores allow."""
    os.symlink(asterisk / "data", statsprep.folder / "data")
    config = ROOT / "configs" / "asterisk" / "stats.yaml"
    alone, there, threads = (statsprep.folder / name for name in ("alone", "there", "threads"))
    statsprep("run", config, f"stats_dir={alone}")
    started = statsprep.start(
        "run", config, f"stats_dir={there}", "--parallel", parallel(text=GUIDE.format(cores=1))
    )
    job = slurm.job(min(wait_for_jobs(slurm, 2, started)))
    started.wait().check()
    assert (job["TimeLimit"], job["NumCPUs"], job["JobName"]) == ("00:30:00", "1", "statsprep")
    path = parallel(text=GUIDE.format(cores=2))
    started = statsprep.start("run", config, f"stats_dir={threads}", "--splits", "valid", "--parallel", path)
    worker = worker_of(min(wait_for_jobs(slurm, 2, started)))
    assert worker in processes_of("OMP_NUM_THREADS", "2")
    started.wait().check()
    for split in ("train", "valid"):
        assert RunDir(there / split).merged() == RunDir(alone / split).merged()
    assert RunDir(threads / "valid").merged() == RunDir(alone / "valid").merged()


def test_a_folder_of_any_name_works(
    weird_folder: Path,
    statsprep_in: Callable[[Path], StatsprepCommand],
    statsprep: StatsprepCommand,
    cheap_recipe: Callable[..., Path],
    parallel: Callable[..., Path],
) -> None:
    """Spaces, quotes, percent, dollar and other scripts in the working folder, where logs and keys lie."""
    cheap_recipe()
    for name in ("src", "prep.yaml"):
        (statsprep.folder / name).rename(weird_folder / name)
    command = statsprep_in(weird_folder)
    command.env = statsprep.env
    command("run", "prep.yaml", "stats_dir=alone")
    command("run", "prep.yaml", "--parallel", parallel())
    assert RunDir(weird_folder / "exp").merged() == RunDir(weird_folder / "alone").merged()
    assert [path.name[:10] for path in (weird_folder / "parallel_logs").glob("*.err")] == ["statsprep-"] * 2
    assert not list((weird_folder / "parallel_logs").glob(".*")), "the keys are gone"


@pytest.fixture
def weird_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "a b \"c\" 'd' $e #f %20 %j яз語"
    folder.mkdir()
    return folder


def test_four_workers_hold_a_gpu_each_on_two_nodes_or_more(
    statsprep: StatsprepCommand,
    recipe: Callable[..., Path],
    slurm: Slurm,
    parallel: Callable[..., Path],
) -> None:
    recipe(
        """\
        import os, time
        from statsprep import BaseRunner, EnvironmentProvider

        class Provider(EnvironmentProvider):
            def build_env_local(self):
                return {}

        class Where(BaseRunner):
            @staticmethod
            def forward(idx):
                time.sleep(0.2)
                names = ("SLURM_JOB_ID", "SLURMD_NODENAME", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")
                return {"seen": [os.environ[name] for name in names]}
        """,
        """\
        stats_dir: exp
        indices: 80
        provider: {_target_: src.prep.Provider}
        runner: {_target_: src.prep.Where, shard_size: 1}
        """,
    )
    statsprep("run", "prep.yaml", "--parallel", parallel(4, job_extra_directives="--gres=gpu:1"))
    seen = {tuple(line["result"]["seen"]) for line in RunDir(statsprep.folder / "exp").lines("results.jsonl")}
    assert len({job for job, *_ in seen}) == 4
    devices = {(node, device) for _, node, device, _ in seen}
    assert len(devices) == 4, "each its own"
    assert {device for _, device in devices} <= {"0", "1"}
    assert len({node for node, _ in devices}) >= 2
    assert {threads for *_, threads in seen} == {"1"}


def test_a_number_of_workers_that_follows_the_work(
    statsprep: StatsprepCommand, expected: dict[str, str], parallel: Callable[..., Path]
) -> None:
    path = parallel({"minimum": 0, "maximum": 3})
    statsprep("run", "prep.yaml", "--parallel", path, PAUSE_S="0.02")
    assert RunDir(statsprep.folder / "exp").merged() == expected


def test_two_workers_share_a_job(
    statsprep: StatsprepCommand, expected: dict[str, str], slurm: Slurm, parallel: Callable[..., Path]
) -> None:
    started = statsprep.start(
        "run", "prep.yaml", "--parallel", parallel(2, cores=2, processes=2), PAUSE_S="0.02"
    )
    assert len(wait_for_jobs(slurm, 1, started)) == 1
    started.wait().check()
    assert RunDir(statsprep.folder / "exp").merged() == expected


def test_who_has_no_key_is_refused(
    statsprep: StatsprepCommand, expected: dict[str, str], slurm: Slurm, parallel: Callable[..., Path]
) -> None:
    """Neither a plain client nor one with keys of its own gets an answer from the scheduler."""
    from distributed import Client
    from distributed.security import Security

    started = statsprep.start("run", "prep.yaml", "--parallel", parallel(1), PAUSE_S="0.01")
    address = driver_address(slurm)
    assert address.startswith("tls://127.0.0.1:")

    async def greet(address: str, security: Security) -> None:
        async with Client(address, security=security, asynchronous=True, timeout=3):
            pass

    for target, security in (
        (address.replace("tls", "tcp"), Security()),
        (address, Security.temporary()),
    ):
        with pytest.raises(OSError, match=r".+"):
            asyncio.run(greet(target, security))
    started.wait().check()
    assert RunDir(statsprep.folder / "exp").merged() == expected


def test_a_driver_inside_a_job_submits_as_from_outside(
    statsprep: StatsprepCommand, expected: dict[str, str], slurm: Slurm, parallel: Callable[..., Path]
) -> None:
    """What a job's shell has set does not become a wish for the workers' jobs."""
    of_a_job = {
        "SLURM_JOB_ID": "77", "SLURM_ARRAY_TASK_ID": "5", "SLURM_CPUS_PER_TASK": "2",
        "SLURM_MEM_PER_CPU": "3", "CUDA_VISIBLE_DEVICES": "1",
    }  # fmt: skip
    started = statsprep.start("run", "prep.yaml", "--parallel", parallel(1), PAUSE_S="0.01", **of_a_job)
    job = min(wait_for_jobs(slurm, 1, started))
    workers = wait_until(lambda: processes_of("SLURM_JOB_ID", str(job)), poll_s=0.1)
    environment = Path(f"/proc/{max(workers)}/environ").read_bytes().split(b"\0")
    names = {entry.partition(b"=")[0] for entry in environment}
    assert not names & {b"SLURM_ARRAY_TASK_ID", b"SLURM_MEM_PER_CPU", b"CUDA_VISIBLE_DEVICES"}
    started.wait().check()
    assert RunDir(statsprep.folder / "exp").merged() == expected


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_run_cancels_its_jobs_and_goes_on_later(
    number: signal.Signals,
    statsprep: StatsprepCommand,
    expected: dict[str, str],
    slurm: Slurm,
    parallel: Callable[..., Path],
) -> None:
    path, log = parallel(), statsprep.folder / "measured"
    started = begun(statsprep, path, log)
    started.interrupt(number, group=number == signal.SIGINT)
    assert started.wait(60).code == 75
    wait_until(lambda: not slurm.jobs(), timeout_s=30, poll_s=0.2)
    statsprep("run", "prep.yaml", "--parallel", path)
    assert RunDir(statsprep.folder / "exp").merged() == expected


def test_a_run_stopped_while_its_jobs_wait_cancels_them(
    statsprep: StatsprepCommand,
    cheap_recipe: Callable[..., Path],
    slurm: Slurm,
    parallel: Callable[..., Path],
) -> None:
    path = parallel(job_extra_directives=["--hold"])
    started = statsprep.start("run", cheap_recipe(), "--parallel", path)
    wait_until(lambda: len(slurm.jobs("PENDING")) == 2, timeout_s=60, poll_s=0.1)
    started.interrupt(signal.SIGTERM)
    assert started.wait(60).code == 75
    assert not slurm.jobs("PENDING,RUNNING")


def begun(statsprep: StatsprepCommand, path: Path, log: Path, pause_s: float = 0.02) -> Started:
    """A run whose workers have measured something."""
    started = statsprep.start("run", "prep.yaml", "--parallel", path, PAUSE_S=str(pause_s), MEASURED=str(log))
    wait_until(lambda: log.exists() or not started.is_running, timeout_s=60, poll_s=0.05)
    assert started.is_running, started.wait().err
    return started
