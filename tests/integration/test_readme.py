"""What the README shows is so: its commands exist, its runner runs, its list of files is that of a run."""

import re
import shlex
from pathlib import Path

import pytest

from statsprep.cli.main import build_parser
from tests.integration.conftest import ROOT, StatsprepCommand

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README, re.M | re.S)
COMMANDS = [
    re.split(r"\s{2,}|\s#", line)[0]
    for language, block in BLOCKS
    if language in ("", "sh")
    for line in block.splitlines()
    if line.startswith("statsprep ")
]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_understood(command: str) -> None:
    words = shlex.split(command.partition(" && ")[0])[1:]
    args, rest = build_parser().parse_known_args(words)
    assert callable(args.execute)
    assert not [word for word in rest if word.startswith("-")]


def test_configs_that_are_named_exist() -> None:
    named = set(re.findall(r"\bconfigs/[\w/]+(?:\.yaml)?", README))
    assert len(named) >= 4
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_runner_gives_one_list_in_both_modes(tmp_path: Path, statsprep: StatsprepCommand) -> None:
    """The example as it stands, with the helpers that it supposes."""
    (example,) = [block for language, block in BLOCKS if language == "python"]
    (tmp_path / "helpers.py").write_text(
        "import numpy as np\n\n\n"
        "def load_samples(config):\n"
        "    audio = np.random.default_rng(config['seed']).normal(size=(1000, 4000)).astype('float32')\n"
        "    return [{'utt_id': f'u{i}', 'audio': audio[i] * (i % 5 > 0)} for i in range(1000)]\n\n\n"
        "def drop_silence(sample):\n"
        "    return sample if sample['audio'].any() else None\n"
    )
    example = example.replace("Corpus(config", "Corpus({'seed': 1}").replace(
        '"n_workers": 8', '"n_workers": 2'
    )
    first = {"utt_id": "u1", "shape": [1025, 8]}
    (tmp_path / "example.py").write_text(
        f"from helpers import drop_silence, load_samples\n\n{example}\n"
        f"assert len(results) == 800 and results[0] == {first}, results[:2]\n"
    )
    statsprep.start_python("example.py", PYTHONPATH=str(ROOT)).wait().check()


def test_the_files_of_a_run_are_those_that_are_listed(tmp_path: Path, statsprep: StatsprepCommand) -> None:
    statsprep("demo", "demo", "--num_utterances", "40")
    found = {path.name for path in (tmp_path / "demo/exp/stats/train").iterdir()}
    listing = README.partition("exp/stats/train/\n")[2].partition("```")[0]
    table = README.partition("### What each file of a run is")[2].partition("### When a run stops")[0]
    told = set(re.findall(r"[\w.]+", listing)) | set(re.findall(r"`([\w./*]+)`", table))
    missing = {
        name for name in found if re.sub(r"split\.\d+", "split.N/", name) not in told | {"text_shape.arrow"}
    }
    assert missing == set()
    for name in ("feats_shape", "feats_stats.npz", "stats_keys", "token_list", "category2utt", "merged.json"):
        assert name in found
        assert name in told
