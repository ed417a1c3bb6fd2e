"""The env: injected by name, built once per process, and its failure told once with its cause."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from statsprep.engine.env import bind_env, env_of, forget_env
from statsprep.engine.provider import EnvironmentProvider, worker_setup_of
from statsprep.errors import ConfigError, DataError, WorkerError

ENV = {"dataset": "D", "model": "M", "device": "cpu"}


@pytest.fixture
def run_id() -> Iterator[str]:
    yield "run-of-test"
    forget_env("run-of-test")


def named(idx: int, dataset: Any, *, model: Any = None, other: int = 5) -> None: ...
def everything(idx: int, *, dataset: Any, **env: Any) -> None: ...
def positional(idx: int, dataset: Any, /) -> None: ...
def needs_more(idx: int, *, dataset: Any, modle: Any) -> None: ...
def clashes(dataset: int, **env: Any) -> None: ...
def names_its_index_so(dataset: int, *, model: Any) -> None: ...
def bare(*args: Any) -> None: ...


def test_entries_are_passed_by_parameter_name() -> None:
    assert bind_env(named, ENV) == {"dataset": "D", "model": "M"}


def test_all_entries_go_where_env_is_taken() -> None:
    assert bind_env(everything, ENV) == ENV


def test_a_missing_entry_names_what_there_is_and_the_nearest() -> None:
    with pytest.raises(ConfigError) as caught:
        bind_env(needs_more, ENV)
    assert str(caught.value) == (
        "needs_more: needs 'modle', but the provider's env has 'dataset', 'device', 'model'; did you mean "
        "'model'?; "
        "return it from the provider or give it a default"
    )
    with pytest.raises(ConfigError, match="the provider's env has nothing"):
        bind_env(needs_more, {})


def test_a_name_given_twice_is_told() -> None:
    with pytest.raises(
        ConfigError, match=r"clashes: argument 'dataset' is passed by the runner and also stands in"
    ):
        bind_env(clashes, ENV)
    assert bind_env(names_its_index_so, ENV) == {"model": "M"}, "harmless where the entry is not asked for"


def test_star_args_need_nothing() -> None:
    assert bind_env(bare, ENV) == {}


def test_the_env_is_built_once_for_many_threads(run_id: str) -> None:
    built = []

    def setup() -> dict[str, Any]:
        built.append(threading.get_ident())
        time.sleep(0.05)
        return {"n": len(built)}

    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(env_of(run_id, setup))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(built) == 1
    assert found == [{"n": 1}] * 8


def test_a_failed_build_is_not_tried_again_and_keeps_the_traceback(run_id: str) -> None:
    calls = []

    def load_the_corpus() -> dict[str, Any]:
        calls.append(1)
        raise OSError("no such corpus")

    for _ in range(3):
        with pytest.raises(WorkerError, match="could not build its env: OSError: no such corpus") as caught:
            env_of(run_id, load_the_corpus)
        assert "in load_the_corpus" in caught.value.detail
    assert len(calls) == 1


def test_a_deliberate_error_of_the_provider_keeps_its_kind(run_id: str) -> None:
    def setup() -> dict[str, Any]:
        raise DataError("train.jsonl:3: bad")

    with pytest.raises(DataError, match=r"train\.jsonl:3"):
        env_of(run_id, setup)


def test_a_setup_that_returns_no_dict_is_told(run_id: str) -> None:
    with pytest.raises(WorkerError, match="setup returned list; expected a dict"):
        env_of(run_id, lambda: ["dataset"])  # type: ignore[arg-type, return-value]


def test_two_runs_do_not_share_an_env() -> None:
    assert env_of("run-a", lambda: {"x": 1}) != env_of("run-b", lambda: {"x": 2})
    forget_env("run-a")
    forget_env("run-b")
    assert env_of("run-a", lambda: {"x": 3}) == {"x": 3}
    forget_env("run-a")


class Local(EnvironmentProvider):
    def build_env_local(self) -> dict[str, Any]:
        return {"from": "local", **self.params}


class Worker(EnvironmentProvider):
    def make_worker_setup_fn(self) -> Any:
        return lambda: {"from": "worker"}


class Second(EnvironmentProvider):
    def build_worker_setup_fn(self) -> Any:
        return lambda: {"from": "second"}


class Both(Second):
    def make_worker_setup_fn(self) -> Any:
        return lambda: {"from": "first"}


class Neither(EnvironmentProvider):
    pass


def test_one_of_the_two_methods_is_enough() -> None:
    assert worker_setup_of(Local(None, params={"a": 1}))() == {"from": "local", "a": 1}
    assert Worker(None).build_env_local() == {"from": "worker"}


def test_both_spellings_of_the_setup_are_honoured() -> None:
    assert worker_setup_of(Second(None))() == Second(None).build_env_local() == {"from": "second"}
    assert worker_setup_of(Both(None))() == {"from": "first"}


def test_a_provider_without_either_says_which_to_write() -> None:
    with pytest.raises(TypeError, match="Neither overrides neither build_env_local nor make_worker_setup_fn"):
        Neither(None).build_env_local()


def test_a_setup_that_is_no_function_is_told() -> None:
    class Wrong(EnvironmentProvider):
        def make_worker_setup_fn(self) -> Any:
            return {"dataset": []}

    with pytest.raises(TypeError, match="make_worker_setup_fn returned dict; expected a function"):
        worker_setup_of(Wrong(None))


def test_a_runner_may_end_while_an_env_is_built() -> None:
    """Garbage collection ends it at any moment, in the thread that builds."""

    def setup() -> dict[str, Any]:
        forget_env("another run")
        return {}

    building = threading.Thread(target=env_of, args=("run", setup), daemon=True)
    building.start()
    building.join(10)
    assert not building.is_alive()
    forget_env("run")
