"""File names made from utterance ids, which may hold anything: slashes, dots, quotes, 4,096 bytes; and file
names that somebody else wrote down, which may point anywhere.
"""

import re
from pathlib import Path
from typing import Any

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_MAX_LENGTH = 60


def item_name(position: int, utt_id: str, suffix: str) -> str:
    """The name of an item's file in its shard: `17-spk_digits_1.flac`.

    The position alone makes it unique; what is left of the id helps people to find it.
    """
    readable = _UNSAFE.sub("_", utt_id)[:_MAX_LENGTH].strip("_")
    return f"{position}-{readable}{suffix}" if readable else f"{position}{suffix}"


def stays_below(name: Any) -> bool:
    """Whether a name is that of something below a folder: relative, and with no `..` in it."""
    return isinstance(name, str) and "\0" not in name and {"", ".", ".."}.isdisjoint(name.split("/"))


def goes_through_link(folder: Path, name: str) -> bool:
    """Whether a folder between `folder` and the file `name` below it is a link, which may lead anywhere."""
    above = (folder / name).parents
    return any(each.is_symlink() for each in above if each.is_relative_to(folder) and each != folder)
