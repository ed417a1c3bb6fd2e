"""A dataset over one Kaldi data directory, whose rows are kept in the index: workers never open its files."""

import json
import logging
import operator
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from statsprep.data.audio import AudioPath, Channel
from statsprep.data.commands import AudioCommand
from statsprep.data.dataset import ManifestDataset
from statsprep.data.faults import MEANING, Fault, FaultKind, Report
from statsprep.data.feats import read_feats
from statsprep.data.index import IndexEntry
from statsprep.data.kaldi import KaldiDirectory, Use
from statsprep.data.verdicts import UtteranceError, Verdict
from statsprep.errors import DataError, listed

logger = logging.getLogger(__name__)

FEATS = "feats"
# utt2dur is made from whole frames, 10 ms apart, and with six digits.
_CLAIM_TOLERANCE_S = 0.02
_CLAIM_TOLERANCE = 5e-6
_FATAL = frozenset({FaultKind.MALFORMED_ROW, FaultKind.COMMAND_PIPE, FaultKind.DUPLICATE_ID})
_NUM_NAMED = 5


class KaldiDataset(ManifestDataset):
    """The utterances of a Kaldi data directory, see `statsprep.data.kaldi`.

    Args:
        kaldi: the directory.
        use: `audio` or `feats`, which come as `feats`, float32 (frames, dim); by default audio where there is
            a wav.scp.
        sample_rate_hz: resample all audio to this rate; None keeps each file's own.
        channel: which channel of files with several, from 0, or "mean".
        audio_key: name of the audio in a sample.
        allow_pipes: run the commands that stand in wav.scp in the place of files.
    """

    keeps_rows = True

    def __init__(
        self,
        kaldi: Path | str,
        *,
        use: Use | None = None,
        sample_rate_hz: int | None = None,
        channel: Channel | None = None,
        audio_key: str = "speech",
        allow_pipes: bool = False,
    ) -> None:
        self.directory = KaldiDirectory(kaldi, use=use, allow_pipes=allow_pipes)
        super().__init__(
            self.directory.list, sample_rate_hz=sample_rate_hz, channel=channel, audio_key=audio_key
        )

    def index_entries(self) -> Iterator[IndexEntry]:
        """Read, check and join the directory's files."""
        gaps = _Gaps(self.directory.folder)
        row: dict[str, Any] = {}
        for found in self.directory.rows(gaps):
            row = found.row
            duration_s = row.get("duration_s", row.get("claimed_s"))
            yield IndexEntry(row["utt_id"], found.offset, duration_s, found.content, found.encoded)
        if not row:
            raise DataError(f"{self.manifest}: has no lines; expected one an utterance")
        gaps.log()

    def scan(self, report: Report) -> Iterator[tuple[str, dict[str, Any]]]:
        """`file:line` and row of every utterance; what is wrong with the files goes to `report`."""
        for found in self.directory.rows(report):
            yield found.where, found.row

    def entry(self, i: int) -> dict[str, Any]:
        """Utterance `i` as a manifest row, with paths in full.

        Raises:
            IndexError: there is no such utterance.
        """
        rows = self._indexed()
        position = operator.index(i)
        row: dict[str, Any] = json.loads(rows.kept_row(position + len(rows) if position < 0 else position))
        return row

    def __getitem__(self, i: int) -> dict[str, Any]:
        """Utterance `i` as `{"utt_id", audio_key: float32 (samples,), "text", "speaker", ...}`.

        Raises:
            IndexError: there is no such utterance.
            UtteranceError: its audio or its features cannot be used.
        """
        sample = super().__getitem__(i)
        sample.pop("claimed_s", None)
        if FEATS in sample:
            sample[FEATS] = read_feats(sample[FEATS])
        return sample

    def audio_source(self, i: int) -> dict[str, Any]:
        """The keys of row `i` that say where its audio is; without audio none.

        Raises:
            DataError: it comes from a command, which a manifest cannot hold.
        """
        row = self.entry(i)
        if "audio" in row and isinstance(self._audio_of(row), AudioCommand):
            raise DataError(
                f"{row['audio']}: is a command, which no manifest holds; rewrite the audio as well"
            )
        return super().audio_source(i)

    def _audio_of(self, row: dict[str, Any]) -> AudioPath:
        audio = str(row["audio"])
        if row.get("is_missing"):
            raise UtteranceError(
                f"recording {audio!r} has no line in {self.directory.folder / 'wav.scp'}; add it, or remove "
                "its segments",
                kind=Verdict.UNREADABLE,
            )
        if self.directory.allow_pipes and audio.endswith("|"):
            return AudioCommand(audio.removesuffix("|").strip())
        return audio

    def _reading_options(self, row: dict[str, Any]) -> dict[str, Any]:
        options = super()._reading_options(row)
        claimed_s = row.get("claimed_s")
        if claimed_s is None:
            return options
        tolerance_s = _CLAIM_TOLERANCE_S + _CLAIM_TOLERANCE * claimed_s
        if "start_s" not in row:
            return options | {"claimed_s": claimed_s, "tolerance_s": tolerance_s}
        length_s = row.get("duration_s")
        if length_s is not None and abs(claimed_s - length_s) > tolerance_s:
            raise UtteranceError(
                f"{row['audio']}: the segment lasts {length_s:g} s, but utt2dur says {claimed_s:g}; make "
                "utt2dur again",
                kind=Verdict.HEADER_MISMATCH,
            )
        return options


class _Gaps:
    """Stops at what makes a directory ambiguous; counts what is merely incomplete."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._counts: Counter[FaultKind] = Counter()
        self._ids: dict[FaultKind, list[str]] = {}

    def __call__(self, fault: Fault) -> None:
        if fault.kind in _FATAL:
            raise DataError(f"{fault.line} (`statsprep check {self._folder}` lists all)")
        self._counts[fault.kind] += 1
        ids = self._ids.setdefault(fault.kind, [])
        if len(ids) < _NUM_NAMED:
            ids.append(fault.utt_id)

    def log(self) -> None:
        for kind, count in self._counts.items():
            if kind is not FaultKind.EMPTY_TRANSCRIPT:
                more = f" (+{count - _NUM_NAMED} more)" if count > _NUM_NAMED else ""
                logger.warning(
                    "%s: %d %s: %s%s", self._folder, count, MEANING[kind], listed(self._ids[kind]), more
                )
