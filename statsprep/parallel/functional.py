"""ESPnet3's parallel helpers: one parallel section for the process, and maps over it with the env
injected.
"""

import contextlib
import secrets
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from statsprep.engine.env import bind_env, env_of, forget_env
from statsprep.engine.executor import default_parallel, one_thread, set_default_parallel
from statsprep.engine.plain import plain_config
from statsprep.engine.provider import Env

SetupFn = Callable[[], Env]

# The setup that belongs to a client of get_client, under the key of its env on the workers.
_setups: "weakref.WeakKeyDictionary[Any, tuple[str, SetupFn]]" = weakref.WeakKeyDictionary()


def set_parallel(config: Any) -> None:
    """Choose where runners of this process work from now on.

    Example:
        >>> set_parallel({"env": "local", "n_workers": 2})
        >>> set_parallel(None)  # back to this process

    Args:
        config: a `parallel:` section as dict or OmegaConf node, or None.

    Raises:
        ConfigError: an unknown key or a value out of range.
    """
    from statsprep.config.sections import ParallelSection, validate_section

    if config is None:
        set_default_parallel(None)
        return
    section = validate_section(
        ParallelSection, plain_config(config), where=Path("set_parallel"), key="parallel"
    )
    set_default_parallel(section.model_dump(exclude={"allow_overwrite_lock"}, exclude_none=True))


def get_parallel_config() -> Mapping[str, Any] | None:
    """The section that `set_parallel` took last, as a plain dict, or None."""
    return default_parallel()


@contextlib.contextmanager
def get_client(config: Any = None, setup_fn: SetupFn | None = None) -> Iterator[Any]:
    """A distributed.Client on a cluster of its own; both end with the block.

    Args:
        config: a `parallel:` section; by default what `set_parallel` chose.
        setup_fn: builds the env, once per worker process, when a map first needs it there.

    Raises:
        ConfigError: no parallel section is set, or it means this process.
    """
    from statsprep.errors import ConfigError
    from statsprep.parallel.clusters import open_client

    section = plain_config(config) if config is not None else default_parallel()
    if section is None or section.get("env", "none") == "none":
        raise ConfigError(
            "get_client: no workers are configured; call set_parallel({'env': 'local', 'n_workers': 2})"
        )
    with open_client(section) as client:
        if setup_fn is not None:
            _setups[client] = (secrets.token_hex(8), setup_fn)
        yield client


def parallel_map(
    func: Callable[..., Any], data: Iterable[Any], client: Any = None, *, setup_fn: SetupFn | None = None
) -> list[Any]:
    """`func` of each element, in the order of `data`.

    Env entries are passed by parameter name. Without a client, one is made for the call where `set_parallel`
    chose workers; else everything runs in this process.

    Args:
        func: module-level function of one element, and of env entries by name.
        data: the elements; sent in about 256 parts.
        client: of `get_client`.
        setup_fn: builds the env; a client of `get_client` brings its own.
    """
    elements = list(data)
    parts = dict(_run(func, elements, client, setup_fn))
    return [result for number in sorted(parts) for result in parts[number]]


def parallel_for(
    func: Callable[..., Any], args: Iterable[Any], client: Any = None, *, setup_fn: SetupFn | None = None
) -> Iterator[Any]:
    """As `parallel_map`, but yields results as they come, in no order."""
    for _, results in _run(func, list(args), client, setup_fn):
        yield from results


def _run(
    func: Callable[..., Any], elements: list[Any], client: Any, setup_fn: SetupFn | None
) -> Iterator[tuple[int, list[Any]]]:
    section = default_parallel()
    if client is None and section is not None and section.get("env", "none") != "none":
        with get_client(section) as own_client:
            yield from _run(func, elements, own_client, setup_fn)
        return
    env_key, setup = _setups.get(client, ("", None)) if client is not None else ("", None)
    if setup_fn is not None or setup is None:
        env_key, setup = secrets.token_hex(8), setup_fn or dict
    if client is None:
        try:
            with one_thread():
                yield 0, map_chunk(func, env_key, setup, elements)
        finally:
            forget_env(env_key)
        return
    yield from _run_on(client, func, env_key, setup, elements)


def _run_on(
    client: Any, func: Callable[..., Any], env_key: str, setup: SetupFn, elements: list[Any]
) -> Iterator[tuple[int, list[Any]]]:
    from distributed import as_completed

    from statsprep.parallel.clusters import chunk_length

    length = chunk_length(len(elements))
    numbers = {}
    for start in range(0, len(elements), length):
        future = client.submit(map_chunk, func, env_key, setup, elements[start : start + length], pure=False)
        numbers[future] = start
    try:
        for future in as_completed(list(numbers)):
            yield numbers.pop(future), future.result()
            future.release()
    finally:
        if numbers:
            client.cancel(list(numbers))


def map_chunk(func: Callable[..., Any], env_key: str, setup: SetupFn, elements: list[Any]) -> list[Any]:
    """On a worker: `func` of some elements, with this process's env."""
    arguments = bind_env(func, env_of(env_key, setup))
    results = []
    for element in elements:
        try:
            results.append(func(element, **arguments))
        except Exception as error:
            error.add_note(f"while handling {element!r}")
            raise
    return results
