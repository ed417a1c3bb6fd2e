"""Every error that statsprep raises on purpose, with the exit code that the command line gives it.

A message says where, what was seen, what was expected and what to do next, on one line. What does not fit on
the line (a worker's traceback, a diff) goes into `detail`, which the command line prints below it.
"""

import difflib
import errno
import re
from collections.abc import Iterable


class StatsprepError(Exception):
    """Base of all deliberate errors. `detail` holds further lines for the reader, `exit_code` is the
    process's.
    """

    exit_code = 1

    def __init__(self, message: str, *, detail: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_error, (type(self), self.message, self.detail))


def _rebuild_error(kind: type[StatsprepError], message: str, detail: str) -> StatsprepError:
    return kind(message, detail=detail)


class ConfigError(StatsprepError):
    """The command line or the configuration is wrong."""

    exit_code = 2


class ChangedRunError(ConfigError):
    """The run directory holds results of another configuration, code or data."""


class DataError(StatsprepError):
    """The user's data is wrong, or too much of it failed."""

    exit_code = 3


class WorkerError(StatsprepError):
    """Workers did not come, died, or could not build what they need."""

    exit_code = 4


class StorageError(WorkerError):
    """A disk is full, a quota is used up, a folder cannot be written. Free it and run the same command
    again.
    """


class RunInUseError(WorkerError):
    """Another live process owns this run directory."""


class Interrupted(StatsprepError):
    """Stopped by a signal; everything finished so far is saved."""

    exit_code = 75


# What a full or broken disk says. These never count as a bad utterance: the next one would fail as well.
_DISK_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})


def is_disk_error(error: BaseException) -> bool:
    """True where `error` says that nothing more can be written, rather than that one file is bad."""
    return isinstance(error, OSError) and error.errno in _DISK_ERRNOS


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for a misspelt name: `; did you mean 'n_mels'?`, or the empty string where nothing is near."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def printable(text: object) -> str:
    r"""One line that no terminal takes for a command: `\x1b` and its kin, from file names or other people's
    files, are written out.
    """
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), str(text))


def listed(items: Iterable[object], *, limit: int = 5) -> str:
    """The first `limit` items joined by commas: `'a', 'b' (+37 more)`."""
    shown = [repr(item) if isinstance(item, str) else str(item) for item in items]
    more = f" (+{len(shown) - limit} more)" if len(shown) > limit else ""
    return ", ".join(shown[:limit]) + more
