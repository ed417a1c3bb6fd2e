"""Shards on Dask workers: the bytes of one process, whoever dies on the way."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from statsprep.engine.executor import set_default_parallel
from statsprep.engine.provider import EnvironmentProvider
from statsprep.engine.records import Record
from statsprep.engine.runner import BaseRunner
from statsprep.errors import ConfigError, DataError, StatsprepError, WorkerError
from statsprep.parallel.dask_executor import DaskExecutor

TWO = {"env": "local", "n_workers": 2}


class Provider(EnvironmentProvider):
    def build_env_local(self) -> dict[str, Any]:
        return dict(self.params)


class Measure(BaseRunner):
    """Dies at each of `deadly`, for ever, or once each with a folder `once`; notes what it handles in
    `log`.
    """

    @staticmethod
    def forward(
        idx: int, log: str = os.devnull, deadly: Sequence[int] = (), once: str | None = None, bad: int = -1
    ) -> Any:
        if idx in deadly and (once is None or not os.path.exists(f"{once}/{idx}")):
            if once is not None:
                os.mkdir(f"{once}/{idx}")
            os.kill(os.getpid(), signal.SIGKILL)
        with open(log, "a") as stream:
            stream.write(f"{idx}\n")
        if idx == bad:
            raise ValueError("bad item")
        return (
            None
            if idx % 9 == 4
            else Record({"n": idx, "shape": (idx, 80)}, {"row": np.full((2, 3), idx / 7)})
        )

    @staticmethod
    def open_writers(shard_dir: Path, **env: Any) -> dict[str, Any]:
        return {"rows": open(shard_dir / "rows", "w")}

    @staticmethod
    def write_record(writers: dict[str, Any], result: Any, state: dict[str, Any], **env: Any) -> None:
        writers["rows"].write(f"{state['index']} {result.rows['row'].sum()!r}\n")

    @staticmethod
    def merge_files(shard_dirs: Sequence[Path], out_dir: Path) -> None:
        (out_dir / "rows").write_text("".join((folder / "rows").read_text() for folder in shard_dirs))


class DyingAtTheEnd(Measure):
    @staticmethod
    def close_writers(writers: dict[str, Any], state: dict[str, Any], **env: Any) -> None:
        if state["shard_id"] == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        writers["rows"].close()


def make(output_dir: Path | None, kind: type[Measure] = Measure, **params: Any) -> Measure:
    provider = Provider({}, params=params)
    return kind(provider, output_dir=output_dir, shard_size=10)


def merged(root: Path) -> dict[str, bytes]:
    names = json.loads((root / "merged.json").read_text())["files"]
    return {name: (root / name).read_bytes() for name in names}


def handled(log: Path) -> list[int]:
    return sorted(map(int, log.read_text().split()))


@pytest.fixture(scope="module")
def executor() -> Iterator[DaskExecutor]:
    with DaskExecutor(TWO) as executor:
        yield executor


def test_workers_give_the_bytes_of_one_process(tmp_path: Path, executor: DaskExecutor) -> None:
    make(tmp_path / "here").run(range(95))
    report = make(tmp_path / "there").run(range(95), executor=executor)
    assert merged(tmp_path / "there") == merged(tmp_path / "here")
    assert report.counts == {"ok": 84, "dropped": 11, "error": 0}


def test_a_run_begun_in_one_mode_goes_on_in_another(tmp_path: Path, executor: DaskExecutor) -> None:
    log = tmp_path / "log"
    with pytest.raises(DataError, match=r"utterance '33' \(index 33\): ValueError: bad item"):
        make(tmp_path / "run", log=str(log), bad=33).run(range(60))
    first = handled(log)
    with pytest.raises(DataError, match=r"utterance '33' \(index 33\): ValueError: bad item") as caught:
        make(tmp_path / "run", log=str(log), bad=33).run(range(60), executor=executor)
    assert 'raise ValueError("bad item")' in caught.value.detail
    assert first == list(range(34))
    assert [index for index in range(33) if handled(log).count(index) != 1] == []


def test_a_list_comes_back_as_in_process(tmp_path: Path) -> None:
    set_default_parallel(TWO)
    try:
        found = make(None)([*range(30), 3, 3])
    finally:
        set_default_parallel(None)
    assert found == make(None)([*range(30), 3, 3])
    assert found[0] == {"n": 0, "shape": [0, 80]}


def test_two_runs_on_the_same_workers_do_not_share_an_env(tmp_path: Path, executor: DaskExecutor) -> None:
    for name in ("a", "b"):
        make(tmp_path / name, log=str(tmp_path / f"{name}.log")).run(range(20), executor=executor)
    assert handled(tmp_path / "a.log") == handled(tmp_path / "b.log") == list(range(20))


def test_what_cannot_be_sent_to_workers_is_named_before_anything_runs(
    tmp_path: Path, executor: DaskExecutor
) -> None:
    class Holding(Provider):
        def make_worker_setup_fn(self) -> Any:
            lock = threading.Lock()
            return lambda: {"lock": lock}

    runner = Measure(Holding({}), output_dir=tmp_path, shard_size=10)
    with pytest.raises(
        ConfigError, match=r"make_worker_setup_fn's function cannot be sent to workers \(TypeError: .*lock"
    ):
        runner.run(range(20), executor=executor)


def test_a_provider_that_fails_on_a_worker_ends_the_run_at_once_with_its_traceback(
    tmp_path: Path, executor: DaskExecutor
) -> None:
    class Failing(Provider):
        def make_worker_setup_fn(self) -> Any:
            def load_model() -> dict[str, Any]:
                raise OSError("no checkpoint")

            return load_model

    began = time.monotonic()
    with pytest.raises(WorkerError, match="could not build its env: OSError: no checkpoint") as caught:
        Measure(Failing({}), output_dir=tmp_path, shard_size=1).run(range(500), executor=executor)
    assert "in load_model" in caught.value.detail
    assert time.monotonic() - began < 20


def test_workers_killed_mid_shard_lose_no_finished_item(tmp_path: Path) -> None:
    """More often than a shard is tried without progress: each death came one item later."""
    log, once = tmp_path / "log", tmp_path / "once"
    once.mkdir()
    make(tmp_path / "undisturbed").run(range(60))
    with DaskExecutor(TWO) as executor:
        make(tmp_path / "killed", log=str(log), deadly=[22, 24, 25, 27], once=str(once)).run(
            range(60), executor=executor
        )
    assert len(list(once.iterdir())) == 4
    assert merged(tmp_path / "killed") == merged(tmp_path / "undisturbed")
    assert handled(log) == list(range(60)), "each item once"


def test_an_item_that_kills_three_workers_is_given_up_and_named(tmp_path: Path) -> None:
    with DaskExecutor(TWO) as executor, pytest.raises(WorkerError) as caught:
        make(tmp_path, deadly=[13]).run(range(60), executor=executor)
    assert str(caught.value).startswith(
        "'split.1 at index 13': the workers died there 3 times in a row (killed, or out of memory); look at "
        "that"
    )
    assert caught.value.exit_code == 4
    assert sorted(path.name for path in tmp_path.glob("split.*")) == [f"split.{n}" for n in (0, 2, 3, 4, 5)]


def test_workers_that_die_after_the_last_item_are_told_apart(tmp_path: Path) -> None:
    with DaskExecutor({"env": "local", "n_workers": 1}) as executor, pytest.raises(WorkerError) as caught:
        make(tmp_path, DyingAtTheEnd).run(range(20), executor=executor)
    assert "'split.1 after its last item': the workers died there 3 times" in str(caught.value)


SCRIPT = """\
from statsprep import BaseRunner, EnvironmentProvider, set_parallel

class Provider(EnvironmentProvider):
    def build_env_local(self):
        return {"offset": 100}

class Add(BaseRunner):
    @staticmethod
    def forward(idx, *, offset):
        return idx + offset

set_parallel({"env": "local", "n_workers": 2})
print(Add(Provider({}))(range(5)))
print(Add(Provider({}), output_dir="exp")(range(5)).counts)
"""


def test_a_script_without_a_main_guard_works_with_classes_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["[100, 101, 102, 103, 104]", "{'ok': 5, 'dropped': 0, 'error': 0}"]


def test_errors_travel_between_processes_whole() -> None:
    import pickle

    error = pickle.loads(pickle.dumps(WorkerError("message", detail="lines")))
    assert (type(error), error.message, error.detail) == (WorkerError, "message", "lines")
    assert isinstance(error, StatsprepError)
