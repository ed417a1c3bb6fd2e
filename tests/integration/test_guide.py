"""What the published guides of ESPnet3 show works here with the import line changed, and so does their
YAML.
"""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from statsprep.data.demo_corpus import write_demo_corpus
from tests.integration.conftest import RunDir, StatsprepCommand

NUM_RECORDINGS = 40

# A provider with (cfg, *, params=None) and its own worker setup, a runner with a cleaner that drops
# utterances, a script without `if __name__ == "__main__"`, called in process and, after set_parallel, on
# workers.
_SCRIPT = """\
import json
import sys

import numpy as np
from omegaconf import DictConfig, OmegaConf

{imports}


def load_recordings(dataset_cfg):
    random = np.random.default_rng(dataset_cfg.seed)
    return [
        {{"utt_id": f"rec{{number:02d}}", "signal": random.standard_normal(int(random.integers(10, 400)))}}
        for number in range(dataset_cfg.num_recordings)
    ]


class RecordingsProvider(EnvironmentProvider):
    def __init__(self, cfg: DictConfig, *, params: dict | None = None):
        super().__init__(cfg)
        self.dataset_cfg = cfg.dataset
        self.params = params or {{}}

    def build_env_local(self):
        return {{"dataset": load_recordings(self.dataset_cfg), **self.params}}

    def {worker_setup}(self):
        dataset_cfg, params = self.dataset_cfg, self.params

        def setup():
            return {{"dataset": load_recordings(dataset_cfg), **params}}

        return setup


def drop_short(sample):
    return sample if len(sample["signal"]) >= 100 else None


class SpectrumRunner(BaseRunner):
    @staticmethod
    def forward(idx: int, *, dataset=None, cleaner=None, num_bins=None):
        sample = dataset[idx]
        if cleaner is not None:
            sample = cleaner(sample)
            if sample is None:
                return None
        spectrum = np.abs(np.fft.rfft(sample["signal"]))[:num_bins]
        return {{"utt_id": sample["utt_id"], "shape": spectrum.shape, "peak": spectrum.argmax(), "top":
        spectrum.max()}}


cfg = OmegaConf.load("prep.yaml")
provider = RecordingsProvider(cfg, params={{"cleaner": drop_short, "num_bins": 30}})
runner = SpectrumRunner(provider)
num_recordings = len(provider.build_env_local()["dataset"])
here = runner(list(range(num_recordings)))
dropped_here = runner.report.dropped_ids
set_parallel(cfg.parallel)
there = runner(range(num_recordings))
reversed_there = runner(range(num_recordings - 1, -1, -1))
json.dump([here, dropped_here, there, runner.report.dropped_ids, reversed_there], sys.stdout)
"""
_IMPORTS = {
    "short": "from statsprep import BaseRunner, EnvironmentProvider, set_parallel",
    "module_by_module": (
        "from statsprep.engine.provider import EnvironmentProvider\n"
        "from statsprep.engine.runner import BaseRunner\n"
        "from statsprep.parallel import set_parallel"
    ),
}
_PREP_YAML = f"""\
dataset: {{seed: 3, num_recordings: {NUM_RECORDINGS}}}
parallel: {{env: local, n_workers: 2, options: {{}}}}
"""


@pytest.mark.parametrize("imports", _IMPORTS)
@pytest.mark.parametrize("worker_setup", ["make_worker_setup_fn", "build_worker_setup_fn"])
def test_script_gives_the_same_list_in_process_and_on_workers(
    imports: str, worker_setup: str, tmp_path: Path, statsprep: StatsprepCommand
) -> None:
    """One runner, called twice with set_parallel between: equal lists of JSON, dropped utterances left
    out.
    """
    code = _SCRIPT.format(imports=_IMPORTS[imports], worker_setup=worker_setup)
    (tmp_path / "prep.py").write_text(code, encoding="utf-8")
    (tmp_path / "prep.yaml").write_text(_PREP_YAML, encoding="utf-8")
    seen = statsprep.start_python("prep.py").wait().check()
    here, dropped_here, there, dropped_there, reversed_there = json.loads(seen.out)
    assert here == there == reversed_there[::-1]
    random = np.random.default_rng(3)
    lengths = []
    for _ in range(NUM_RECORDINGS):
        lengths.append(int(random.integers(10, 400)))
        random.standard_normal(lengths[-1])
    assert 0 < len(dropped_here) < NUM_RECORDINGS
    assert len(here) + len(dropped_here) == NUM_RECORDINGS
    assert here[0]["shape"] == [30]
    assert [line["utt_id"] for line in here] == sorted(line["utt_id"] for line in here)
    assert dropped_there == dropped_here[::-1]


_TRAINING_YAML = """\
exp_dir: exp/asr
stats_dir: ${exp_dir}/stats
num_device: 1

dataset:
  _target_: espnet3.components.data.data_organizer.DataOrganizer
  train:
    - name: speech_train
      manifest: data/train.jsonl
  valid:
    - name: speech_valid
      manifest: data/valid.jsonl

dataloader:
  collate_fn:
    _target_: espnet2.train.collate_fn.CommonCollateFn
    int_pad_value: -1
  train:
    multiple_iterator: false
    iter_factory:
      _target_: espnet2.iterators.sequence_iter_factory.SequenceIterFactory
      shuffle: true
      collate_fn: ${dataloader.collate_fn}
      batches:
        type: numel
        shape_files:
          - ${stats_dir}/train/feats_shape
        batch_bins: 4000000
  valid:
    iter_factory:
      _target_: espnet2.iterators.sequence_iter_factory.SequenceIterFactory
      shuffle: false
      collate_fn: ${dataloader.collate_fn}
      batches:
        type: numel
        shape_files:
          - ${stats_dir}/valid/feats_shape
        batch_bins: 4000000

model:
  frontend: {n_mels: 40}
  normalize: global_mvn
  normalize_conf:
    stats_file: ${stats_dir}/train/feats_stats.npz

optimizer:
  _target_: torch.optim.Adam
  lr: 0.001
trainer:
  max_epochs: 3
  accelerator: auto

parallel:
  env: local
  n_workers: 2
"""


@pytest.fixture
def training_yaml(tmp_path: Path) -> Path:
    """conf/training.yaml beside a small corpus."""
    write_demo_corpus(tmp_path, 60, 2).unlink()
    (tmp_path / "conf").mkdir()
    path = tmp_path / "conf" / "training.yaml"
    path.write_text(_TRAINING_YAML, encoding="utf-8")
    return path


@pytest.mark.usefixtures("training_yaml")
def test_training_yaml_is_measured_before_its_statistics_exist(
    tmp_path: Path, statsprep: StatsprepCommand
) -> None:
    """conf/training.yaml with ESPnet's class names, shape files and a stats_file that do not exist yet:
    `statsprep run`
    finds it, and writes just those files."""
    statsprep("run", "collect_stats.max_errors=2")
    for split, number in (("train", 52), ("valid", 6)):
        folder = tmp_path / "exp/asr/stats" / split
        lines = (folder / "feats_shape").read_text(encoding="utf-8").splitlines()
        assert len(lines) == number
        assert all(line.endswith(",40") for line in lines)
        assert (folder / "stats_keys").read_text(encoding="utf-8") == "feats\n"
        stats = np.load(folder / "feats_stats.npz")
        assert stats["count"] == sum(int(line.split(" ")[1].split(",")[0]) for line in lines)
        assert stats["sum"].shape == stats["sum_square"].shape == (40,)


def test_later_layers_of_the_training_yaml_do_not_matter(
    training_yaml: Path, statsprep: StatsprepCommand
) -> None:
    """Optimiser, trainer, batches and normalisation may change after the statistics were taken."""
    statsprep("run", "collect_stats.max_errors=2", "--parallel", "none")
    changed = _TRAINING_YAML.replace("batch_bins: 4000000", "batch_bins: 10").replace("lr: 0.001", "lr: 1")
    training_yaml.write_text(changed.replace("  normalize: global_mvn\n", ""), encoding="utf-8")
    seen = statsprep("run", "collect_stats.max_errors=2", "--parallel", "none")
    assert "54 finished before" in seen.err
    assert "6 finished before" in seen.err


def test_prepared_data_goes_into_files_shard_by_shard(
    tmp_path: Path, recipe: Callable[..., Path], statsprep: StatsprepCommand
) -> None:
    """With output_dir the same pair writes results.jsonl and dropped.jsonl, keyed by the utt_id in each
    result.
    """
    code = _SCRIPT.format(imports=_IMPORTS["short"], worker_setup="make_worker_setup_fn").partition(
        "\ncfg = "
    )[0]
    config = """\
stats_dir: exp/data
dataset: {seed: 3, num_recordings: 40}
provider:
  _target_: src.prep.RecordingsProvider
  params: {cleaner: {_target_: src.prep.drop_short, _partial_: true}}
runner: {_target_: src.prep.SpectrumRunner}
"""
    statsprep("run", recipe(code.replace("cfg.dataset", "OmegaConf.create(cfg).dataset"), config))
    found = RunDir(tmp_path / "exp/data")
    assert len(found.lines("results.jsonl")) + len(found.lines("dropped.jsonl")) == NUM_RECORDINGS
    assert {line["result"]["utt_id"] == line["utt_id"] for line in found.lines("results.jsonl")} == {True}
