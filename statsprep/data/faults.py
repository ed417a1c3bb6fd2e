"""What can be wrong with a corpus as a whole, and with one utterance in it, as `statsprep check` names it."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class FaultKind(StrEnum):
    """The kinds in the order in which they are shown. Those of audio files are called as in errors.jsonl."""

    MALFORMED_ROW = "malformed_row"
    COMMAND_PIPE = "command_pipe"
    DUPLICATE_ID = "duplicate_id"
    UNREADABLE = "unreadable"
    EMPTY = "empty"
    TRUNCATED = "truncated"
    HEADER_MISMATCH = "header_mismatch"
    NON_FINITE = "non_finite"
    NEAR_SILENT = "near_silent"
    MIXED_RATES = "mixed_rates"
    NO_TRANSCRIPT = "no_transcript"
    NO_RECORDING = "no_recording"
    EMPTY_TRANSCRIPT = "empty_transcript"
    ODD_TEXT = "odd_text"
    OVERLAPPING_SEGMENTS = "overlapping_segments"
    UNUSED_RECORDING = "unused_recording"
    NOT_LISTED = "not_listed"


MEANING = {
    FaultKind.MALFORMED_ROW: "rows that cannot be understood",
    FaultKind.COMMAND_PIPE: "commands in the place of files",
    FaultKind.DUPLICATE_ID: "ids that appear again",
    FaultKind.UNREADABLE: "audio that is missing or cannot be read",
    FaultKind.EMPTY: "audio without samples",
    FaultKind.TRUNCATED: "audio that ends before its header says",
    FaultKind.HEADER_MISMATCH: "audio that is not as long, or has not the channels, that is claimed",
    FaultKind.NON_FINITE: "audio with NaN or infinite samples",
    FaultKind.NEAR_SILENT: "near-silent audio",
    FaultKind.MIXED_RATES: "audio of another sample rate than most",
    FaultKind.NO_TRANSCRIPT: "recordings without a transcript",
    FaultKind.NO_RECORDING: "transcripts without a recording",
    FaultKind.EMPTY_TRANSCRIPT: "empty transcripts",
    FaultKind.ODD_TEXT: "transcripts with control characters or traces of a wrong encoding",
    FaultKind.OVERLAPPING_SEGMENTS: "segments that overlap the one before in their recording",
    FaultKind.UNUSED_RECORDING: "recordings that no segment is taken from",
    FaultKind.NOT_LISTED: "utterances that one of the files knows and another does not",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong.

    Attributes:
        where: `file:line`. utt_id: the utterance's id as far as there is one.
        what: what was seen, expected, and is to be done; on one line.
    """

    kind: FaultKind
    where: str
    utt_id: str
    what: str

    @property
    def line(self) -> str:
        return f"{self.where}: {self.what}"


Report = Callable[[Fault], None]
