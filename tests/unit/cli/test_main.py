"""The command line: flags in both spellings, one line per error, and exit codes that scripts can rely on."""

import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from statsprep import __version__
from statsprep.cli.main import _COMMANDS, _with_underscores
from statsprep.errors import ConfigError, DataError, Interrupted, StatsprepError, StorageError, WorkerError
from tests.unit.cli.conftest import Statsprep


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("--retry-errors", "--retry_errors"),
        ("--allow-target=my-pkg", "--allow_target=my-pkg"),
        ("--retry_errors", "--retry_errors"),
        ("model.a-b=c-d", "model.a-b=c-d"),
        ("a--b", "a--b"),
        ("-x-y", "-x-y"),
        ("exp/my-stats", "exp/my-stats"),
        ("--", "--"),
    ],
)
def test_flags_may_have_dashes_inside_and_nothing_else_changes(word: str, expected: str) -> None:
    assert _with_underscores([word]) == [expected]


@pytest.mark.parametrize("name", _COMMANDS)
def test_every_commands_help_shows_how_to_call_it(name: str, statsprep: Statsprep) -> None:
    found = statsprep(name, "--help")
    assert found.code == 0
    examples = [
        line
        for line in found.out.splitlines()
        if line.startswith(f"  statsprep {name} ") or line == f"  statsprep {name}"
    ]
    assert examples, "an example, set off from the text"
    assert "--debug" in found.out


def test_help_shows_the_first_commands_to_type(statsprep: Statsprep) -> None:
    found = statsprep("--help")
    assert found.code == 0
    for name in ("demo", "run", "inspect"):
        assert f"  statsprep {name}" in found.out
    assert statsprep("--version").out == f"statsprep {__version__}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["stauts", "exp"], "did you mean 'status'"),
        (["run", "--overwrit_", "x.yaml"], "did you mean '--overwrite'"),
        (["status"], "RUN_DIR"),
        (["inspect", "exp", "--json"], "--json"),
        ([], "COMMAND"),
    ],
)
def test_a_wrong_call_is_one_line_with_the_nearest_name(
    words: list[str], message: str, statsprep: Statsprep
) -> None:
    found = statsprep(*words)
    assert found.code == 2
    assert message in found.error
    assert "--help`" in found.error
    assert found.err.count("\n") == 1


@pytest.mark.parametrize("name", ["status", "merge", "verify", "inspect"])
def test_a_missing_run_directory_is_named(name: str, statsprep: Statsprep, tmp_path: Path) -> None:
    found = statsprep(name, "exp/none")
    assert found.code == 2
    assert found.error == (
        "exp/none: does not exist; expected a run directory (stats_dir/<split>) or a stats_dir; give its path"
    )
    (tmp_path / "empty").mkdir()
    assert "empty: holds no manifest.json" in statsprep(name, "empty").error


def raising(error: BaseException) -> Any:
    def execute(args: object) -> int:
        raise error

    return execute


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes `statsprep verify` raise an error."""
    module: ModuleType = _COMMANDS["verify"]

    def fail(error: BaseException) -> None:
        monkeypatch.setattr(module, "execute", raising(error))

    return fail


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StatsprepError("text"), 1),
        (ConfigError("text"), 2),
        (DataError("text"), 3),
        (WorkerError("text"), 4),
        (StorageError("text"), 4),
        (Interrupted("text"), 75),
    ],
)
def test_each_kind_of_error_has_its_exit_code(
    error: StatsprepError, code: int, failing: Any, statsprep: Statsprep
) -> None:
    failing(error)
    found = statsprep("verify", "x")
    assert (found.code, found.err, found.out) == (code, "error: text\n", "")


def test_details_stand_below_the_line(failing: Any, statsprep: Statsprep) -> None:
    failing(DataError("text", detail="  a: 1 -> 2\n  b: changed\n"))
    assert statsprep("verify", "x").err == "error: text\n  a: 1 -> 2\n  b: changed\n"


def test_tracebacks_are_for_debug_alone(failing: Any, statsprep: Statsprep) -> None:
    failing(ConfigError("text"))
    assert "Traceback" not in statsprep("verify", "x").err
    found = statsprep("verify", "x", "--debug")
    assert "Traceback (most recent call last)" in found.err
    assert found.error == "text"


def test_a_bug_is_not_dressed_up(failing: Any, statsprep: Statsprep) -> None:
    failing(ZeroDivisionError("a bug"))
    with pytest.raises(ZeroDivisionError):
        statsprep("verify", "x")


def test_an_interrupt_says_that_all_is_saved(failing: Any, statsprep: Statsprep) -> None:
    before = signal.getsignal(signal.SIGTERM)
    failing(KeyboardInterrupt())
    found = statsprep("verify", "x")
    assert found.code == 75
    assert found.error == "stopped; what was finished is saved; run the same command again to go on"
    assert signal.getsignal(signal.SIGTERM) is before


def test_help_and_import_load_nothing_heavy() -> None:
    code = (
        "import sys, statsprep\n"
        "from statsprep.cli.main import main\n"
        "try:\n    main(['run', '--help'])\n"
        "except SystemExit:\n    pass\n"
        "heavy = ('torch', 'dask', 'distributed', 'librosa', 'omegaconf', 'pyarrow', 'soundfile', "
        "'pydantic')\n"
        "print([name for name in heavy if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", ["status", "verify", "merge", "inspect", "init", "check", "run"])
def test_a_path_that_the_system_refuses_is_one_line(command: str, statsprep: Statsprep) -> None:
    """A name that is too long, as one that may not be read or written, is no bug of the program."""
    found = statsprep(command, "x" * 300)
    assert found.code in (2, 3, 4)
    assert "File name too long" in found.error


def test_a_folder_without_rights_is_named(statsprep: Statsprep, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: Path, *args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "mkdir", refused)
    found = statsprep("init", "recipe")
    assert found.code == 4
    assert "recipe: Permission denied; expected a path that you may read and write" in found.error


def test_an_error_is_one_line_whatever_it_quotes(failing: Any, statsprep: Statsprep) -> None:
    """No terminal takes a file's name for a command."""
    failing(DataError("a\nb\x1b[31m.wav: is bad", detail="  one\x07\n  two"))
    found = statsprep("verify", "x")
    assert found.err == "error: a\\nb\\x1b[31m.wav: is bad\n  one\\x07\n  two\n"


def test_a_long_override_is_no_file_name(statsprep: Statsprep) -> None:
    found = statsprep("run", "x.yaml", f"seed={'9' * 300}")
    assert "x.yaml: no such file" in found.error
