"""Workers that never come, on a real Slurm: exit code 4 within a bound, with the scheduler's reason and the
end of the log.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import Finished, StatsprepCommand

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


@pytest.fixture
def failed(
    statsprep: StatsprepCommand, cheap_recipe: Callable[..., Path], parallel: Callable[..., Path]
) -> Callable[..., Finished]:
    cheap_recipe()

    def run(code: int = 4, **options: Any) -> Finished:
        done = statsprep("run", "prep.yaml", "--parallel", parallel(**options), code=code, timeout_s=60)
        assert len(done.errors) == 1
        assert "Traceback" not in done.err
        assert not list(statsprep.folder.glob("parallel_logs/.*")), "the keys are gone"
        return done

    return run


def test_a_partition_that_is_not_there(failed: Callable[..., Finished]) -> None:
    assert (
        failed(queue="nosuch")
        .errors[0]
        .startswith(
            "error: no job was taken: sbatch ended with 1: sbatch: error: invalid partition specified: nosuch"
        )
    )


def test_more_gpus_than_a_node_has(failed: Callable[..., Finished]) -> None:
    error = failed(job_extra_directives=["--gres=gpu:3"]).errors[0]
    assert "Requested node configuration is not available" in error


def test_a_python_that_is_not_there(failed: Callable[..., Finished]) -> None:
    done = failed(python="/no/such/python")
    assert "jobs ended before a worker came; job " in done.errors[0]
    assert ": FAILED, NonZeroExitCode, exit code 127:0, on n" in done.errors[0]
    assert (
        "/no/such/python: No such file or directory; correct parallel.options and run the same"
        in done.errors[0]
    )


def test_a_python_without_statsprep(failed: Callable[..., Finished]) -> None:
    assert "No module named 'distributed'" in failed(python="/usr/bin/python3").errors[0]


def test_jobs_that_wait_for_too_long(failed: Callable[..., Finished]) -> None:
    done = failed(job_extra_directives=["--hold"], worker_timeout_s=5)
    assert "error: no worker for 5 s (parallel.worker_timeout_s); job " in done.errors[0]
    assert ": PENDING, JobHeldUser; correct" in done.errors[0]


def test_options_that_slurm_does_not_have(failed: Callable[..., Finished]) -> None:
    assert failed(code=2, cors=2).errors == [
        "error: parallel.options.cors: unknown; did you mean 'cores'?; expected arguments of "
        "dask_jobqueue.SLURMCluster; remove it"
    ]
