"""The main job on an S3 that moto imitates, so that every machine tests it; tests/storage has real stores."""

import json
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from statsprep.data.demo_corpus import write_demo_corpus
from tests.integration.conftest import StatsprepCommand, wait_until
from tests.servers import moto_server

CONFIG = """
data: data
stats_dir: exp
dataset:
  train: [{manifest: "${data}/train.jsonl"}]
  valid: [{manifest: "${data}/valid.jsonl"}]
model: {frontend: {sample_rate_hz: 16000, n_mels: 40}}
collect_stats: {max_errors: 5%, shard_size: 8, splits: [train]}
"""


@pytest.fixture(scope="module")
def server() -> Iterator[dict[str, str]]:
    with moto_server() as options:
        yield options


@pytest.fixture
def bucket(server: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> fsspec.AbstractFileSystem:
    monkeypatch.setitem(fsspec.config.conf, "s3", server)
    filesystem = fsspec.filesystem("s3", use_listings_cache=False)
    filesystem.mkdir("bucket")
    return filesystem


def test_a_run_on_an_object_store_gives_the_bytes_of_a_local_one(
    tmp_path: Path, server: dict[str, str], bucket: fsspec.AbstractFileSystem, statsprep: StatsprepCommand
) -> None:
    """In process, on two workers, and killed in the middle."""
    write_demo_corpus(tmp_path, 64, 1)
    (tmp_path / "mirrors").mkdir()
    (tmp_path / "config.yaml").write_text(CONFIG, encoding="utf-8")
    statsprep("run", "config.yaml")
    local = tmp_path / "exp" / "train"
    bucket.put(str(tmp_path / "data"), "bucket/data", recursive=True)
    env = {f"FSSPEC_S3_{name.upper()}": value for name, value in server.items()}
    env["TMPDIR"] = str(tmp_path / "mirrors")
    workers = ("parallel.env=local", "parallel.n_workers=2")
    for name, words in (("alone", ()), ("two", workers), ("killed", ())):
        command = ("run", "config.yaml", "data=s3://bucket/data", f"stats_dir=s3://bucket/{name}", *words)
        if name == "killed":
            started = statsprep.start(*command, **env)
            wait_until(lambda: bucket.glob("bucket/killed/train/split.*/done"))
            started.kill()
        statsprep(*command, **env)
        for file in json.loads((local / "merged.json").read_text())["files"]:
            if file != "errors.jsonl":
                content = bucket.cat_file(f"bucket/{name}/train/{file}")
                assert content == (local / file).read_bytes(), file
    assert "merged" in statsprep("status", "s3://bucket/killed", **env).out
