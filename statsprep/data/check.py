"""Every fault of a corpus at once: all its rows and all its audio are looked at, whatever has been found.

In memory are 8 bytes of each id, the sample rate of each utterance, 32 bytes of each segment, and the faults
that are to be shown. Faults that only the whole corpus shows (an id that stands twice, a rate unlike the
others', segments that overlap) are found by position and named in a further pass over the rows.
"""

import contextlib
import hashlib
import itertools
import os
import re
import signal
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from statsprep.data.audio import Channel
from statsprep.data.cleaners import level_of
from statsprep.data.dataset import ManifestDataset
from statsprep.data.faults import Fault, FaultKind
from statsprep.data.feats import read_feats
from statsprep.data.kaldi import repeated_text
from statsprep.data.kaldi_dataset import FEATS, KaldiDataset
from statsprep.data.verdicts import UtteranceError
from statsprep.errors import DataError, WorkerError

SILENCE_DBFS = -60.0
_BATCH_ROWS = 64
# Control characters, marks of broken decoding, and UTF-8 that was read as Latin-1: `Ã©` for `é`.
_ODD_TEXT = re.compile("[\x00-\x1f\x7f-\x9f\ufeff\ufffd-\uffff\ud800-\udfff]|[ÂÃ][\x80-\xbf]")

Row = dict[str, Any]
Batch = list[tuple[str, Row]]


@dataclass(slots=True)
class Findings:
    """What was found.

    Attributes:
        limit: how many faults of a kind are kept; None for all.
        counts: of each kind, all. faults: those kept.
    """

    limit: int | None = None
    num_utterances: int = 0
    audio_s: float = 0.0
    counts: Counter[FaultKind] = field(default_factory=Counter)
    faults: dict[FaultKind, list[Fault]] = field(default_factory=dict)

    def add(self, fault: Fault) -> None:
        self.counts[fault.kind] += 1
        kept = self.faults.setdefault(fault.kind, [])
        if self.limit is None or len(kept) < self.limit:
            kept.append(fault)

    def forget(self, kind: FaultKind) -> None:
        self.counts.pop(kind, None)
        self.faults.pop(kind, None)

    def by_kind(self) -> Iterator[tuple[FaultKind, int, list[Fault]]]:
        """Kind, count and faults kept, in the order of FaultKind."""
        for kind in FaultKind:
            if kind in self.counts:
                yield kind, self.counts[kind], self.faults[kind]


def check_corpus(
    path: Path | str,
    *,
    num_jobs: int = 1,
    silence_dbfs: float = SILENCE_DBFS,
    channel: Channel | None = None,
    allow_pipes: bool = False,
    limit: int | None = None,
) -> Findings:
    """Look at every row and all audio of a manifest (JSONL or NeMo's, or its URL) or of a Kaldi directory.

    Transcripts are missed only where other utterances have one.

    Raises:
        ConfigError: there is no such corpus.
        DataError: it has no rows at all.
        WorkerError: a process was killed.
    """
    dataset = (
        KaldiDataset(path, channel=channel, allow_pipes=allow_pipes)
        if os.path.isdir(path)
        else ManifestDataset(path, channel=channel)
    )
    findings = Findings(limit)
    corpus = _Corpus(dataset, findings)
    with _open_map(num_jobs) as run:
        for found in run(_Examiner(dataset, silence_dbfs), corpus.batches()):
            corpus.rates.extend(found.rates)
            findings.audio_s += found.audio_s
            for fault in found.faults:
                findings.add(fault)
    corpus.add_what_the_whole_shows()
    if not findings.num_utterances and not findings.counts:
        raise DataError(f"{dataset.manifest}: has no rows; expected at least one utterance")
    return findings


class _Corpus:
    """The rows, and what is remembered of them."""

    def __init__(self, dataset: ManifestDataset, findings: Findings) -> None:
        self._dataset = dataset
        self._findings = findings
        self._ids = bytearray()
        self._recordings = bytearray()
        self._segments = array("d")
        self._segment_rows = array("q")
        self._num_with_text = self._num_with_audio = 0
        self.rates = array("l")

    def batches(self) -> Iterator[Batch]:
        """All rows that can be understood; faults of text are found on the way."""
        rows = self._dataset.scan(self._findings.add)
        while batch := list(itertools.islice(rows, _BATCH_ROWS)):
            for where, row in batch:
                self._note(where, row)
            yield batch

    def _note(self, where: str, row: Row) -> None:
        utt_id, position = row["utt_id"], self._findings.num_utterances
        self._findings.num_utterances += 1
        self._ids += _hash(utt_id)
        has_audio = "audio" in row or FEATS in row
        self._num_with_audio += has_audio
        if "start_s" in row:
            self._recordings += _hash(row["audio"])
            self._segments.extend((row["start_s"], row["start_s"] + row.get("duration_s", np.inf)))
            self._segment_rows.append(position)
        text = row.get("text")
        if text is not None:
            self._num_with_text += 1
            if found := _ODD_TEXT.search(text):
                what = f"the transcript of {utt_id!r} holds {found[0]!r} at character {found.start() + 1}"
                self._findings.add(Fault(FaultKind.ODD_TEXT, where, utt_id, f"{what}; correct its encoding"))
        if isinstance(self._dataset, KaldiDataset):
            return  # whose files have been compared with one another
        if text is None:
            what = f"utterance {utt_id!r} has no text"
            self._findings.add(Fault(FaultKind.NO_TRANSCRIPT, where, utt_id, what))
        elif not text.strip():
            what = f"the transcript of {utt_id!r} is empty"
            self._findings.add(Fault(FaultKind.EMPTY_TRANSCRIPT, where, utt_id, what))
        if not has_audio:
            what = f"utterance {utt_id!r} has no audio"
            self._findings.add(Fault(FaultKind.NO_RECORDING, where, utt_id, what))

    def add_what_the_whole_shows(self) -> None:
        if not self._num_with_text:
            self._findings.forget(FaultKind.NO_TRANSCRIPT)
        if not self._num_with_audio:
            self._findings.forget(FaultKind.NO_RECORDING)
        rates = np.frombuffer(self.rates, np.int_)
        usual_hz = int(np.bincount(rates[rates > 0]).argmax()) if (rates > 0).any() else 0
        unusual = set(np.flatnonzero((rates > 0) & (rates != usual_hz)).tolist())
        hashes = np.frombuffer(self._ids, np.uint64)
        ordered = np.sort(hashes)
        suspects = set(ordered[1:][ordered[1:] == ordered[:-1]].tolist())
        twice = set(np.flatnonzero(np.isin(hashes, list(suspects))).tolist()) if suspects else set()
        overlaps = self._find_overlaps()
        if not (unusual or twice or overlaps):
            return
        first: dict[str, str] = {}
        for position, (where, row) in enumerate(self._dataset.scan(lambda fault: None)):
            utt_id = row["utt_id"]
            if position in twice and first.setdefault(utt_id, where) is not where:
                what = repeated_text(utt_id, first[utt_id])
                self._findings.add(Fault(FaultKind.DUPLICATE_ID, where, utt_id, what))
            if position in unusual:
                what = f"{row['audio']} has {rates[position]} Hz, most have {usual_hz}; resample it"
                self._findings.add(Fault(FaultKind.MIXED_RATES, where, utt_id, what))
            if position in overlaps:
                what = f"begins {overlaps[position]:.3f} s before an earlier segment of {row['audio']} ends"
                self._findings.add(Fault(FaultKind.OVERLAPPING_SEGMENTS, where, utt_id, what))

    def _find_overlaps(self) -> dict[int, float]:
        """By how much a segment begins before an earlier one of the same recording ends."""
        recordings = np.frombuffer(self._recordings, np.uint64)
        times = np.frombuffer(self._segments, np.float64).reshape(-1, 2)
        order = np.lexsort((times[:, 1], times[:, 0], recordings))
        found = {}
        recording, latest_s = None, 0.0
        for place in order.tolist():
            start_s, end_s = times[place]
            if recordings[place] != recording:
                recording, latest_s = recordings[place], end_s
                continue
            # Ends are sums of two numbers that were rounded.
            if latest_s - start_s > 1e-6:
                found[self._segment_rows[place]] = float(min(latest_s, end_s) - start_s)
            latest_s = max(latest_s, end_s)
        return found


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).digest()


@dataclass(slots=True)
class _Examined:
    """What a batch's audio showed; `rates` in Hz, 0 where there is none."""

    rates: list[int] = field(default_factory=list)
    audio_s: float = 0.0
    faults: list[Fault] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Examiner:
    """Reads the audio of a batch; sent to the workers."""

    dataset: ManifestDataset
    silence_dbfs: float

    def __call__(self, batch: Batch) -> _Examined:
        found = _Examined()
        for where, row in batch:
            rate_hz = 0
            try:
                if FEATS in row:
                    read_feats(row[FEATS])
                elif "audio" in row:
                    samples, rate_hz = self.dataset.read_row(row)
                    found.audio_s += len(samples) / rate_hz
                    level_dbfs = level_of(samples)
                    if level_dbfs < self.silence_dbfs:
                        what = self._judged_silent(row["utt_id"], samples, level_dbfs)
                        found.faults.append(Fault(FaultKind.NEAR_SILENT, where, row["utt_id"], what))
            except UtteranceError as error:
                found.faults.append(Fault(FaultKind(error.kind), where, row["utt_id"], error.message))
            found.rates.append(rate_hz)
        return found

    def _judged_silent(self, utt_id: str, samples: NDArray[np.float32], level_dbfs: float) -> str:
        zeros = 1 - np.count_nonzero(samples) / len(samples)
        return (
            f"utterance {utt_id!r} has a level of {level_dbfs:.1f} dBFS (root mean square), below "
            f"{self.silence_dbfs:g}; {zeros:.0%} of its samples are exactly zero"
        )


Run = Callable[[_Examiner, Iterable[Batch]], Iterator[_Examined]]


@contextlib.contextmanager
def _open_map(num_jobs: int) -> Iterator[Run]:
    """`map` in this process, or over several with a few batches in flight each, in order."""
    if num_jobs == 1:
        yield map
        return
    import multiprocessing

    with ProcessPoolExecutor(
        num_jobs, multiprocessing.get_context("forkserver"), initializer=_ignore_interrupts
    ) as pool:

        def run(examine: _Examiner, batches: Iterable[Batch]) -> Iterator[_Examined]:
            waiting: deque[Future[_Examined]] = deque()
            for batch in batches:
                waiting.append(pool.submit(examine, batch))
                if len(waiting) > 4 * num_jobs:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()

        try:
            yield run
        except BrokenProcessPool as error:
            raise WorkerError(
                f"one of {num_jobs} processes was killed, perhaps for its memory; try a smaller --jobs"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


def _ignore_interrupts() -> None:
    """Ctrl-C reaches every process of the terminal; the driver ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def num_cpus() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0))
