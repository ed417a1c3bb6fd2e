"""The index: every utterance once, found by position; duplicates named; the digest follows the content."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statsprep.data import index as index_module
from statsprep.data.dataset import ManifestDataset
from statsprep.data.index import IndexSlice, UtteranceIndex, UttIds, build_index, build_index_in_memory
from statsprep.errors import DataError

Writer = Callable[..., ManifestDataset]


@pytest.fixture
def manifest(tmp_path: Path) -> Writer:
    """Writes a text-only manifest of the given ids."""

    def write(name: str, *ids: str, ending: str = "\n") -> ManifestDataset:
        (tmp_path / name).write_bytes("".join(f'{{"utt_id":"{i}","text":"t"}}{ending}' for i in ids).encode())
        return ManifestDataset(tmp_path / name)

    return write


@pytest.mark.parametrize("batch_bits", [1, 2, 16])
def test_rows_are_found_across_batches_and_sources(
    manifest: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch_bits: int
) -> None:
    monkeypatch.setattr(index_module, "_BATCH_BITS", batch_bits)
    monkeypatch.setattr(index_module, "BATCH_ROWS", 1 << batch_bits)
    sources = [manifest("a.jsonl", "a0", "ä1", "a2"), manifest("b.jsonl", "b0", "b1")]
    summary = build_index(sources, tmp_path / "index.arrow")
    index = UtteranceIndex.open(tmp_path / "index.arrow")
    assert (summary.num_items, len(index), summary.keyed_by) == (5, 5, "utt_id")
    assert [index.row(i)[:2] for i in range(5)] == [("a0", 0), ("ä1", 0), ("a2", 0), ("b0", 1), ("b1", 1)]
    assert [index.utt_id(i) for i in range(5)] == ["a0", "ä1", "a2", "b0", "b1"]
    content = (tmp_path / "a.jsonl").read_bytes()
    assert content[index.row(2)[2] :].startswith(b'{"utt_id":"a2"')
    for outside in (-1, 5):
        with pytest.raises(IndexError):
            index.row(outside)


def test_slices_give_each_source_its_rows(manifest: Writer) -> None:
    index = build_index_in_memory([manifest("a.jsonl", "a", "b"), manifest("b.jsonl", "c")])
    first, second, empty = index.slices(3)
    assert [len(rows) for rows in (first, second, empty)] == [2, 1, 0]
    assert second.row(0) == ("c", 0)
    with pytest.raises(IndexError):
        first.row(2)


def test_ids_are_a_sequence(manifest: Writer) -> None:
    index = build_index_in_memory([manifest("a.jsonl", "a", "b", "c")])
    ids = UttIds(IndexSlice(index, 1, 3))
    assert list(ids) == ["b", "c"]
    assert (ids[-1], ids[::-1], len(ids)) == ("c", ["c", "b"], 2)
    for outside in (-3, 2):
        with pytest.raises(IndexError):
            ids[outside]


def test_durations_are_kept_where_known(tmp_path: Path) -> None:
    rows = [{"utt_id": "a", "audio": "a", "duration_s": 2.5}, {"utt_id": "b", "audio": "b"}]
    (tmp_path / "m.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    index = build_index_in_memory([ManifestDataset(tmp_path / "m.jsonl")])
    assert [index.duration_s(i) for i in range(2)] == [2.5, None]


def test_duplicate_id_is_named_with_both_places(manifest: Writer, tmp_path: Path) -> None:
    sources = [manifest("other.jsonl", "x", "a"), manifest("train.jsonl", "b", "c", "a", "x")]
    with pytest.raises(DataError) as caught:
        build_index(sources, tmp_path / "index.arrow")
    assert caught.value.message == (
        f"{tmp_path}/train.jsonl:3: utterance 'a' appears twice (first at {tmp_path}/other.jsonl:2); "
        "ids must be unique; remove one or rename it (+1 more)"
    )
    assert not list(tmp_path.glob("*index.arrow*"))


def test_equal_hashes_of_different_ids_are_no_duplicates(
    manifest: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_module, "_id_hash", lambda utt_id: bytes(8))
    assert len(build_index_in_memory([manifest("a.jsonl", "a", "b", "c")])) == 3
    with pytest.raises(DataError, match="'b' appears twice"):
        build_index_in_memory([manifest("b.jsonl", "a", "b", "b")])


@given(ids=st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=12))
def test_index_is_built_exactly_when_ids_are_unique(
    tmp_path_factory: pytest.TempPathFactory, ids: list[str]
) -> None:
    path = tmp_path_factory.mktemp("m") / "m.jsonl"
    path.write_text("".join(f'{{"utt_id":"{i}","text":""}}\n' for i in ids))
    if len(set(ids)) == len(ids):
        assert list(ManifestDataset(path).utt_ids()) == ids
    else:
        with pytest.raises(DataError, match="appears twice"):
            len(ManifestDataset(path))


def test_empty_manifest_is_an_error(manifest: Writer) -> None:
    with pytest.raises(DataError, match=r"a\.jsonl: has no rows; expected one JSON object a line"):
        build_index_in_memory([manifest("a.jsonl"), manifest("b.jsonl", "b")])


def test_digest_ignores_place_line_ends_and_byte_order_mark(manifest: Writer, tmp_path: Path) -> None:
    def digest(dataset: ManifestDataset) -> str:
        return build_index([dataset], tmp_path / "index.arrow").digest

    plain = digest(manifest("a.jsonl", "a", "b"))
    assert digest(manifest("elsewhere.jsonl", "a", "b", ending="\r\n\n")) == plain
    marked = tmp_path / "marked.jsonl"
    marked.write_bytes(b"\xef\xbb\xbf" + (tmp_path / "a.jsonl").read_bytes())
    assert digest(ManifestDataset(marked)) == plain
    assert digest(manifest("a.jsonl", "b", "a")) != plain
    assert digest(manifest("a.jsonl", "a", "c")) != plain


def test_index_in_a_file_is_pickled_as_its_path(manifest: Writer, tmp_path: Path) -> None:
    build_index([manifest("a.jsonl", *(f"u{i}" for i in range(5000)))], tmp_path / "index.arrow")
    pickled = pickle.dumps(UtteranceIndex.open(tmp_path / "index.arrow"))
    assert len(pickled) < 500
    assert pickle.loads(pickled).utt_id(4999) == "u4999"
    with pytest.raises(TypeError, match="index in memory"):
        pickle.dumps(build_index_in_memory([manifest("a.jsonl", "a")]))


@pytest.mark.parametrize("content", [b"", b"ARROW1 no", None])
def test_damaged_or_missing_index_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "index.arrow"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=r"index\.arrow: cannot be opened as an index"):
        UtteranceIndex.open(path)
