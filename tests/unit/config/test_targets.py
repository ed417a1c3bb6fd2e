"""Allowed names are built as written; everything else is refused before it runs, with the key at fault."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from statsprep.config.targets import TargetPolicy, check_targets, instantiate, locate
from statsprep.errors import ConfigError, DataError

Write = Callable[[str, str], Path]
NETS = """
import os
import subprocess
from functools import partial
from pathlib import Path as P
from statsprep.errors import ConfigError, DataError

built = []


class Net:
    def __init__(self, size, *, depth=2, inner=None):
        built.append(size)
        self.size, self.depth, self.inner = size, depth, inner

    @classmethod
    def small(cls):
        return cls(1)


class Raises:
    def __init__(self, error):
        raise {"runtime": RuntimeError("no weights\\nin line 2"), "data": DataError("f:1: bad"),
               "config": ConfigError("train and valid: both or neither")}[error]


def loose(**anything):
    return anything


NUMBER = 3
"""
NET = "src.nets.Net"
SEQUENCE = "espnet2.iterators.sequence_iter_factory.SequenceIterFactory"
WHERE = "conf/t.yaml: model"


@pytest.fixture
def allow(write: Write, folder: Path) -> TargetPolicy:
    """A policy for a recipe with src/nets.py."""
    write("src/nets.py", NETS)
    write("src/needs.py", "import no_such_package\n")
    write("src/broken.py", "def f(:\n")
    return TargetPolicy(recipe_root=folder)


def message(node: Any, allow: TargetPolicy, **kwargs: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        instantiate(node, where=WHERE, allow=allow, **kwargs)
    return str(caught.value)


def built(allow: TargetPolicy) -> list[Any]:
    sizes: list[Any] = locate(NET, allow).__init__.__globals__["built"]
    return sizes


def test_nested_nodes_are_built_first_and_containers_are_plain(allow: TargetPolicy) -> None:
    node = {"_target_": NET, "size": 1, "inner": {"list": [{"_target_": NET, "_args_": [2]}, 5]}}
    net = instantiate(node, where=WHERE, allow=allow)
    assert (net.size, net.inner["list"][0].size, net.inner["list"][1]) == (1, 2, 5)
    assert built(allow) == [2, 1]
    assert node["inner"] == {"list": [{"_target_": NET, "_args_": [2]}, 5]}


def test_not_recursive_hands_on_a_copy_of_the_plain_nodes(allow: TargetPolicy) -> None:
    inner = {"_target_": NET, "size": 2}
    net = instantiate(
        {"_target_": NET, "size": 1, "inner": inner, "_recursive_": False}, where=WHERE, allow=allow
    )
    assert net.inner == inner
    assert net.inner is not inner


def test_partial_gives_the_callable_with_its_arguments(allow: TargetPolicy) -> None:
    make = instantiate({"_target_": NET, "_partial_": True, "depth": 7}, where=WHERE, allow=allow)
    assert isinstance(make, functools.partial)
    assert (make(3).size, make(3).depth) == (3, 7)


def test_given_arguments_replace_those_of_the_node_unbuilt(allow: TargetPolicy) -> None:
    node = {"_target_": NET, "size": 1, "inner": {"_target_": NET, "size": 9}}
    assert instantiate(node, where=WHERE, allow=allow, inner="mine").inner == "mine"
    assert built(allow) == [1]


def test_functions_class_methods_torch_and_espnet_names_are_built(allow: TargetPolicy) -> None:
    def build(**node: Any) -> Any:
        return instantiate(node, where=WHERE, allow=allow)

    assert build(_target_="src.nets.loose", anything=1) == {"anything": 1}
    assert build(_target_="src.nets.Net.small").size == 1
    assert build(_target_="torch.nn.Linear", in_features=2, out_features=3).out_features == 3
    assert build(_target_="torch.zeros", _args_=[2]).tolist() == [0.0, 0.0]
    collate = build(_target_="espnet2.train.collate_fn.CommonCollateFn", int_pad_value=-1, _convert_="all")
    assert type(collate).__module__ == "statsprep.data.collate"


@pytest.mark.parametrize(
    ("target", "text"),
    [
        (
            "os.system",
            "'os.system' is not allowed; allowed are {allowed}; if you trust it, pass --allow_target os",
        ),
        (
            "src.nets.os.system",
            "'src.nets.os.system' is defined in 'os', which is not allowed; allowed are {allowed}; "
            "if you trust it, pass --allow_target os",
        ),
        (
            "src.nets.subprocess.Popen",
            "'src.nets.subprocess.Popen' is defined in 'subprocess', which is not allowed; allowed are "
            "{allowed}; "
            "if you trust it, pass --allow_target subprocess",
        ),
        (
            "src.nets.partial",
            "'src.nets.partial' is defined in 'functools', which is not allowed; allowed are {allowed}; "
            "if you trust it, pass --allow_target functools",
        ),
        (
            "statsprep.config.load.Path",
            "'statsprep.config.load.Path' is not allowed; allowed are {allowed}; "
            "if you trust it, pass --allow_target statsprep",
        ),
        (
            "src.nets.Net.__init__.__globals__.get",
            "'src.nets.Net.__init__.__globals__.get' reaches into Python's internals; expected a class or "
            "function",
        ),
        (
            "statsprp.data.X",
            "'statsprp.data.X' is not allowed; did you mean 'statsprep'?; allowed are {allowed}; "
            "if you trust it, pass --allow_target statsprp",
        ),
        (
            "srcs.nets.Net",
            "'srcs.nets.Net' is not allowed; did you mean 'src'?; allowed are {allowed}; "
            "if you trust it, pass --allow_target srcs",
        ),
        (
            "espnet2.iterators.sequence_iter_factory.SequenceIterFactry",
            "'espnet2.iterators.sequence_iter_factory.SequenceIterFactry' is not allowed; "
            f"did you mean '{SEQUENCE}'?; allowed are {{allowed}}; if you trust it, pass --allow_target "
            "espnet2",
        ),
        ("src.net.Net", "'src' has no 'net'; did you mean 'nets'?"),
        ("src.nets.Nett", "'src.nets' has no 'Nett'; did you mean 'Net'?"),
        (
            "src.nets.Net.huge",
            "'src.nets.Net' has no 'huge'; give the full dotted name of a class or function",
        ),
        ("statsprep.data.colate.X", "'statsprep.data' has no 'colate'; did you mean 'collate'?"),
        ("src.nets", "'src.nets' is a module; expected a class or function"),
        ("src.nets.NUMBER", "'src.nets.NUMBER' is an object of type int; expected a class or function"),
        ("src.needs.X", "module 'src.needs' needs 'no_such_package', which is not installed"),
        (
            "src.broken.X",
            "module 'src.broken' cannot be imported: SyntaxError: invalid syntax (broken.py, line 1)",
        ),
        (4, "4 is not a dotted name; expected e.g. statsprep.models.features.FeatureModel"),
        ("Net", "'Net' is not a dotted name; expected e.g. statsprep.models.features.FeatureModel"),
        (
            "src.nets.",
            "'src.nets.' is not a dotted name; expected e.g. statsprep.models.features.FeatureModel",
        ),
        (
            SEQUENCE,
            f"'{SEQUENCE}' is not part of this version; it is accepted in files for collect_stats only",
        ),
    ],
)
def test_a_wrong_name_is_refused_with_its_key(
    allow: TargetPolicy, folder: Path, target: Any, text: str
) -> None:
    allowed = f"classes of statsprep, torch.nn.*, torch.optim.*, torch.utils.data.* and modules in {folder}"
    expected = f"{WHERE}._target_: {text.format(allowed=allowed) if '{allowed}' in text else text}"
    assert message({"_target_": target, "_args_": ["true"]}, allow) == expected


@pytest.mark.parametrize(
    ("node", "text"),
    [
        ([1], ": [1] is not a mapping; expected one with '_target_'"),
        ({"size": 1}, ": no '_target_'; expected the dotted name of a class or function"),
        (
            {"_taget_": NET},
            ": no '_target_'; is it misspelt as '_taget_'?; expected the dotted name of a class or function",
        ),
        ({"_target_": NET, "sizes": 1}, ".sizes: src.nets.Net has no argument 'sizes'; did you mean 'size'?"),
        (
            {"_target_": NET, "zz": 1},
            ".zz: src.nets.Net has no argument 'zz'; it takes 'size', 'depth', 'inner'",
        ),
        ({"_target_": NET}, ": src.nets.Net needs 'size'; add it"),
        (
            {"_target_": "torch.nn.Linear"},
            ": torch.nn.modules.linear.Linear needs 'in_features', 'out_features'; add them",
        ),
        (
            {"_target_": NET, "_args_": [1], "size": 2},
            ": src.nets.Net: multiple values for argument 'size'; check '_args_'",
        ),
        (
            {"_target_": NET, "_args_": [1, 2]},
            ": src.nets.Net: too many positional arguments; check '_args_'",
        ),
        (
            {"_target_": NET, "_args_": 1},
            "._args_: 1 is not a list; expected the positional arguments in order",
        ),
        ({"_target_": NET, "_partial_": "yes"}, "._partial_: 'yes' is not valid; expected true or false"),
        (
            {"_target_": NET, "size": 1, "inner": [{"_target_": NET, "size": 1, "deep": 1}]},
            ".inner.0.deep: src.nets.Net has no argument 'deep'; did you mean 'depth'?",
        ),
    ],
)
def test_wrong_arguments_are_caught_before_anything_is_built(
    allow: TargetPolicy, node: Any, text: str
) -> None:
    assert message(node, allow) == WHERE + text
    assert built(allow) == []


def test_what_a_constructor_raises_names_the_key_and_keeps_its_words(allow: TargetPolicy) -> None:
    def raising(error: str) -> dict[str, Any]:
        return {"_target_": NET, "size": 1, "inner": {"_target_": "src.nets.Raises", "error": error}}

    with pytest.raises(ConfigError) as caught:
        instantiate(raising("runtime"), where=WHERE, allow=allow)
    assert caught.value.message == (
        "conf/t.yaml: model.inner: src.nets.Raises could not be built: RuntimeError: no weights"
    )
    assert caught.value.detail == "in line 2"
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert message(raising("config"), allow) == "conf/t.yaml: model.inner: train and valid: both or neither"
    with pytest.raises(DataError, match=r"^f:1: bad$"):
        instantiate(raising("data"), where=WHERE, allow=allow)


def test_a_package_is_allowed_by_name_and_only_as_a_whole_name() -> None:
    policy = TargetPolicy(("collections",))
    assert instantiate({"_target_": "collections.OrderedDict"}, where=WHERE, allow=policy) == {}
    assert not policy.allows_name("collections_of_others.X")
    assert "torch.utils.data.*, collections.*; " in message({"_target_": "os.system"}, policy)


def test_packages_installed_inside_the_recipe_folder_are_not_the_recipes(
    write: Write, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("src/site-packages/installed_here.py", "class X: ...\n")
    monkeypatch.syspath_prepend(str(folder / "src/site-packages"))
    assert not TargetPolicy(recipe_root=folder).allows_name("installed_here.X")


def test_a_linked_source_folder_is_the_recipes(write: Write, folder: Path) -> None:
    write("shared/nets.py", "class Net: ...\n")
    (folder / "recipe").mkdir()
    (folder / "recipe/src").symlink_to(folder / "shared")
    found = locate("src.nets.Net", TargetPolicy(recipe_root=folder / "recipe"))
    assert found.__name__ == "Net"


def test_the_dry_check_covers_the_tree_builds_nothing_and_lets_planned_classes_pass(
    allow: TargetPolicy,
) -> None:
    tree: dict[str, Any] = {
        "model": {"_target_": NET, "inner": {"_target_": NET}},
        "dataloader": {"train": {"iter_factory": {"_target_": SEQUENCE, "anything": 1}}},
        "plain": [1, {"a": None}],
    }
    check_targets(tree, "conf/t.yaml: ", allow)
    assert built(allow) == []
    tree["dataloader"]["train"]["iter_factory"]["collate_fn"] = {"_target_": NET, "pad": 0}
    with pytest.raises(ConfigError) as caught:
        check_targets(tree, "conf/t.yaml: ", allow)
    assert str(caught.value) == (
        "conf/t.yaml: dataloader.train.iter_factory.collate_fn.pad: "
        "src.nets.Net has no argument 'pad'; it takes 'size', 'depth', 'inner'"
    )
    with pytest.raises(ConfigError, match=r"^conf/t.yaml: l\.1\._target_: 'os\.system' is not allowed"):
        check_targets([1, {"_target_": "os.system"}], "conf/t.yaml: l", allow)


def test_the_dry_check_refuses_a_target_that_is_no_name(allow: TargetPolicy) -> None:
    with pytest.raises(ConfigError, match=r"^conf/t\.yaml: model\._target_: \['x'\] is not a dotted name"):
        check_targets({"_target_": ["x"]}, WHERE, allow)


EVIL = """
import os
import subprocess

import numpy
import torch
from statsprep.parallel import parallel_for
from statsprep.storage.atomic import write_text


class Model:
    pass
"""


@pytest.mark.parametrize(
    "target",
    [
        "os.system",
        "builtins.eval",
        "builtins.exec",
        "subprocess.run",
        "numpy.load",
        "numpy.ctypeslib.ctypes.CDLL",
        "importlib.import_module",
        "statsprep.os.system",
        "statsprep.data.audio.os.system",
        "statsprep.errors.errno.os.system",
        "statsprep.storage.atomic.write_text",
        "statsprep.data.demo_corpus.write_demo_corpus",
        "statsprep.data.index.build_index",
        "statsprep.data.organizer.CombinedDataset.build_index",
        "statsprep.config.targets.locate",
        "statsprep.config.targets.instantiate",
        "statsprep.config.recipe.find_dataset_class",
        "statsprep.engine.manifest.remove_results",
        "statsprep.parallel.parallel_for",
        "statsprep.runners.collect_stats",
        "statsprep.cli.main.main",
        "statsprep.__main__.main",
        "espnet3.parallel.parallel.parallel_map",
        "torch.load",
        "torch.save",
        "torch.from_file",
        "torch.hub.load",
        "torch.jit.load",
        "torch.compile",
        "torch.package.PackageImporter",
        "torch.ops.load_library",
        "torch.utils.cpp_extension.load",
        "torch.utils.cpp_extension.load_inline",
        "torch.utils.cpp_extension.subprocess.run",
        "torch.utils.benchmark.Timer",
        "torch.utils.data.datapipes.utils.decoder.basichandlers",
        "torch.utils.data.dataloader.os.system",
        "torch.nn.functional.torch.load",
        "torch.nn.modules.module.torch.hub.load",
        "torch.nn.parallel.scatter_gather.torch.from_file",
        "torch.multiprocessing.spawn",
        "torch.serialization.load",
        "torch._C._nn.torch.load",
        "src.evil.os.system",
        "src.evil.subprocess.Popen",
        "src.evil.numpy.load",
        "src.evil.torch.load",
        "src.evil.parallel_for",
        "src.evil.write_text",
        "src.evil.Model.__subclasses__",
        "src.evil.Model.__init__.__globals__",
    ],
)
@pytest.mark.parametrize("is_inner", [False, True], ids=["outermost", "argument"])
def test_a_foreign_target_is_named_and_runs_nothing(
    target: str, is_inner: bool, write: Write, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write("src/evil.py", EVIL)
    command = f"echo ran | tee {folder / 'ran'}"
    evil: dict[str, Any] = {"_target_": target, "_args_": [command, "wb"]}
    node = {"_target_": "torch.nn.Sequential", "_args_": [[evil]]} if is_inner else evil
    allow = TargetPolicy(recipe_root=folder)
    for check in (check_targets, lambda node, where, allow: instantiate(node, where=where, allow=allow)):
        with pytest.raises(ConfigError) as caught:
            check(node, WHERE, allow)
        assert f"{target!r}" in str(caught.value)
        assert str(caught.value).startswith(WHERE)
    assert sorted(path.name for path in folder.iterdir()) == ["src"]
    assert "ran" not in capfd.readouterr().out


@pytest.mark.parametrize("special", [{"_partial_": True}, {"_recursive_": False}, {"_convert_": "all"}])
def test_no_special_key_lets_a_foreign_target_through(special: dict[str, Any], allow: TargetPolicy) -> None:
    node = {"_target_": NET, "size": {"_target_": "os.system", "_args_": ["true"]}, **special}
    with pytest.raises(ConfigError, match=r"size\._target_: 'os\.system' is not allowed"):
        check_targets(node, WHERE, allow)


def test_a_flag_opens_a_package_that_is_closed_otherwise() -> None:
    for name in ("torch.utils.benchmark.Timer", "statsprep.storage.jsonl.compact"):
        package = name.split(".")[0]
        assert callable(locate(name, TargetPolicy((package,))))
        with pytest.raises(ConfigError, match=f"pass --allow_target {package}$"):
            locate(name, TargetPolicy())


@pytest.mark.parametrize(
    "name",
    [
        "torch.nn.functional.gelu",
        "torch.nn.init.xavier_uniform_",
        "torch.optim.lr_scheduler.ReduceLROnPlateau",
        "torch.utils.data.WeightedRandomSampler",
        "torch.utils.data.distributed.DistributedSampler",
        "torch.tensor",
        "statsprep.data.tokens.TextPreprocessor",
        "statsprep.engine.runner.BaseRunner",
    ],
)
def test_what_a_training_needs_may_be_named(name: str) -> None:
    assert callable(locate(name, TargetPolicy()))
