"""One corpus in several forms: read as JSONL, NeMo manifest and Kaldi directory it gives the same statistics,
and what is written is read back equal by kaldiio and by ESPnet2.
"""

import importlib.util
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kaldiio
import numpy as np
import pytest

from tests.integration.conftest import RunDir, StatsprepCommand

ENTRIES = {
    "jsonl": "manifest: data/asterisk/stats_{split}.jsonl",
    "nemo": "manifest: data/asterisk/nemo/stats_{split}.json",
    "kaldi": "kaldi: data/asterisk/kaldi/stats_{split}",
}
CONFIG = """\
stats_dir: {stats_dir}
dataset:
  train: [{{name: asterisk, {train}}}]
  valid: [{{name: asterisk, {valid}}}]
  preprocessor: {{_target_: statsprep.data.tokens.TextPreprocessor, token_type: char}}
model: {{frontend: {{sample_rate_hz: 8000, n_fft: 256, hop_length: 80, n_mels: 80}}}}
collect_stats: {{categories: {{speaker: speaker, language: language}}, {options}}}
"""


def write_config(folder: Path, form: str, *, stats_dir: Path, options: str = "batch_size: 1") -> Path:
    entries = {split: ENTRIES[form].format(split=split) for split in ("train", "valid")}
    path = folder / f"{stats_dir.name}.yaml"
    path.write_text(CONFIG.format(stats_dir=stats_dir, options=options, **entries), encoding="utf-8")
    return path


def without_tracebacks(path: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [{key: value for key, value in line.items() if key != "traceback"} for line in lines]


@pytest.mark.corpus
def test_the_corpus_gives_the_same_files_in_every_form(
    asterisk: Path, tmp_path: Path, statsprep_in: Callable[[Path], StatsprepCommand]
) -> None:
    for form in ENTRIES:
        statsprep_in(asterisk)("run", write_config(tmp_path, form, stats_dir=tmp_path / form))
    for split in ("train", "valid"):
        merged = {form: RunDir(tmp_path / form / split).merged() for form in ENTRIES}
        for form in ENTRIES:
            del merged[form]["merged.json"]  # holds the fingerprint, and so the section that names the form
            del merged[form]["errors.jsonl"]  # tracebacks name the dataset's class
        assert merged["jsonl"] == merged["nemo"] == merged["kaldi"]
        assert {"feats_shape", "feats_stats.npz", "text_shape", "stats_keys", "utt2speaker"} <= merged[
            "kaldi"
        ].keys()
        errors = [without_tracebacks(tmp_path / form / split / "errors.jsonl") for form in ENTRIES]
        assert errors[0] == errors[1] == errors[2]
    num_lines = sum(
        len((tmp_path / "kaldi" / split / "feats_shape").read_text().splitlines())
        for split in ("train", "valid")
    )
    assert num_lines == 2830, "all but the empty recording"


@pytest.fixture(scope="module")
def collected(asterisk: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Run directories of the valid split, with its features kept as npy and as ark."""
    folder = tmp_path_factory.mktemp("collected")
    runs = {}
    for form in ("npy", "ark"):
        options = f"write_collected_feats: true, collected_feats_format: {form}, splits: [valid]"
        path = write_config(folder, "kaldi", stats_dir=folder / form, options=options)
        words = [sys.executable, "-m", "statsprep", "run", str(path)]
        subprocess.run(words, cwd=asterisk, check=True, capture_output=True)
        runs[form] = folder / form / "valid"
    return runs


def read_scp(path: Path) -> dict[str, str]:
    pairs = (line.split(" ", 1) for line in path.read_text(encoding="utf-8").splitlines())
    return dict(pairs)  # type: ignore[arg-type]


@pytest.mark.corpus
def test_features_are_the_same_as_ark_and_as_npy(collected: dict[str, Path]) -> None:
    npy = read_scp(collected["npy"] / "collect_feats" / "feats.scp")
    ark = kaldiio.load_scp(str(collected["ark"] / "collect_feats" / "feats.scp"))
    assert list(npy) == list(ark)
    assert len(npy) == 286
    for utt_id, path in npy.items():
        np.testing.assert_array_equal(np.load(path), ark[utt_id], strict=True)
    for name in ("feats_shape", "feats_stats.npz"):
        assert (collected["npy"] / name).read_bytes() == (collected["ark"] / name).read_bytes()


@pytest.fixture
def espnet2() -> None:
    """Skips where ESPnet is not installed; its many dependencies are not needed for its readers."""
    if importlib.util.find_spec("espnet2") is None:
        reason = "espnet2 is missing: pip install --no-deps espnet h5py humanfriendly typeguard"
        pytest.fail(f"{reason}, and CI must not skip it") if os.environ.get("CI") else pytest.skip(reason)


@pytest.mark.corpus
@pytest.mark.usefixtures("espnet2")
def test_espnet2_reads_features_shapes_and_categories(collected: dict[str, Path]) -> None:
    from espnet2.fileio.read_text import load_num_sequence_text, read_2columns_text
    from espnet2.train.dataset import ESPnetDataset

    datasets = {
        form: ESPnetDataset(
            [(str(collected[form] / "collect_feats" / "feats.scp"), "feats", kind)], preprocess=None
        )
        for form, kind in (("npy", "npy"), ("ark", "kaldi_ark"))
    }
    shapes = load_num_sequence_text(str(collected["ark"] / "feats_shape"), loader_type="csv_int")
    assert all(dataset.has_name("feats") for dataset in datasets.values())
    for utt_id, shape in shapes.items():
        (_, npy), (_, ark) = datasets["npy"][utt_id], datasets["ark"][utt_id]
        np.testing.assert_array_equal(npy["feats"], ark["feats"], strict=True)
        assert list(ark["feats"].shape) == shape
    speakers = read_2columns_text(str(collected["ark"] / "utt2speaker"))
    assert set(speakers.values()) == {"Allison", "June", "Carlo", "IvrvoiceRU"}
    assert speakers.keys() == shapes.keys()


@pytest.mark.corpus
def test_kept_archives_are_a_feature_directory(
    collected: dict[str, Path], tmp_path: Path, statsprep: StatsprepCommand
) -> None:
    """What one run keeps as ark, the next one reads as Kaldi's feats.scp."""
    folder = tmp_path / "feats"
    folder.mkdir()
    (folder / "feats.scp").write_bytes((collected["ark"] / "collect_feats" / "feats.scp").read_bytes())
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "model.py").write_text(
        "import torch\n\n\nclass Given(torch.nn.Module):\n"
        "    def collect_feats(self, feats, feats_lengths):\n"
        "        return {'feats': feats, 'feats_lengths': feats_lengths}\n"
    )
    (tmp_path / "prep.yaml").write_text(
        "stats_dir: exp\ndataset: {train: [{kaldi: feats}], valid: [{kaldi: feats}]}\n"
        "model: {_target_: src.model.Given}\ncollect_stats: {splits: [train]}\n"
    )
    statsprep("run", "prep.yaml")
    for name in ("feats_shape", "feats_stats.npz"):
        assert (tmp_path / "exp" / "train" / name).read_bytes() == (collected["ark"] / name).read_bytes()


@pytest.mark.corpus
def test_check_lists_exactly_the_faults_of_the_corpus(asterisk: Path, statsprep: StatsprepCommand) -> None:
    done = statsprep("check", asterisk / "data" / "asterisk" / "kaldi" / "all", "--json", "--all", code=3)
    found = json.loads(done.out)
    assert found["num_utterances"] == 2831
    assert {kind: faults["count"] for kind, faults in found["faults"].items()} == {
        "empty": 1,
        "no_transcript": 93,
        "no_recording": 17,
        "empty_transcript": 8,
        "duplicate_id": 1,
        "near_silent": 50,
    }
    ids = {kind: [each["utt_id"] for each in faults["listed"]] for kind, faults in found["faults"].items()}
    assert ids["empty"] == ["ru_RU_f_IvrvoiceRU/is"]
    assert ids["duplicate_id"] == ["es_MX_f_Allison/digits/0"]
    assert {utt_id.split("/")[1] for utt_id in ids["near_silent"]} == {"silence"}
    for silent in found["faults"]["near_silent"]["listed"]:
        assert "dBFS (root mean square), below -60; " in silent["what"]
    assert done.errors == [
        f"error: {found['corpus']}: 170 faults of 6 kinds; expected none; mend or remove what is listed"
    ]


def wav(path: Path, samples: Any) -> Path:
    import soundfile

    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, np.asarray(samples, np.float32), 8000)
    return path


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A Kaldi directory whose every line tries something, and a script that would leave a trace if run."""
    script = tmp_path / "evil"
    script.write_text(f"#!/bin/sh\ntouch {tmp_path}/executed\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    folder = tmp_path / "data"
    folder.mkdir()
    for number in range(4):
        wav(tmp_path / f"{number}.wav", np.sin(np.arange(4000) * (number + 1) / 50) / 2)
    huge = (tmp_path / "0.wav").read_bytes()
    (tmp_path / "huge.wav").write_bytes(huge[:40] + (0xFFFFFFF0).to_bytes(4, "little") + huge[44:])
    lines = ["../../up 1.wav", "/abs/../../up 2.wav", f"{'x' * 300} 3.wav", "huge huge.wav"]
    (folder / "wav.scp").write_text("".join(f"{line}\n" for line in lines))
    return folder


HOSTILE_CONFIG = """\
stats_dir: exp/run
dataset: {train: [{kaldi: data}], valid: [{kaldi: data}]}
model: {frontend: {sample_rate_hz: 8000, n_fft: 256, hop_length: 80, n_mels: 20}}
collect_stats: {splits: [train], write_collected_feats: true, collected_feats_format: FORM, max_errors: 1}
"""


@pytest.mark.parametrize("form", ["npy", "ark"])
def test_ids_that_climb_write_nothing_outside_the_run(
    hostile: Path, tmp_path: Path, statsprep: StatsprepCommand, form: str
) -> None:
    """And a header that declares 4 GB costs one utterance and no memory."""
    (tmp_path / "c.yaml").write_text(HOSTILE_CONFIG.replace("FORM", form))
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    statsprep("run", "c.yaml")
    new = {path for path in tmp_path.rglob("*") if path.is_file()} - before
    root = (tmp_path / "exp" / "run" / "train").resolve()
    assert all(path.resolve().is_relative_to(root) for path in new)
    errors = RunDir(root).lines("errors.jsonl")
    assert [(error["utt_id"], error["kind"]) for error in errors] == [("huge", "truncated")]
    assert "header says 4294967280" in errors[0]["message"]
    feats = kaldiio.load_scp(str(root / "collect_feats" / "feats.scp")) if form == "ark" else None
    scp = read_scp(root / "collect_feats" / "feats.scp")
    assert list(scp) == ["../../up", "/abs/../../up", "x" * 300]
    for utt_id, path in scp.items():
        assert (feats[utt_id] if feats else np.load(path)).shape[1] == 20


@pytest.mark.parametrize("line", ["a {evil} |", "a | {evil}", "a {evil}|", "a -"])
def test_commands_in_wav_scp_are_refused_with_their_line(
    hostile: Path, tmp_path: Path, statsprep: StatsprepCommand, line: str
) -> None:
    with open(hostile / "wav.scp", "a") as stream:
        stream.write(line.format(evil=tmp_path / "evil") + "\n")
    (tmp_path / "c.yaml").write_text(HOSTILE_CONFIG.replace("FORM", "npy"))
    done = statsprep("run", "c.yaml", code=3)
    assert len(done.errors) == 1
    assert done.errors[0].startswith("error: data/wav.scp:5: ")
    assert "Traceback" not in done.err
    done = statsprep("check", "data", code=3)
    assert "command_pipe: 1 " in done.out
    assert not (tmp_path / "executed").exists()


def test_hostile_archives_execute_nothing(hostile: Path, tmp_path: Path, statsprep: StatsprepCommand) -> None:
    import pickle

    class Evil:
        def __reduce__(self) -> Any:
            return os.system, (f"touch {tmp_path}/executed",)

    header = b"\0BFM \4" + (30000).to_bytes(4, "little") + b"\4" + (40000).to_bytes(4, "little")
    contents = {
        "pickle": b"PKL" + pickle.dumps(Evil()),
        "npy": b"NPY" + (4).to_bytes(4, "little") + pickle.dumps(Evil()),
        "huge": header + bytes(100),
        "negative": b"\0BFM \4" + b"\xff" * 4 + b"\4" + b"\xff" * 4,
        "wave": (tmp_path / "0.wav").read_bytes(),
        "text": b" [ 1 2 3 ]\n",
        "short": b"\0BFM ",
    }
    (hostile / "wav.scp").unlink()
    lines = []
    for name, content in contents.items():
        (tmp_path / f"{name}.ark").write_bytes(f"{name} ".encode() + content)
        lines.append(f"{name} {name}.ark:{len(name) + 1}\n")
    (hostile / "feats.scp").write_text("".join(lines))
    done = statsprep("check", "data", "--json", "--all", "--jobs", "1", code=3)
    faults = json.loads(done.out)["faults"]
    found = {each["utt_id"]: kind for kind, kinds in faults.items() for each in kinds["listed"]}
    assert found == dict.fromkeys(contents, "unreadable") | dict.fromkeys(
        ("huge", "negative", "short"), "truncated"
    )
    (hostile / "feats.scp").write_text(f"a {tmp_path / 'evil'} |\n")
    done = statsprep("check", "data", code=3)
    assert "command_pipe: 1 " in done.out
    assert not (tmp_path / "executed").exists()
