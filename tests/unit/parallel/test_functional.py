"""ESPnet3's parallel helpers: one section per process, maps in order, the env by parameter name."""

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from omegaconf import OmegaConf

from statsprep import get_client, get_parallel_config, parallel_for, parallel_map, set_parallel
from statsprep.engine.executor import set_default_parallel
from statsprep.errors import ConfigError, WorkerError
from statsprep.parallel.clusters import chunk_length


@pytest.fixture(autouse=True)
def section_reset(nothing_leaks: None) -> Iterator[None]:
    yield
    set_default_parallel(None)


def setup_env() -> dict[str, Any]:
    return {"offset": 100, "worker": os.getpid(), "unused": object}


def add(number: int, offset: int, *, scale: int = 2) -> int:
    return number * scale + offset


def where(number: int, worker: int) -> tuple[int, int]:
    assert worker == os.getpid(), "the env was built in this process"
    return number, worker


def fail_at_seven(number: int) -> int:
    if number == 7:
        raise ValueError("seven")
    return number


def read_variable(number: int) -> tuple[int, str | None]:
    return number, os.environ.get("OMP_NUM_THREADS")


def test_the_section_set_last_is_a_plain_validated_dict() -> None:
    assert get_parallel_config() is None
    set_parallel(OmegaConf.create({"env": "local", "n_workers": 2, "options": {"memory_limit": "1GB"}}))
    assert get_parallel_config() == {"env": "local", "n_workers": 2, "options": {"memory_limit": "1GB"}}
    set_parallel({"env": "local", "n_workers": {"minimum": 1, "maximum": 4}})
    assert get_parallel_config() == {"env": "local", "n_workers": {"minimum": 1, "maximum": 4}, "options": {}}
    set_parallel(None)
    assert get_parallel_config() is None


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"env": "locl"}, r"parallel\.env: 'locl' is not valid; expected one of .*did you mean 'local'"),
        ({"env": "local", "n_worker": 2}, r"parallel: unknown key 'n_worker'; did you mean 'n_workers'"),
        ({"env": "local", "n_workers": 0}, r"parallel\.n_workers: .*at least 1"),
        ("local", "parallel: 'local' is not valid; expected a mapping"),
    ],
)
def test_a_wrong_section_is_refused_and_the_earlier_one_stays(section: Any, message: str) -> None:
    set_parallel({"env": "local", "n_workers": 3})
    with pytest.raises(ConfigError, match=message):
        set_parallel(section)
    assert (get_parallel_config() or {})["n_workers"] == 3


def test_without_workers_maps_run_here_in_order() -> None:
    assert parallel_map(add, range(4), setup_fn=setup_env) == [100, 102, 104, 106]
    assert parallel_map(fail_at_seven, [3, 1, 2]) == [3, 1, 2]
    assert parallel_map(fail_at_seven, []) == []
    assert list(parallel_for(add, iter([1]), setup_fn=setup_env)) == [102]


def test_an_error_names_the_element() -> None:
    with pytest.raises(ValueError, match="seven") as caught:
        parallel_map(fail_at_seven, range(10))
    assert caught.value.__notes__ == ["while handling 7"]


def test_a_missing_env_entry_is_named() -> None:
    with pytest.raises(ConfigError, match="add: needs 'offset', but the provider's env has nothing"):
        parallel_map(add, [1])


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (None, "no workers are configured; call set_parallel"),
        ({"env": "none"}, "no workers are configured"),
    ],
)
def test_a_client_needs_workers(config: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message), get_client(config):
        pass


@pytest.mark.parametrize(("num_items", "length"), [(0, 1), (1, 1), (256, 1), (257, 2), (10**6, 3907)])
def test_a_map_of_any_length_has_about_256_parts(num_items: int, length: int) -> None:
    assert chunk_length(num_items) == length


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with get_client({"env": "local", "n_workers": 2}, setup_env) as client:
        yield client


def test_a_map_on_workers_keeps_the_order_and_the_clients_env(client: Any) -> None:
    assert parallel_map(add, range(600), client) == [100 + 2 * n for n in range(600)]


def test_the_env_is_built_in_the_worker_once(client: Any) -> None:
    found = parallel_map(where, range(300), client)
    assert [number for number, _ in found] == list(range(300))
    workers = {worker for _, worker in found}
    assert os.getpid() not in workers
    assert len(workers) <= 2


def test_another_setup_for_one_map_leaves_the_clients_env_alone(client: Any) -> None:
    assert parallel_map(add, [1], client, setup_fn=lambda: {"offset": 0}) == [2]
    assert parallel_map(add, [1], client) == [102]


def test_results_of_a_loop_come_as_they_end(client: Any) -> None:
    assert sorted(parallel_for(add, range(300), client)) == [100 + 2 * n for n in range(300)]


def test_a_workers_error_names_the_element(client: Any) -> None:
    with pytest.raises(ValueError, match="seven") as caught:
        parallel_map(fail_at_seven, range(10), client)
    assert "while handling 7" in getattr(caught.value, "__notes__", [])


def test_numeric_libraries_have_one_thread_on_workers(client: Any) -> None:
    assert parallel_map(read_variable, [1], client) == [(1, "1")]


def test_an_env_that_cannot_be_built_is_told_with_its_traceback(client: Any) -> None:
    def load_lexicon() -> dict[str, Any]:
        raise OSError("no lexicon")

    with pytest.raises(WorkerError, match="could not build its env: OSError: no lexicon") as caught:
        parallel_map(add, [1], client, setup_fn=load_lexicon)
    assert "in load_lexicon" in caught.value.detail


def test_set_parallel_gives_maps_workers_of_their_own() -> None:
    set_parallel({"env": "local", "n_workers": 1})
    ((_, worker),) = parallel_map(where, [5], setup_fn=setup_env)
    assert worker != os.getpid()


def test_a_wrong_option_of_the_cluster_is_named() -> None:
    section = {"env": "local", "n_workers": 1, "options": {"memory_limt": 1}}
    message = r"parallel\.options.*memory_limt.*; expected arguments of dask"
    with pytest.raises(ConfigError, match=message), get_client(section):
        pass
    assert "distributed" in sys.modules
