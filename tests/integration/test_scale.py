"""Memory that does not grow with the corpus, and imports that load nothing heavy."""

import json
import os
from pathlib import Path

import pytest

from statsprep.storage.shapes import arrow_path, load_shapes, write_shapes
from tests.integration.conftest import StatsprepCommand

HEAVY = ("torch", "dask", "distributed", "omegaconf", "librosa", "pyarrow", "numba", "pydantic")
NUM_SHARDS, ROWS_PER_SHARD = 1000, 5000
NUM_ROWS = 5_000_000 if os.environ.get("STATSPREP_FULL") else 1_000_000

# The peak of this process alone, in MiB: ru_maxrss would include the parent's at the moment of the fork.
_PEAK = """
import re
from pathlib import Path
def peak_mib():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024
"""


@pytest.mark.parametrize(
    "words", [["-c", "import statsprep"], ["-m", "statsprep", "--help"], ["-m", "statsprep", "run", "--help"]]
)
def test_nothing_heavy_is_loaded(words: list[str], statsprep: StatsprepCommand) -> None:
    """`import statsprep` and every --help load none of the large libraries."""
    listing = "import atexit, sys; atexit.register(lambda: print('LOADED', *sys.modules))"
    (statsprep.folder / "sitecustomize.py").write_text(listing, encoding="utf-8")
    seen = statsprep.start_python(*words, PYTHONPATH=str(statsprep.folder)).wait().check()
    loaded = seen.out.rpartition("LOADED ")[2].split()
    assert "statsprep" in loaded
    assert not set(HEAVY) & set(loaded)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1,000 shards of 5,000 shape lines; of each only what a merge reads."""
    folder = tmp_path_factory.mktemp("shards")
    for number in range(NUM_SHARDS):
        first = number * ROWS_PER_SHARD
        rows = [
            (f"utt_{index:09d}", index, (100 + index % 1000, 80))
            for index in range(first, first + ROWS_PER_SHARD)
        ]
        (folder / f"split.{number}").mkdir()
        write_shapes(folder / f"split.{number}" / "feats_shape", rows)
    return folder


def test_five_million_shapes_merge_in_flat_memory(shards: Path, statsprep: StatsprepCommand) -> None:
    """Text and Arrow are streamed: the peak stays below 600 MB, and both hold every line in order."""
    code = f"""{_PEAK}
from statsprep.runners import CollectStatsRunner
folder = Path({str(shards)!r})
CollectStatsRunner.merge_files([folder / f"split.{{number}}" for number in range({NUM_SHARDS})], folder)
print(peak_mib())
"""
    assert int(statsprep.start_python("-c", code).wait(200).check().out) < 600
    num_lines = NUM_SHARDS * ROWS_PER_SHARD
    with open(shards / "feats_shape", encoding="utf-8") as lines:
        num_seen = 0
        for number, line in enumerate(lines):
            if number % 99_991 == 0 or number == num_lines - 1:
                assert line == f"utt_{number:09d} {100 + number % 1000},80\n"
            num_seen += 1
    assert num_seen == num_lines
    table = load_shapes(arrow_path(shards / "feats_shape"))
    assert table.num_rows == num_lines
    for number in [*range(0, num_lines, 99_991), num_lines - 1]:
        row = {name: table[name][number].as_py() for name in table.column_names}
        assert row == {
            "utt_id": f"utt_{number:09d}",
            "index": number,
            "dim0": 100 + number % 1000,
            "dim1": 80,
        }


def test_large_manifest_is_opened_in_little_memory(tmp_path: Path, statsprep: StatsprepCommand) -> None:
    """A worker maps the driver's index: a manifest of a million rows (five with STATSPREP_FULL) in under 200
    MB.
    """
    with open(tmp_path / "train.jsonl", "w", encoding="utf-8") as manifest:
        for number in range(NUM_ROWS):
            manifest.write(
                f'{{"utt_id": "utt_{number:09d}", "audio": "a/{number}.wav", "text": "some words"}}\n'
            )
    build = f"""{_PEAK}
from statsprep.data.combined import CombinedDataset, Source
from statsprep.data.dataset import ManifestDataset
split = CombinedDataset([Source("train", ManifestDataset("train.jsonl"))])
print(split.build_index("index.arrow").num_items, peak_mib())
"""
    num_items, driver_mib = map(int, statsprep.start_python("-c", build).wait(200).check().out.split())
    assert num_items == NUM_ROWS
    # The driver keeps eight bytes of hash per utterance and a sorted copy.
    assert driver_mib < 200 + NUM_ROWS * 24 // 2**20
    use = f"""{_PEAK}
import json, time
from statsprep.data.combined import CombinedDataset, Source
from statsprep.data.dataset import ManifestDataset
began = time.perf_counter()
split = CombinedDataset([Source("train", ManifestDataset("train.jsonl"))])
split.attach_index("index.arrow")
rows = [split.load(i, audio=False)["utt_id"] for i in range(0, len(split), 99_991)]
# Before the whole map has been touched, which counts as this process's although all workers share it.
peak, seconds = peak_mib(), time.perf_counter() - began
assert all(split.utt_id(i) == f"utt_{{i:09d}}" for i in range(0, len(split), 7))
print(json.dumps([len(split), rows, peak, seconds]))
"""
    length, rows, worker_mib, seconds = json.loads(statsprep.start_python("-c", use).wait(200).check().out)
    assert length == NUM_ROWS
    assert rows == [f"utt_{number:09d}" for number in range(0, NUM_ROWS, 99_991)]
    print(f"{NUM_ROWS:,} rows: driver {driver_mib} MiB, worker {worker_mib} MiB, opened in {seconds:.2f} s")
    assert worker_mib < 200


def test_driver_keeps_no_object_per_item(statsprep: StatsprepCommand) -> None:
    """Ten million indices are a range with at most 10,000 shards: planning and the manifest take little of
    anything.
    """
    code = f"""{_PEAK}
from statsprep.engine.plan import Items, plan_shards
items = Items.of(range(10_000_000))
shards = plan_shards(len(items))
assert sum(shard.num_items for shard in shards) == 10_000_000 and len(shards) <= 256
assert items.slice(shards[-1])[-1] == 9_999_999
print(peak_mib())
"""
    assert int(statsprep.start_python("-c", code).wait().check().out) < 150
