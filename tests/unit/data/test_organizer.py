"""Splits: one index over several datasets, samples by id, and errors that name the utterance."""

import errno
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch

from statsprep.data.organizer import CombinedDataset, DataOrganizer, EntriesDataset, Source
from statsprep.data.verdicts import Dropped, UtteranceError, Verdict
from statsprep.errors import ConfigError, DataError


class Plain:
    """A map-style dataset as users write it: positions only."""

    def __init__(self, *values: Any) -> None:
        self.values = values
        self.num_reads = 0

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, i: int) -> dict[str, Any]:
        assert 0 <= i < len(self.values), "a dataset is only asked for what it has"
        self.num_reads += 1
        return {"value": self.values[i]}


class WithIds(Plain):
    """The same with ids, which are its values."""

    def utt_ids(self) -> tuple[Any, ...]:
        return self.values


class Augment:
    """A preprocessor with ESPnet's signature and training flag."""

    def __init__(self) -> None:
        self.train = True

    def __call__(self, uid: str, data: dict[str, Any]) -> dict[str, Any]:
        return {**data, "uid": uid, "augmented": self.train}


def combine(*datasets: Any, **options: Any) -> CombinedDataset:
    return CombinedDataset([Source(f"d{i}", dataset) for i, dataset in enumerate(datasets)], **options)


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    soundfile.write(tmp_path / "a.wav", np.zeros(800), 8000)
    soundfile.write(tmp_path / "empty.wav", np.zeros(0), 8000)
    rows = [{"utt_id": "a", "audio": "a.wav", "text": "t"}, {"utt_id": "none", "audio": "empty.wav"}]
    path = tmp_path / "m.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_positions_run_over_all_datasets_from_both_ends() -> None:
    dataset = combine(Plain(10, 11), Plain(), Plain(12), Plain(13, 14, 15))
    assert len(dataset) == 6
    assert [dataset[i]["value"] for i in range(6)] == [10, 11, 12, 13, 14, 15]
    assert [dataset[i]["value"] for i in range(-6, 0)] == [10, 11, 12, 13, 14, 15]
    for outside in (6, -7):
        with pytest.raises(IndexError, match="out of range for 6 utterances"):
            dataset[outside]


def test_nothing_is_read_before_it_is_asked_for() -> None:
    plain = Plain(1, 2)
    dataset = combine(plain, preprocessor=lambda sample: sample)
    assert (len(dataset), list(dataset.utt_ids()), plain.num_reads) == (2, ["0", "1"], 0)


def test_ids_come_from_the_dataset_and_else_from_global_positions() -> None:
    dataset = combine(WithIds("x", "y"), Plain(7, 8))
    assert list(dataset.utt_ids()) == ["x", "y", "2", "3"]
    assert (dataset.utt_id(-1), dataset.utt_ids()[1:3]) == ("3", ["y", "2"])


def test_transform_runs_before_preprocessor_which_gets_the_id_where_it_takes_two() -> None:
    source = Source("d", WithIds("x"), lambda sample: {"value": sample["value"] + "!"})
    assert CombinedDataset([source], preprocessor=Augment())[0] == {
        "value": "x!",
        "uid": "x",
        "augmented": True,
    }
    one_argument = CombinedDataset([source], preprocessor=lambda sample, flag=1: {**sample, "flag": flag})
    assert one_argument[0] == {"value": "x!", "flag": 1}


def test_set_training_reaches_flags_and_torch_modules() -> None:
    class Module(torch.nn.Module):
        def forward(self, sample: dict[str, Any]) -> dict[str, Any]:
            return {**sample, "module": self.training}

    dataset = CombinedDataset([Source("d", Plain(1), Module())], preprocessor=Augment())
    for flag in (False, True):
        dataset.set_training(flag)
        assert (dataset[0]["module"], dataset[0]["augmented"]) == (flag, flag)


def test_training_flag_of_one_split_leaves_the_other_alone() -> None:
    entries = [{"dataset": Plain(1)}]
    organizer = DataOrganizer(train=entries, valid=entries, preprocessor=Augment())
    assert organizer.train is not None
    assert organizer.valid is not None
    organizer.valid.set_training(False)
    assert (organizer.train[0]["augmented"], organizer.valid[0]["augmented"]) == (True, False)


def test_index_gives_the_same_ids_and_samples(manifest: Path, tmp_path: Path) -> None:
    def build() -> CombinedDataset:
        entries = [
            {"dataset": Plain(5)},
            {"manifest": str(manifest)},
            {"dataset": WithIds("x")},
            {"dataset": Plain(6)},
        ]
        organizer = DataOrganizer(train=entries, valid=entries)
        assert organizer.train is not None
        return organizer.train

    driver, worker, alone = build(), build(), build()
    summary = driver.build_index(tmp_path / "index.arrow")
    worker.attach_index(tmp_path / "index.arrow")
    assert (summary.num_items, summary.keyed_by) == (5, "position")
    for dataset in (driver, worker, alone, pickle.loads(pickle.dumps(worker))):
        assert list(dataset.utt_ids()) == ["0", "a", "none", "x", "4"]
        assert len(dataset[1]["speech"]) == 800
        assert dataset[4] == {"value": 6}


def test_attached_index_spares_the_manifest(manifest: Path, tmp_path: Path) -> None:
    entries = [{"manifest": str(manifest)}]
    driver = DataOrganizer(train=entries, valid=entries)
    assert driver.train is not None
    assert driver.train.build_index(tmp_path / "index.arrow").keyed_by == "utt_id"
    worker = DataOrganizer(train=entries, valid=entries)
    manifest.write_text("")
    assert worker.train is not None
    worker.train.attach_index(tmp_path / "index.arrow")
    assert list(worker.train.utt_ids()) == ["a", "none"]


def test_same_id_in_two_datasets_is_an_error_when_indexed(manifest: Path, tmp_path: Path) -> None:
    dataset = CombinedDataset(
        [
            Source("ids", WithIds("b", "a")),
            DataOrganizer(
                train=[{"manifest": str(manifest)}], valid=[{"manifest": str(manifest)}]
            ).train.sources[0],
        ]
    )  # type: ignore[union-attr]
    with pytest.raises(DataError) as caught:
        dataset.build_index(tmp_path / "index.arrow")
    assert caught.value.message == (
        f"{manifest}:1: utterance 'a' appears twice (first at dataset 'ids', item 1); "
        "ids must be unique; remove one or rename it"
    )


@pytest.mark.parametrize(
    ("utt_id", "message"), [("a b", "white space"), (3, "utt_id is 3; expected a string")]
)
def test_foreign_ids_are_checked(tmp_path: Path, utt_id: Any, message: str) -> None:
    with pytest.raises(DataError, match=f"dataset 'd0', item 1: .*{message}"):
        combine(WithIds("ok", utt_id)).build_index(tmp_path / "index.arrow")


def test_wrong_number_of_ids_and_changed_datasets_are_errors(tmp_path: Path) -> None:
    class Short(Plain):
        def utt_ids(self) -> list[str]:
            return ["a"]

    with pytest.raises(DataError, match=r"utt_ids\(\) lists 1 ids, but its length is 2"):
        combine(Short(1, 2)).build_index(tmp_path / "index.arrow")
    combine(Plain(1, 2)).build_index(tmp_path / "index.arrow")
    with pytest.raises(DataError, match="lists 2 utterances of dataset 'd0', which now has 3"):
        combine(Plain(1, 2, 3)).attach_index(tmp_path / "index.arrow")


def test_errors_keep_their_kind_and_name_dataset_and_utterance(manifest: Path) -> None:
    organizer = DataOrganizer(train=[{"manifest": str(manifest)}], valid=[{"manifest": str(manifest)}])
    assert organizer.train is not None
    for read in (organizer.train.__getitem__, organizer.train.num_samples):
        with pytest.raises(UtteranceError) as caught:
            read(1)
        assert caught.value.kind is Verdict.EMPTY
        assert caught.value.message.startswith(
            f"dataset 'm', utterance 'none': {manifest.parent}/empty.wav: "
        )
    with pytest.raises(UtteranceError, match="dataset 'd0', utterance '0': KeyError: 'x'") as caught:
        CombinedDataset([Source("d0", Plain(1), lambda sample: sample["x"])])[0]
    assert caught.value.kind is Verdict.EXCEPTION
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(UtteranceError, match="the sample is of type str; expected a dict"):
        CombinedDataset([Source("d0", Plain(1), str)])[0]  # type: ignore[arg-type]


def test_none_drops_an_utterance_and_ends_the_chain() -> None:
    def fail(sample: dict[str, Any]) -> dict[str, Any]:
        raise AssertionError("a dropped sample went on")

    source = Source("d", Plain(1, 2), lambda sample: None)
    assert CombinedDataset([source], preprocessor=fail)[0] is None


def test_a_dropped_utterance_keeps_its_reason_past_the_preprocessor() -> None:
    reason = Dropped("duration", 0.1, "min_s 0.3")
    dataset = CombinedDataset(
        [Source("d", Plain(1), lambda sample: reason)], preprocessor=lambda sample: pytest.fail("was asked")
    )
    assert dataset[0] is reason
    assert combine(Plain(1), preprocessor=lambda sample: reason)[0] is reason


def test_audio_sources_are_those_of_the_manifest(manifest: Path) -> None:
    dataset = EntriesDataset([{"manifest": manifest}], "dataset.dev")
    assert dataset.audio_source(0) == {"audio": str(manifest.parent / "a.wav")}
    with pytest.raises(DataError, match=r"Plain has no audio_source\(i\)"):
        combine(Plain(1)).audio_source(0)


def test_a_full_disk_or_memory_is_not_blamed_on_the_utterance() -> None:
    def fail(error: Exception) -> CombinedDataset:
        def transform(sample: dict[str, Any]) -> dict[str, Any]:
            raise error

        return CombinedDataset([Source("d", Plain(1), transform)])

    with pytest.raises(OSError, match="full"):
        fail(OSError(errno.ENOSPC, "full"))[0]
    with pytest.raises(MemoryError):
        fail(MemoryError())[0]


def test_rows_and_lengths_without_audio(manifest: Path) -> None:
    organizer = DataOrganizer(train=[{"manifest": str(manifest)}], valid=[{"manifest": str(manifest)}])
    assert organizer.train is not None
    assert organizer.train.load(0, audio=False) == {"utt_id": "a", "audio": "a.wav", "text": "t"}
    assert organizer.train.num_samples(0) == 800
    with pytest.raises(DataError, match=r"dataset 'd0': Plain has no entry\(i\)"):
        combine(Plain(1)).load(0, audio=False)


def test_data_src_finds_the_recipes_dataset(tmp_path: Path) -> None:
    (tmp_path / "my_recipe" / "asr" / "dataset").mkdir(parents=True)
    (tmp_path / "my_recipe" / "asr" / "dataset" / "__init__.py").write_text(
        "class Dataset:\n"
        "    def __init__(self, split): self.split = split\n"
        "    def __len__(self): return 1\n"
        "    def __getitem__(self, i): return {'split': self.split}\n"
    )
    entry = {"data_src": "my_recipe/asr", "data_src_args": {"split": "train-clean"}}
    organizer = DataOrganizer(train=[entry], valid=[entry], recipe_root=tmp_path / "my_recipe" / "asr")
    assert organizer.train is not None
    assert organizer.train[0] == {"split": "train-clean"}
    with pytest.raises(ConfigError, match=r"dataset\.train\.0\.data_src_args: .*'split'"):
        DataOrganizer(train=[{"data_src": "my_recipe/asr"}], valid=[entry], recipe_root=tmp_path)


def test_test_sets_have_names_and_are_built_when_asked_for() -> None:
    organizer = DataOrganizer(test={"clean": {"dataset": Plain(1)}, "other": {"manifest": "no/such.jsonl"}})
    assert (organizer.train, organizer.valid) == (None, None)
    with pytest.raises(ConfigError, match=r"no/such\.jsonl does not exist"):
        _ = organizer.test
    by_list = DataOrganizer(test=[{"name": "clean", "dataset": Plain(1)}])
    assert by_list.test["clean"][0] == {"value": 1}
    with pytest.raises(ConfigError, match=r"dataset\.test\.0: name is None"):
        DataOrganizer(test=[{"dataset": Plain(1)}])


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([], "dataset.train: is []; expected a list of entries, such as [{manifest: train.jsonl}]"),
        (
            {"manifest": "a"},
            "dataset.train: is {'manifest': 'a'}; expected a list of entries, "
            "such as [{manifest: train.jsonl}]",
        ),
        (["a.jsonl"], "dataset.train.0: is 'a.jsonl'; expected an entry, such as {manifest: train.jsonl}"),
        (
            [{"name": "x"}],
            "dataset.train.0: has none of manifest, kaldi, dataset, data_src; expected exactly one of them",
        ),
        (
            [{"manifest": "a", "dataset": "b"}],
            "dataset.train.0: has both manifest and dataset; expected exactly one of them",
        ),
        (
            [{"manifest": "a", "chanel": 1}],
            "dataset.train.0.chanel: unknown key; did you mean 'channel'?; expected one of "
            "name, transform, manifest, sample_rate_hz, channel, audio_key",
        ),
        (
            [{"dataset": {"a": 1}}],
            "dataset.train.0.dataset: is of type dict; expected an object with __len__ and __getitem__, "
            "written with _target_ in YAML",
        ),
        (
            [{"dataset": Plain(1), "transform": "upper"}],
            "dataset.train.0.transform: is 'upper'; expected a callable, written with _target_ in YAML",
        ),
    ],
)
def test_wrong_entries_are_named(entries: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        DataOrganizer(train=entries, valid=[{"dataset": Plain(1)}])
    assert caught.value.message == message


def test_train_and_valid_come_together() -> None:
    with pytest.raises(ConfigError, match="dataset: train is given but valid is not"):
        DataOrganizer(train=[{"dataset": Plain(1)}])
    with pytest.raises(ConfigError, match=r"dataset\.preprocessor: is of type dict"):
        DataOrganizer(preprocessor={"a": 1})  # type: ignore[arg-type]
