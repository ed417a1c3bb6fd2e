"""Several datasets as one split: one index from 0, ids, and errors that name the utterance."""

import bisect
import inspect
import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, overload

from statsprep.data.dataset import ManifestDataset
from statsprep.data.index import (
    IndexEntry,
    IndexSource,
    IndexSummary,
    KeyedBy,
    UtteranceIndex,
    UttIds,
    build_index,
)
from statsprep.data.manifest import check_utt_id
from statsprep.data.verdicts import Dropped, UtteranceError, Verdict
from statsprep.errors import ConfigError, DataError, StatsprepError, is_disk_error

Sample = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Source:
    """One dataset of a split, with the name that messages give it."""

    name: str
    dataset: Any
    transform: Callable[[Sample], Sample | Dropped | None] | None = None


class _ForeignSource:
    """A dataset that is not ours, as the index sees it: ids where it lists them, else global positions."""

    keeps_rows = False

    def __init__(self, source: Source, first: int) -> None:
        self._source = source
        self._first = first
        self.keyed_by: KeyedBy = "utt_id" if hasattr(source.dataset, "utt_ids") else "position"

    def index_entries(self) -> Iterator[IndexEntry]:
        length = len(self._source.dataset)
        ids = self._source.dataset.utt_ids() if self.keyed_by == "utt_id" else _positions(self._first, length)
        count = 0
        for count, utt_id in enumerate(ids, 1):
            check_utt_id(utt_id, self.place(count - 1))
            yield IndexEntry(utt_id, count - 1, None, utt_id.encode())
        if count != length:
            raise DataError(
                f"dataset {self._source.name!r}: utt_ids() lists {count} ids, "
                f"but its length is {length}; make them equal"
            )

    def place(self, offset: int) -> str:
        return f"dataset {self._source.name!r}, item {offset}"


def _positions(first: int, length: int) -> Iterator[str]:
    return (str(position) for position in range(first, first + length))


class CombinedDataset:
    """Datasets one after another, under one index from 0.

    A sample is `preprocessor(transform(dataset[i]))`, or None or a Dropped where one of them returns that to
    drop the utterance. Nothing is read before it is asked for.

    Args:
        sources: the datasets in order.
        preprocessor: called with `(utt_id, sample)` where it requires two arguments, else with `(sample)`.
    """

    def __init__(
        self, sources: Sequence[Source], *, preprocessor: Callable[..., Sample | None] | None = None
    ) -> None:
        if not sources:
            raise ConfigError("dataset: a split has no entries; expected at least one")
        self.sources = tuple(sources)
        self.preprocessor = preprocessor
        self._preprocessor_takes_id = preprocessor is not None and _requires_two(preprocessor)
        self._index: UtteranceIndex | None = None

    @cached_property
    def _ends(self) -> list[int]:
        return list(itertools.accumulate(len(source.dataset) for source in self.sources))

    def build_index(self, path: Path | str) -> IndexSummary:
        """Write the index of the whole split to `path`, and use it.

        Raises:
            DataError: a manifest row is malformed, or an id appears twice.
        """
        summary = build_index(list(self._index_sources()), path)
        self.attach_index(path)
        return summary

    def _index_sources(self) -> Iterator[IndexSource]:
        """Counting reads a manifest once more, so it is done only where positions go on after one."""
        for number, source in enumerate(self.sources):
            if isinstance(source.dataset, ManifestDataset):
                yield source.dataset
            else:
                is_positional = not hasattr(source.dataset, "utt_ids")
                yield _ForeignSource(source, self._start(number) if is_positional else 0)

    def attach_index(self, path: Path | str) -> None:
        """Use an index that `build_index` has written for the same split.

        Raises:
            DataError: it was written for other data.
        """
        index = UtteranceIndex.open(path)
        slices = index.slices(len(self.sources))
        for source, rows in zip(self.sources, slices, strict=True):
            if isinstance(source.dataset, ManifestDataset):
                source.dataset.attach_index(rows)
            elif len(source.dataset) != len(rows):
                raise DataError(
                    f"{path}: lists {len(rows)} utterances of dataset {source.name!r}, which now has "
                    f"{len(source.dataset)}; start a new run"
                )
        self._index = index
        self.__dict__.pop("_ends", None)

    def __len__(self) -> int:
        return self._ends[-1]

    def _start(self, number: int) -> int:
        return self._ends[number - 1] if number else 0

    def _locate(self, i: int) -> tuple[int, Source, int]:
        """Global position from 0, source, and position in that source."""
        i = operator.index(i)
        position = i + len(self) if i < 0 else i
        if not 0 <= position < len(self):
            raise IndexError(f"index {i} is out of range for {len(self)} utterances")
        number = bisect.bisect_right(self._ends, position)
        return position, self.sources[number], position - self._start(number)

    def utt_id(self, i: int) -> str:
        """The id of utterance `i`; its position as text where its dataset has no `utt_ids()`."""
        position, source, local = self._locate(i)
        if self._index is not None:
            return self._index.utt_id(position)
        return str(source.dataset.utt_ids()[local]) if hasattr(source.dataset, "utt_ids") else str(position)

    @cached_property
    def has_utt_ids(self) -> bool:
        """Whether every dataset knows its ids without loading a sample; else positions stand in for them."""
        return all(hasattr(source.dataset, "utt_ids") for source in self.sources)

    def utt_ids(self) -> Sequence[str]:
        """All ids in order, without a Python object for each."""
        return UttIds(self)

    def __getitem__(self, i: int) -> Sample | Dropped | None:
        """Utterance `i` after transform and preprocessor; None or a Dropped where one of them drops it.

        Raises:
            IndexError: `i` is out of range.
            UtteranceError: the dataset or a transform failed; names dataset and utterance.
        """
        return self.load(i)

    @overload
    def load(self, i: int, *, audio: Literal[False]) -> Sample: ...
    @overload
    def load(self, i: int, *, audio: bool = True) -> Sample | Dropped | None: ...
    def load(self, i: int, *, audio: bool = True) -> Sample | Dropped | None:
        """Utterance `i`; without `audio`, the bare manifest row, which no transform or preprocessor has seen.

        Raises:
            IndexError: `i` is out of range.
            UtteranceError: the dataset or a transform failed; names dataset and utterance.
            DataError: `audio` is False and the dataset has no `entry(i)`.
        """
        position, source, local = self._locate(i)
        if not audio:
            return self._ask(source, "entry", local, position)  # type: ignore[no-any-return]
        try:
            sample = source.dataset[local]
            if sample is not None and source.transform is not None:
                sample = source.transform(sample)
            if sample is None or isinstance(sample, Dropped):
                return sample
            if self.preprocessor is not None:
                arguments = (self.utt_id(position), sample) if self._preprocessor_takes_id else (sample,)
                sample = self.preprocessor(*arguments)
            if sample is not None and not isinstance(sample, dict | Dropped):
                raise TypeError(f"the sample is of type {type(sample).__name__}; expected a dict")
        except Exception as error:
            if isinstance(error, MemoryError) or is_disk_error(error):
                raise
            raise self._named(error, source, position) from error
        return sample

    def read_ahead(self, indices: Sequence[int]) -> None:
        """Fetch together what the next samples need from stores."""
        by_source: dict[int, tuple[Any, list[int]]] = {}
        for i in indices:
            _, source, local = self._locate(i)
            if hasattr(source.dataset, "read_ahead"):
                by_source.setdefault(id(source), (source.dataset, []))[1].append(local)
        for dataset, positions in by_source.values():
            dataset.read_ahead(positions)

    def num_samples(self, i: int) -> int:
        """The length in samples of utterance `i`'s audio before transform, from its header.

        Raises:
            UtteranceError: its audio cannot be used.
            DataError: the dataset has no `num_samples(i)`.
        """
        position, source, local = self._locate(i)
        return int(self._ask(source, "num_samples", local, position))

    def audio_source(self, i: int) -> dict[str, Any]:
        """The manifest keys that say where utterance `i`'s audio is: audio, start_s, duration_s.

        Raises:
            DataError: the dataset has no `audio_source(i)`.
        """
        position, source, local = self._locate(i)
        return dict(self._ask(source, "audio_source", local, position))

    def _ask(self, source: Source, method: str, local: int, position: int) -> Any:
        if not hasattr(source.dataset, method):
            raise DataError(
                f"dataset {source.name!r}: {type(source.dataset).__name__} has no {method}(i), "
                "which is needed where audio is not read; add it to the dataset, or let audio be read"
            )
        try:
            return getattr(source.dataset, method)(local)
        except Exception as error:
            if isinstance(error, MemoryError) or is_disk_error(error):
                raise
            raise self._named(error, source, position) from error

    def _named(self, error: Exception, source: Source, position: int) -> Exception:
        """The same error with the names of dataset and utterance."""
        where = f"dataset {source.name!r}, utterance {self.utt_id(position)!r}"
        if isinstance(error, UtteranceError):
            return UtteranceError(f"{where}: {error.message}", kind=error.kind, detail=error.detail)
        if isinstance(error, StatsprepError):
            return type(error)(f"{where}: {error.message}", detail=error.detail)
        return UtteranceError(f"{where}: {type(error).__name__}: {error}", kind=Verdict.EXCEPTION)

    def set_training(self, is_training: bool) -> None:
        """Switch random augmentation on or off in the preprocessor and transforms that know a `train` flag.

        Statistics are taken with it off.
        """
        parts: list[Any] = [self.preprocessor, *(source.transform for source in self.sources)]
        for part in parts:
            if callable(getattr(part, "train", None)):  # a torch module
                part.train(is_training)
            elif hasattr(part, "train"):
                part.train = is_training


def _requires_two(function: Callable[..., Any]) -> bool:
    """True where a call needs two positional arguments: ESPnet's preprocessors take `(uid, data)`."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in positional and p.default is inspect.Parameter.empty for p in parameters) >= 2
