"""The sections that statsprep owns, checked by pydantic, with errors that name file, key and value."""

import logging
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails

from statsprep.config.top_level import check_top_level
from statsprep.config.values import max_errors_allowed, share_of, walltime_text
from statsprep.errors import ConfigError, listed, nearest

__all__ = [
    "CollectStatsSection",
    "FingerprintSection",
    "ParallelSection",
    "PrepareSection",
    "WorkerRange",
    "check_top_level",
    "max_errors_allowed",
    "validate_collect_stats",
    "validate_section",
    "walltime_text",
]

logger = logging.getLogger(__name__)

# Names of a union's alternatives in pydantic's error locations; they are no keys of the file.
_COUNT, _RANGE = "<count>", "<range>"
_UNKNOWN_KEY = frozenset({"extra_forbidden", "invalid_key"})


class _Section(BaseModel):
    """Each field's description completes 'expected ...' in error messages."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class WorkerRange(_Section):
    """As many workers as the work asks for, between two bounds."""

    minimum: int = Field(default=0, ge=0, description="an integer of at least 0")
    maximum: int = Field(ge=1, description="an integer of at least 1")

    @model_validator(mode="after")
    def _is_ordered(self) -> Self:
        if self.minimum > self.maximum:
            raise ValueError(f"minimum {self.minimum} is above maximum {self.maximum}; raise maximum")
        return self


Environment = Literal[
    "none", "local", "local_gpu", "slurm", "pbs", "sge", "lsf", "htcondor", "oar", "moab", "ssh", "kube"
]


class ParallelSection(_Section):
    """`parallel:`, where the work runs and on how many workers."""

    env: Environment = Field(default="none", description=f"one of {', '.join(typing.get_args(Environment))}")
    n_workers: Annotated[
        Annotated[int, Field(ge=1), Tag(_COUNT)] | Annotated[WorkerRange, Tag(_RANGE)],
        Discriminator(lambda value: _RANGE if isinstance(value, Mapping | WorkerRange) else _COUNT),
    ] = Field(default=1, description="an integer of at least 1, or {minimum: 0, maximum: 8}")
    options: dict[str, Any] = Field(default={}, description="a mapping of options for the cluster")
    worker_timeout_s: int | None = Field(default=None, ge=1, description="an integer of at least 1, or null")
    allow_overwrite_lock: bool = Field(default=False, description="true or false")

    @model_validator(mode="after")
    def _warn_of_options_without_effect(self) -> Self:
        if self.env == "none" and (self.n_workers != 1 or self.options):
            logger.warning(
                "parallel: n_workers and options have no effect with env: none; set env, e.g. local"
            )
        if self.allow_overwrite_lock:
            logger.warning(
                "parallel.allow_overwrite_lock has no effect: leases make it unneeded, "
                "a run whose owner is dead is taken over by itself; remove the option"
            )
        return self


def _is_error_limit(value: Any) -> Any:
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    is_share = isinstance(value, str) and (share := share_of(value)) is not None and share <= 1
    if not is_count and not is_share:
        raise ValueError
    return value


def _are_split_names(names: list[str]) -> list[str]:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{listed(twice)} appears twice; name each split once")
    if not names:
        raise ValueError
    return names


def _as_list(value: Any) -> Any:
    if value is None:
        return []
    return [value] if isinstance(value, Mapping) else value


# Each name becomes a folder below stats_dir.
_SplitName = Annotated[str, Field(pattern=r"^\w[\w.-]*$")]


class CollectStatsSection(_Section):
    """`collect_stats:`, what is collected and how failures count."""

    batch_size: int = Field(default=1, ge=1, description="an integer of at least 1")
    shard_size: int | None = Field(default=None, ge=1, description="an integer of at least 1, or null")
    on_error: Literal["raise", "skip"] = Field(default="skip", description="one of raise, skip")
    max_errors: Annotated[int | str, BeforeValidator(_is_error_limit)] = Field(
        default="1%", description="a count such as 20 or a share such as 1%"
    )
    per_utterance_stats: bool = Field(default=False, description="true or false")
    write_collected_feats: bool = Field(default=False, description="true or false")
    collected_feats_format: Literal["npy", "ark"] = Field(default="npy", description="one of npy, ark")
    stats: Literal["features", "lengths"] = Field(default="features", description="one of features, lengths")
    categories: dict[str, str] = Field(
        default={}, description="a mapping of output name to manifest field, e.g. {category: speaker}"
    )
    splits: Annotated[list[_SplitName], AfterValidator(_are_split_names)] = Field(
        default=["train", "valid"], description="a list of split names, e.g. [train, valid]"
    )

    @model_validator(mode="after")
    def _warn_of_format_without_effect(self) -> Self:
        if self.collected_feats_format != "npy" and not self.write_collected_feats:
            logger.warning(
                "collect_stats.collected_feats_format has no effect without write_collected_feats: true"
            )
        return self


class PrepareSection(_Section):
    """`prepare:`, what becomes of each utterance's audio, and how failures count."""

    splits: Annotated[list[_SplitName], AfterValidator(_are_split_names)] | None = Field(
        default=None, description="a list of the dataset's splits, e.g. [train, valid], or null for all"
    )
    cleaner: Annotated[list[dict[str, Any]], BeforeValidator(_as_list)] = Field(
        default=[], description="a mapping with _target_, or a list of them"
    )
    sample_rate_hz: int | None = Field(
        default=None, ge=1, description="a rate in Hz to resample to, such as 16000, or null"
    )
    audio: Literal["flac", "wav"] | None = Field(default=None, description="one of flac, wav, or null")
    features: dict[str, Any] | None = Field(
        default=None, description="a mapping with _target_, e.g. statsprep.models.extract.LogMelFeatures"
    )
    features_format: Literal["npy", "ark"] = Field(default="npy", description="one of npy, ark")
    audio_key: str = Field(default="speech", min_length=1, description="the audio's name in a sample")
    shard_size: int | None = Field(default=None, ge=1, description="an integer of at least 1, or null")
    on_error: Literal["raise", "skip"] = Field(default="skip", description="one of raise, skip")
    max_errors: Annotated[int | str, BeforeValidator(_is_error_limit)] = Field(
        default="1%", description="a count such as 20 or a share such as 1%"
    )

    @model_validator(mode="after")
    def _does_something(self) -> Self:
        if not self.cleaner and self.audio is None and self.features is None:
            raise ValueError("nothing to do; expected at least one of cleaner, audio and features")
        if self.sample_rate_hz is not None and self.audio is None and self.features is None:
            raise ValueError("sample_rate_hz has no effect without audio or features; add one of them")
        return self


class FingerprintSection(_Section):
    """`fingerprint:`, what a change of does not make results stale."""

    ignore: list[str] = Field(default=[], description="a list of dotted keys, e.g. [model.encoder]")


SectionT = TypeVar("SectionT", bound=_Section)


def validate_section(model: type[SectionT], value: Any, *, where: Path, key: str) -> SectionT:
    """The section as a model; an absent or empty one has its defaults.

    Args:
        model: The section's class.
        value: What stands under `key`, plain and resolved.
        where: The configuration file, for messages.
        key: The section's dotted key, for messages.

    Raises:
        ConfigError: The first thing wrong: its dotted key, the value, what was expected, the nearest name.
    """
    if value is None:
        value = {}
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where}: {key}: {value!r} is not valid; expected a mapping with {_keys(model)}")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        # A misspelt key often makes a required one missing as well: name the misspelt one.
        problem = min(error.errors(), key=lambda problem: problem["type"] not in _UNKNOWN_KEY)
        raise ConfigError(f"{where}: {_explained(model, key, problem)}") from error


def validate_collect_stats(tree: Mapping[str, Any], *, where: Path) -> CollectStatsSection:
    """The `collect_stats:` section of a whole configuration, ESPnet3's two keys beside it included.

    Raises:
        ConfigError: something in it is wrong, or random augmentation is asked for.
    """
    if tree.get("collect_stats_train_mode"):
        raise ConfigError(
            f"{where}: collect_stats_train_mode: true asks for random augmentation, under which statistics "
            "differ from run to run; expected false; take the line out"
        )
    section = tree.get("collect_stats") or {}
    batch_size = tree.get("collect_stats_batch_size")
    if batch_size is not None and isinstance(section, Mapping):
        section = {"batch_size": batch_size, **section}
    return validate_section(CollectStatsSection, section, where=where, key="collect_stats")


def _explained(model: type[BaseModel], key: str, problem: ErrorDetails) -> str:
    location = [part for part in problem["loc"] if part not in (_COUNT, _RANGE)]
    owner: type[BaseModel] = WorkerRange if _RANGE in problem["loc"] and len(location) > 1 else model
    if problem["type"] in _UNKNOWN_KEY:
        above = ".".join([key, *map(str, location[:-1])])
        name = str(location[-1])
        hint = nearest(name, owner.model_fields) or f"; expected {_keys(owner)}"
        return f"{above}: unknown key {name!r}{hint}"
    full_key = ".".join([key, *map(str, location)])
    field = owner.model_fields.get(str(location[1 if owner is WorkerRange else 0])) if location else None
    expected = field.description if field else None
    if problem["type"] == "missing":
        return f"{full_key}: no value; expected {expected}"
    own_words = str(problem.get("ctx", {}).get("error", ""))
    if own_words or field is None:
        return f"{full_key}: {own_words or problem['msg']}"
    value = problem["input"]
    seen = "nothing (null)" if value is None else repr(value)
    is_choice = problem["type"] == "literal_error" and isinstance(value, str)
    hint = nearest(value, _choices(field.annotation)) if is_choice else ""
    return f"{full_key}: {seen} is not valid; expected {expected}{hint}"


def _choices(annotation: Any) -> list[str]:
    """The values of a Literal, also of one that may be null."""
    if isinstance(annotation, str):
        return [annotation]
    return [choice for part in typing.get_args(annotation) for choice in _choices(part)]


def _keys(model: type[BaseModel]) -> str:
    return f"the keys {listed(model.model_fields, limit=20)}"
