"""A recipe written for ESPnet3 goes through `run` as it is: names, dataset module and model block."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from statsprep.data.demo_corpus import write_demo_corpus
from tests.integration.conftest import ROOT, RunDir, StatsprepCommand

# The recipe's own dataset, in the shape that ESPnet3's recipes have: no ids, audio as it is.
DATASET = """\
from .reader import rows

import soundfile


class Dataset:
    def __init__(self, split, data_path="demo/data"):
        self.rows = rows(f"{data_path}/{split}.jsonl")

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, idx):
        row = self.rows[int(idx)]
        return {"speech": soundfile.read(row["audio"], dtype="float32")[0], "text": row["text"]}
"""
READER = """\
import json
from pathlib import Path


def rows(path):
    found = [json.loads(line) for line in Path(path).read_text().splitlines()]
    return [row | {"audio": str(Path(path).parent / row["audio"])} for row in found]
"""
# As an ESPnet3 recipe's training.yaml is: what is the same for all recipes comes from ESPnet3's defaults.
OVERLAY = """\
task: espnet3.systems.asr.task.ASRTask
dataset:
  train:
    - data_src_args: {split: train}
  valid:
    - data_src_args: {split: valid}
  preprocessor:
    _target_: espnet2.train.preprocessor.CommonPreprocessor
    token_type: char
    token_list: ${load_line:tokens.txt}
model:
  encoder: transformer
  encoder_conf: {output_size: 2}
  normalize: global_mvn
  normalize_conf:
    stats_file: ${stats_dir}/train/feats_stats.npz
  frontend: default
  frontend_conf: {n_fft: 512, win_length: 400, hop_length: 160}
optimizer: {lr: 0.005}
trainer: {max_epochs: 1}
"""
TOKENS = "<blank>\n<unk>\n<space>\na\nb\nd\ne\ng\ni\nm\nn\no\nu\n<sos/eos>\n"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """The demo's audio and manifests: 24 utterances, of which two are broken."""
    write_demo_corpus(tmp_path / "demo", 24, 1)
    return tmp_path


@pytest.fixture
def overlay(corpus: Path) -> Path:
    for name, text in (
        ("dataset/__init__.py", DATASET),
        ("dataset/reader.py", READER),
        ("tokens.txt", TOKENS),
    ):
        (corpus / name).parent.mkdir(exist_ok=True)
        (corpus / name).write_text(text)
    (corpus / "conf").mkdir()
    (corpus / "conf" / "training.yaml").write_text(OVERLAY)
    return corpus


def shapes(path: Path) -> dict[str, str]:
    return dict(line.split(" ") for line in path.read_text().splitlines())


def test_the_whole_training_yaml_runs_unchanged(corpus: Path, statsprep: StatsprepCommand) -> None:
    """On its two workers, from the folder that holds configs/, without stats_file and shape_files."""
    shutil.copytree(ROOT / "configs" / "espnet3", corpus / "configs" / "espnet3")
    limit = "collect_stats.max_errors=2"  # the small corpus here has as many broken files as the large one
    statsprep("run", "configs/espnet3/training.yaml", limit)
    stats = corpus / "exp" / "espnet3_training" / "stats"
    manifest = [
        json.loads(line) for line in (corpus / "demo" / "data" / "train.jsonl").read_text().splitlines()
    ]
    texts = {row["utt_id"]: len(row["text"]) for row in manifest}
    found = shapes(stats / "train" / "text_shape")
    assert len(found) == len(texts) - 2
    assert all(texts[utt_id] == int(length) for utt_id, length in found.items())
    assert all(shape.endswith(",80") for shape in shapes(stats / "train" / "feats_shape").values())
    assert (stats / "valid" / "feats_stats.npz").exists()
    again = statsprep(
        "run", "configs/espnet3/training.yaml", limit, "model.encoder_conf.num_blocks=3", "seed=1"
    )
    assert "22 items, 22 finished before" in again.err


def test_its_statistics_are_those_of_our_own_section(overlay: Path, statsprep: StatsprepCommand) -> None:
    """ESPnet's `frontend_conf` and ours with the same numbers give files of the same bytes."""
    limit = "collect_stats.max_errors=2"
    statsprep("run", limit)
    ours = "{frontend: {sample_rate_hz: 16000, n_fft: 512, win_length: 400, hop_length: 160}}"
    statsprep("run", limit, f"model={ours}", "task=null", "stats_dir=exp/ours")
    theirs, own = (RunDir(overlay / "exp" / name / "train").merged() for name in ("stats", "ours"))
    assert theirs == own


def test_an_overlay_runs_from_its_own_and_from_another_folder(
    overlay: Path, statsprep: StatsprepCommand, statsprep_in: Callable[[Path], StatsprepCommand]
) -> None:
    """ESPnet3's path scaffold stands below it, and its dataset module is found from anywhere."""
    limit = "collect_stats.max_errors=2"
    statsprep("run", "conf/training.yaml", limit)
    (overlay / "else").mkdir()
    for name in ("demo", "tokens.txt"):
        (overlay / "else" / name).symlink_to(overlay / name)
    statsprep_in(overlay / "else")("run", "../conf/training.yaml", limit)
    here, there = (RunDir(overlay / place / "exp/stats/train").merged() for place in (".", "else"))
    assert here == there


def test_a_change_in_the_recipes_dataset_is_seen(overlay: Path, statsprep: StatsprepCommand) -> None:
    """Code that `data_src` leads to counts like a runner's, helpers included, and comments do not."""
    limit = "collect_stats.max_errors=2"
    statsprep("run", limit)
    path = overlay / "dataset" / "__init__.py"
    path.write_text("# a comment\n" + path.read_text())
    assert "finished before" in statsprep("run", limit).err
    path.write_text(path.read_text().replace('dtype="float32")[0]', 'dtype="float32")[0] * 2'))
    changed = statsprep("run", limit, code=2)
    assert "holds results of another code" in changed.errors[0]
    assert "code data_src .Dataset: changed" in changed.err
    path.write_text(path.read_text().replace("[0] * 2", "[0]"))
    reader = overlay / "dataset" / "reader.py"
    reader.write_text(reader.read_text() + "\nLATER = 1\n")
    assert statsprep("run", limit, code=2).errors


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("task=tts", "conf/training.yaml: task: 'tts' is not known here"),
        ("model.frontend=s3prl", "conf/training.yaml: model.frontend: 's3prl' cannot be built here"),
        (
            "collect_stats_train_mode=true",
            "conf/training.yaml: collect_stats_train_mode: true asks for random",
        ),
        ("dataset.preprocessor.token_type=bpe", "dataset.preprocessor: token_type: 'bpe' is not done here"),
        (
            "dataset.train.0.data_src=../../x",
            "expected a recipe and a task such as my_recipe/asr, not a path",
        ),
        ("dataset.train.0.data_src=os.path", "data_src 'os.path': no dataset module"),
    ],
)
def test_what_cannot_be_matched_is_one_line(
    override: str, message: str, overlay: Path, statsprep: StatsprepCommand
) -> None:
    seen = statsprep("run", override, "collect_stats.max_errors=2", code=2)
    assert len(seen.errors) == 1
    assert message in seen.errors[0]
    assert not any(path.is_file() for path in (overlay / "exp").rglob("*"))


BLOCKS = {
    "no_factory": """\
dataloader:
  collate_fn:
    _target_: espnet2.train.collate_fn.CommonCollateFn
    int_pad_value: -1
  train: {iter_factory: null, batch_size: 8, num_workers: 4, shuffle: true}
  valid: {iter_factory: null, batch_size: "${dataloader.train.batch_size}", shuffle: false}
""",
    "chunks_by_category": """\
dataloader:
  train:
    iter_factory:
      _target_: espnet2.iterators.category_chunk_iter_factory.CategoryChunkIterFactory
      batch_size: 8
      chunk_length: 800
      batch_type: catbel
      sampler_args: {category2utt_file: "${stats_dir}/train/utt2category", batch_size: 8}
""",
    "sampler": """\
dataloader:
  sampler: {_target_: torch.utils.data.WeightedRandomSampler, num_samples: 10000, replacement: true}
  train: {iter_factory: null, batch_size: 32}
""",
    "shards_beside_the_factory": """\
dataloader:
  train:
    total_shards: 1
    dist_world_size: 1
    iter_factory:
      _target_: espnet2.iterators.sequence_iter_factory.SequenceIterFactory
      batches: {type: unsorted, shape_files: ["${stats_dir}/train/feats_shape"], batch_bins: 4000000}
""",
    "parallel_with_options": """\
parallel:
  env: local
  n_workers: 1
  options:
    threads_per_worker: 1
""",
}


@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
def test_what_the_guides_show_is_taken_as_it_is(
    block: str, overlay: Path, statsprep: StatsprepCommand
) -> None:
    """Blocks of the published pages: what a training will need is read past, and nothing of it is built."""
    path = overlay / "conf" / "training.yaml"
    path.write_text(OVERLAY + block)
    statsprep("run", "collect_stats.max_errors=2", "--splits", "valid")
    assert len(RunDir(overlay / "exp/stats/valid").ids()) == 2
    printed = statsprep("run", "--print_config", "raw").out
    path.write_text(printed)
    assert "2 items, 2 finished before" in statsprep("run", "--splits", "valid").err


def test_a_sharded_dataset_of_another_recipe_is_found_by_its_name(
    overlay: Path, statsprep: StatsprepCommand
) -> None:
    """`data_src: my_recipe/asr` with the shard counts that large recipes give in data_src_args."""
    other = overlay / "my_recipe" / "asr"
    shutil.copytree(overlay / "dataset", other / "dataset")
    text = (other / "dataset" / "__init__.py").read_text()
    text = text.replace('data_path="demo/data"', 'data_path="demo/data", total_shards=1, dist_world_size=1')
    (other / "dataset" / "__init__.py").write_text(text)
    entry = "{data_src: my_recipe/asr, data_src_args: {split: valid, total_shards: 16, dist_world_size: 16}}"
    statsprep("run", f"dataset.valid=[{entry}]", "--splits", "valid", "--parallel", "none")
    assert len(RunDir(overlay / "exp/stats/valid").ids()) == 2
