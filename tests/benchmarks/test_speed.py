"""Ratios of times measured in one run: `python -m pytest tests/benchmarks -m benchmark -s`."""

import contextlib
import importlib.util
import json
import multiprocessing
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from statsprep.runners import collect_stats
from tests.benchmarks.conftest import (
    NUM_ROUNDS,
    ROOT,
    Corpus,
    best_of_pairs,
    judge_at_least,
    judge_at_most,
    timed,
)
from tests.benchmarks.plain_loop import loop_when_told, measure_plainly

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(1200)]


def collect(corpus: Corpus, folder: Path, **options: object) -> None:
    """A whole run into an empty folder: index, shards, journals, commits, merge."""
    shutil.rmtree(folder, ignore_errors=True)
    entries = [{"manifest": str(corpus.manifest)}]
    model = {"frontend": corpus.frontend}
    collect_stats(model, {"train": entries, "valid": entries}, mode="train", output_dir=folder, **options)  # type: ignore[arg-type]


@pytest.mark.usefixtures("one_thread")
def test_collect_stats_against_a_plain_loop(corpus: Corpus, tmp_path: Path) -> None:
    """A run in process takes at most 1.25 times what a loop takes that keeps nothing but sums."""
    ours, theirs = best_of_pairs(
        lambda: collect(corpus, tmp_path / "exp"), lambda: measure_plainly(corpus.audio, corpus.frontend)
    )
    judge_at_most(
        f"{corpus.name}: collect_stats {ours:.2f} s, plain loop {theirs:.2f} s, ratio", ours / theirs, 1.25
    )


@contextlib.contextmanager
def two_loops(corpus: Corpus) -> Iterator[multiprocessing.synchronize.Barrier]:
    """Two plain loops over half of the corpus each, which wait at the barrier before and after every
    round.
    """
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(3, timeout=300)
    loops = [
        context.Process(
            target=loop_when_told,
            args=(corpus.audio[part::2], corpus.frontend, barrier, NUM_ROUNDS),
            daemon=True,
        )
        for part in (0, 1)
    ]
    for loop in loops:
        loop.start()
    yield barrier
    for loop in loops:
        loop.join()


def test_two_workers_against_two_plain_loops(corpus: Corpus, tmp_path: Path) -> None:
    """Two Dask workers do at least 0.85 of what two plain loops do side by side; the start of either is
    apart.
    """
    import statsprep.parallel  # noqa: F401  registers the executor
    from statsprep.engine.executor import make_executor

    ours, theirs = [], []
    with make_executor({"env": "local", "n_workers": 2}) as executor, two_loops(corpus) as barrier:
        collect(corpus, tmp_path / "warm", executor=executor)

        def run_loops() -> None:
            barrier.wait()
            barrier.wait()

        for number in range(NUM_ROUNDS):
            folder = tmp_path / f"exp{number}"
            ours.append(timed(lambda: collect(corpus, folder, executor=executor)))  # noqa: B023
            theirs.append(timed(run_loops))
    what = f"{corpus.name}: two workers {min(ours):.2f} s, two plain loops {min(theirs):.2f} s, speed"
    judge_at_least(what, min(theirs) / min(ours), 0.85)


# lhotse changes PATH when it is imported, so it is measured in a process of its own.
_AGAINST_LHOTSE = """
import itertools, json, sys
from pathlib import Path
import torch
from lhotse import CutSet, Fbank, FbankConfig, NumpyFilesWriter, Recording
from tests.benchmarks.conftest import Corpus, best_of_pairs
from tests.benchmarks.test_speed import collect

torch.set_num_threads(1)
name, manifest, frontend, audio = json.loads(sys.stdin.read())
corpus = Corpus(name, Path(manifest), frontend, audio)
recordings = [Recording.from_file(path, recording_id=str(number)) for number, path in enumerate(audio)]
cuts = CutSet.from_manifests(recordings=recordings)
numbers = itertools.count()

def extract():
    extractor = Fbank(FbankConfig(sampling_rate=frontend["sample_rate_hz"], num_filters=80))
    folder = f"fbank{next(numbers)}"
    stored = cuts.compute_and_store_features(extractor, folder, num_jobs=1, storage_type=NumpyFilesWriter)
    stored.compute_global_feature_stats()

print(*best_of_pairs(lambda: collect(corpus, Path("exp").absolute()), extract))
"""


def test_collect_stats_against_lhotse(corpus: Corpus, tmp_path: Path) -> None:
    """At least 2.5 times as fast as lhotse's Fbank extraction with one job and its global statistics."""
    if importlib.util.find_spec("lhotse") is None:
        pytest.skip("lhotse is not installed here")
    given = json.dumps([corpus.name, str(corpus.manifest), corpus.frontend, corpus.audio])
    done = subprocess.run(
        [sys.executable, "-c", _AGAINST_LHOTSE], input=given, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    ours, theirs = map(float, done.stdout.split()[-2:])
    what = f"{corpus.name}: collect_stats {ours:.2f} s, lhotse {theirs:.2f} s, times as fast"
    judge_at_least(what, theirs / ours, 2.5)


_TRIVIAL = """
import re, sys, time
from pathlib import Path
from statsprep import BaseRunner, EnvironmentProvider
from statsprep.engine.executor import make_executor
import statsprep.parallel

class Nothing(EnvironmentProvider):
    def build_env_local(self):
        return {}

class Double(BaseRunner):
    @staticmethod
    def forward(idx):
        return 2 * idx

output_dir = sys.argv[1] if len(sys.argv) > 1 else None
with make_executor({"env": "local", "n_workers": 2}) as executor:
    Double(Nothing({}), output_dir="warm").run(range(64), executor=executor)
    if output_dir is None:
        from statsprep import set_parallel
        began = time.perf_counter()
        set_parallel({"env": "local", "n_workers": 2})
        results = Double(Nothing({}))(range(10**6))
        assert results[-1] == 2 * (10**6 - 1) and len(results) == 10**6
    else:
        began = time.perf_counter()
        report = Double(Nothing({}), output_dir=output_dir).run(range(10**6), executor=executor)
        assert report.counts["ok"] == 10**6
    seconds = time.perf_counter() - began
print(seconds, int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024)
"""


@pytest.mark.parametrize("output_dir", [None, "exp"], ids=["list", "files"])
def test_a_million_trivial_indices(output_dir: str | None, tmp_path: Path) -> None:
    """Through two Dask workers in at most 20 s, with a driver below 500 MB; as a list, and journaled into
    files.
    """
    words = [sys.executable, "-c", _TRIVIAL, *([output_dir] if output_dir else [])]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    seconds, peak_mb = map(float, done.stdout.split())
    what = f"10^6 trivial indices, {'into files' if output_dir else 'as a list'}"
    judge_at_most(f"{what}: time", seconds, 20, " s")
    judge_at_most(f"{what}: driver's memory", peak_mb, 500, " MB")


def test_import_is_cheap(tmp_path: Path) -> None:
    """`import statsprep` costs at most 0.15 s of CPU, the interpreter's own start included."""

    def cpu_s() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", "import statsprep"], cwd=tmp_path, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    judge_at_most("import statsprep, CPU", min(cpu_s() for _ in range(NUM_ROUNDS)), 0.15, " s")
