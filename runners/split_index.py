"""A split's index in the run directory: written apart at first, put in its place when the run begins."""

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from statsprep.storage.atomic import disk_errors_named
from statsprep.storage.paths import RunPaths


@contextlib.contextmanager
def staging_file(paths: RunPaths) -> Iterator[Path]:
    """A name for the new index, apart from the one that an earlier run's workers may be reading."""
    is_new = not paths.root.exists()
    with disk_errors_named(paths.root):
        paths.root.mkdir(parents=True, exist_ok=True)
    staged = paths.root / f".index.{secrets.token_hex(6)}.arrow"
    try:
        yield staged
    finally:
        staged.unlink(missing_ok=True)
        if is_new:
            with contextlib.suppress(OSError):
                paths.root.rmdir()


def place_index(paths: RunPaths, staged: Path) -> None:
    """Put the index where the workers look for it, and remove what killed runs left."""
    os.replace(staged, paths.index)
    for stale in paths.root.glob(".index.*.arrow"):
        stale.unlink()
