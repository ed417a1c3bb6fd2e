"""The printed scripts complete commands, flags and files in a real shell."""

import shutil
import subprocess
from pathlib import Path

import pytest

from statsprep.cli.main import _COMMANDS
from tests.unit.cli.conftest import Statsprep

_ASK = """\
source {script}
COMP_WORDS=({words})
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
$(complete -p statsprep | sed 's/.*-F \\([^ ]*\\).*/\\1/')
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def complete(statsprep: Statsprep, tmp_path: Path) -> "Complete":
    printed = statsprep("completion", "bash")
    assert printed.code == 0, printed.err
    return Complete(tmp_path, printed.out)


class Complete:
    """What bash offers for the last of some words."""

    def __init__(self, folder: Path, script: str) -> None:
        self._folder = folder
        (folder / ".script").write_text(script)

    def __call__(self, *words: str) -> list[str]:
        text = _ASK.format(script=self._folder / ".script", words=" ".join(map(repr, words)))
        done = subprocess.run(
            ["bash", "--norc", "-c", text], cwd=self._folder, capture_output=True, text=True, check=False
        )
        assert done.stderr == ""
        return done.stdout.split()


def test_commands_are_completed(complete: Complete) -> None:
    assert set(_COMMANDS) <= set(complete("statsprep", ""))
    assert complete("statsprep", "comp") == ["completion"]


def test_flags_are_completed(complete: Complete) -> None:
    assert set(complete("statsprep", "run", "--p")) == {"--parallel", "--print_config"}
    assert "--utt" in complete("statsprep", "replay", "--")
    assert set(complete("statsprep", "run", "--print_config", "r")) == {"raw", "resolved"}


def test_config_files_and_run_directories_are_completed(complete: Complete, tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "training.yaml").touch()
    assert complete("statsprep", "run", "conf/tr") == ["conf/training.yaml"]
    assert complete("statsprep", "run", "--parallel", "conf/tr") == ["conf/training.yaml"]
    assert "conf" in complete("statsprep", "status", "co")


def test_zsh_has_a_script_too(statsprep: Statsprep, tmp_path: Path) -> None:
    printed = statsprep("completion", "zsh")
    assert printed.out.startswith("#compdef statsprep\n")
    assert "--print_config" in printed.out
    if shutil.which("zsh"):
        (tmp_path / "script").write_text(printed.out)
        subprocess.run(["zsh", "-n", "script"], cwd=tmp_path, check=True)


def test_another_shell_is_refused(statsprep: Statsprep) -> None:
    found = statsprep("completion", "fish")
    assert found.code == 2
    assert "choose from" in found.error
