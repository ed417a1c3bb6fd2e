"""Input that was made to do harm, at every door: nothing of it is executed, nothing outside the run directory
is written or removed, no header's word allocates memory, and one line names the file and what is wrong.
"""

import io
import itertools
import json
import os
import pickle
import shutil
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from statsprep.engine.fingerprint import digest_of
from statsprep.storage.digest import describe_files
from tests.integration.conftest import Finished, RunDir, StatsprepCommand
from tests.integration.test_messages import check_one_line

_CONFIG = """\
stats_dir: exp
dataset: {train: [{manifest: corpus/train.jsonl}], valid: [{manifest: corpus/train.jsonl}]}
model: {frontend: {sample_rate_hz: 8000, n_mels: 10}}
collect_stats: {stats: lengths, splits: [train], max_errors: 100%}
"""
# A module that says that it was imported, and has whatever is looked for in it.
_EVIL = """\
import os
open(os.environ["CANARY"], "w").close()
from statsprep import BaseRunner, EnvironmentProvider
from statsprep.data.organizer import DataOrganizer
class Dataset(list):
    pass
class Runner(BaseRunner):
    pass
class Provider(EnvironmentProvider):
    pass
"""
_FEATS_RECIPE = """\
from statsprep import BaseRunner, EnvironmentProvider
from statsprep.data.kaldi_dataset import KaldiDataset
class Provider(EnvironmentProvider):
    def build_env_local(self):
        return {"dataset": KaldiDataset("kaldi")}
class Measure(BaseRunner):
    @staticmethod
    def forward(idx, *, dataset):
        return list(dataset[idx]["feats"].shape)
"""
_FEATS_CONFIG = """\
output_dir: feats
provider: {_target_: src.prep.Provider}
runner: {_target_: src.prep.Measure, on_error: skip, max_errors: 100%}
"""
MEMORY_BYTES = 3 << 30


class Explosive:
    """Unpickling it makes the canary."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.canary}",)


class World:
    """A user's folder `home` with a small corpus, beside `precious` and a stranger's folder `evil`."""

    def __init__(self, root: Path, command: StatsprepCommand) -> None:
        self.home, self.evil, self.precious = root / "home", root / "evil", root / "precious"
        self.canary, self.command = root / "canary", command
        for folder in (self.home / "corpus", self.precious, self.evil / "dataset", self.evil / "src"):
            folder.mkdir(parents=True)
        for name in ("letter", "split.0", "results.jsonl"):
            (self.precious / name).write_text("precious\n")
        for name in ("dataset/__init__.py", "src/__init__.py", "prep.py", "torch.py"):
            (self.evil / name).write_text(_EVIL)
        soundfile.write(self.home / "corpus" / "a.wav", np.full(4000, 0.1), 8000)
        self.write_rows([{"utt_id": f"u{number}", "audio": "a.wav"} for number in range(4)])
        self.write("statsprep.yaml", _CONFIG)
        command.folder = self.home
        command.env |= {"CANARY": str(self.canary)}

    def write(self, name: str, text: str | bytes) -> None:
        content = text.format(**vars(self)).encode() if isinstance(text, str) and "{home}" in text else text
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)

    def write_rows(self, rows: list[dict[str, Any]]) -> None:
        self.write("corpus/train.jsonl", "".join(json.dumps(row) + "\n" for row in rows))

    def limited(self, *words: object) -> Finished:
        """The command with so little memory that no claim of gigabytes can be believed."""
        code = (
            "import resource, sys; from statsprep.cli.main import main; "
            f"resource.setrlimit(resource.RLIMIT_AS, ({MEMORY_BYTES}, {MEMORY_BYTES})); sys.exit(main())"
        )
        return self.command.start_python("-c", code, *words, OMP_NUM_THREADS="1").wait(60)

    def measure_feats(self) -> Finished:
        """Read the features of the Kaldi directory `kaldi`, into `feats`."""
        self.write("feats/src/prep.py", _FEATS_RECIPE)
        self.write("feats/run.yaml", _FEATS_CONFIG)
        return self.limited("run", "feats/run.yaml").check(0)

    def check_unharmed(self) -> None:
        assert not self.canary.exists(), "something was executed"
        assert sorted(path.name for path in self.precious.iterdir()) == ["letter", "results.jsonl", "split.0"]
        assert {path.read_text() for path in self.precious.iterdir()} == {"precious\n"}
        assert sorted(path.name for path in self.home.parent.iterdir()) == ["evil", "home", "precious"]


@pytest.fixture
def world(tmp_path: Path, statsprep: StatsprepCommand) -> World:
    return World(tmp_path / "world", statsprep)


# Commands in the place of files.


@pytest.mark.parametrize("door", ["wav.scp", "wav.scp_input", "segments", "feats.scp", "feats.ark"])
def test_command_in_a_kaldi_directory_is_not_run(door: str, world: World) -> None:
    """Line and command are named, by `run` and by `check`."""
    name, _, kind = door.partition(".")
    touch = f"touch {world.canary}"
    text = {
        "wav.scp": f"u0 {touch} |\n",
        "wav.scp_input": f"u0 | {touch}\n",
        "segments": f"rec {touch} |\n",
        "feats.scp": f"u0 {touch} |\n",
        "feats.ark": f"u0 {touch} |:17\n",
    }[door]
    scp = "feats.scp" if name == "feats" else "wav.scp"
    world.write(f"kaldi/{scp}", text)
    world.write("kaldi/text", f"u0 `{touch}` $({touch}) |\n")
    if door == "segments":
        world.write("kaldi/segments", "u0 rec 0 0.1\n")
    if kind == "ark":  # a colon makes it the name of an archive, which is not there
        world.measure_feats()
        (record,) = RunDir(world.home / "feats").lines("errors.jsonl")
        assert f"{touch} |:17: cannot be read as features" in record["message"]
    else:
        seen = world.command("run", "dataset.train=[{kaldi: kaldi}]", code=3)
        check_one_line(seen, scp if door != "segments" else "segments", "touch", "expected")
    world.command("check", "kaldi", code=3)
    world.check_unharmed()


@pytest.mark.parametrize(
    "row", ["touch {canary} |", "$(touch {canary})", "| touch {canary}", "ext::sh -c touch"]
)
def test_command_in_a_manifest_is_a_file_name(row: str, world: World) -> None:
    """One utterance that cannot be read; also as NeMo writes rows, and where FFmpeg or git would run it."""
    audio = row.format(canary=world.canary)
    good = {"utt_id": "good", "audio": "a.wav"}
    for bad in ({"utt_id": "bad", "audio": audio}, {"audio_filepath": audio, "duration": 1.0}):
        world.write_rows([bad] if "duration" in bad else [good, bad])
        world.command("run", "--overwrite")
        (record,) = RunDir(world.home / "exp/train").lines("errors.jsonl")
        assert record["kind"] == "unreadable"
    world.check_unharmed()


# Names of what a configuration may build.

TARGETS = {
    "model": "model={_target_: os.system, _args_: ['touch {canary}']}",
    "partial": "model={_target_: os.system, _partial_: true, _args_: ['touch {canary}']}",
    "functools": "model={_target_: functools.partial, _args_: [{_target_: os.system}]}",
    "nested_in_lists": "dataset.train=[{manifest: corpus/train.jsonl, transform: {_target_: os.system}}]",
    "eval": 'model={_target_: builtins.eval, _args_: [\'open("{canary}", "w")\']}',
    "getattr": "model={_target_: builtins.getattr, _args_: [os, system]}",
    "pickle": "model={_target_: pickle.load}",
    "torch_load": "model={_target_: torch.load, f: x}",
    "torch_hub": "model={_target_: torch.hub.load, repo_or_dir: '{evil}', source: local, model: Dataset}",
    "torch_utils": "model={_target_: torch.utils.cpp_extension.load, name: x, sources: []}",
    "through_torch": "model={_target_: torch.nn.modules.module.torch.load, f: x}",
    "through_statsprep": "model={_target_: statsprep.data.commands.subprocess.run, args: [touch, x]}",
    "dunder": "model={_target_: statsprep.data.audio.read_audio.__globals__.os.system}",
    "private_method": "model={_target_: statsprep.data.commands.AudioCommand._run, _args_: [1, 2, 3]}",
    "command_for_a_path": "dataset.train=[{manifest: {_target_: statsprep.data.commands.AudioCommand, "
    "command: 'touch {canary}'}}]",
    "runner": "runner={_target_: subprocess.Popen, args: [touch, '{canary}']}",
    "provider": "runner={_target_: statsprep.BaseRunner} provider={_target_: os.system}",
    "provider_is_no_provider": "runner={_target_: statsprep.BaseRunner} provider={_target_: torch.nn.Linear}",
    "data_src_above": "dataset.train=[{data_src: ../evil}]",
    "data_src_absolute": "dataset.train=[{data_src: '{evil}'}]",
    "data_src_dotted": "dataset.train=[{data_src: os.system}]",
    "recipe_dir": "dataset={recipe_dir: '{evil}', train: [{data_src: null}], valid: [{data_src: null}]}",
    "recipe_root": "dataset={recipe_root: '{evil}', train: [{data_src: null}], valid: [{data_src: null}]}",
    "recipe_root_within": "dataset.preprocessor={_target_: statsprep.data.organizer.DataOrganizer, "
    "recipe_root: '{evil}', train: [{data_src: null}], valid: [{data_src: null}]}",
    "recipe_root_of_a_split": "dataset.preprocessor={_target_: statsprep.data.organizer.EntriesDataset, "
    "recipe_root: '{evil}', entries: [{data_src: null}], where: x}",
    "create_dataset": "create_dataset={func: os.system, command: 'touch {canary}'}",
    "cleaner": "collect_stats=null prepare={cleaner: [{_target_: os.system}]} output_dir=exp",
    "parallel": "parallel={env: local, options: {cluster_class: os.system}}",
}


@pytest.mark.parametrize("name", TARGETS)
def test_foreign_target_is_refused(name: str, world: World) -> None:
    """Before anything is built, and with its key; the model's also where it is not needed for lengths."""
    words = TARGETS[name].replace("{canary}", str(world.canary)).replace("{evil}", str(world.evil))
    overrides = [f"{key}={word}" for key, word in _split_overrides(words)]
    seen = world.command(
        "run", *overrides, "collect_stats.stats=features" if name != "cleaner" else "seed=1", code=2
    )
    check_one_line(seen)
    world.check_unharmed()
    assert not list(world.home.glob("exp/**/split.*"))


def _split_overrides(words: str) -> list[tuple[str, str]]:
    """`a={...} b={...}` as pairs; a blank before a word with `=` parts them."""
    import re

    return [(key, value.strip()) for key, value in re.findall(r"([\w.]+)=((?:(?! [\w.]+=).)*)", words)]


def test_foreign_target_in_a_defaults_file_is_refused(world: World) -> None:
    world.write("base.yaml", "model: {_target_: os.system}\n")
    world.write("statsprep.yaml", "defaults: [base]\n" + _CONFIG.replace("model:", "x_model:"))
    check_one_line(world.command("run", code=2), "statsprep.yaml")
    world.write("statsprep.yaml", "defaults: [base]\n" + "\n".join(
        line for line in _CONFIG.splitlines() if not line.startswith("model")
    ).replace("stats: lengths", "stats: features"))  # fmt: skip
    check_one_line(world.command("run", code=2), "model._target_", "'os.system' is not allowed")
    world.check_unharmed()


# YAML.


def _doubling(first: str, form: str, letters: str) -> str:
    """Lines of which each holds the one before several times."""
    lines = [f"{new}: &{new} {form.replace('@', f'*{old}')}\n" for old, new in itertools.pairwise(letters)]
    return f"{letters[0]}: &{letters[0]} {first}\n" + "".join(lines)


_TEN = f"[{', '.join('@' * 10)}]"
BOMBS = {
    "lists": _doubling("[1, 2, 3, 4]", _TEN, "abcdefghi"),
    "mappings": _doubling("{x: 1, y: 2}", "{p: @, q: @, r: @, s: @}", "abcdefghijklmno"),
    "merge_keys": _doubling("{x: 1}", f"{{<<: {_TEN}}}", "abcdefghi"),
    "nested": "a: " + "[" * 20_000 + "\n",
    "itself": "a: &a [*a]\n",
    "digits": "a: " + "9" * 10_000 + "\n",
    "tag_apply": "a: !!python/object/apply:os.system ['touch {canary}']\n{home}",
    "tag_new": "a: !!python/object/new:os.system ['touch {canary}']\n{home}",
    "tag_name": "a: !!python/name:os.system\n",
    "tag_module": "a: !!python/module:os\n",
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_yaml_bomb_and_tag_are_refused(name: str, world: World) -> None:
    """Within memory and seconds, wherever YAML is read: config, its defaults, --parallel, an override."""
    bomb = BOMBS[name].replace("{canary}", str(world.canary)).replace("{home}", "")
    world.write("bomb.yaml", bomb)
    world.write("with_defaults.yaml", "defaults: [bomb]\n")
    for words in (("bomb.yaml",), ("with_defaults.yaml",), ("--parallel", "bomb.yaml")):
        seen = world.limited("run", *words).check(2)
        check_one_line(seen, "bomb.yaml")
        assert len(seen.errors[0]) < 400
    if "\n" not in bomb.rstrip():
        check_one_line(world.limited("run", f"seed={bomb.strip()[3:]}").check(2), "override")
    world.check_unharmed()


# Rows.

ROWS = {
    "nested": '{"utt_id": "u", "audio": "a.wav", "x": ' + "[" * 100_000 + "}",
    "digits": '{"utt_id": "u", "audio": "a.wav", "duration_s": ' + "9" * 5000 + "}",
    "no_float": '{"utt_id": "u", "audio": "a.wav", "duration_s": ' + "9" * 400 + "}",
    "start": '{"utt_id": "u", "audio": "a.wav", "start_s": ' + "9" * 400 + "}",
    "infinite": '{"utt_id": "u", "audio": "a.wav", "duration_s": 1e999}',
    "nul": '{"utt_id": "u", "audio": "a.wav\\u0000"}',
    "surrogate": '{"utt_id": "u\\ud800", "audio": "a.wav"}',
    "escape": '{"utt_id": "u\\u001b[31m", "audio": "a.wav"}',
    "long_id": '{"utt_id": "' + "u" * 5000 + '", "audio": "a.wav"}',
    "nemo_offset": '{"audio_filepath": "a.wav", "duration": 1, "offset": ' + "9" * 400 + "}",
}


@pytest.mark.parametrize("name", ROWS)
def test_impossible_row_is_named(name: str, world: World) -> None:
    world.write("corpus/train.jsonl", ROWS[name] + "\n")
    seen = world.command("run", code=3)
    check_one_line(seen, "corpus/train.jsonl:1: ")
    assert len(seen.errors[0]) < 400
    assert "\x1b" not in seen.err
    world.command("check", "corpus/train.jsonl", code=3)


@pytest.mark.parametrize("form", ["npy", "ark"])
def test_ids_that_are_paths_write_nothing_outside(form: str, world: World, odd_ids: list[str]) -> None:
    """Ids become file names where features are kept; all of those are in the run directory, one an id."""
    ids = [*odd_ids, "../../../precious/letter", str(world.precious / "letter"), "..", "."]
    world.write_rows([{"utt_id": utt_id, "audio": "a.wav"} for utt_id in ids])
    options = ("write_collected_feats=true", f"collected_feats_format={form}", "stats=features")
    world.command("run", *(f"collect_stats.{option}" for option in options))
    lines = (world.home / "exp/train/collect_feats/feats.scp").read_text().splitlines()
    assert [line.split(" ")[0] for line in lines] == ids
    places = [os.path.realpath(line.split(" ", 1)[1].rpartition(":" if form == "ark" else "\0")[0] or
                               line.split(" ", 1)[1]) for line in lines]  # fmt: skip
    assert all(place.startswith(os.path.realpath(world.home / "exp/train/split.")) for place in places)
    assert len(set(places)) == (len(ids) if form == "npy" else 1)
    world.check_unharmed()


# Lengths that are not true.


def _wav(claimed: int) -> bytes:
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, 8000, 16000, 2, 16)
    return (
        struct.pack("<4sI4s", b"RIFF", claimed, b"WAVE")
        + form
        + struct.pack("<4sI", b"data", claimed)
        + bytes(800)
    )


def _flac(claimed: int) -> bytes:
    stream = io.BytesIO()
    soundfile.write(stream, np.full(800, 0.1), 8000, format="FLAC")
    content = bytearray(stream.getvalue())
    content[21] = content[21] & 0xF0 | claimed >> 32
    content[22:26] = struct.pack(">I", claimed & 0xFFFFFFFF)
    return bytes(content)


def _wav_at(rate_hz: int) -> bytes:
    stream = io.BytesIO()
    soundfile.write(stream, np.full(4000, 0.1), rate_hz, format="WAV", subtype="PCM_16")
    return stream.getvalue()


AUDIO: dict[str, tuple[bytes, str]] = {
    "wav_4_gb": (_wav(0xFFFFFF00), "truncated"),
    "wav_2_gb": (_wav(0x7FFFFFFE), "truncated"),
    "flac_4_g_samples": (_flac(0xFFFFFFFF), "truncated"),
    "flac_68_g_samples": (_flac(0xFFFFFFFFF), "truncated"),
    "wav_at_1_hz": (_wav_at(1), "header_mismatch"),
}


@pytest.mark.parametrize(
    ("name", "stats"), [*((name, "lengths") for name in AUDIO), ("flac_68_g_samples", "features")]
)
def test_length_in_a_header_is_not_believed(name: str, stats: str, world: World) -> None:
    """It costs one utterance, in `run` also where only headers are read, and no gigabytes in `check`."""
    content, kind = AUDIO[name]
    world.write("corpus/huge", content)
    world.write_rows([{"utt_id": "u", "audio": "a.wav"}, {"utt_id": "huge", "audio": "huge"}])
    options = [f"collect_stats.stats={stats}", "dataset.train.0.sample_rate_hz=8000"]
    world.command("run", *options)
    run = RunDir(world.home / "exp/train")
    (record,) = run.lines("errors.jsonl")
    assert (record["utt_id"], record["kind"]) == ("huge", kind)
    assert str(world.home / "corpus/huge") in record["message"]
    assert max(json.loads(done.read_text())["max_rss_bytes"] for done in run.root.glob("*/done")) < 2 << 30
    seen = world.limited("check", "corpus/train.jsonl", "--jobs", "1").check(3)
    assert "MemoryError" not in seen.out + seen.err


_HUGE_MATRIX = b"\0BFM \4" + struct.pack("<i", 1 << 30) + b"\4" + struct.pack("<i", 80)
ARCHIVES = {
    "4_gb_matrix": _HUGE_MATRIX + bytes(100),
    "negative": b"\0BFM \4" + struct.pack("<i", -5) + b"\4" + struct.pack("<i", 80) + bytes(100),
    "compressed": b"\0BCM " + struct.pack("<ffii", 0.0, 1.0, 1 << 30, 80) + bytes(100),
    "pickle": b"PKL",
    "numpy": b"\x93NUMPY\x01\x00v\x00{'descr': '|O', 'fortran_order': False, 'shape': (1,), }",
    "sound": b"AUDIO",
    "empty": b"",
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_hostile_archive_costs_one_utterance(name: str, world: World) -> None:
    """Neither unpickled nor allocated, as kaldiio would."""
    content = ARCHIVES[name] + (pickle.dumps(Explosive(world.canary)) if name in ("pickle", "numpy") else b"")
    world.write("kaldi/feats.ark", b"u0 " + content)
    world.write("kaldi/feats.scp", "u0 kaldi/feats.ark:3\n")
    seen = world.measure_feats()
    (record,) = RunDir(world.home / "feats").lines("errors.jsonl")
    assert "kaldi/feats.ark:3: cannot be read as features" in record["message"]
    assert "MemoryError" not in seen.err + json.dumps(record)
    world.check_unharmed()


@pytest.mark.parametrize("place", ["fifo", "/dev/zero", "."])
def test_what_is_no_file_is_not_waited_for(place: str, world: World) -> None:
    """A FIFO as audio, as features, as a manifest and as a configuration: a record, or one line."""
    os.mkfifo(world.home / "corpus" / "fifo")
    world.write_rows([{"utt_id": "u", "audio": place}])
    world.limited("run").check(0)
    (record,) = RunDir(world.home / "exp/train").lines("errors.jsonl")
    assert record["kind"] in ("unreadable", "empty")
    path = os.path.join("corpus", place)
    check_one_line(
        world.limited("run", f"dataset.train=[{{manifest: {path}}}]").check(2), "expected a JSONL file"
    )
    check_one_line(world.limited("run", path).check(2), "expected a YAML file")
    world.write("kaldi/feats.scp", f"u0 {os.path.abspath(world.home / path)}\n")
    world.measure_feats()
    (record,) = RunDir(world.home / "feats").lines("errors.jsonl")
    assert "cannot be read as features" in record["message"]


# The run directory of a stranger.


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A world with a merged run of features in home/exp/train."""
    root = tmp_path_factory.mktemp("measured")
    command = StatsprepCommand(root)
    World(root / "world", command).command(
        "run", "collect_stats.stats=features", "collect_stats.per_utterance_stats=true"
    )
    yield root / "world"
    command.end_all()


@pytest.fixture
def run(world: World, measured: Path) -> RunDir:
    """That run as if it had been made in `world`, to be spoilt."""
    shutil.copytree(measured / "home" / "exp", world.home / "exp")
    run = RunDir(world.home / "exp/train")
    text = (run.root / "manifest.json").read_text().replace(str(measured), str(world.home.parent))
    (run.root / "manifest.json").write_text(text)
    return run


def change(run: RunDir, name: str, edit: Callable[[dict[str, Any]], object]) -> None:
    """Edit a JSON file of a run as somebody who knows how its checksums are made."""
    content = run.json(name)
    edit(content)
    if name == "manifest.json":
        content["fingerprint"] = digest_of(content["parts"])
    (run.root / name).write_text(json.dumps(content))


def put(run: RunDir, name: str, content: bytes) -> None:
    """Replace a shard's file, and make its `done` agree."""
    (run.root / name).write_bytes(content)
    shard, _, file = name.partition("/")
    change(run, f"{shard}/done", lambda done: done["files"].update(describe_files(run.root / shard, [file])))


def test_code_of_a_strangers_recipe_is_not_run(world: World, run: RunDir) -> None:
    """Neither what the manifest names as runner, nor what lies in the folder that it calls its recipe; and
    `--recipe` says that it may.
    """
    spec = {"recipe_root": str(world.evil), "dataset": {"recipe_root": str(world.evil)}}

    def edit(manifest: dict[str, Any]) -> None:
        manifest.update(runner="prep:Runner", recipe_root=str(world.evil))
        manifest["origin"].update(recipe_root=str(world.evil), cwd=str(world.evil))
        manifest["origin"]["spec"].update(recipe_root=str(world.evil))
        manifest["origin"]["spec"]["dataset"].update(spec["dataset"], train=[{"data_src": None}])

    change(run, "manifest.json", edit)
    (run.root / "merged.json").unlink()
    check_one_line(world.command("merge", "exp", code=2), str(world.evil), "pass --recipe")
    for item in (("--utt", "u0"), ("--index", "0")):
        seen = world.command("replay", "exp/train", *item, code=2)
        check_one_line(seen, str(world.evil), "not the recipe of the current folder", "pass --recipe")
    for command in ("status", "verify"):
        world.command(command, "exp", code=3 if command == "verify" else 0)
    world.check_unharmed()
    world.command("merge", "exp", "--recipe", "../evil")
    assert world.canary.exists()


@pytest.mark.parametrize("kind", ["collect_stats", "recipe", "data_src_of_another", "os"])
def test_replay_runs_no_code_that_the_manifest_alone_allows(kind: str, world: World, run: RunDir) -> None:
    """Packages that a manifest allows, targets, and a dataset folder besides the trusted recipe."""

    def edit(manifest: dict[str, Any]) -> None:
        origin, spec = manifest["origin"], manifest["origin"]["spec"]
        spec["allow"] = ["os", "prep", "src"]
        if kind == "collect_stats":
            spec["model"] = {"_target_": "os.system", "_args_": [f"touch {world.canary}"]}
        elif kind == "data_src_of_another":
            spec["dataset"].update(recipe_root=str(world.evil), train=[{"data_src": None}])
        else:
            origin.update(kind="recipe", config_path="x.yaml", allow_targets=["os", "prep"])
            target = "os.system" if kind == "os" else "prep.Provider"
            manifest["config"] = {"runner": {"_target_": target}, "provider": {"_target_": target}}

    change(run, "manifest.json", edit)
    (world.evil / "torch.py").unlink()
    seen = world.command("replay", "exp/train", "--index", "0", code=2, PYTHONPATH=str(world.evil))
    check_one_line(seen)
    world.check_unharmed()


RUNNERS = [
    *("os:system", "builtins:eval", "this:Runner", "antigravity:x", "torch.nn:Module", "x", "", ":", "a b:c"),
    *("statsprep.data.commands:AudioCommand", "statsprep.runners:collect_stats", "../evil/prep:Runner"),
]


@pytest.mark.parametrize("runner", RUNNERS)
def test_runner_of_a_manifest_is_a_runner(runner: str, world: World, run: RunDir) -> None:
    """`merge` imports nothing but runners of statsprep and of the recipe at hand."""
    change(run, "manifest.json", lambda manifest: manifest.update(runner=runner))
    check_one_line(world.command("merge", "exp", code=2), "exp/train: the run's runner")
    world.check_unharmed()


def test_commands_of_a_strangers_run_are_not_replayed(world: World) -> None:
    """A run with `allow_pipes: true` runs its commands where the flag is given here as well."""
    world.write("kaldi/wav.scp", f"u0 cat corpus/a.wav; touch {world.canary} |\n")
    world.command("run", "dataset.train=[{kaldi: kaldi, allow_pipes: true}]", "collect_stats.stats=features")
    world.canary.unlink()
    check_one_line(world.command("replay", "exp/train", "--index", "0", code=2), "pass --allow_pipes")
    world.check_unharmed()
    world.command("replay", "exp/train", "--index", "0", "--allow_pipes")
    assert world.canary.exists()


NAMES = ["../../../precious/letter", "{precious}/letter"]


@pytest.mark.parametrize("name", NAMES)
def test_names_in_done_and_merged_lead_nowhere(name: str, world: World, run: RunDir) -> None:
    """Neither read, nor copied, nor taken for a stale file and removed."""
    name = name.format(precious=world.precious)
    described = {"bytes": 9, "sha256": "0" * 64}
    change(run, "split.0/done", lambda done: done["files"].update({name: described}))
    change(run, "merged.json", lambda receipt: receipt["files"].update({name: described}))
    assert "damaged" in world.command("status", "exp").out
    assert "split.0: done is missing or damaged" in world.command("verify", "exp", code=3).out
    check_one_line(world.command("merge", "exp", code=4), "split.0 (done is missing or damaged)")
    world.command("run", "collect_stats.stats=features", "collect_stats.per_utterance_stats=true")
    world.command("run", "collect_stats.stats=lengths", "--overwrite")
    world.check_unharmed()


def test_stale_names_in_merged_json_keep_to_their_folder(world: World, run: RunDir) -> None:
    """Whatever an earlier merge is said to have written: no folder, nothing behind a link, and not the
    manifest; the rest is removed.
    """
    (run.root / "sub").mkdir()
    (run.root / "sub" / "link").symlink_to(world.precious)
    described = {"bytes": 9, "sha256": "0" * 64}
    stale = ["sub/link/letter", "split.0", "manifest.json", "sub", "old_shape"]
    (run.root / "old_shape").write_text("u0 1\n")
    change(run, "merged.json", lambda receipt: receipt.update(
        inputs="other", files=receipt["files"] | dict.fromkeys(stale, described)))  # fmt: skip
    world.command("merge", "exp")
    assert not (run.root / "old_shape").exists()
    assert (run.root / "manifest.json").exists()
    assert (run.root / "split.0" / "done").exists()
    world.check_unharmed()


@pytest.mark.parametrize("name", [".leases", ".attempts", "split.0", "split.99", "collect_feats", ".merge.x"])
def test_link_in_a_run_directory_is_not_followed(name: str, world: World, run: RunDir) -> None:
    """Leases are removed, attempts cleared and shards set aside: none of that through a link."""
    for path in (run.root / name, run.root / "merged.json"):
        if path.is_dir():
            path.rename(run.root.parent / "moved")
        path.unlink(missing_ok=True)
    (run.root / name).symlink_to(world.precious)
    for words in (
        ("run", "collect_stats.stats=features"),
        ("run", "--overwrite"),
        ("merge", "exp"),
        ("verify", "exp", "--repair"),
    ):
        check_one_line(world.command(*words, code=2), f"exp/train/{name}: is a link to ", "remove the link")
    world.command("status", "exp")
    world.check_unharmed()


_LEASES: list[Any] = [
    {"host": "\x1b[31mhost", "pid": "../../../../dev/zero"},
    {"host": ["x"], "pid": {"a": 1}, "token": {"b": [1]}, "heartbeat": "\x07"},
    [],
    "[" * 100_000,
]


@pytest.mark.parametrize("number", range(len(_LEASES)))
def test_hostile_lease_is_text(number: int, world: World, run: RunDir) -> None:
    """No path is made of it, and no terminal obeys it."""
    import socket

    lease = _LEASES[number]
    if isinstance(lease, dict):
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        here = {
            "host": socket.gethostname(),
            "boot_id": boot_id,
            "pid_namespace": os.readlink("/proc/self/ns/pid"),
        }
        texts = [json.dumps(lease), json.dumps(here | {"pid": lease["pid"]})]
    else:
        texts = [lease if isinstance(lease, str) else json.dumps(lease)]
    (run.root / ".leases").mkdir(exist_ok=True)
    for text in texts:
        (run.root / ".leases" / "run.json").write_text(text)
        seen = world.command("status", "exp")
        assert "\x1b[31m" not in seen.out
        assert "\x07" not in seen.out
    world.command("verify", "exp")


def test_manifest_that_commands_a_terminal_is_written_out(world: World, run: RunDir) -> None:
    """What to type next is one quoted command, whatever the stranger's was."""
    (run.root / "merged.json").unlink()
    (run.root / "split.0" / "done").unlink()
    argv = ["statsprep", "run", "; touch {canary}", "\x1b]0;evil\x07"]
    change(run, "manifest.json", lambda manifest: manifest.update(argv=argv))
    seen = world.command("status", "exp")
    assert "next: statsprep run '; touch {canary}' '\\x1b]0;evil\\x07'" in seen.out
    assert "\x1b]" not in seen.out


def _npz(**arrays: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for key in ("count", "mean", "m2", "min", "max"):
            archive.writestr(f"{key}.npy", arrays.get(key, _npy(np.zeros(3))))
    return stream.getvalue()


def _npy(array: Any, **options: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, **options)
    return stream.getvalue()


def _npy_claiming(shape: tuple[int, ...]) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "<f8", "fortran_order": False, "shape": shape})
    return stream.getvalue() + bytes(800)


def _objects(canary: Path) -> bytes:
    return _npy(np.array([Explosive(canary)], dtype=object), allow_pickle=True)


ARRAYS: dict[str, Callable[[Path], bytes]] = {
    "pickle": lambda canary: pickle.dumps(Explosive(canary)),
    "npy_of_objects": _objects,
    "npz_of_objects": lambda canary: _npz(mean=_objects(canary)),
    "zip_bomb": lambda canary: _npz(mean=_npy(np.zeros(1 << 26))),
    "4_gb_in_a_header": lambda canary: _npz(mean=_npy_claiming((1 << 29,))),
    "4_gb_npy": lambda canary: _npy_claiming((1 << 29, 4, 10)),
    "no_zip": lambda canary: b"PK\3\4" + bytes(100),
    "nothing": lambda canary: b"",
}


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("file", ["feats_stats.npz", "feats_utt_stats.npy"])
def test_hostile_array_is_named(file: str, name: str, world: World, run: RunDir) -> None:
    """No pickle, no bomb, no gigabytes, in a shard that `merge` reads and in the merged file of `inspect`."""
    content = ARRAYS[name](world.canary)
    put(run, f"split.0/{file}", content)
    (run.root / "merged.json").unlink()
    seen = world.limited("merge", "exp").check(3)
    check_one_line(seen, f"split.0/{file}: cannot ")
    assert "MemoryError" not in seen.err
    world.check_unharmed()


@pytest.mark.parametrize("name", [name for name in ARRAYS if name != "4_gb_npy"])
def test_hostile_statistics_are_not_shown(name: str, world: World, run: RunDir) -> None:
    (run.root / "feats_stats.npz").write_bytes(ARRAYS[name](world.canary))
    check_one_line(world.limited("inspect", "exp").check(3), "exp/train/feats_stats.npz: cannot read")
    world.check_unharmed()


def test_hostile_indices_are_not_unpickled(world: World, run: RunDir) -> None:
    (run.root / "indices.npy").write_bytes(_objects(world.canary))
    change(run, "manifest.json", lambda m: m.update(items={"file": "indices.npy", "sha256": "0" * 64}))
    check_one_line(world.command("replay", "exp/train", "--index", "0", code=3), "indices.npy: is no array")
    world.check_unharmed()
