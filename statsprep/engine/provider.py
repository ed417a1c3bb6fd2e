"""EnvironmentProvider: what a worker needs, built once per process."""

from collections.abc import Callable, Mapping
from typing import Any

Env = dict[str, Any]


class EnvironmentProvider:
    """Builds the env: the dict of objects that are injected into `forward` and the hooks by parameter name.

    Example:
        >>> class Corpus(EnvironmentProvider):
        ...     def build_env_local(self):
        ...         return {"dataset": ["a", "b"], **self.params}
        ...     def make_worker_setup_fn(self):
        ...         params = self.params
        ...         def setup():
        ...             return {"dataset": ["a", "b"], **params}
        ...         return setup

    Args:
        config: whatever the provider builds from; a plain dict or an OmegaConf node.
        params: further entries of the env, such as `output_dir`.
    """

    def __init__(self, config: Any, *, params: Mapping[str, Any] | None = None) -> None:
        self.config = config
        self.params: dict[str, Any] = dict(params or {})

    def build_env_local(self) -> Env:
        """Build the env in this process. By default what `make_worker_setup_fn` returns is called here."""
        return dict(worker_setup_of(self)())

    def make_worker_setup_fn(self) -> Callable[[], Env]:
        """Return `setup() -> dict`, which runs once in each worker process.

        By default the provider itself travels and its `build_env_local` runs there. `build_worker_setup_fn`
        is honoured as a second spelling of this method.
        """
        if type(self).build_env_local is EnvironmentProvider.build_env_local:
            raise TypeError(
                f"{type(self).__name__} overrides neither build_env_local nor make_worker_setup_fn; write "
                "one of them"
            )
        return self.build_env_local

    def fingerprint(self) -> dict[str, Any]:
        """What the results depend on besides config and code, as JSON; nothing by default."""
        return {}


def worker_setup_of(provider: EnvironmentProvider) -> Callable[[], Env]:
    """The provider's worker setup, under whichever of its two names the provider defines it."""
    second = getattr(provider, "build_worker_setup_fn", None)
    is_own = type(provider).make_worker_setup_fn is not EnvironmentProvider.make_worker_setup_fn
    setup = second() if second is not None and not is_own else provider.make_worker_setup_fn()
    if not callable(setup):
        raise TypeError(
            f"{type(provider).__name__}.make_worker_setup_fn returned {type(setup).__name__}; expected a "
            "function without arguments that returns the env dict"
        )
    return setup
