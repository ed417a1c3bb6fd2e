"""Providers that fail, take long, or hold what cannot travel: an end within seconds, and the cause."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.conftest import RunDir, StatsprepCommand

TWO_WORKERS = ("parallel.env=local", "parallel.n_workers=2")

_CONFIG = """\
stats_dir: exp
provider: {_target_: src.prep.Provider}
runner: {_target_: src.prep.Square, shard_size: 10}
indices: 40
"""
_SQUARE = """\
import os, threading, time
from pathlib import Path
from statsprep import BaseRunner, EnvironmentProvider

class Square(BaseRunner):
    @staticmethod
    def forward(idx, **env):
        return idx * idx

class Provider(EnvironmentProvider):
    def build_env_local(self):
"""


def test_provider_that_fails_on_the_second_worker_ends_the_run(
    recipe: Callable[..., Path], statsprep: StatsprepCommand
) -> None:
    """The run ends within seconds, with exit code 4, one line, and the provider's own traceback below it."""
    config = recipe(
        _SQUARE
        + """\
        try:
            os.mkdir("first")
        except FileExistsError:
            raise RuntimeError("the second licence is in use")
        time.sleep(0.5)
        return {}
""",
        _CONFIG,
    )
    seen = statsprep("run", config, *TWO_WORKERS, code=4)
    assert seen.seconds < 20
    assert seen.errors == [
        "error: the provider could not build its env: RuntimeError: the second licence is in use; "
        "mend the provider or its config"
    ]
    assert 'raise RuntimeError("the second licence is in use")' in seen.err


def test_provider_that_fails_in_process_says_the_same(
    recipe: Callable[..., Path], statsprep: StatsprepCommand
) -> None:
    """Without workers the line, the traceback and the exit code are the same."""
    config = recipe(_SQUARE + '        raise RuntimeError("no licence")\n', _CONFIG)
    seen = statsprep("run", config, code=4)
    assert len(seen.errors) == 1
    assert "RuntimeError: no licence" in seen.errors[0]
    assert 'raise RuntimeError("no licence")' in seen.err


def test_provider_that_takes_twenty_seconds_works(
    tmp_path: Path, recipe: Callable[..., Path], statsprep: StatsprepCommand
) -> None:
    """No worker is taken for dead while it builds, even in code that holds the interpreter's lock; each
    builds once.
    """
    config = recipe(
        _SQUARE
        + """\
        import re
        Path(f"built.{os.getpid()}.{time.monotonic_ns()}").touch()
        end = time.monotonic() + 20
        while time.monotonic() < end:
            re.fullmatch("(x+x+)+y", "x" * 18)
        return {}
""",
        _CONFIG,
    )
    assert statsprep("run", config, *TWO_WORKERS).seconds > 20
    assert len(RunDir(tmp_path / "exp").ids()) == 40
    pids = [path.name.split(".")[1] for path in tmp_path.glob("built.*")]
    assert len(pids) == len(set(pids)) == 2


def test_object_that_cannot_travel_is_an_error_with_the_fix(
    recipe: Callable[..., Path], statsprep: StatsprepCommand
) -> None:
    """A lock in the worker setup cannot be pickled: said at once, on the driver, with what to write
    instead.
    """
    config = recipe(
        _SQUARE
        + """\
        return {}

    def make_worker_setup_fn(self):
        lock = threading.Lock()
        return lambda: {"lock": lock}
""",
        _CONFIG,
    )
    seen = statsprep("run", config, *TWO_WORKERS, code=2)
    assert len(seen.errors) == 1
    assert "make_worker_setup_fn's function cannot be sent to workers" in seen.errors[0]
    assert "build such objects inside setup()" in seen.errors[0]
    statsprep("run", config)


@pytest.mark.parametrize(
    ("result", "kind", "parallel"),
    [
        ("{1, 2}", "builtins.set", ()),
        ("{1, 2}", "builtins.set", TWO_WORKERS),
        ("np.zeros(3)", "numpy.ndarray", ()),
        ('float("nan")', "not JSON compliant", ()),
    ],
    ids=["set", "set_on_a_worker", "array", "nan"],
)
def test_result_that_is_no_json_is_an_error_with_the_fix(
    result: str,
    kind: str,
    parallel: tuple[str, ...],
    recipe: Callable[..., Path],
    statsprep: StatsprepCommand,
) -> None:
    """Named with index and type, and never counted as a bad utterance: the next one would be the same."""
    code = (
        _SQUARE.replace("return idx * idx", f"return {result} if idx == 25 else idx") + "        return {}\n"
    )
    config = recipe(f"import numpy as np\n{code}", _CONFIG)
    seen = statsprep("run", config, "runner.on_error=skip", *parallel, code=2)
    assert len(seen.errors) == 1
    assert "index 25" in seen.errors[0]
    assert kind in seen.errors[0]
    assert "into lists with .tolist()" in seen.errors[0]


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ("return [1]", "returned list; expected a dict"),
        ("return {'idx': 1}", "'idx' is passed by the runner and also stands in the env"),
    ],
)
def test_env_that_does_not_fit_is_an_error_with_the_fix(
    env: str, message: str, recipe: Callable[..., Path], statsprep: StatsprepCommand
) -> None:
    """What a provider returns is checked before the first item."""
    seen = statsprep("run", recipe(f"{_SQUARE}        {env}\n", _CONFIG), code=4 if "list" in message else 2)
    assert len(seen.errors) == 1
    assert message in seen.errors[0]
    assert "Traceback" not in seen.err


def test_missing_env_entry_is_named(recipe: Callable[..., Path], statsprep: StatsprepCommand) -> None:
    """A parameter of `forward` that the env lacks is named with the nearest entry."""
    code = _SQUARE.replace("idx, **env", "idx, *, datasets") + '        return {"dataset": [1]}\n'
    seen = statsprep("run", recipe(code, _CONFIG), code=2)
    assert "needs 'datasets'" in seen.errors[0]
    assert "did you mean 'dataset'?" in seen.errors[0]
