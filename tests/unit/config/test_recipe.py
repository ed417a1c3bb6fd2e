"""The recipe's folder, modules and dataset class are found from the configuration alone."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from statsprep.config.recipe import (
    dataset_root,
    find_dataset_builder,
    find_dataset_class,
    find_recipe_root,
    recipe_on_path,
)
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


def test_a_builder_stands_beside_the_dataset_or_is_missing(write: Write, folder: Path) -> None:
    write("one/dataset.py", DATASET + "class DatasetBuilder:\n    pass\n")
    write("two/dataset.py", DATASET)
    builder = find_dataset_builder("one", folder)
    assert builder is not None
    assert builder.__module__ == find_dataset_class("one", folder).__module__
    assert find_dataset_builder("two", folder) is None
    with pytest.raises(ConfigError, match="data_src 'three': no dataset module"):
        find_dataset_builder("three", folder)


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
        for base in (root, *root.parents[:2])
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


def test_a_dotted_data_src_is_a_module_of_the_recipe(write: Write, folder: Path) -> None:
    write("src/__init__.py", "")
    write("src/reader.py", "HOME = 'reader'\n")
    write("src/corpus.py", "from .reader import HOME\n\nclass Dataset:\n    home = HOME\n")
    found = find_dataset_class("src.corpus", folder)
    assert found.home == "reader"  # type: ignore[attr-defined]
    assert found.__module__ == "src.corpus"


@pytest.mark.parametrize("data_src", ["os.path", "json.decoder", "src", "a.b-c.d", "a..b"])
def test_a_dotted_data_src_is_nothing_else(write: Write, folder: Path, data_src: str) -> None:
    write("src/__init__.py", "class Dataset: ...\n")
    with pytest.raises(ConfigError, match=f"^data_src {data_src!r}: (no dataset module|is no module)"):
        find_dataset_class(data_src, folder)


@pytest.mark.parametrize(
    ("data_src", "module"),
    [
        ("egs3.other.tts.dataset", "other/tts/dataset/__init__.py"),
        ("egs3.other.tts.dataset_b", "other/tts/dataset_b.py"),
    ],
)
def test_another_recipe_may_be_named_as_espnet3s_module(
    write: Write, folder: Path, data_src: str, module: str
) -> None:
    write(f"egs3/{module}", DATASET)
    (folder / "egs3/mine/asr/conf").mkdir(parents=True)
    found = find_dataset_class(data_src, folder / "egs3/mine/asr")
    assert found.home == str(folder / "egs3" / module)  # type: ignore[attr-defined]


def test_a_folder_far_up_is_not_searched(write: Write, folder: Path) -> None:
    """A configuration must not run whatever dataset.py lies in /tmp or in a home."""
    write("evil/dataset.py", "raise SystemExit('ran')\n")
    (folder / "team/egs/mine").mkdir(parents=True)
    with pytest.raises(ConfigError, match="no dataset module"):
        find_dataset_class("evil", folder / "team/egs/mine")


def test_an_import_of_espnet_that_is_not_installed_says_what_to_do(write: Write, folder: Path) -> None:
    write("dataset.py", "from espnet3.components.data.dataset_builder import DatasetBuilder\n")
    with pytest.raises(ConfigError) as caught:
        find_dataset_class(None, folder)
    assert "No module named 'espnet3'; install ESPnet, or import the same name from statsprep" in str(
        caught.value
    )


def test_recipe_dir_counts_where_it_is_a_recipe(write: Write, folder: Path) -> None:
    root = folder / "egs/mine"
    write("egs/mine/dataset.py", DATASET)
    assert dataset_root(".", root) == root
    assert dataset_root(None, root) == root
    assert dataset_root("egs/mine", folder) == root
    write("dataset/__init__.py", DATASET)
    assert dataset_root(".", root) == folder


def test_recipe_dir_elsewhere_is_refused(write: Write, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write("evil/dataset.py", "raise SystemExit('ran')\n")
    root = folder / "mine"
    root.mkdir()
    monkeypatch.chdir(root)
    for recipe_dir in (str(folder / "evil"), "../evil"):
        with pytest.raises(ConfigError, match=f"^dataset.recipe_dir: '{recipe_dir}' lies neither"):
            dataset_root(recipe_dir, root)
    assert dataset_root("../not_there", root) == root
