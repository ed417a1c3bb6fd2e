"""Stores: whole files, one winner of several creators, nothing remembered; the same of memory and S3."""

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from statsprep.errors import ConfigError, StorageError
from statsprep.storage import stores
from statsprep.storage.stores import (
    BlockReader,
    Store,
    check_url,
    is_url,
    join,
    local,
    parent,
    read_bytes,
    read_head,
)
from tests.servers import moto_server


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, str]]:
    with moto_server() as options:
        yield options


@pytest.fixture(params=["memory", "s3"])
def store(
    request: pytest.FixtureRequest, s3: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Store]:
    name = f"bucket-{time.monotonic_ns()}"
    monkeypatch.setitem(fsspec.config.conf, "s3", s3)
    fsspec.filesystem(request.param).mkdir(f"/{name}" if request.param == "memory" else name)
    yield Store(f"{request.param}://{name}/runs/train")
    if request.param == "memory":
        fsspec.filesystem("memory").rm(f"/{name}", recursive=True)


def test_what_is_put_is_read(store: Store, tmp_path: Path) -> None:
    assert store.read("a") is None
    assert store.sizes() == {}
    store.put("a", b"one")
    store.put("below/b", b"")
    assert store.read("a") == b"one"
    assert store.read("below/b") == b""
    assert store.read_many(["a", "below/b", "missing"]) == {"a": b"one", "below/b": b""}
    assert store.read_many([]) == {}
    store.put("a", b"two!")
    assert store.sizes() == {"a": 4, "below/b": 0}
    (tmp_path / "source").write_bytes(b"x" * 100_000)
    store.upload(tmp_path / "source", "c")
    store.download("c", tmp_path / "new" / "target")
    assert (tmp_path / "new" / "target").read_bytes() == b"x" * 100_000
    with pytest.raises(FileNotFoundError):
        store.download("missing", tmp_path / "nothing")
    store.remove(["a", "c", "missing"])
    store.remove([])
    assert store.sizes() == {"below/b": 0}


def test_one_of_several_creators_wins(store: Store) -> None:
    wins: list[str] = []

    def create(name: str) -> None:
        if store.create("split.7/done", name.encode()):
            wins.append(name)

    threads = [threading.Thread(target=create, args=(f"attempt {number}",)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wins) == 1
    assert store.read("split.7/done") == wins[0].encode()
    assert not store.create("split.7/done", b"late")


def test_files_of_other_processes_are_seen_at_once(store: Store) -> None:
    """A listing that is remembered would hide them."""
    assert store.sizes() == {}
    filesystem, path = fsspec.core.url_to_fs(store.url, skip_instance_cache=True)
    filesystem.pipe_file(f"{path}/new", b"1")
    assert store.sizes() == {"new": 1}
    filesystem.rm_file(f"{path}/new")
    assert store.read("new") is None
    assert store.sizes() == {}


def test_ranges_cost_one_request_per_block(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    content = bytes(range(256)) * 40
    store.put("manifest.jsonl", content)
    monkeypatch.setattr(stores, "_BLOCK_BYTES", 1000)
    fetched = []
    real = stores._open_filesystem
    monkeypatch.setattr(stores, "_open_filesystem", lambda url: fetched.append(url) or real(url))
    reader = BlockReader(store.at("manifest.jsonl"))
    found = b"".join(reader.pread(100, offset) for offset in range(0, 1000, 100))
    assert found == content[:1000]
    assert len(fetched) == 1
    assert reader.pread(100, len(content) - 5) == content[-5:]
    assert reader.pread(100, len(content)) == b""
    assert reader.pread(10, 500) == content[500:510]


def test_files_read_ahead_cost_no_further_request(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long files and missing ones are read as if nothing had been fetched."""
    monkeypatch.setattr(stores, "_AHEAD_BYTES", 10)
    contents = {"a": b"one", "b": b"exactly 10", "c": b"more than ten bytes", "empty": b""}
    for name, content in contents.items():
        store.put(name, content)
    stores.read_ahead([store.at(name) for name in (*contents, "missing")])
    asked: list[str] = []
    real = stores._open_filesystem
    monkeypatch.setattr(stores, "_open_filesystem", lambda url: asked.append(url) or real(url))
    assert {name: read_bytes(store.at(name)) for name in contents} == contents
    with pytest.raises(FileNotFoundError):
        read_bytes(store.at("missing"))
    ahead = ["a"] if store.url.startswith("s3") else []
    assert asked == [store.at(name) for name in (*contents, "missing") if name not in ahead]
    assert read_bytes(store.at("a")) == b"one"


def test_heads_and_streams(store: Store) -> None:
    store.put("lines", b"one\ntwo\n")
    store.put("empty", b"")
    assert read_head(store.at("lines"), 3) == (8, b"one")
    assert read_head(store.at("lines"), 100) == (8, b"one\ntwo\n")
    assert read_head(store.at("empty"), 100) == (0, b"")
    with stores.open_lines(store.at("lines")) as lines:
        assert list(lines) == [b"one\n", b"two\n"]
    for read in (read_bytes, stores.open_lines, lambda url: read_head(url, 1)):
        with pytest.raises(FileNotFoundError):
            read(store.at("missing"))


def test_a_store_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def cat_file(self, path: str) -> bytes:
            raise RuntimeError("connection\nlost")

        def invalidate_cache(self) -> None: ...

    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda url: (Broken(), "/"))
    with pytest.raises(StorageError) as caught:
        read_bytes("s3://bucket/a")
    assert caught.value.message.startswith("s3://bucket/a: RuntimeError: connection lost; check address")


def import_s3(protocol: str) -> type:
    """What fsspec does at the first use of a protocol."""
    import s3fs

    return s3fs.S3FileSystem


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    monkeypatch.setattr(fsspec.core, "get_filesystem_class", import_s3)
    with pytest.raises(ConfigError, match=r"pip install 'statsprep\[s3\]'"):
        read_bytes("s3://bucket/a")


@pytest.mark.parametrize(
    "url", ["http://host/a", "github://o:r@m/a", "simplecache::s3://b/a", "file:///etc/passwd"]
)
def test_other_protocols_are_refused(url: str) -> None:
    """A manifest must not make this machine fetch what it likes."""
    with pytest.raises(ConfigError, match="no known store"):
        check_url(url)
    with pytest.raises(ConfigError, match="no known store"):
        read_bytes(url)


def test_paths_and_urls() -> None:
    assert is_url("s3://bucket/a")
    assert not is_url("/data/s3://bucket/a")
    assert not is_url(Path("s3://bucket/a"))
    assert join("s3://bucket/data", "a.wav") == "s3://bucket/data/a.wav"
    assert join("s3://bucket/data", "/a.wav") == "/a.wav"
    assert join("/data", "s3://bucket/a.wav") == "s3://bucket/a.wav"
    assert join("/data", "a.wav") == "/data/a.wav"
    assert parent("s3://bucket/data/a.jsonl") == "s3://bucket/data"
    assert parent("/data/a.jsonl") == "/data"


def test_a_file_url_is_a_path_of_this_machine(tmp_path: Path) -> None:
    """As a file browser writes it; of another machine, or relative, it is refused."""
    assert not is_url("file:///data/a.wav")
    assert local("file:///data/a b.wav") == "/data/a b.wav"
    assert local("s3://bucket/a") == "s3://bucket/a"
    assert join("s3://bucket/corpus", "file:///data/a.wav") == "/data/a.wav"
    assert join("/corpus", "file:///data/a.wav") == "/data/a.wav"
    for wrong in ("file://data/a.wav", "file://"):
        with pytest.raises(ConfigError, match="is no path from / on"):
            local(wrong)


def test_a_url_has_no_way_up() -> None:
    with pytest.raises(ConfigError, match=r"s3://bucket/a/\.\./\.\.: stores have no '\.\.'"):
        check_url("s3://bucket/a/../..")


def test_a_key_that_would_leave_a_folder_is_nobodys_file(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bucket may hold the key `runs/train/../../x`; a mirror on disk would follow it."""
    store.put("split.0/done", b"{}")
    filesystem, root = stores._open_filesystem(store.url)
    found = filesystem.find(root, detail=True)
    hostile = {f"{root}/../../x": {"size": 1}, f"{root}/a/../b": {"size": 1}, f"{root}//etc/x": {"size": 1}}
    with monkeypatch.context() as patched:
        patched.setattr(type(filesystem), "find", lambda self, path, **options: {**found, **hostile})
        assert store.sizes() == {"split.0/done": 2}
