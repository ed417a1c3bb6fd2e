"""Shape files: text as ESPnet reads it, and the same as Arrow."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statsprep.errors import DataError
from statsprep.storage import shapes
from statsprep.storage.shapes import (
    arrow_path,
    format_shape,
    load_shapes,
    merge_arrow,
    parse_shape,
    read_shapes,
    write_shapes,
)

IDS = st.text(st.characters(exclude_categories=("Cs", "Cc", "Zs", "Zl", "Zp")), min_size=1)


@given(IDS, st.lists(st.integers(0, 2**62), min_size=1, max_size=4))
def test_a_line_is_read_as_it_was_written(utt_id: str, shape: list[int]) -> None:
    line = format_shape(utt_id, shape)
    assert line == f"{utt_id} {','.join(map(str, shape))}\n"
    assert parse_shape(line, "f:1") == (utt_id, tuple(shape))


def test_text_and_arrow_agree(weird_tmp_path: Path, odd_ids: list[str]) -> None:
    rows = [(utt_id, 100 + number, (number + 1, 80)) for number, utt_id in enumerate(odd_ids)]
    path = weird_tmp_path / "feats_shape"
    write_shapes(path, rows)
    table = load_shapes(arrow_path(path))
    assert table.column_names == ["utt_id", "index", "dim0", "dim1"]
    assert [str(kind) for kind in table.schema.types] == ["large_string", "int64", "int64", "int64"]
    columns = table.to_pydict()
    assert list(zip(columns["utt_id"], zip(columns["dim0"], columns["dim1"], strict=True), strict=True)) == [
        *read_shapes(path)
    ]
    assert columns["index"] == [index for _, index, _ in rows]
    assert [utt_id for utt_id, _ in read_shapes(path)] == odd_ids


@pytest.mark.parametrize("line", ["a", "a ", "a 3.5", "a 3,", "a 312 80", "a x,80", ""])
def test_a_line_without_shape_is_named(line: str, tmp_path: Path) -> None:
    path = tmp_path / "feats_shape"
    path.write_text(f"good 1,2\n{line}\n")
    with pytest.raises(DataError, match=r"feats_shape:2: got '.*'; expected 'utt_id 312'"):
        list(read_shapes(path))


def test_crlf_is_read(tmp_path: Path) -> None:
    (tmp_path / "s").write_bytes(b"a 3,80\r\nb 4,80\r\n")
    assert list(read_shapes(tmp_path / "s")) == [("a", (3, 80)), ("b", (4, 80))]


def test_other_dimensions_in_a_shard_name_the_utterance(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"utterance 'b': features of shape \(3,\) after ones of 2"):
        write_shapes(tmp_path / "s", [("a", 0, (3, 80)), ("b", 1, (3,))])


def test_merged_arrow_is_the_shards_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "_ROWS_PER_BATCH", 10)
    parts: list[Path] = []
    number = 0
    for length in (1, 25, 3, 4, 9, 2):
        path = tmp_path / f"{len(parts)}_shape"
        write_shapes(path, [(f"u{number + i}", number + i, (number + i,)) for i in range(length)])
        number += length
        parts.append(arrow_path(path))
    target = tmp_path / "merged.arrow"
    assert merge_arrow(parts, target) == number
    table = load_shapes(target)
    assert table["utt_id"].to_pylist() == [f"u{i}" for i in range(number)]
    assert table["index"].to_pylist() == table["dim0"].to_pylist() == list(range(number))
    assert table["utt_id"].num_chunks == 3, "small shards are gathered to few batches"


def test_merging_keeps_one_batch_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards are opened one by one, after the earlier ones are written."""
    monkeypatch.setattr(shapes, "_ROWS_PER_BATCH", 10)
    path = tmp_path / "part_shape"
    write_shapes(path, [(f"u{i}" * 2000, i, (i,)) for i in range(10)])
    target = tmp_path / "merged.arrow"
    sizes = []

    def parts() -> object:
        for _ in range(4):
            yield arrow_path(path)
            sizes.append(target.stat().st_size)

    assert merge_arrow(parts(), target) == 40  # type: ignore[arg-type]
    assert sizes[1] > 0
    assert sizes == sorted(set(sizes))


def test_shards_of_other_dimensions_are_refused(tmp_path: Path) -> None:
    write_shapes(tmp_path / "a_shape", [("a", 0, (1, 80))])
    write_shapes(tmp_path / "b_shape", [("b", 1, (1,))])
    with pytest.raises(
        DataError, match=r"shards disagree on the number of dimensions \(dim0 after dim0, dim1\)"
    ):
        merge_arrow([tmp_path / "a_shape.arrow", tmp_path / "b_shape.arrow"], tmp_path / "m.arrow")


def test_equal_rows_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_shapes(tmp_path / name, [("u", 0, (3, 80)), ("v", 1, (4, 80))])
    assert (tmp_path / "a.arrow").read_bytes() == (tmp_path / "b.arrow").read_bytes()
