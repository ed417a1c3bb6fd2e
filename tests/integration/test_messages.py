"""Mistakes of every kind end with one line that says where, what was seen, what was expected and what to do,
and with
the right exit code; never with a traceback."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.integration.conftest import Finished, StatsprepCommand, wait_until

_CONFIG = """\
stats_dir: exp
dataset:
  _target_: statsprep.data.organizer.DataOrganizer
  train: [{manifest: train.jsonl}]
  valid: [{manifest: valid.jsonl}]
model:
  _target_: statsprep.models.features.FeatureModel
  frontend: {sample_rate_hz: 8000, n_mels: 20}
collect_stats: {stats: lengths}
"""
GOOD_ROWS: list[dict[str, object]] = [{"utt_id": f"u{number}", "audio": "a.wav"} for number in range(20)]


def as_lines(rows: list[dict[str, object]]) -> list[str]:
    return [json.dumps(row) for row in rows]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """The folder of a small good corpus; the config says `stats: lengths`, which needs no torch."""
    soundfile.write(tmp_path / "a.wav", np.full(4000, 0.1), 8000)
    for name in ("train", "valid"):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(as_lines(GOOD_ROWS)) + "\n", encoding="utf-8")
    (tmp_path / "statsprep.yaml").write_text(_CONFIG, encoding="utf-8")
    return tmp_path


def check_one_line(seen: Finished, *fragments: str) -> None:
    assert "Traceback" not in seen.err
    assert len(seen.errors) == 1, seen.err
    for fragment in fragments:
        assert fragment in seen.errors[0]


@dataclass(frozen=True)
class Mistake:
    """What is typed, after what was done to the folder, and what must stand in the one line."""

    fragments: tuple[str, ...]
    words: tuple[str, ...] = ("run",)
    code: int = 2
    spoil: Callable[[Path], object] = lambda folder: None


def row(number: int, **change: object) -> Callable[[Path], object]:
    """Changes one row of train.jsonl; number from 1, as editors count."""

    def spoil(folder: Path) -> None:
        rows = [dict(each) for each in GOOD_ROWS]
        rows[number - 1].update(change)
        (folder / "train.jsonl").write_text("\n".join(as_lines(rows)) + "\n", encoding="utf-8")

    return spoil


def line(number: int, text: str) -> Callable[[Path], object]:
    def spoil(folder: Path) -> None:
        lines = as_lines(GOOD_ROWS)
        lines[number - 1] = text
        (folder / "train.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")

    return spoil


def file(name: str, text: str) -> Callable[[Path], object]:
    def spoil(root: Path) -> None:
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")

    return spoil


def folder(name: str) -> Callable[[Path], object]:
    def spoil(root: Path) -> None:
        (root / name).unlink(missing_ok=True)
        (root / name).mkdir()

    return spoil


def yaml(old: str, new: str) -> Callable[[Path], object]:
    assert old in _CONFIG
    return file("statsprep.yaml", _CONFIG.replace(old, new))


MISTAKES = {
    # The command line.
    "no_command": Mistake(("COMMAND", "statsprep --help"), ()),
    "misspelt_command": Mistake(("'statu'", "did you mean 'status'?"), ("statu",)),
    "misspelt_flag": Mistake(("--overwritee", "did you mean '--overwrite'?"), ("run", "--overwritee")),
    "two_configs": Mistake(("'a.yaml', 'b.yaml'", "expected one CONFIG"), ("run", "a.yaml", "b.yaml")),
    "unknown_split": Mistake(("dataset.vald", "did you mean 'valid'?"), ("run", "--splits", "vald")),
    "unknown_preset": Mistake(("--parallel locl", "did you mean 'local'?"), ("run", "--parallel", "locl")),
    "missing_run_dir": Mistake(("exp/none: does not exist", "give its path"), ("status", "exp/none")),
    "empty_run_dir": Mistake(("holds no manifest.json", "expected a run directory"), ("verify", ".")),
    "inspect_too_early": Mistake(("does not exist",), ("inspect", "exp")),
    # The configuration.
    "missing_config": Mistake(("nowhere.yaml: no such file", "check the path"), ("run", "nowhere.yaml")),
    "no_config": Mistake(
        ("no configuration", "statsprep run conf/training.yaml"),
        spoil=lambda f: (f / "statsprep.yaml").unlink(),
    ),
    "config_is_a_folder": Mistake(("exp", "folder"), ("run", "exp"), spoil=folder("exp")),
    "broken_yaml": Mistake(
        ("statsprep.yaml:5:3", "expected ',' or ']'"), spoil=yaml("train: [{", "train: [[{")
    ),
    "tab_in_yaml": Mistake(("statsprep.yaml:5", "tab"), spoil=yaml("  valid:", "\tvalid:")),
    "repeated_key": Mistake(
        ("statsprep.yaml:9:1", "'stats_dir' is given twice"),
        spoil=yaml("collect_stats", "stats_dir: x\ncollect_stats"),
    ),
    "unknown_top_key": Mistake(
        ("'collect_stat'", "did you mean 'collect_stats'?"), ("run", "collect_stat={stats: lengths}")
    ),
    "unknown_key": Mistake(
        ("collect_stats: unknown key 'batchsize'", "did you mean 'batch_size'?"),
        ("run", "collect_stats.batchsize=3"),
    ),
    "wrong_type": Mistake(
        ("collect_stats.batch_size: 'many' is not valid", "expected an integer"),
        ("run", "collect_stats.batch_size=many"),
    ),
    "out_of_range": Mistake(
        ("parallel.n_workers: 0 is not valid", "at least 1"), ("run", "parallel={env: local, n_workers: 0}")
    ),
    "unknown_choice": Mistake(
        ("parallel.env: 'slrm'", "did you mean 'slurm'?"), ("run", "parallel.env=slrm")
    ),
    "unknown_env": Mistake(
        ("parallel.env", "'slrum'", "expected one of", "did you mean 'slurm'"), ("run", "parallel.env=slrum")
    ),
    "unknown_cluster_option": Mistake(
        ("parallel.options.memory_limt: unknown", "did you mean 'memory_limit'?", "LocalCluster"),
        ("run", "parallel={env: local, options: {memory_limt: 1GB}}"),
    ),
    "bad_reference": Mistake(("stats_dir", "no_such_key"), ("run", "stats_dir=${no_such_key}/stats")),
    "missing_stats_dir": Mistake(
        ("stats_dir: missing", "expected a line such as"), spoil=yaml("stats_dir: exp", "seed: 1")
    ),
    "missing_dataset": Mistake(("dataset: missing", "expected a line such as"), ("run", "dataset=null")),
    "missing_model": Mistake(
        ("model: missing", "stats: lengths"), ("run", "model=null", "collect_stats.stats=features")
    ),
    "missing_target": Mistake(
        ("dataset.preprocessor: ", "_target_"), ("run", "dataset.preprocessor={token_type: char}")
    ),
    "unknown_model_key": Mistake(
        ("model.frontent", "did you mean 'frontend'?"),
        ("run", "model={frontent: {}}", "collect_stats.stats=features"),
    ),
    "unknown_frontend_key": Mistake(
        ("frontend.nmels", "did you mean 'n_mels'?"),
        ("run", "model.frontend={nmels: 80}", "collect_stats.stats=features"),
    ),
    "frontend_out_of_range": Mistake(
        ("frontend.n_mels", "expected an integer"),
        ("run", "model.frontend.n_mels=0", "collect_stats.stats=features"),
    ),
    "foreign_target": Mistake(
        ("dataset.preprocessor._target_", "'subprocess.run' is not allowed", "--allow_target subprocess"),
        ("run", "dataset.preprocessor={_target_: subprocess.run}"),
    ),
    "smuggled_target": Mistake(
        ("statsprep.data.audio.os.system", "not allowed"),
        ("run", "dataset.preprocessor={_target_: statsprep.data.audio.os.system}"),
    ),
    "misspelt_target": Mistake(
        ("'TextPreprocesor'", "did you mean 'TextPreprocessor'?"),
        ("run", "dataset.preprocessor={_target_: statsprep.data.tokens.TextPreprocesor}"),
    ),
    "unknown_argument": Mistake(
        ("token_typ", "did you mean 'token_type'?"),
        ("run", "dataset.preprocessor={_target_: statsprep.data.tokens.TextPreprocessor, token_typ: char}"),
    ),
    "unknown_entry_key": Mistake(
        ("dataset.train.0.sample_rate", "did you mean 'sample_rate_hz'?"),
        ("run", "dataset.train.0.sample_rate=8000"),
    ),
    "missing_manifest": Mistake(
        ("manifest train.jsonl does not exist", "correct the path"),
        spoil=lambda f: (f / "train.jsonl").unlink(),
    ),
    "manifest_is_a_folder": Mistake(
        ("manifest train.jsonl is a folder", "expected a JSONL file"),
        spoil=folder("train.jsonl"),
    ),
    "file_for_run_dir": Mistake(
        ("exp/train: is a file", "choose another stats_dir"),
        spoil=file("exp/train", ""),
    ),
    "file_for_stats_dir": Mistake(("exp: is a file", "choose another stats_dir"), spoil=file("exp", "")),
    "shard_size_zero": Mistake(
        ("collect_stats.shard_size: 0", "at least 1"), ("run", "collect_stats.shard_size=0")
    ),
    "share_above_all": Mistake(
        ("max_errors: '120%'", "such as 1%"), ("run", "collect_stats.max_errors=120%")
    ),
    # The data.
    "empty_manifest": Mistake(
        ("train.jsonl: has no rows", "expected one JSON object a line"), code=3, spoil=file("train.jsonl", "")
    ),
    "blank_manifest": Mistake(("train.jsonl: has no rows",), code=3, spoil=file("train.jsonl", "\n \n")),
    "malformed_line": Mistake(
        ("train.jsonl:7: not JSON at column", "expected one object a line"),
        code=3,
        spoil=line(7, '{"utt_id": "u6"'),
    ),
    "line_of_another_type": Mistake(
        ("train.jsonl:7: holds [1]", "expected an object"), code=3, spoil=line(7, "[1]")
    ),
    "no_utf8": Mistake(
        ("train.jsonl:1: ", "no UTF-8", "save the manifest as UTF-8"),
        code=3,
        spoil=lambda f: (f / "train.jsonl").write_bytes(b'{"utt_id": "\xe9", "audio": "a.wav"}\n'),
    ),
    "tab_in_id": Mistake(
        ("train.jsonl:3: utt_id 'a\\tb'", "white space", "replace it"), code=3, spoil=row(3, utt_id="a\tb")
    ),
    "space_in_id": Mistake(
        ("train.jsonl:3: utt_id 'a b'", "white space", "replace it"), code=3, spoil=row(3, utt_id="a b")
    ),
    "newline_in_id": Mistake(
        ("train.jsonl:3: utt_id 'a\\nb'", "white space"), code=3, spoil=row(3, utt_id="a\nb")
    ),
    "empty_id": Mistake(("train.jsonl:3: utt_id is empty",), code=3, spoil=row(3, utt_id="")),
    "number_as_id": Mistake(
        ("train.jsonl:3: utt_id is 17", "expected a string"), code=3, spoil=row(3, utt_id=17)
    ),
    "no_id": Mistake(("train.jsonl:3: has no utt_id", "add one"), code=3, spoil=row(3, utt_id=None)),
    "no_audio": Mistake(("train.jsonl:3: has neither audio nor text",), code=3, spoil=row(3, audio=None)),
    "repeated_id": Mistake(
        ("train.jsonl:9: utterance 'u2' appears twice (first at train.jsonl:3)", "remove one or rename it"),
        code=3,
        spoil=row(9, utt_id="u2"),
    ),
    "repeated_id_in_two_manifests": Mistake(
        ("valid.jsonl:1: utterance 'u0' appears twice (first at train.jsonl:1)", "(+19 more)"),
        ("run", "dataset.train=[{manifest: train.jsonl}, {manifest: valid.jsonl}]"),
        code=3,
    ),
    "negative_start": Mistake(
        ("train.jsonl:3: start_s is -1", "at least 0"), code=3, spoil=row(3, start_s=-1)
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_is_one_line(name: str, corpus: Path, statsprep: StatsprepCommand) -> None:
    """Where, what was seen, what was expected and what to do, on one line; and nothing is left in
    stats_dir.
    """
    mistake = MISTAKES[name]
    mistake.spoil(corpus)
    seen = statsprep(*mistake.words, code=mistake.code)
    check_one_line(seen, *mistake.fragments)
    assert not list(corpus.glob("exp/*/split.*"))
    if mistake.code == 3:
        assert not (corpus / "exp" / "train").exists()


@pytest.mark.parametrize(
    "encode",
    [
        lambda text: text.replace("\n", "\r\n").encode(),
        lambda text: b"\xef\xbb\xbf" + text.encode(),
        lambda text: text.replace("\n", "\n\n").encode(),
        lambda text: text.rstrip("\n").encode(),
    ],
    ids=["crlf", "byte_order_mark", "blank_lines", "no_last_newline"],
)
def test_foreign_line_ends_are_accepted(
    encode: Callable[[str], bytes], corpus: Path, statsprep: StatsprepCommand
) -> None:
    """What editors on other systems write is the same manifest."""
    statsprep("run", "--splits", "valid")
    path = corpus / "train.jsonl"
    path.write_bytes(encode(path.read_text(encoding="utf-8")))
    statsprep("run", "--splits", "train")
    assert (corpus / "exp/train/speech_shape").read_bytes() == (
        corpus / "exp/valid/speech_shape"
    ).read_bytes()


def test_missing_audio_is_a_record(corpus: Path, statsprep: StatsprepCommand) -> None:
    """A file that is not there costs one utterance: its id, kind and path stand in errors.jsonl."""
    row(3, audio="gone.wav")(corpus)
    statsprep("run", "collect_stats.max_errors=1")
    records = (corpus / "exp/train/errors.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(records) == 1
    record = json.loads(records[0])
    assert (record["utt_id"], record["kind"]) == ("u2", "unreadable")
    assert "gone.wav" in record["message"]


def test_damaged_manifest_of_a_run_is_named(corpus: Path, statsprep: StatsprepCommand) -> None:
    """An edited or cut manifest.json is never trusted."""
    statsprep("run", "--splits", "train")
    path = corpus / "exp/train/manifest.json"
    text = path.read_text(encoding="utf-8")
    for damaged in (text[: len(text) // 2], text.replace('"lengths"', '"features"'), '{"layout": 1}', "[]"):
        path.write_text(damaged, encoding="utf-8")
        for words in (("run", "--splits", "train"), ("status", "exp"), ("verify", "exp"), ("merge", "exp")):
            check_one_line(statsprep(*words, code=3), "exp/train/manifest.json", "overwrite")
    statsprep("run", "--splits", "train", "--overwrite")


def test_second_run_in_the_same_folder_is_refused(
    tmp_path: Path, cheap_recipe: Callable[..., Path], statsprep: StatsprepCommand
) -> None:
    """While a live process works there: its number and what to do; the first run is not disturbed."""
    first = statsprep.start("run", cheap_recipe(200), PAUSE_S="0.02")
    wait_until(lambda: list(tmp_path.glob("exp/.attempts/*/journal")))
    check_one_line(statsprep("run", "prep.yaml", code=4), f"process {first.pid} on ", "wait until it ends")
    check_one_line(statsprep("run", "prep.yaml", "--overwrite", code=4), f"process {first.pid} on ")
    assert f"process {first.pid} on " in statsprep("status", "exp").out
    first.wait().check()


def test_folder_without_write_permission_is_named(
    corpus: Path, statsprep: StatsprepCommand, mount_tmpfs: Callable[..., Callable[[str], None]]
) -> None:
    """Where nothing can be written, the folder is named before anything is read."""
    (corpus / "exp").mkdir()
    if os.geteuid() == 0:
        mount_tmpfs(corpus / "exp", "size=1m")("ro")
    else:
        (corpus / "exp").chmod(0o500)
    check_one_line(statsprep("run", code=4), "exp: cannot write", "choose another stats_dir")
