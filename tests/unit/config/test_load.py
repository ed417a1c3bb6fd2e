"""One call gives the tree that the command line meant, in the documented order, without heavy imports."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import statsprep.config
from statsprep.config.load import find_config, load_config, load_parallel
from statsprep.config.presets import PRESETS, available_cpus
from statsprep.config.sections import ParallelSection, validate_section
from statsprep.errors import ConfigError

Write = Callable[[str, str], Path]


def test_each_layer_wins_over_the_one_before_and_references_see_the_last(write: Write) -> None:
    write("conf/base.yaml", "a: defaults\nb: defaults\nc: defaults\nd: defaults\n")
    path = write(
        "conf/training.yaml", "defaults: [base]\nb: yaml\nc: yaml\nd: yaml\nall: ${a} ${b} ${c} ${d}\n"
    )
    config = load_config(path, ["c=override", "d=override"], extra={"d": "flag"})
    assert config.tree["all"] == "defaults yaml override flag"
    assert config.raw["all"] == "${a} ${b} ${c} ${d}"
    assert "defaults" not in config.tree
    assert (config.path, config.recipe_root) == (path, Path.cwd())


def test_an_extra_replaces_what_stood_there(write: Write) -> None:
    path = write("a.yaml", "parallel: {env: slurm, options: {queue: gpu}}\nn: 2\n")
    config = load_config(
        path, extra={"parallel": {"env": "local", "n_workers": "${n}"}, "collect_stats.on_error": "raise"}
    )
    assert config.tree["parallel"] == {"env": "local", "n_workers": 2}
    assert config.tree["collect_stats"] == {"on_error": "raise"}


def test_the_published_dataloader_section_loads_before_its_shape_files_exist(write: Write) -> None:
    path = write(
        "conf/training.yaml",
        """
exp_dir: exp
stats_dir: ${exp_dir}/stats
dataloader:
  collate_fn: {_target_: espnet2.train.collate_fn.CommonCollateFn, int_pad_value: -1}
  train:
    iter_factory:
      _target_: espnet2.iterators.sequence_iter_factory.SequenceIterFactory
      collate_fn: ${dataloader.collate_fn}
      batches: {type: numel, batch_bins: 1200000, shape_files: ["${stats_dir}/train/feats_shape"]}
  valid:
    iter_factory:
      batches: {type: "${dataloader.train.iter_factory.batches.type}"}
""",
    )
    loader = load_config(path).tree["dataloader"]
    assert loader["train"]["iter_factory"]["batches"]["shape_files"] == ["exp/stats/train/feats_shape"]
    assert loader["train"]["iter_factory"]["collate_fn"] == loader["collate_fn"]
    assert loader["valid"]["iter_factory"]["batches"]["type"] == "numel"


def test_the_default_files_are_tried_in_order(write: Write) -> None:
    with pytest.raises(ConfigError) as caught:
        find_config(None)
    assert str(caught.value) == (
        f"no configuration: neither ./statsprep.yaml nor conf/training.yaml is in {Path.cwd()}; "
        "name one, e.g. statsprep run conf/training.yaml"
    )
    write("conf/training.yaml", "a: 1\n")
    assert find_config(None) == Path("conf/training.yaml")
    write("statsprep.yaml", "a: 1\n")
    assert find_config(None) == Path("statsprep.yaml")
    assert find_config("other.yaml") == Path("other.yaml")


@pytest.mark.parametrize("text", ["parallel: {env: slurm, n_workers: 3}\n", "env: slurm\nn_workers: 3\n"])
def test_a_parallel_file_may_have_the_top_key_or_not(write: Write, text: str) -> None:
    assert load_parallel(str(write("slurm.yaml", text)), config_dir=Path()) == {
        "env": "slurm",
        "n_workers": 3,
    }


def test_presets_are_found_here_then_beside_the_configuration_then_built_in(write: Write) -> None:
    assert load_parallel("local", config_dir=Path("recipe")) == {
        "env": "local",
        "n_workers": available_cpus(),
    }
    assert (
        load_parallel("none", config_dir=Path("recipe"))
        == load_parallel("in_process", config_dir=Path())
        == {"env": "none"}
    )
    write("recipe/parallel/local.yaml", "env: sge\n")
    assert load_parallel("local", config_dir=Path("recipe")) == {"env": "sge"}
    write("conf/parallel/local.yaml", "env: pbs\n")
    assert load_parallel("local", config_dir=Path("recipe")) == {"env": "pbs"}


def test_every_built_in_preset_is_a_valid_section() -> None:
    for name in PRESETS:
        section = load_parallel(name, config_dir=Path())
        assert (
            validate_section(ParallelSection, section, where=Path("x"), key="parallel").env == section["env"]
        )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "lokal",
            "--parallel lokal: no such preset; did you mean 'local'?; "
            "known are 'gpu_queue', 'htcondor', 'in_process', 'kube', 'local', 'local_gpu', 'lsf', 'moab', "
            "'none', 'oar', 'pbs', 'sge', 'slurm', 'ssh'; "
            "a file needs its suffix, e.g. --parallel lokal.yaml",
        ),
        ("no/such", "no/such: no such file; expected a YAML file; check the path"),
        ("bad.yaml", "bad.yaml: parallel: 'local' is not a mapping; expected e.g. parallel: {env: local}"),
    ],
)
def test_an_unknown_preset_lists_the_known_ones(write: Write, name: str, message: str) -> None:
    write("conf/parallel/gpu_queue.yaml", "env: slurm\n")
    write("bad.yaml", "parallel: local\n")
    with pytest.raises(ConfigError) as caught:
        load_parallel(name, config_dir=Path("conf"))
    assert str(caught.value) == message


def test_importing_config_loads_no_heavy_library_and_loading_a_file_no_torch(write: Write) -> None:
    path = write("a.yaml", "a: 1\nb: ${a}\n")
    code = (
        "import sys, statsprep.config, statsprep.config.load as load\n"
        "heavy = {'omegaconf', 'pydantic', 'torch', 'dask', 'librosa'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        f"assert load.load_config({str(path)!r}).tree == {{'a': 1, 'b': 1}}\n"
        "assert not {'torch', 'dask', 'librosa', 'pydantic'} & set(sys.modules)\n"
    )
    source = Path(statsprep.config.__file__).parents[2]
    subprocess.run(
        [sys.executable, "-c", code], check=True, timeout=60, env={**os.environ, "PYTHONPATH": str(source)}
    )


def test_espnet3s_paths_stand_below_a_config_with_a_task(write: Write) -> None:
    """An ESPnet3 recipe leaves them to the defaults that ESPnet3 merges below it."""
    path = write("conf/train_asr.yaml", "task: asr\ndata_dir: corpus\nseen: ${num_device} ${data_dir}/x\n")
    tree = load_config(path, ["exp_tag=mine"]).tree
    assert tree["seen"] == "1 corpus/x"
    assert (tree["exp_dir"], tree["stats_dir"]) == ("./exp/mine", "./exp/stats")
    assert load_config(path).tree["exp_dir"] == "./exp/train_asr"
    assert load_config(write("plain.yaml", "a: 1\n")).tree == {"a": 1}


def test_required_values_may_be_left_open_where_nothing_is_run(write: Write) -> None:
    path = write("a.yaml", "a: ???\nb: [1, '???']\n")
    assert load_config(path, may_lack=True).tree == {"a": "???", "b": [1, "???"]}
    with pytest.raises(ConfigError, match=r"^a\.yaml: no value for 'a', 'b\.1'; replace"):
        load_config(path)
