"""The env in a worker process: built once, lazily, behind a lock; and its injection by parameter name."""

import inspect
import threading
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from statsprep.engine.provider import Env
from statsprep.errors import ConfigError, StatsprepError, WorkerError, listed, nearest

# Reentrant: collecting garbage while an env is built may end another runner, which forgets its env.
_lock = threading.RLock()
_built: dict[str, Env | WorkerError] = {}


def env_of(run_id: str, setup: Callable[[], Env]) -> Env:
    """The env of a run in this process, built by `setup` at the first call.

    A failure is remembered: every further shard of the run fails at once with the provider's traceback,
    rather than trying a slow build again. It runs in the task's thread, so a build of minutes never stops a
    worker's heartbeat.

    Raises:
        WorkerError: `setup` failed; `detail` is its traceback.
    """
    with _lock:
        if run_id not in _built:
            _built[run_id] = _build(setup)
        env = _built[run_id]
    if isinstance(env, WorkerError):
        raise env
    return env


def forget_env(run_id: str) -> None:
    """Drop a run's env, so that its memory is free after the run."""
    with _lock:
        _built.pop(run_id, None)


def _build(setup: Callable[[], Env]) -> Env | WorkerError:
    try:
        env = setup()
    except StatsprepError:
        raise
    except Exception as error:
        return WorkerError(
            f"the provider could not build its env: {type(error).__name__}: {error}; mend the provider or "
            "its config",
            detail=traceback.format_exc(),
        )
    if not isinstance(env, Mapping):
        return WorkerError(
            f"the provider's setup returned {type(env).__name__}; expected a dict of the objects that "
            "forward needs"
        )
    return dict(env)


def bind_env(func: Callable[..., Any], env: Mapping[str, Any], *, given: int = 1) -> dict[str, Any]:
    """The keyword arguments that `func` takes from the env: those it names, or all where it has `**env`.

    Args:
        func: forward or a hook.
        env: what the provider built.
        given: how many leading positional arguments the caller passes itself.

    Raises:
        ConfigError: an env entry has the name of a given argument, or the env lacks a required one.
    """
    parameters = list(inspect.signature(func).parameters.values())
    name = getattr(func, "__qualname__", repr(func))
    taken = {each.name for each in parameters[:given]}
    rest = [each for each in parameters[given:] if each.kind is not inspect.Parameter.VAR_POSITIONAL]
    clash = taken & env.keys()
    takes_all = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in rest)
    if clash and takes_all:
        raise ConfigError(
            f"{name}: argument {listed(sorted(clash))} is passed by the runner and also stands in the env; "
            "rename the env entry"
        )
    named = [each for each in rest if each.kind is not inspect.Parameter.VAR_KEYWORD]
    for each in named:
        if each.default is inspect.Parameter.empty and each.name not in env:
            raise ConfigError(
                f"{name}: needs {each.name!r}, but the provider's env has {listed(sorted(env)) or 'nothing'}"
                f"{nearest(each.name, env)}; return it from the provider or give it a default"
            )
    if takes_all:
        return dict(env)
    return {each.name: env[each.name] for each in named if each.name in env}
