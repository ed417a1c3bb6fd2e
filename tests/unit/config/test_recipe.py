"""The recipe's folder, modules and dataset class are found from the configuration alone."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from statsprep.config.recipe import find_dataset_class, find_recipe_root, recipe_on_path
from statsprep.errors import ConfigError

Write = Callable[[str, str], Path]
DATASET = "class Dataset:\n    home = __file__\n"


@pytest.mark.parametrize("mark", ["src", "conf", "dataset"])
def test_the_root_is_the_nearest_parent_with_a_recipe_folder(folder: Path, mark: str) -> None:
    (folder / "src").mkdir()
    (folder / "recipe" / mark).mkdir(parents=True)
    assert find_recipe_root(Path("recipe/deep/er/a.yaml")) == folder / "recipe"
    assert find_recipe_root(Path("other/a.yaml")) == folder


def test_without_a_recipe_folder_the_root_is_the_configs_own(folder: Path) -> None:
    (folder / "deep").mkdir()
    assert find_recipe_root(Path("deep/a.yaml")) == folder / "deep"


def test_the_root_goes_first_on_the_path_once(folder: Path) -> None:
    before = list(sys.path)
    recipe_on_path(folder)
    recipe_on_path(Path("/elsewhere"))
    recipe_on_path(folder)
    assert sys.path == [str(folder), "/elsewhere", *before]


@pytest.mark.parametrize("module", ["dataset/__init__.py", "dataset.py"])
def test_a_recipe_is_found_at_the_root_below_a_parent_and_by_default(
    write: Write, folder: Path, module: str
) -> None:
    write(f"egs/my_recipe/asr/{module}", DATASET)
    write("egs/other/tts/conf/training.yaml", "a: 1\n")
    expected = str(folder / "egs/my_recipe/asr" / module)
    own, other = folder / "egs/my_recipe/asr", folder / "egs/other/tts"
    assert find_dataset_class("my_recipe/asr", own).home == expected  # type: ignore[attr-defined]
    assert find_dataset_class("my_recipe/asr", other) is find_dataset_class(None, own)
    assert find_dataset_class("my-recipe/asr", other) is find_dataset_class("my_recipe/asr", own)


def test_recipes_do_not_share_their_dataset_modules(write: Write, folder: Path) -> None:
    write("a/x/dataset.py", DATASET)
    write("b/x/dataset.py", DATASET)
    assert find_dataset_class("a/x", folder) is not find_dataset_class("b/x", folder)


def test_a_dataset_package_may_import_its_own_modules(write: Write, folder: Path) -> None:
    write("r/dataset/__init__.py", "from .reader import Dataset\n")
    write("r/dataset/reader.py", DATASET)
    assert find_dataset_class("r", folder).home.endswith("reader.py")  # type: ignore[attr-defined]


def test_a_missing_recipe_lists_the_places_tried(folder: Path) -> None:
    root = folder / "a"
    with pytest.raises(ConfigError) as caught:
        find_dataset_class("my_recipe/asr", root)
    places = [
        f"{base / 'my_recipe/asr'}/{module}"
        for base in (root, *root.parents)
        for module in ("dataset/__init__.py", "dataset.py")
    ]
    shown = ", ".join(repr(place) for place in places[:8]) + (
        f" (+{len(places) - 8} more)" if len(places) > 8 else ""
    )
    assert str(caught.value) == (
        f"data_src 'my_recipe/asr': no dataset module; looked for {shown}; create one of them with a class "
        "Dataset"
    )


def test_a_missing_local_dataset_lists_the_places_tried(folder: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        find_dataset_class(None, folder)
    assert str(caught.value) == (
        f"dataset entry without data_src: no dataset module; looked for '{folder}/dataset/__init__.py', "
        f"'{folder}/dataset.py'; create one of them with a class Dataset"
    )


@pytest.mark.parametrize("data_src", ["../evil", "/etc/evil", "a//b", "a/./b"])
def test_a_path_is_no_data_src(folder: Path, data_src: str) -> None:
    with pytest.raises(ConfigError) as caught:
        find_dataset_class(data_src, folder)
    assert str(caught.value) == (
        f"data_src {data_src!r}: expected a recipe and a task such as my_recipe/asr, not a path"
    )


def test_a_module_without_the_class_or_with_an_error_is_named(write: Write, folder: Path) -> None:
    write("a/dataset.py", "class Data: ...\n")
    write("b/dataset.py", "import no_such_package\n")
    with pytest.raises(ConfigError) as caught:
        find_dataset_class("a", folder)
    assert str(caught.value) == (
        f"data_src 'a': {folder}/a/dataset.py has no class 'Dataset'; define or import one there"
    )
    for _ in range(2):
        with pytest.raises(ConfigError) as caught:
            find_dataset_class("b", folder)
        assert str(caught.value) == (
            f"data_src 'b': {folder}/b/dataset.py cannot be imported: "
            "ModuleNotFoundError: No module named 'no_such_package'; correct that module"
        )
