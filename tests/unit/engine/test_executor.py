"""Executors: chosen by name, started when there is work, and numerically alike."""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import torch
from threadpoolctl import threadpool_info

import statsprep.parallel  # noqa: F401  registers `local`
from statsprep.engine import executor as module
from statsprep.engine.executor import (
    InProcessExecutor,
    LazyExecutor,
    make_executor,
    one_thread,
    register_executor,
)
from statsprep.engine.shard import ShardJob, ShardReport, ShardTask
from statsprep.errors import ConfigError


class Fake:
    in_process = False
    num_workers = 7

    def __init__(self, log: list[Any], parallel: Any) -> None:
        self.log = log
        self.parallel = parallel

    def __enter__(self) -> "Fake":
        self.log.append(("start", self.parallel["n_workers"]))
        return self

    def __exit__(self, *error: object) -> None:
        self.log.append("stop")

    def run(self, job: ShardJob, tasks: Iterable[ShardTask]) -> Iterator[ShardReport]:
        self.log.append("run")
        return iter(())


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    calls: list[Any] = []
    monkeypatch.setattr(module, "_factories", dict(module._factories))
    register_executor("fake", lambda parallel: Fake(calls, parallel))
    return calls


def test_no_section_and_none_mean_this_process() -> None:
    for parallel in (None, {}, {"env": "none"}):
        assert isinstance(make_executor(parallel), InProcessExecutor)


def test_an_unknown_env_names_the_nearest() -> None:
    with pytest.raises(
        ConfigError,
        match=r"parallel\.env: got 'lokal'; expected one of 'none',.* 'local',.*did you mean 'local'",
    ):
        make_executor({"env": "lokal"})


JOB = ShardJob("run", None, dict)  # type: ignore[arg-type]


def test_workers_start_at_the_first_work_once_for_all_runs(log: list[Any]) -> None:
    with LazyExecutor({"env": "fake", "n_workers": 3}) as executor:
        assert log == []
        assert not executor.in_process
        list(executor.run(JOB, []))
        list(executor.run(JOB, []))
        assert executor.num_workers == 7
    assert log == [("start", 3), "run", "run", "stop"]


def test_workers_that_were_not_needed_never_start(log: list[Any]) -> None:
    with LazyExecutor({"env": "fake", "n_workers": 3}):
        pass
    assert log == []
    assert LazyExecutor(None).in_process


def test_numeric_libraries_use_one_thread_inside_the_block_as_workers_do() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with one_thread():
            assert torch.get_num_threads() == 1
            assert {pool["num_threads"] for pool in threadpool_info()} == {1}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
