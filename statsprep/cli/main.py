"""`statsprep COMMAND`: parse, run the command, turn errors into one line and an exit code.

Exit codes: 0 done, 1 a bug, 2 usage or config, 3 data, 4 workers or disk, 75 stopped and saved: run the same
command again. Nothing heavy is imported before a command runs.
"""

import argparse
import errno
import logging
import os
import re
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

from rich_argparse import RawDescriptionRichHelpFormatter

from statsprep import __version__
from statsprep.cli import check, completion, demo, init, inspect, merge, replay, run, status, verify
from statsprep.errors import Interrupted, StatsprepError, StorageError, nearest, printable

_COMMANDS = {
    "run": run,
    "status": status,
    "merge": merge,
    "verify": verify,
    "inspect": inspect,
    "check": check,
    "demo": demo,
    "replay": replay,
    "init": init,
    "completion": completion,
}

_DESCRIPTION = """Measure a speech corpus: lengths, feature statistics, broken files.

  statsprep demo                                     make a small corpus and measure it
  statsprep run conf/training.yaml                   measure train and valid of a recipe
  statsprep run conf/training.yaml --parallel local  the same on this machine's cores
  statsprep inspect exp/stats                        what came out
  statsprep init my_recipe                           a recipe of your own to start from"""


# A path, its rights or its disk, and no fault of the program.
_USERS_ERRNOS = frozenset(
    {
        *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EIO),
        *(errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP),
    }
)


class _Stop(KeyboardInterrupt):
    """A stop signal. Python ends by SIGINT, whatever the exit code, once a plain KeyboardInterrupt has passed
    through exec(), with which dataclasses are made.
    """


class _Parser(argparse.ArgumentParser):
    """Errors on one line, with the nearest known flag or command."""

    def error(self, message: str) -> NoReturn:
        words = re.findall(r"'?(--[\w-]+|(?<=choice: ')\w+)", message)
        known = [*self._option_string_actions, *_COMMANDS]
        hint = nearest(words[0], known) if words and words[0] not in known else ""
        self.exit(2, f"error: {message}{hint}; see `{self.prog} --help`\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code; without `argv` this process's own, which ends then."""
    args = _parse(sys.argv[1:] if argv is None else argv)
    _log_to_stderr(args.debug)
    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number, handler in previous.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, _stop)
    try:
        code: int = args.execute(args)
        _ignore_signals()
    except StatsprepError as error:
        return _report(error, debug=args.debug)
    except KeyboardInterrupt:
        # Impatient fingers must not cut off the message.
        _ignore_signals()
        return _report(
            Interrupted("stopped; what was finished is saved; run the same command again to go on"),
            debug=False,
        )
    except BrokenPipeError:
        # The reader, such as head, has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.filename is None or error.errno not in _USERS_ERRNOS:
            raise
        return _report(
            StorageError(
                f"{error.filename}: {error.strerror}; expected a path that you may read and write; correct "
                "it or its permissions, then run the same command again"
            ),
            debug=args.debug,
        )
    finally:
        if argv is not None:
            for number, handler in previous.items():
                signal.signal(number, handler)
    return code


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    args, rest = build_parser().parse_known_args(_with_underscores(argv))
    # argparse takes the words before the first flag only; `run CONFIG --parallel local key=value` has more
    # after it.
    unknown = [word for word in rest if word.startswith("-") or not hasattr(args, "words")]
    if unknown:
        args.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    if rest:
        args.words += rest
    return args


def build_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = _Parser(
        prog="statsprep",
        description=_DESCRIPTION,
        formatter_class=RawDescriptionRichHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"statsprep {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    for name, module in _COMMANDS.items():
        summary, _, rest = (module.__doc__ or "").partition("\n")
        command = commands.add_parser(
            name,
            help=summary.rstrip("."),
            description=f"{summary}\n{rest}".rstrip(),
            formatter_class=RawDescriptionRichHelpFormatter,
            # `--over` must not mean `--overwrite`.
            allow_abbrev=False,
        )
        module.add_arguments(command)
        command.add_argument("--debug", action="store_true", help="log more, and show tracebacks of errors")
        command.set_defaults(execute=module.execute, parser=command)
    return parser


def _with_underscores(argv: Sequence[str]) -> list[str]:
    """Flags may be written with `-` or `_` inside; the parser knows the latter."""
    return [re.sub(r"^--[\w-]+", lambda flag: "--" + flag[0][2:].replace("-", "_"), word) for word in argv]


def _log_to_stderr(debug: bool) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines("%(message)s" if not debug else "%(asctime)s %(name)s %(message)s"))
    logger = logging.getLogger("statsprep")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.DEBUG if debug else logging.INFO)
    logger.propagate = False


class _Lines(logging.Formatter):
    """Log lines hold ids and paths, which may hold anything."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return printable(super().formatMessage(record))


def _stop(number: int, frame: FrameType | None) -> None:
    raise _Stop


def _ignore_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _report(error: StatsprepError, *, debug: bool) -> int:
    if debug:
        logging.getLogger("statsprep").error("", exc_info=error)
    print(f"error: {printable(error.message)}", file=sys.stderr)
    if error.detail:
        print(*map(printable, error.detail.rstrip().split("\n")), sep="\n", file=sys.stderr)
    return error.exit_code
