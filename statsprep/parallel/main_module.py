"""Worker processes that do not run the user's script again.

A spawned process imports the parent's main script, so a script without `if __name__ == "__main__":` would
start workers of its own in every worker. Nothing here needs that import: cloudpickle sends classes of
`__main__` by value.
"""

import contextlib
import sys
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def main_module_hidden() -> Iterator[None]:
    """Processes started inside the block do not import this process's main module."""
    main = sys.modules["__main__"]
    saved: dict[str, Any] = {
        name: main.__dict__[name] for name in ("__file__", "__spec__") if name in main.__dict__
    }
    # multiprocessing.spawn.get_preparation_data reads these two names to find the main script.
    main.__dict__.pop("__file__", None)
    main.__spec__ = None
    try:
        yield
    finally:
        main.__dict__.update(saved)
