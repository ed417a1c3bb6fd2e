"""Sections have documented defaults and refuse everything else with the key, the value and what was
expected.
"""

import logging
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from statsprep.config.sections import (
    CollectStatsSection,
    FingerprintSection,
    ParallelSection,
    PrepareSection,
    WorkerRange,
    validate_collect_stats,
    validate_section,
)
from statsprep.errors import ConfigError

PATH = Path("conf/training.yaml")
COLLECT_KEYS = (
    "'batch_size', 'shard_size', 'on_error', 'max_errors', 'per_utterance_stats', 'write_collected_feats', "
    "'collected_feats_format', 'stats', 'categories', 'splits'"
)


def collect(value: Any) -> CollectStatsSection:
    return validate_section(CollectStatsSection, value, where=PATH, key="collect_stats")


def parallel(value: Any) -> ParallelSection:
    return validate_section(ParallelSection, value, where=PATH, key="parallel")


def test_an_absent_or_empty_section_has_its_defaults() -> None:
    assert collect(None) == collect({})
    assert collect({}).model_dump() == {
        "batch_size": 1,
        "shard_size": None,
        "on_error": "skip",
        "max_errors": "1%",
        "per_utterance_stats": False,
        "write_collected_feats": False,
        "collected_feats_format": "npy",
        "stats": "features",
        "categories": {},
        "splits": ["train", "valid"],
    }
    assert parallel({}).model_dump() == {
        "env": "none",
        "n_workers": 1,
        "options": {},
        "worker_timeout_s": None,
        "allow_overwrite_lock": False,
    }
    assert validate_section(FingerprintSection, None, where=PATH, key="fingerprint").ignore == []


def test_defaults_are_not_shared_between_sections() -> None:
    collect({}).categories["a"] = "b"
    assert collect({}).categories == {}


def test_the_published_parallel_section_is_accepted() -> None:
    options = {"queue": "gpu", "walltime": 1800, "job_extra_directives": ["--gres=gpu:1"]}
    section = parallel({"env": "slurm", "n_workers": 8, "options": options})
    assert (section.env, section.n_workers, section.options) == ("slurm", 8, options)
    assert parallel({"env": "kube", "n_workers": {"minimum": 2, "maximum": 8}}).n_workers == WorkerRange(
        minimum=2, maximum=8
    )


@pytest.mark.parametrize("limit", [0, 20, "0%", "1%", "0.5%", "100%"])
def test_error_limits_are_counts_or_shares(limit: int | str) -> None:
    assert collect({"max_errors": limit}).max_errors == limit


def test_a_section_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        collect({}).batch_size = 2


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            {"batch_size": "four"},
            "collect_stats.batch_size: 'four' is not valid; expected an integer of at least 1",
        ),
        (
            {"batch_size": True},
            "collect_stats.batch_size: True is not valid; expected an integer of at least 1",
        ),
        ({"batch_size": 0}, "collect_stats.batch_size: 0 is not valid; expected an integer of at least 1"),
        (
            {"batch_size": 2.0},
            "collect_stats.batch_size: 2.0 is not valid; expected an integer of at least 1",
        ),
        (
            {"shard_size": 0},
            "collect_stats.shard_size: 0 is not valid; expected an integer of at least 1, or null",
        ),
        ({"batchsize": 4}, "collect_stats: unknown key 'batchsize'; did you mean 'batch_size'?"),
        ({"zzz": 4}, f"collect_stats: unknown key 'zzz'; expected the keys {COLLECT_KEYS}"),
        (
            {"max_errors": "101%"},
            "collect_stats.max_errors: '101%' is not valid; expected a count such as 20 or a share such as "
            "1%",
        ),
        (
            {"max_errors": -1},
            "collect_stats.max_errors: -1 is not valid; expected a count such as 20 or a share such as 1%",
        ),
        (
            {"max_errors": True},
            "collect_stats.max_errors: True is not valid; expected a count such as 20 or a share such as 1%",
        ),
        (
            {"on_error": "skp"},
            "collect_stats.on_error: 'skp' is not valid; expected one of raise, skip; did you mean 'skip'?",
        ),
        (
            {"stats": None},
            "collect_stats.stats: nothing (null) is not valid; expected one of features, lengths",
        ),
        (
            {"splits": ["a/b"]},
            "collect_stats.splits.0: 'a/b' is not valid; expected a list of split names, e.g. [train, valid]",
        ),
        (
            {"splits": [".."]},
            "collect_stats.splits.0: '..' is not valid; expected a list of split names, e.g. [train, valid]",
        ),
        (
            {"splits": []},
            "collect_stats.splits: [] is not valid; expected a list of split names, e.g. [train, valid]",
        ),
        ({"splits": ["train", "train"]}, "collect_stats.splits: 'train' appears twice; name each split once"),
        (
            {"categories": {"category": 1}},
            "collect_stats.categories.category: 1 is not valid; "
            "expected a mapping of output name to manifest field, e.g. {category: speaker}",
        ),
        (3, f"collect_stats: 3 is not valid; expected a mapping with the keys {COLLECT_KEYS}"),
    ],
)
def test_a_wrong_collect_stats_section_is_one_line(value: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        collect(value)
    assert str(caught.value) == f"conf/training.yaml: {message}"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            {"env": "slrum"},
            "parallel.env: 'slrum' is not valid; expected one of none, local, local_gpu, slurm, pbs, sge, "
            "lsf, "
            "htcondor, oar, moab, ssh, kube; did you mean 'slurm'?",
        ),
        (
            {"n_workers": 0},
            "parallel.n_workers: 0 is not valid; expected an integer of at least 1, or {minimum: 0, maximum: "
            "8}",
        ),
        (
            {"n_workers": "4"},
            "parallel.n_workers: '4' is not valid; expected an integer of at least 1, or {minimum: 0, "
            "maximum: 8}",
        ),
        (
            {"n_workers": {"minimum": 2}},
            "parallel.n_workers.maximum: no value; expected an integer of at least 1",
        ),
        ({"n_workers": {"maxi": 2}}, "parallel.n_workers: unknown key 'maxi'; did you mean 'maximum'?"),
        (
            {"n_workers": {"minimum": -1, "maximum": 2}},
            "parallel.n_workers.minimum: -1 is not valid; expected an integer of at least 0",
        ),
        (
            {"n_workers": {"minimum": 3, "maximum": 2}},
            "parallel.n_workers: minimum 3 is above maximum 2; raise maximum",
        ),
        (
            {"options": None},
            "parallel.options: nothing (null) is not valid; expected a mapping of options for the cluster",
        ),
        (
            {1: 2},
            "parallel: unknown key '1'; expected the keys 'env', 'n_workers', 'options', "
            "'worker_timeout_s', 'allow_overwrite_lock'",
        ),
    ],
)
def test_a_wrong_parallel_section_is_one_line(value: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parallel(value)
    assert str(caught.value) == f"conf/training.yaml: {message}"


def test_a_wrong_fingerprint_section_is_one_line() -> None:
    with pytest.raises(ConfigError) as caught:
        validate_section(FingerprintSection, {"ignore": "model"}, where=PATH, key="fingerprint")
    assert str(caught.value) == (
        "conf/training.yaml: fingerprint.ignore: 'model' is not valid; "
        "expected a list of dotted keys, e.g. [model.encoder]"
    )


@pytest.mark.parametrize(
    ("value", "warning"),
    [
        (
            {"env": "local", "allow_overwrite_lock": True},
            "parallel.allow_overwrite_lock has no effect: leases make it unneeded, "
            "a run whose owner is dead is taken over by itself; remove the option",
        ),
        (
            {"n_workers": 4},
            "parallel: n_workers and options have no effect with env: none; set env, e.g. local",
        ),
    ],
)
def test_an_option_without_effect_warns(value: Any, warning: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        parallel(value)
    assert caplog.messages == [warning]


def test_a_usual_section_does_not_warn(caplog: pytest.LogCaptureFixture) -> None:
    parallel({"env": "local", "n_workers": 4, "allow_overwrite_lock": False})
    parallel({"env": "none"})
    assert caplog.messages == []


def test_espnet3s_batch_size_counts_where_ours_is_not_given() -> None:
    def batch_size(tree: dict[str, Any]) -> int:
        return validate_collect_stats(tree, where=PATH).batch_size

    assert batch_size({}) == 1
    assert batch_size({"collect_stats_batch_size": 4, "collect_stats_train_mode": False}) == 4
    assert batch_size({"collect_stats_batch_size": 4, "collect_stats": {"batch_size": 2}}) == 2
    with pytest.raises(ConfigError, match="collect_stats_train_mode: true asks for random augmentation"):
        validate_collect_stats({"collect_stats_train_mode": True}, where=PATH)


def prepare(value: Any) -> PrepareSection:
    return validate_section(PrepareSection, value, where=PATH, key="prepare")


def test_one_cleaner_is_a_list_of_one() -> None:
    node = {"_target_": "src.clean.Cleaner"}
    assert prepare({"cleaner": node}).cleaner == prepare({"cleaner": [node]}).cleaner == [node]
    assert prepare({"cleaner": None, "audio": "wav"}).cleaner == []


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"audio": "flacc"}, "prepare.audio: 'flacc' is not valid; expected one of flac, wav, or null; did"),
        (
            {"audio": "flac", "sample_rate": 16000},
            "unknown key 'sample_rate'; did you mean 'sample_rate_hz'?",
        ),
        (
            {"audio": "flac", "sample_rate_hz": 0},
            "prepare.sample_rate_hz: 0 is not valid; expected a rate in Hz",
        ),
        (
            {"cleaner": "silence"},
            "prepare.cleaner: 'silence' is not valid; expected a mapping with _target_, or a",
        ),
        (
            {"audio": "flac", "splits": ["a/b"]},
            "prepare.splits.0: 'a/b' is not valid; expected a list of the",
        ),
        (None, "prepare: nothing to do; expected at least one of cleaner, audio and features"),
    ],
)
def test_a_mistake_in_prepare_is_named(value: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        prepare(value)
    assert message in str(caught.value)
