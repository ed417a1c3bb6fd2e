"""The corpus that is measured, and how a ratio is taken and judged."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from statsprep.data.demo_corpus import write_demo_corpus

ROOT = Path(__file__).parents[2]
SOUNDS = Path("/usr/share/asterisk/sounds")
NUM_ROUNDS = 5
NUM_UTTERANCES = 20_000
# Neighbours on the machine may take part of it; only a change of kind is a failure.
TOLERANCE = 3.0


@dataclass
class Corpus:
    """One manifest and the front end that suits its audio."""

    name: str
    manifest: Path
    frontend: dict[str, int]
    audio: list[str] = field(default_factory=list)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """The real recordings where they are installed, else ones made from formulas; those that can be read,
    repeated."""
    folder = tmp_path_factory.mktemp("corpus")
    if SOUNDS.is_dir():
        script = ROOT / "deploy" / "corpora" / "asterisk.py"
        subprocess.run([sys.executable, script, folder], check=True, capture_output=True)
        frontend = {"sample_rate_hz": 8000, "n_fft": 256, "hop_length": 80, "n_mels": 80}
        found = Corpus("recorded speech", folder / "all.jsonl", frontend)
        names = ["stats_train.jsonl", "stats_valid.jsonl"]
    else:
        write_demo_corpus(folder, 600, 1)
        found = Corpus("speech made from formulas", folder / "data" / "all.jsonl", {"sample_rate_hz": 16000})
        names = ["data/train.jsonl", "data/valid.jsonl"]
    rows = [json.loads(line) for name in names for line in (folder / name).read_text("utf-8").splitlines()]
    rows = [row for row in rows if _is_readable(found.manifest.parent / row["audio"])]
    # Long enough that what is done once for a run does not decide the ratio.
    rows = [
        {**row, "utt_id": f"{row['utt_id']}#{copy}"}
        for copy in range(-(-NUM_UTTERANCES // len(rows)))
        for row in rows
    ]
    found.manifest.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    found.audio = [str(found.manifest.parent / row["audio"]) for row in rows]
    return found


def _is_readable(path: Path) -> bool:
    import soundfile

    try:
        return bool(soundfile.info(path).frames)
    except soundfile.LibsndfileError:
        return False


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Both sides of a comparison use one thread per process."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def best_of_pairs(ours: Callable[[], object], theirs: Callable[[], object]) -> tuple[float, float]:
    """The best seconds of either side, measured in turn so that both meet the same neighbours; one warm round
    first.
    """
    ours(), theirs()
    rounds = [(timed(ours), timed(theirs)) for _ in range(NUM_ROUNDS)]
    return min(first for first, _ in rounds), min(second for _, second in rounds)


def judge_at_most(what: str, value: float, goal: float, unit: str = "") -> None:
    """Print a number whose goal is to be small, and fail at three times the goal."""
    print(
        f"\n{what}: {value:.2f}{unit} (goal: at most {goal:g}{unit}, {'met' if value <= goal else 'MISSED'})"
    )
    assert value <= TOLERANCE * goal


def judge_at_least(what: str, value: float, goal: float) -> None:
    """Print a ratio whose goal is to be large, and fail at a third of the goal."""
    print(f"\n{what}: {value:.2f} (goal: at least {goal:g}, {'met' if value >= goal else 'MISSED'})")
    assert value >= goal / TOLERANCE
