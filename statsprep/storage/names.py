"""File names made from utterance ids, which may hold anything: slashes, dots, quotes, 4,096 bytes."""

import re

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_MAX_LENGTH = 60


def item_name(position: int, utt_id: str, suffix: str) -> str:
    """The name of an item's file in its shard: `17-spk_digits_1.flac`.

    The position alone makes it unique; what is left of the id helps people to find it.
    """
    readable = _UNSAFE.sub("_", utt_id)[:_MAX_LENGTH].strip("_")
    return f"{position}-{readable}{suffix}" if readable else f"{position}{suffix}"
