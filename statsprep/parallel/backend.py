"""A cluster of the class that Dask has for one `parallel.env`, started with the user's options."""

import importlib
import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from statsprep.errors import ConfigError, WorkerError, nearest
from statsprep.parallel.keys import KeyFolder
from statsprep.parallel.supply import Supply


class Backend:
    """Starts and ends the cluster of a `parallel:` section.

    Attributes:
        package, extra: what has to be installed, and by which name pip knows it.
        on_other_hosts: workers do not share this process's folder and module search path.
        timeout_s: how long a run waits while it has no worker.
    """

    package = "distributed"
    extra = ""
    on_other_hosts = True
    timeout_s = 300.0

    def __init__(self, env: str, workers: int | Mapping[str, int], options: Mapping[str, Any]) -> None:
        self.env = env
        self.is_adaptive = isinstance(workers, Mapping)
        self.bounds = dict(workers) if isinstance(workers, Mapping) else {"minimum": workers}
        self.options = dict(options)
        self.keys: KeyFolder | None = None

    def module(self, name: str) -> Any:
        """A module of the package behind this env."""
        try:
            return importlib.import_module(name)
        except ImportError as error:
            raise ConfigError(
                f"parallel.env: {self.env!r} needs {error.name}, which is not installed; "
                f"pip install {self.extra or self.package}"
            ) from error

    def check_options(self, known: Iterable[str], takers: str) -> None:
        names = set(known) - {"self", "args", "kwargs", "n_workers", "loop", "asynchronous"}
        for name in self.options:
            if name not in names:
                hint = nearest(name, names)
                raise ConfigError(
                    f"parallel.options.{name}: unknown{hint}; expected arguments of {takers}; remove it"
                )

    def start(self) -> Any:
        """A cluster that is up; its workers may come later.

        Raises:
            ConfigError: an option is unknown or has a wrong value, or a package is missing.
            WorkerError: the cluster did not start.
        """
        raise NotImplementedError

    def settings(self) -> dict[str, Any]:
        """Dask's settings that this cluster needs besides the usual ones."""
        return {}

    def ask(self, cluster: Any) -> None:
        """Ask for the workers, unless `start` did."""
        if self.is_adaptive:
            cluster.adapt(**self.bounds)

    def watch(self, cluster: Any, timeout_s: float) -> Supply | None:
        """A watch over workers that may not come, where the cluster keeps none itself."""
        return None

    def release(self) -> None:
        """Remove what outlives the cluster, or a start that failed."""
        if self.keys is not None:
            self.keys.remove()

    def built(self, build: Any, takers: str, **options: Any) -> Any:
        """`build(**options)`, with errors that tell the user's options from a cluster that does not start."""
        try:
            return build(**options)
        except (OSError, RuntimeError, TypeError, ValueError) as error:
            cause: BaseException = error
            while cause.__cause__ is not None:
                cause = cause.__cause__
            text = " ".join(str(cause).split())
            if isinstance(cause, TypeError | ValueError):  # or a worker process refused an option's value
                raise ConfigError(f"parallel.options: {text}; expected arguments of {takers}") from error
            raise WorkerError(
                f"the {self.env} cluster did not start: {text}; try fewer workers or env: none"
            ) from error


def parameters_of(*kinds: Any) -> set[str]:
    """Names of the arguments of classes and functions."""
    found: set[str] = set()
    for kind in kinds:
        if not inspect.isclass(kind) or (kind is not object and "__init__" in vars(kind)):
            found |= set(inspect.signature(kind).parameters)
    return found
