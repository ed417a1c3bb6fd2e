"""Who executes shards: the protocol, its registry, and the executor that works in this process."""

import contextlib
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Protocol, Self

from statsprep.engine.shard import ShardJob, ShardReport, ShardTask, run_shard
from statsprep.errors import ConfigError, listed, nearest


class Executor(Protocol):
    """Runs shards somewhere. A context manager: workers live as long as the block, for any number of runs.

    Attributes:
        in_process: the env is built by `build_env_local` here rather than by the worker setup there.
        num_workers: how many shards run at the same time.
    """

    in_process: bool
    num_workers: int

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def run(self, job: ShardJob, tasks: Iterable[ShardTask]) -> Generator[ShardReport]:
        """Yield a report per shard as each ends. The first error of a shard ends the iteration; closing it
        early cancels the rest.
        """
        ...


ExecutorFactory = Callable[[Mapping[str, Any]], Executor]

_factories: dict[str, ExecutorFactory] = {}
_default: Mapping[str, Any] | None = None


def register_executor(env: str, factory: ExecutorFactory) -> None:
    """Make `parallel: {env: ...}` mean the executor that `factory(parallel section)` builds."""
    _factories[env] = factory


def set_default_parallel(parallel: Mapping[str, Any] | None) -> None:
    """The parallel section that runners use from now on where none is given; None means this process."""
    global _default
    _default = parallel


def default_parallel() -> Mapping[str, Any] | None:
    """What `set_default_parallel` was given last."""
    return _default


def make_executor(parallel: Mapping[str, Any] | None) -> Executor:
    """The executor for a `parallel:` section; none, or `env: none`, means this process.

    Raises:
        ConfigError: no executor of that name is registered.
    """
    env = (parallel or {}).get("env", "none")
    if env == "none" or parallel is None:
        return InProcessExecutor()
    if env not in _factories:
        raise ConfigError(
            f"parallel.env: got {env!r}; expected one of {listed(['none', *sorted(_factories)], limit=20)}"
            f"{nearest(env, _factories)}"
        )
    return _factories[env](parallel)


class InProcessExecutor:
    """Shards one after the other, in this process: for small data and for debugging."""

    in_process = True
    num_workers = 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def run(self, job: ShardJob, tasks: Iterable[ShardTask]) -> Generator[ShardReport]:
        """Run each shard when its report is asked for."""
        with one_thread():
            for task in tasks:
                yield run_shard(job, task)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Numeric libraries use one thread inside the block, as they do on a worker: more threads give other
    bits.
    """
    from threadpoolctl import threadpool_limits

    torch = sys.modules.get("torch")
    before = torch.get_num_threads() if torch else None
    with threadpool_limits(1):
        if torch:
            torch.set_num_threads(1)
        try:
            yield
        finally:
            if torch:
                torch.set_num_threads(before)


class LazyExecutor:
    """The executor of a `parallel:` section, started when a shard is first to be run.

    A run that has nothing left to do, or whose config is refused, starts no worker; several splits share the
    workers.
    """

    def __init__(self, parallel: Mapping[str, Any] | None) -> None:
        self._parallel = parallel
        self._stack = contextlib.ExitStack()
        self._inner: Executor | None = None
        self.in_process = (parallel or {}).get("env", "none") == "none"
        self.num_workers = 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def run(self, job: ShardJob, tasks: Iterable[ShardTask]) -> Generator[ShardReport]:
        """Start the workers where they are not up, and run."""
        if self._inner is None:
            self._inner = self._stack.enter_context(make_executor(self._parallel))
            self.num_workers = self._inner.num_workers
        return self._inner.run(job, tasks)
