"""create_dataset: a recipe's builder is asked, and asked to build only what it says is not there."""

import json
import logging
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from statsprep.config.policy import TargetPolicy
from statsprep.errors import ConfigError, DataError
from statsprep.runners.create_dataset import create_dataset

BUILDER = """
    from pathlib import Path

    class Dataset:
        pass

    class DatasetBuilder:
        def is_source_prepared(self, recipe_dir, **options):
            self.log(recipe_dir, "is_source_prepared", options)
            return (Path(recipe_dir) / "downloads").is_dir()

        def prepare_source(self, recipe_dir, **options):
            self.log(recipe_dir, "prepare_source", options)
            (Path(recipe_dir) / "downloads").mkdir()

        def is_built(self, recipe_dir, **options):
            self.log(recipe_dir, "is_built", options)
            return (Path(recipe_dir) / "manifest.jsonl").is_file()

        def build(self, recipe_dir, **options):
            self.log(recipe_dir, "build", options)
            (Path(recipe_dir) / "manifest.jsonl").write_text("")

        def log(self, recipe_dir, name, options):
            with open(Path(recipe_dir) / "calls", "a") as calls:
                calls.write(f"{name} {sorted(options)}\\n")
"""
OWN = {"train": [{"data_src": None}], "valid": [{"data_src_args": {"split": "valid"}}]}
Create = Callable[..., None]


@pytest.fixture
def create(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Create]:
    """Writes the recipe's dataset module, and calls create_dataset."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)

    def run(options: Any = None, *, code: str = BUILDER, dataset: Any = OWN) -> None:
        (tmp_path / "dataset").mkdir(exist_ok=True)
        (tmp_path / "dataset" / "__init__.py").write_text(textwrap.dedent(code), encoding="utf-8")
        policy = TargetPolicy((), tmp_path)
        create_dataset(dataset, options, tmp_path / "exp", policy=policy, where="conf/training.yaml: ")

    yield run
    for name in set(sys.modules) - before:
        if name.startswith(("src", "dataset", "statsprep_recipe_")):
            del sys.modules[name]


def calls_in(folder: Path) -> list[str]:
    path = folder / "calls"
    return [line.split(" ")[0] for line in path.read_text().splitlines()] if path.exists() else []


def test_builder_is_run_once_for_all_entries_that_name_it(tmp_path: Path, create: Create) -> None:
    create()
    called = calls_in(tmp_path)
    assert [name for name in called if not name.startswith("is_")] == ["prepare_source", "build"]
    assert called[0] == "is_source_prepared"
    create()
    assert calls_in(tmp_path)[len(called) :] == ["is_source_prepared", "is_built"]
    assert not list((tmp_path / "exp").glob("**/*.json"))


def test_options_reach_every_method_and_dot_is_the_recipe(tmp_path: Path, create: Create) -> None:
    create({"recipe_dir": ".", "source_dir": "/corpora", "lang": "it"})
    assert set((tmp_path / "calls").read_text().splitlines()) == {
        f"{name} ['lang', 'source_dir']"
        for name in ("is_source_prepared", "prepare_source", "is_built", "build")
    }


def test_methods_get_only_what_they_take(create: Create) -> None:
    create(
        {"lang": "it"},
        code="""
            class DatasetBuilder:
                built = False
                def is_source_prepared(self): return True
                def prepare_source(self): raise AssertionError
                def is_built(self, lang): return DatasetBuilder.built
                def build(self, lang, recipe_dir): DatasetBuilder.built = True
        """,
    )


@pytest.mark.parametrize(
    ("options", "changes", "kind", "message"),
    [
        ({"langs": "it"}, {"**options": "lang=None, options=()"}, ConfigError,
         "DatasetBuilder of this recipe: takes no option 'langs'; did you mean 'lang'?"),
        ({}, {"recipe_dir, **options": "recipe_dir, dataset_dir"}, ConfigError,
         "is_source_prepared: missing a required argument: 'dataset_dir'; add it to create_dataset"),
        ({}, {'self.log(recipe_dir, "build", options)': 'raise OSError("no space")'}, DataError,
         "build failed: OSError: no space; mend the recipe"),
        ({}, {'.write_text("")': ".parent"}, DataError, "build returned, and is_built still says no"),
        ({}, {"def build(": "def biuld("}, ConfigError, "has no 'build'; write it"),
        ([1], {}, ConfigError, "create_dataset: is [1]; expected a mapping of options, or null"),
    ],
)  # fmt: skip
def test_what_goes_wrong_is_named(
    options: Any, changes: dict[str, str], kind: type[Exception], message: str, create: Create
) -> None:
    code = BUILDER
    for before, after in changes.items():
        code = code.replace(before, after)
    with pytest.raises(kind) as caught:
        create(options, code=code)
    assert str(caught.value).startswith("conf/training.yaml: create_dataset")
    assert message in str(caught.value)


def test_two_runs_at_once_build_once(tmp_path: Path, create: Create) -> None:
    slow = BUILDER.replace(
        'self.log(recipe_dir, "build", options)',
        'self.log(recipe_dir, "build", options); import time; time.sleep(0.3)',
    )
    create(dataset={}, code=slow)  # the module is there; nothing was asked
    assert calls_in(tmp_path) == []
    runs = [threading.Thread(target=create, kwargs={"code": slow}) for _ in range(2)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert calls_in(tmp_path).count("build") == 1


def test_function_is_called_until_it_has_returned_once(tmp_path: Path, create: Create) -> None:
    """And again where its arguments or its code are others."""
    (tmp_path / "src").mkdir()
    module = tmp_path / "src" / "creating_dataset.py"
    code = "def create_dataset(recipe_dir, lang):\n    with open(recipe_dir + '/calls', 'a') as calls:\n"
    module.write_text(code + "        calls.write(lang + '\\n')\n", encoding="utf-8")
    options = {"func": "src.creating_dataset.create_dataset", "lang": "it"}
    for _ in range(2):
        create(options, dataset={"train": [{"manifest": "later.jsonl"}]})
    assert calls_in(tmp_path) == ["it"]
    assert json.loads((tmp_path / "exp" / "create_dataset.json").read_text())["arguments"]["lang"] == "it"
    create(options | {"lang": "fr"}, dataset=None)
    assert calls_in(tmp_path) == ["it", "fr"]
    with pytest.raises(
        ConfigError, match=r"create_dataset.func: takes no option 'lange'; did you mean 'lang'"
    ):
        create(options | {"lange": "fr"}, dataset=None)


def test_function_that_a_configuration_may_not_call_is_refused(create: Create) -> None:
    with pytest.raises(ConfigError, match=r"create_dataset.func: 'os.system' is not allowed"):
        create({"func": "os.system", "command": "true"}, dataset=None)


@pytest.mark.parametrize(
    ("options", "dataset", "warning"),
    [
        (
            {"func": "src.creating_dataset.create_dataset"},
            OWN,
            "create_dataset.func has no effect: the dataset's",
        ),
        (
            {"recipe_dir": "."},
            {"train": [{"manifest": "a.jsonl"}]},
            "create_dataset has no effect: it has no func",
        ),
    ],
)
def test_section_without_effect_warns(
    options: Any, dataset: Any, warning: str, create: Create, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        create(options, dataset=dataset)
    assert [warning in message for message in caplog.messages] == [True]


@pytest.mark.parametrize("dataset", [None, {}, {"train": [{"manifest": "a.jsonl"}], "valid": None}])
def test_nothing_happens_without_builder_and_section(dataset: Any, tmp_path: Path, create: Create) -> None:
    create(dataset=dataset)
    assert not (tmp_path / "exp").exists()
