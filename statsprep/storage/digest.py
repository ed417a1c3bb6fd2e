"""Digests of files and of JSON values."""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from statsprep.storage.names import stays_below


def file_digest(path: Path | str) -> str:
    """SHA-256 of a file's bytes, in hex, read in blocks."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def json_digest(value: Any) -> str:
    """SHA-256 of a JSON value in its canonical text (sorted keys, no spaces), in hex."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def describe_files(folder: Path, names: list[str]) -> dict[str, dict[str, Any]]:
    """`{name: {"bytes": size, "sha256": digest}}` for files below `folder`, sorted by name."""
    return {
        name: {"bytes": (folder / name).stat().st_size, "sha256": file_digest(folder / name)}
        for name in sorted(names)
    }


def is_description(files: Any) -> bool:
    """Whether a value read from a file is what `describe_files` returns, and names nothing elsewhere."""
    return isinstance(files, dict) and all(
        stays_below(name)
        and isinstance(file, dict)
        and isinstance(file.get("bytes"), int)
        and isinstance(file.get("sha256"), str)
        for name, file in files.items()
    )


def find_mismatch(
    folder: Path,
    files: Mapping[str, Mapping[str, Any]],
    *,
    missing_ok: bool = False,
    sizes_only: Callable[[str], bool] = lambda name: False,
) -> str | None:
    """The first way in which files differ from what `describe_files` recorded, or None.

    Args:
        folder: what the names are relative to.
        files: as `describe_files` returns them.
        missing_ok: pass over files that are not there.
        sizes_only: for which names the size is enough.
    """
    for name, expected in files.items():
        path = folder / name
        if not path.is_file():
            if missing_ok and not path.exists():
                continue
            return f"{name} is missing"
        size = path.stat().st_size
        if size != expected["bytes"]:
            return f"{name} holds {size} bytes, {expected['bytes']} were committed"
        if not sizes_only(name) and file_digest(path) != expected["sha256"]:
            return f"{name} has other content than was committed"
    return None
