"""A printed configuration says everything, and is the same run: no change, nothing measured again."""

import json
from pathlib import Path

import pytest
import yaml

from statsprep.data.demo_corpus import write_demo_corpus
from tests.unit.cli.conftest import Statsprep


def fingerprints(folder: Path) -> dict[str, str]:
    found = sorted(folder.rglob("manifest.json"))
    return {str(path): json.loads(path.read_text())["fingerprint"] for path in found}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    config = write_demo_corpus(tmp_path / "demo", 12, 1)
    text = config.read_text().replace("max_errors: 5%", "max_errors: 2").replace("env: local", "env: none")
    config.write_text(text.replace("{sample_rate_hz: 16000", "{sample_rate_hz: '${rate}'") + "rate: 16000\n")
    return config


@pytest.mark.parametrize("kind", ["raw", "resolved"])
def test_a_printed_stats_config_is_the_same_run(
    kind: str, corpus: Path, statsprep: Statsprep, tmp_path: Path
) -> None:
    assert statsprep("run", corpus).code == 0
    before = fingerprints(tmp_path)
    printed = statsprep("run", corpus, "--print_config", kind)
    assert printed.code == 0, printed.err
    again = tmp_path / "demo" / "again.yaml"
    again.write_text(printed.out)
    found = statsprep("run", again)
    assert found.code == 0, found.err
    assert "11 items, 11 finished before" in found.err
    assert len(before) == 2
    assert fingerprints(tmp_path) == before
    assert statsprep("run", again, "--print_config", kind).out == printed.out


@pytest.mark.parametrize("kind", ["raw", "resolved"])
def test_a_printed_recipe_config_is_the_same_run(
    kind: str, recipe: Path, statsprep: Statsprep, tmp_path: Path
) -> None:
    recipe.write_text(recipe.read_text().replace("bad: -1", "bad: -1\ntwice: ${length}"))
    statsprep("run", recipe)
    before = fingerprints(tmp_path)
    printed = statsprep("run", recipe, "--print_config", kind)
    (tmp_path / "again.yaml").write_text(printed.out)
    found = statsprep("run", "again.yaml")
    assert found.code == 0, found.err
    assert "20 items, 20 finished before" in found.err
    assert fingerprints(tmp_path) == before
    tree = yaml.safe_load(printed.out)
    assert tree["twice"] == ("${length}" if kind == "raw" else 20)
    assert tree["runner"]["batch_size"] is None
    assert "provider" not in tree["runner"]


def test_everything_that_can_be_set_is_shown(corpus: Path, statsprep: Statsprep) -> None:
    tree = yaml.safe_load(statsprep("run", corpus, "--print_config").out)
    assert tree["model"]["frontend"]["hop_length"] == 128
    assert tree["model"]["frontend"]["sample_rate_hz"] == 16000
    assert tree["dataset"]["preprocessor"]["space_symbol"] == "<space>"
    assert tree["dataloader"]["collate_fn"]["int_pad_value"] == -32768
    assert tree["collect_stats"]["stats"] == "features"
    assert tree["parallel"]["n_workers"] == 1


def test_writing_out_a_default_is_no_change(corpus: Path, statsprep: Statsprep) -> None:
    statsprep("run", corpus)
    written_out = (
        "model.frontend.win_length=512",
        "model.frontend.fmax=8000",
        "dataset.preprocessor.text_key=text",
    )
    assert "11 finished before" in statsprep("run", corpus, *written_out).err
    assert statsprep("run", corpus, "model.frontend.win_length=400").code == 2


def test_overrides_count_and_nothing_is_run(corpus: Path, statsprep: Statsprep, tmp_path: Path) -> None:
    found = statsprep("run", corpus, "--print_config", "raw", "rate=8000", "collect_stats.batch_size=3")
    tree = yaml.safe_load(found.out)
    assert (tree["rate"], tree["collect_stats"]["batch_size"]) == (8000, 3)
    assert tree["model"]["frontend"]["sample_rate_hz"] == "${rate}"
    assert not (tmp_path / "demo" / "exp").exists()


def test_missing_values_are_marked_and_refused_when_fed_back(statsprep: Statsprep, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "net.py").write_text(
        "class Net:\n    def __init__(self, size, depth=2): ...\n    def collect_feats(self, **batch): ...\n"
    )
    (tmp_path / "c.yaml").write_text("model: {_target_: src.net.Net}\nown: ???\n")
    found = statsprep("run", "c.yaml", "--print_config")
    assert found.code == 0, found.err
    tree = yaml.safe_load(found.out)
    assert (tree["stats_dir"], tree["dataset"], tree["own"]) == ("???", "???", "???")
    assert tree["model"] == {"_target_": "src.net.Net", "size": "???", "depth": 2}
    (tmp_path / "c.yaml").write_text(found.out)
    refused = statsprep("run", "c.yaml")
    assert refused.code == 2
    assert "no value for 'stats_dir', " in refused.error
    assert "'model.size'" in refused.error


def test_text_that_looks_like_a_number_or_a_reference_stays_text(
    statsprep: Statsprep, tmp_path: Path
) -> None:
    values = {
        "a": "1e-4",
        "b": r"\${x}",
        "c": "on",
        "d": "2026-01-01",
        "e": "",
        "f": "1e5x",
        "g": "0o7",
        "h": "é\n",
    }
    (tmp_path / "c.yaml").write_text(yaml.safe_dump({**values, "a": "PLACE"}).replace("PLACE", "'1e-4'"))
    for kind in ("resolved", "raw"):
        printed = statsprep("run", "c.yaml", "--print_config", kind).out
        (tmp_path / "d.yaml").write_text(printed)
        assert statsprep("run", "d.yaml", "--print_config", kind).out == printed
        resolved = yaml.safe_load(statsprep("run", "d.yaml", "--print_config").out)
        assert {key: resolved[key] for key in values} == values


def test_an_espnet_block_stays_one_and_shows_its_front_end(statsprep: Statsprep, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("task: asr\nmodel: {encoder: conformer, frontend_conf: {n_mels: 40}}\n")
    tree = yaml.safe_load(statsprep("run", "c.yaml", "--print_config").out)
    assert tree["stats_dir"] == "./exp/stats"
    assert tree["model"]["encoder"] == "conformer"
    assert "_target_" not in tree["model"]
    assert (tree["model"]["frontend_conf"]["n_mels"], tree["model"]["frontend_conf"]["n_fft"]) == (40, 512)


def test_optimizers_are_shown_with_their_defaults_and_never_a_mark(
    statsprep: Statsprep, tmp_path: Path
) -> None:
    (tmp_path / "c.yaml").write_text("optimizer: {_target_: torch.optim.Adam, lr: 0.1}\n")
    optimizer = yaml.safe_load(statsprep("run", "c.yaml", "--print_config").out)["optimizer"]
    assert optimizer["lr"] == 0.1
    assert optimizer["weight_decay"] == 0
    assert "params" not in optimizer
