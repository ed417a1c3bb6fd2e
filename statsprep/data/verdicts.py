"""What can be said of one utterance, and the error that says it."""

from dataclasses import dataclass
from enum import StrEnum

from statsprep.errors import DataError


class Verdict(StrEnum):
    """How an utterance fared. All but OK and DROPPED are kinds of `UtteranceError`."""

    OK = "ok"
    DROPPED = "dropped"
    UNREADABLE = "unreadable"
    EMPTY = "empty"
    TRUNCATED = "truncated"
    HEADER_MISMATCH = "header_mismatch"
    NON_FINITE = "non_finite"
    TOO_SHORT = "too_short"
    EXCEPTION = "exception"


@dataclass(frozen=True, slots=True)
class Dropped:
    """Why an utterance is left out on purpose; `forward`, a cleaner or a transform returns it.

    Attributes:
        step: what decided, such as `duration`.
        measured: the value that it looked at, as JSON. bound: what was allowed, such as `min_s 0.3`.
    """

    step: str
    measured: float | int | str | None = None
    bound: str | None = None


class UtteranceError(DataError):
    """One utterance cannot be used; the others are not concerned. `kind` says in one word why."""

    def __init__(self, message: str, *, kind: Verdict, detail: str = "") -> None:
        super().__init__(message, detail=detail)
        self.kind = kind

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_error, (type(self), self.message, self.kind, self.detail))


def _rebuild_error(cls: type[UtteranceError], message: str, kind: Verdict, detail: str) -> UtteranceError:
    return cls(message, kind=kind, detail=detail)
