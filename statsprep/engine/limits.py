"""How many utterances may fail before a run counts as failed."""

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from statsprep.config.values import max_errors_allowed, share_of
from statsprep.engine.shard import ShardReport
from statsprep.errors import ConfigError, DataError
from statsprep.storage.jsonl import read_jsonl
from statsprep.storage.paths import ERRORS, RunPaths

_SHOWN = 10


@dataclass(slots=True)
class ErrorLimit:
    """Counts failed utterances against `max_errors`.

    A run over its limit still finishes, so that one look shows all that is broken, unless more than half of
    what it tried failed: then something common to all is wrong, such as a missing mount, and going on is a
    waste.
    """

    allowed: int
    num_failed: int = 0
    num_tried: int = 0
    first: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, max_errors: int | str, num_items: int) -> "ErrorLimit":
        """The limit that `max_errors` is for so many items.

        Raises:
            ConfigError: it is neither a count nor a share.
        """
        is_count = isinstance(max_errors, int) and max_errors >= 0
        is_share = isinstance(max_errors, str) and share_of(max_errors) is not None
        if not is_count and not is_share:
            raise ConfigError(
                f"max_errors: got {max_errors!r}; expected a count such as 20 or a share such as 1%"
            )
        return cls(max_errors_allowed(max_errors, num_items))

    def add(self, report: ShardReport) -> None:
        """Count a shard.

        Raises:
            DataError: over the limit, and most of what was tried failed.
        """
        self.num_failed += report.counts.get("error", 0)
        self.num_tried += report.num_items
        self.first += report.errors[: _SHOWN - len(self.first)]
        if self.num_failed > self.allowed and 2 * self.num_failed > self.num_tried:
            raise DataError(
                f"stopped: {self.num_failed} of the first {self.num_tried} utterances failed, at most "
                f"{self.allowed} may; mend what is common to them, then run the same command with "
                "--retry_errors",
                detail=describe_errors(self.first),
            )

    def check(self, paths: RunPaths, num_failed: int) -> None:
        """At the end, over everything that the run holds.

        Raises:
            DataError: more failed than may; `detail` shows the first of them and counts by kind.
        """
        if num_failed > self.allowed:
            raise DataError(
                f"{paths.place}/{ERRORS}: {num_failed} utterances failed, at most {self.allowed} may "
                "(max_errors); everything else is measured and merged; mend them and run with "
                "--retry_errors, or allow more with max_errors",
                detail=summarise_errors(paths),
            )


def describe_errors(records: list[dict[str, Any]]) -> str:
    """One line per error record: id, kind, type and message."""
    lines = []
    for record in records[:_SHOWN]:
        message = " ".join(str(record["message"]).split())
        lines.append(f"  {record['utt_id']}: {record['kind']}: {record['type']}: {message[:160]}")
    return "\n".join(lines)


def read_errors(path: Path) -> Iterator[dict[str, Any]]:
    """The records of an errors.jsonl, streamed.

    Raises:
        DataError: a line is none.
    """
    for number, record in enumerate(read_jsonl(path), 1):
        if not isinstance(record, dict) or not all(
            isinstance(record.get(key), str) for key in ("utt_id", "kind", "type", "message")
        ):
            raise DataError(
                f"{path}:{number}: is no error record; the file is damaged; `statsprep verify` it"
            )
        yield record


def summarise_errors(paths: RunPaths) -> str:
    """The first failed utterances of a merged run and a count by kind, streamed."""
    path = paths.root / ERRORS
    if not path.is_file():
        return ""
    first = list(itertools.islice(read_errors(path), _SHOWN))
    kinds = Counter(record["kind"] for record in read_errors(path))
    if not kinds:
        return ""
    by_kind = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    return f"{describe_errors(first)}\n  by kind: {by_kind}"
