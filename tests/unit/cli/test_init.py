"""`init` writes the whole template into an empty folder, and never into one that holds something."""

import glob
import tomllib
from pathlib import Path

import pytest

import statsprep as package
from tests.unit.cli.conftest import Statsprep

TEMPLATE = Path(package.__file__).parent / "templates" / "recipe"


def template_files() -> set[str]:
    return {
        str(path.relative_to(TEMPLATE))
        for path in TEMPLATE.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }


@pytest.mark.parametrize("is_there", [False, True])
def test_every_file_of_the_template_is_written(is_there: bool, statsprep: Statsprep, tmp_path: Path) -> None:
    folder = tmp_path / "my recipe"
    if is_there:
        folder.mkdir()
    found = statsprep("init", folder)
    assert found.code == 0, found.err
    written = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert written == template_files()
    assert {"src/prepare.py", "conf/prepare.yaml", "conf/training.yaml", "tests/test_recipe.py"} <= written
    for name in written:
        assert (folder / name).read_bytes() == (TEMPLATE / name).read_bytes()
    assert "cd my recipe\n  python -m src.make_data" in found.out


def test_a_folder_with_files_is_refused_and_left_alone(statsprep: Statsprep, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    found = statsprep("init", "full")
    assert found.code == 2
    assert "/full: holds files; expected a new or empty folder" in found.error
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["mine.txt"]
    assert "mine.txt: is a file; expected a new or empty folder" in statsprep("init", "full/mine.txt").error


def test_the_package_carries_every_file_of_the_template() -> None:
    """What pyproject.toml lists for the wheel is what `init` writes."""
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["statsprep"]
    root = TEMPLATE.parents[1]
    listed = {
        str(Path(name).relative_to("templates/recipe"))
        for pattern in patterns
        for name in glob.glob(pattern, root_dir=root, recursive=True)
        if name.startswith("templates/") and (root / name).is_file() and not name.endswith(".pyc")
    }
    assert listed == template_files()
