"""The files of a preparation: encoded for one utterance, written below its shard, listed at the shard's end.

A shard holds `audio/17-spk_1.flac`, `feats/17-spk_1.npy` or all its features in `feats.ark`, and its part of
what the merge joins: `manifest.jsonl` with paths from the run directory on, `wav.scp` and `feats.scp` with
paths in full, `speech_shape` and `feats_shape`.
"""

import io
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from statsprep.engine.attempt import read_done
from statsprep.engine.merge import concatenate, names_in
from statsprep.engine.records import Record
from statsprep.errors import ConfigError
from statsprep.runners.stats_files import check_unique
from statsprep.storage.atomic import link_or_copy, open_private
from statsprep.storage.jsonl import compact
from statsprep.storage.kaldi_files import ArkWriter, has_record
from statsprep.storage.names import item_name
from statsprep.storage.shapes import arrow_path, merge_arrow, write_shapes

MANIFEST = "manifest.jsonl"
_SCP = {"audio": "wav.scp", "feats": "feats.scp"}
_ARK, _ARK_NAME = ".ark", "feats.ark"
_SHAPE = {"audio": "speech_shape", "feats": "feats_shape"}


def encode_audio(
    audio: NDArray[np.float32], sample_rate_hz: int, form: str
) -> tuple[dict[str, Any], NDArray[np.uint8], int]:
    """A FLAC or WAV file of 16 bit samples.

    What was read from 16 bit samples at the same rate is the same samples again. No dither is added.

    Returns:
        What a result says of the file, its content, and how many samples were louder than 16 bit hold.
    """
    import soundfile

    scaled = np.rint(audio * np.float32(32768.0))
    pcm = np.clip(scaled, -32768, 32767)
    stream = io.BytesIO()
    soundfile.write(stream, pcm.astype(np.int16), sample_rate_hz, format=form.upper(), subtype="PCM_16")
    return *_described(stream, f".{form}", audio.shape), int(np.count_nonzero(scaled != pcm))


def encode_features(feats: NDArray[Any], form: str) -> tuple[dict[str, Any], NDArray[Any]]:
    """What a result says of an utterance's features, and the content of their file; for ark the features.

    Raises:
        ConfigError: complex numbers for an archive.
    """
    if form == "npy":
        stream = io.BytesIO()
        np.lib.format.write_array(stream, np.ascontiguousarray(feats), allow_pickle=False)
        return _described(stream, ".npy", feats.shape)
    if feats.dtype.kind == "c":
        raise ConfigError(
            "prepare.features_format: ark holds no complex numbers; set it to npy, or the features' value to "
            "magnitude or power"
        )
    return {"suffix": _ARK, "shape": list(feats.shape)}, feats


def _described(
    stream: io.BytesIO, suffix: str, shape: Sequence[int]
) -> tuple[dict[str, Any], NDArray[np.uint8]]:
    content = stream.getvalue()
    about = {"suffix": suffix, "shape": list(shape), "bytes": len(content), "crc32": zlib.crc32(content)}
    return about, np.frombuffer(content, np.uint8)


class PreparedShard:
    """A shard's files, written as they come, and its lists, kept until it is committed.

    Args:
        folder: the attempt's.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lines: dict[str, list[str]] = {}
        self._shapes: dict[str, list[tuple[str, int, Sequence[int]]]] = {}
        self._subfolders: set[Path] = set()
        self._ark: ArkWriter | None = None
        self.audio_s = 0.0

    def add(self, record: Record, state: Mapping[str, Any]) -> dict[str, Any]:
        """Write an utterance's files; returns its manifest row without the id."""
        utt_id, row = state["utt_id"], dict(record.result["row"])
        # On a store an attempt's own folder follows.
        _, split, below = state["final_dir"].rpartition(f"split.{state['shard_id']}")
        for kind, about in record.result["files"].items():
            if about["suffix"] == _ARK:
                name = self._append(kind, record, state)
            else:
                name = self._write(kind, about, record, state)
            row[kind] = f"{split}{below}/{name}"
            self._list(_SCP[kind], f"{utt_id} {state['final_dir']}/{name}\n")
            self._shapes.setdefault(_SHAPE[kind], []).append((utt_id, state["index"], about["shape"]))
        self._list(MANIFEST, compact({"utt_id": utt_id, **row}) + "\n")
        self.audio_s += row["duration_s"]
        return row

    def _list(self, name: str, line: str) -> None:
        self._lines.setdefault(name, []).append(line)

    def _write(self, kind: str, about: Mapping[str, Any], record: Record, state: Mapping[str, Any]) -> str:
        """A file of its own, or the one that an earlier attempt made; returns its name."""
        name = _file_name(kind, about, state)
        path = self._folder / name
        if path.parent not in self._subfolders:
            path.parent.mkdir(exist_ok=True)
            self._subfolders.add(path.parent)
        if kind in record.side:
            with open_private(path, binary=True) as stream:
                stream.write(record.side[kind].data)
        else:
            link_or_copy(Path(state["previous_dir"]) / name, path)
        return name

    def _append(self, kind: str, record: Record, state: Mapping[str, Any]) -> str:
        """An entry of the shard's archive; returns `feats.ark:offset`."""
        if self._ark is None:
            self._ark = ArkWriter(self._folder / _ARK_NAME, f"{state['final_dir']}/{_ARK_NAME}")
        if kind in record.side:
            line = self._ark.write(state["utt_id"], record.side[kind])
        else:
            line = self._ark.copy(state["utt_id"], Path(state["previous_dir"]) / _ARK_NAME)
        return f"{_ARK_NAME}:{line.rstrip().rpartition(':')[2]}"

    def close(self) -> None:
        if self._ark is not None:
            self._ark.close()

    def write_lists(self) -> None:
        """Write what lists the files."""
        for name, lines in self._lines.items():
            with open_private(self._folder / name) as stream:
                stream.writelines(lines)
        for name, rows in self._shapes.items():
            write_shapes(self._folder / name, rows)


def _file_name(kind: str, about: Mapping[str, Any], state: Mapping[str, Any]) -> str:
    return f"{kind}/{item_name(state['position'], state['utt_id'], about['suffix'])}"


def has_whole_files(result: Mapping[str, Any], state: Mapping[str, Any]) -> bool:
    """Whether a killed attempt's folder holds an utterance's files whole; a power cut may have torn them."""
    previous = Path(state["previous_dir"])
    for kind, about in result["files"].items():
        if about["suffix"] == _ARK:
            if not has_record(previous / _ARK_NAME, state["utt_id"], tuple(about["shape"])):
                return False
            continue
        try:
            content = (previous / _file_name(kind, about, state)).read_bytes()
        except OSError:
            return False
        if (len(content), zlib.crc32(content)) != (about["bytes"], about["crc32"]):
            return False
    return True


def check_final_dir(place: str) -> None:
    """Refuse a folder whose name the lines of an SCP file cannot hold.

    Raises:
        ConfigError: the path has a line break.
    """
    if len(place.splitlines()) > 1:
        raise ConfigError(
            f"output_dir: {place!r} has a line break, which SCP files cannot hold; choose another folder"
        )


def merge_prepared(shard_dirs: Sequence[Path], out_dir: Path) -> None:
    """Join the shards' lists.

    Raises:
        DataError: shapes disagree on the number of dimensions, or an id that came with its sample stands
            twice.
    """
    concatenate(shard_dirs, MANIFEST, out_dir / MANIFEST, always=True)
    for name in _SCP.values():
        concatenate(shard_dirs, name, out_dir / name)
    for name in names_in(shard_dirs, "*_shape"):
        concatenate(shard_dirs, name, out_dir / name)
        parts = [path for folder in shard_dirs if (path := arrow_path(folder / name)).is_file()]
        merge_arrow(parts, arrow_path(out_dir / name))
    if not all(done.extra.get("ids_known", True) for folder in shard_dirs if (done := read_done(folder))):
        for name in names_in(shard_dirs, "*_shape.arrow"):
            check_unique(out_dir / name)
