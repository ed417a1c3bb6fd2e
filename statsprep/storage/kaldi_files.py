"""Kaldi archives (`.ark`) of float32 matrices: written record by record, and looked at before kaldiio reads
them.

A record is `utt_id`, a space, and a binary matrix or vector; an SCP line `utt_id file.ark:offset` points
behind the space. kaldiio believes what a header says: it runs commands, unpickles, and allocates whatever
size is claimed. `measure_matrix` accepts plain and compressed matrices alone, as large as the file can hold.
"""

import contextlib
import functools
import io
import os
import struct
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from statsprep.errors import ConfigError, DataError
from statsprep.storage.atomic import disk_errors_named, open_private

_BINARY = b"\0B"
_MAX_HEADER_BYTES = 22
# By token: number of dimensions, and bytes a value.
_PLAIN = {b"FM ": (2, 4), b"DM ": (2, 8), b"FV ": (1, 4), b"DV ": (1, 8)}
# By token: bytes a value, and bytes a column of its own header.
_COMPRESSED = {b"CM ": (1, 8), b"CM2 ": (2, 0), b"CM3 ": (1, 0)}


class ArkWriter:
    """Appends records to one archive, write-through, so that a killed process loses none that it finished.

    Args:
        path: the new archive, in a folder of this process's own.
        final_path: where the archive will be once that folder has its name; SCP lines point there.
    """

    def __init__(self, path: Path, final_path: Path | str) -> None:
        self._path = path
        self._final_path = os.fspath(final_path)
        self._stack = contextlib.ExitStack()
        self._stream: IO[bytes] = self._stack.enter_context(open_private(path, binary=True))

    def write(self, utt_id: str, feats: NDArray[Any]) -> str:
        """Append `feats`, (frames, dim) or (values,), as float32; returns its SCP line.

        Raises:
            ConfigError: an array of more dimensions, which archives do not hold.
            StorageError: the disk is full.
        """
        return self._append(utt_id, encode_record(utt_id, feats))

    def copy(self, utt_id: str, archive: Path) -> str:
        """Append the same utterance's record of another archive, as `has_record` has found it."""
        start, stop = _find_records(os.fspath(archive))[utt_id]
        with open(archive, "rb") as stream:
            stream.seek(start)
            return self._append(utt_id, stream.read(stop - start))

    def _append(self, utt_id: str, record: bytes) -> str:
        offset = self._stream.tell() + len(utt_id.encode()) + 1
        with disk_errors_named(self._path):
            self._stream.write(record)
            self._stream.flush()
        return f"{utt_id} {self._final_path}:{offset}\n"

    def close(self) -> None:
        self._stack.close()


def encode_record(utt_id: str, feats: NDArray[Any]) -> bytes:
    """The bytes of one record.

    Raises:
        ConfigError: an array of more than two dimensions or none.
    """
    import kaldiio

    if feats.ndim not in (1, 2):
        raise ConfigError(
            f"utterance {utt_id!r}: features of shape {feats.shape}; a Kaldi archive holds matrices and "
            "vectors; write npy files instead"
        )
    stream = io.BytesIO()
    kaldiio.save_ark(stream, {utt_id: np.ascontiguousarray(feats, np.float32)})
    return stream.getvalue()


def has_record(archive: Path, utt_id: str, shape: tuple[int, ...]) -> bool:
    """Whether an archive that nobody writes to any more holds an utterance's features whole."""
    try:
        found = _find_records(os.fspath(archive)).get(utt_id)
    except OSError:
        return False
    num_dims_bytes = 5 * len(shape)
    header = len(utt_id.encode()) + 1 + len(_BINARY) + 3 + num_dims_bytes
    return found is not None and found[1] - found[0] == header + 4 * int(np.prod(shape))


@functools.lru_cache(maxsize=8)
def _find_records(archive: str) -> dict[str, tuple[int, int]]:
    """First and one past the last byte of each whole record; what follows a torn one is left out."""
    found: dict[str, tuple[int, int]] = {}
    with open(archive, "rb") as stream:
        file_bytes = os.fstat(stream.fileno()).st_size
        while True:
            start = stream.tell()
            key = _read_key(stream)
            try:
                _, num_bytes = measure_matrix(stream, file_bytes)
                found[key.decode()] = start, start + len(key) + 1 + num_bytes
            except (DataError, EOFError, UnicodeDecodeError):
                return found
            stream.seek(start + len(key) + 1 + num_bytes)


def _read_key(stream: IO[bytes]) -> bytes:
    key = bytearray()
    while (character := stream.read(1)) not in (b" ", b""):
        key += character
    return bytes(key)


def measure_matrix(stream: IO[bytes], file_bytes: int) -> tuple[tuple[int, ...], int]:
    """Shape and size in bytes, header included, of the matrix or vector at the stream's position.

    Raises:
        DataError: there is something else, such as a pickle.
        EOFError: more is claimed than the file holds.
    """
    start = stream.tell()
    head = stream.read(_MAX_HEADER_BYTES)
    token = head[2:6].partition(b" ")[0] + b" "
    shape: tuple[int, ...]
    try:
        if head[:2] != _BINARY:
            raise DataError(f"begins with {head[:5]!r}; expected a binary matrix; write it with copy-feats")
        at = 2 + len(token)
        if token in _PLAIN:
            num_dims, value_bytes = _PLAIN[token]
            shape = struct.unpack_from("<xixi" if num_dims == 2 else "<xi", head, at)
            num_bytes = at + 5 * num_dims + value_bytes * shape[0] * (shape[1] if num_dims == 2 else 1)
        elif token in _COMPRESSED:
            value_bytes, column_bytes = _COMPRESSED[token]
            shape = struct.unpack_from("<8xii", head, at)
            num_bytes = at + 16 + (value_bytes * shape[0] + column_bytes) * shape[1]
        else:
            raise DataError(f"holds {token!r}; expected a matrix or vector; write it with copy-feats")
    except struct.error:
        raise EOFError("ends within a header; copy the file again") from None
    present = file_bytes - start
    if min(shape) < 0 or num_bytes > present:
        raise EOFError(
            f"claims a shape of {shape}, {num_bytes:,} bytes, where {present:,} follow; copy the file again"
        )
    return shape, num_bytes
