"""Features from Kaldi archives: `feats.ark:1234`, or with a range of frames and dimensions
`feats.ark:1234[0:99,0:12]`, whose ends are included.

Nothing is executed or unpickled, and nothing is allocated on a header's word alone.
"""

import os
import re

import numpy as np
from numpy.typing import NDArray

from statsprep.data.audio import open_regular
from statsprep.data.verdicts import UtteranceError, Verdict
from statsprep.errors import DataError
from statsprep.storage.kaldi_files import measure_matrix

_ENTRY = re.compile(
    r"(?P<path>.+?)(?::(?P<offset>\d+))?(?:\[(?P<rows>[\d:]*)(?:,(?P<columns>[\d:]*))?\])?", re.S
)
_RANGE = re.compile(r"(\d+):(\d+)")


def split_entry(entry: str) -> tuple[str, str]:
    """The path of an entry, and what follows it.

    Raises:
        ValueError: it is no entry of an archive.
    """
    found = _ENTRY.fullmatch(entry)
    if found is None:
        raise ValueError(f"is {entry!r}; expected a line such as `utt_id feats.ark:1234`")
    path = found["path"]
    return path, entry[len(path) :]


def read_feats(entry: str) -> NDArray[np.float32]:
    """The features of an entry, float32 (frames, dim), or (values,) of a vector.

    Raises:
        UtteranceError: the archive is missing, holds something else there, or less than it claims.
    """
    from kaldiio.matio import read_kaldi

    found = _ENTRY.fullmatch(entry)
    if found is None:
        raise _broken(entry, "expected an entry such as feats.ark:1234", Verdict.UNREADABLE)
    try:
        with open(open_regular(found["path"]), "rb") as stream:
            stream.seek(int(found["offset"] or 0))
            start = stream.tell()
            measure_matrix(stream, os.fstat(stream.fileno()).st_size)
            stream.seek(start)
            feats = np.asarray(read_kaldi(stream), np.float32)
    except OSError as error:
        raise _broken(entry, error.strerror or str(error), Verdict.UNREADABLE) from error
    except EOFError as error:
        raise _broken(entry, str(error), Verdict.TRUNCATED) from None
    except DataError as error:
        raise _broken(entry, error.message, Verdict.UNREADABLE) from None
    wanted = feats[_ranges(entry, found["rows"], found["columns"])]
    if not wanted.size:
        raise _broken(entry, f"no values in features of shape {feats.shape}; remove it", Verdict.EMPTY)
    return wanted


def _ranges(entry: str, *texts: str | None) -> tuple[slice, ...]:
    ranges = []
    for text in texts:
        found = _RANGE.fullmatch(text or "")
        if text and text != ":" and found is None:
            raise _broken(entry, f"range {text!r}; expected one such as 0:99", Verdict.UNREADABLE)
        ranges.append(slice(int(found[1]), int(found[2]) + 1) if found else slice(None))
    return tuple(ranges) if texts[1] is not None else (ranges[0],)


def _broken(entry: str, reason: str, kind: Verdict) -> UtteranceError:
    return UtteranceError(f"{entry}: cannot be read as features ({reason})", kind=kind)
