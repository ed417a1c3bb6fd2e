"""The splits of a recipe, each described by a list of entries.

An entry names one source, and may have a `name` (for messages) and a `transform`:

    - {manifest: data/train.jsonl, sample_rate_hz: 16000}         # a JSONL manifest, or NeMo's
    - {kaldi: data/train, allow_pipes: false}                     # a Kaldi data directory
    - {name: extra, dataset: {_target_: src.data.MyDataset}}      # any map-style dataset
    - {data_src: my_recipe/asr, data_src_args: {split: train}}    # the Dataset class of a recipe
    - {data_src_args: {split: train}}                             # that of this recipe
"""

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from statsprep.data.combined import CombinedDataset, Sample, Source
from statsprep.data.dataset import ManifestDataset
from statsprep.data.kaldi_dataset import KaldiDataset
from statsprep.errors import ConfigError, nearest

__all__ = ["CombinedDataset", "DataOrganizer", "Source"]

_KINDS: dict[str, tuple[str, ...]] = {
    "manifest": ("sample_rate_hz", "channel", "audio_key"),
    "kaldi": ("sample_rate_hz", "channel", "audio_key", "use", "allow_pipes"),
    "dataset": (),
    "data_src": ("data_src_args",),
}


class DataOrganizer:
    """The splits of a recipe: `train` and `valid` (both or neither) and named test sets.

    Args:
        train: entries as in the module's description.
        valid: likewise.
        test: entries by name, or a list of entries with a `name` each. Built when first asked for.
        preprocessor: applied to the samples of all splits; each split has its own copy, so that
            `set_training` of one leaves the others alone.
        recipe_root: folder that `data_src` is searched from; the current folder when not given.

    Raises:
        ConfigError: an entry is malformed; names it.
    """

    def __init__(
        self,
        train: Sequence[Mapping[str, Any]] | None = None,
        valid: Sequence[Mapping[str, Any]] | None = None,
        test: Mapping[str, Mapping[str, Any]] | Sequence[Mapping[str, Any]] | None = None,
        preprocessor: Callable[..., Sample | None] | None = None,
        recipe_root: Path | str | None = None,
    ) -> None:
        if (train is None) != (valid is None):
            given, missing = ("train", "valid") if valid is None else ("valid", "train")
            raise ConfigError(
                f"dataset: {given} is given but {missing} is not; give both, or neither to test only"
            )
        if preprocessor is not None and not callable(preprocessor):
            raise ConfigError(
                f"dataset.preprocessor: is of type {type(preprocessor).__name__}; expected a callable, "
                "written with _target_ in YAML"
            )
        self._preprocessor = preprocessor
        self._root = Path(recipe_root) if recipe_root is not None else Path.cwd()
        self._test_entries = _named_entries(test)
        self.train = self._combine(train, "dataset.train") if train is not None else None
        self.valid = self._combine(valid, "dataset.valid") if valid is not None else None

    @cached_property
    def test(self) -> dict[str, CombinedDataset]:
        """The test sets by name."""
        return {
            name: self._combine([entry], f"dataset.test.{name}") for name, entry in self._test_entries.items()
        }

    def _combine(self, entries: Sequence[Mapping[str, Any]], where: str) -> CombinedDataset:
        return EntriesDataset(entries, where, self._preprocessor, self._root)


class EntriesDataset(CombinedDataset):
    """One split alone, from its entries.

    Args:
        entries: as in the module's description.
        where: what errors begin with, such as `dataset.train`.
        preprocessor: applied to all samples; the split has its own copy.
        recipe_root: folder that `data_src` is searched from.

    Raises:
        ConfigError: an entry is malformed; names it.
    """

    def __init__(
        self,
        entries: Sequence[Mapping[str, Any]],
        where: str,
        preprocessor: Callable[..., Sample | None] | None = None,
        recipe_root: Path | str = ".",
    ) -> None:
        if isinstance(entries, str | Mapping) or not isinstance(entries, Sequence) or not entries:
            raise ConfigError(
                f"{where}: is {entries!r}; expected a list of entries, such as [{{manifest: train.jsonl}}]"
            )
        root = Path(recipe_root)
        sources = [_build_source(entry, f"{where}.{i}", root) for i, entry in enumerate(entries)]
        super().__init__(sources, preprocessor=copy.copy(preprocessor))


def _named_entries(
    test: Mapping[str, Mapping[str, Any]] | Sequence[Mapping[str, Any]] | None,
) -> dict[str, Mapping[str, Any]]:
    if test is None:
        return {}
    if isinstance(test, Mapping):
        return {name: {"name": name, **entry} for name, entry in test.items()}
    named: dict[str, Mapping[str, Any]] = {}
    for i, entry in enumerate(test):
        name = entry.get("name")
        if not isinstance(name, str) or name in named:
            raise ConfigError(f"dataset.test.{i}: name is {name!r}; expected one that no other test set has")
        named[name] = entry
    return named


def _build_source(entry: Mapping[str, Any], where: str, root: Path) -> Source:
    if not isinstance(entry, Mapping):
        raise ConfigError(f"{where}: is {entry!r}; expected an entry, such as {{manifest: train.jsonl}}")
    if "data_src_args" in entry:
        entry = {"data_src": None, **entry}
    kinds = [kind for kind in _KINDS if kind in entry]
    if len(kinds) != 1:
        seen = f"both {kinds[0]} and {kinds[1]}" if kinds else f"none of {', '.join(_KINDS)}"
        raise ConfigError(f"{where}: has {seen}; expected exactly one of them")
    kind = kinds[0]
    known = ("name", "transform", kind, *_KINDS[kind])
    for key in entry:
        if key not in known:
            raise ConfigError(
                f"{where}.{key}: unknown key{nearest(key, known)}; expected one of {', '.join(known)}"
            )
    transform = entry.get("transform")
    if transform is not None and not callable(transform):
        raise ConfigError(
            f"{where}.transform: is {transform!r}; expected a callable, written with _target_ in YAML"
        )
    name, dataset = _build_dataset(entry, kind, where, root)
    return Source(str(entry.get("name", name)), dataset, transform)


def _build_dataset(entry: Mapping[str, Any], kind: str, where: str, root: Path) -> tuple[str, Any]:
    """The entry's dataset, and a name for it where the entry has none."""
    if kind == "manifest":
        options = {key: entry[key] for key in _KINDS[kind] if entry.get(key) is not None}
        return Path(entry["manifest"]).stem, ManifestDataset(entry["manifest"], **options)
    if kind == "kaldi":
        options = {key: entry[key] for key in _KINDS[kind] if entry.get(key) is not None}
        directory = KaldiDataset(entry["kaldi"], **options)
        return directory.directory.folder.name, directory
    if kind == "data_src":
        from statsprep.config.recipe import find_dataset_class

        dataset_class = find_dataset_class(entry["data_src"], root)
        arguments = entry.get("data_src_args") or {}
        try:
            inspect.signature(dataset_class).bind(**arguments)
        except TypeError as error:
            raise ConfigError(
                f"{where}.data_src_args: {error}; correct the arguments of its Dataset"
            ) from error
        return str(entry["data_src"] or "dataset"), dataset_class(**arguments)
    dataset = entry["dataset"]
    for method in ("__len__", "__getitem__"):
        if isinstance(dataset, Mapping | str) or not hasattr(dataset, method):
            raise ConfigError(
                f"{where}.dataset: is of type {type(dataset).__name__}; "
                "expected an object with __len__ and __getitem__, written with _target_ in YAML"
            )
    return type(dataset).__name__, dataset
