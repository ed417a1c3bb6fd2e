"""Archives: kaldiio reads what is written, records are found and copied, and headers are not believed."""

import io
from pathlib import Path

import kaldiio
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statsprep.errors import ConfigError, DataError
from statsprep.storage.kaldi_files import ArkWriter, encode_record, has_record, measure_matrix


def write(path: Path, arrays: dict[str, np.ndarray]) -> list[str]:
    writer = ArkWriter(path, f"/final/{path.name}")
    lines = [writer.write(utt_id, feats) for utt_id, feats in arrays.items()]
    writer.close()
    return lines


def arrays_of(ids: list[str]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {utt_id: rng.normal(size=(number + 1, 3)).astype("f4") for number, utt_id in enumerate(ids)}


def test_kaldiio_reads_every_id_and_value(tmp_path: Path, odd_ids: list[str]) -> None:
    arrays = arrays_of(odd_ids) | {"vector": np.arange(4, dtype="f4"), "double": np.ones((2, 2))}
    lines = write(tmp_path / "a.ark", arrays)
    found = dict(kaldiio.load_ark(str(tmp_path / "a.ark")))
    assert list(found) == list(arrays)
    for line, (utt_id, feats) in zip(lines, arrays.items(), strict=True):
        assert line.startswith(f"{utt_id} /final/a.ark:")
        entry = line.split(" ", 1)[1].rstrip("\n").replace("/final", str(tmp_path))
        for read in (found[utt_id], kaldiio.load_mat(entry)):
            np.testing.assert_array_equal(read, feats.astype("f4"), strict=True)


def test_records_are_written_through(tmp_path: Path) -> None:
    """A killed process loses none that it had finished."""
    writer = ArkWriter(tmp_path / "a.ark", "a.ark")
    writer.write("a", np.ones((2, 2)))
    assert has_record(tmp_path / "a.ark", "a", (2, 2))
    writer.close()


def test_copied_records_give_the_same_archive(tmp_path: Path, odd_ids: list[str]) -> None:
    arrays = arrays_of(odd_ids)
    lines = write(tmp_path / "a.ark", arrays)
    copied = ArkWriter(tmp_path / "b.ark", "/final/a.ark")
    assert [copied.copy(utt_id, tmp_path / "a.ark") for utt_id in odd_ids] == lines
    copied.close()
    assert (tmp_path / "b.ark").read_bytes() == (tmp_path / "a.ark").read_bytes()


@given(cut=st.integers(0, 119))
def test_a_cut_archive_has_only_its_whole_records(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    path = tmp_path_factory.mktemp("ark") / "a.ark"
    arrays = arrays_of(["a", "b", "c"])
    ends = np.cumsum([len(encode_record(utt_id, feats)) for utt_id, feats in arrays.items()])
    write(path, arrays)
    path.write_bytes(path.read_bytes()[:cut])
    found = [has_record(path, utt_id, feats.shape) for utt_id, feats in arrays.items()]
    assert found == [cut >= end for end in ends]


def test_a_record_of_another_shape_or_a_missing_archive_is_none(tmp_path: Path) -> None:
    write(tmp_path / "a.ark", arrays_of(["a"]))
    assert has_record(tmp_path / "a.ark", "a", (1, 3))
    assert not has_record(tmp_path / "a.ark", "a", (1, 4))
    assert not has_record(tmp_path / "a.ark", "b", (1, 3))
    assert not has_record(tmp_path / "none.ark", "a", (1, 3))


def test_arrays_that_are_no_matrices_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"'a': features of shape \(2, 3, 4\); a Kaldi archive holds"):
        encode_record("a", np.zeros((2, 3, 4)))


@pytest.mark.parametrize("method", [None, 1, 2, 3, 5])
def test_sizes_of_plain_and_compressed_matrices_are_known(method: int | None) -> None:
    stream = io.BytesIO()
    kaldiio.save_mat(
        stream, np.random.default_rng(0).normal(size=(7, 3)).astype("f4"), compression_method=method
    )
    size = stream.tell()
    stream.seek(0)
    assert measure_matrix(stream, size) == ((7, 3), size)
    stream.seek(0)
    with pytest.raises(EOFError, match="copy the file again"):
        measure_matrix(stream, size - 1)


@pytest.mark.parametrize("content", [b"PKL\x80", b"NPY\4", b"RIFF", b" [ 1 ]", b"\0B\4\1\0\0\0", b"\0BXX "])
def test_anything_else_is_refused(content: bytes) -> None:
    with pytest.raises(DataError, match="expected a"):
        measure_matrix(io.BytesIO(content + bytes(30)), 1 << 40)
