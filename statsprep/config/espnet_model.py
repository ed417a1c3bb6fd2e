"""ESPnet's `model:` block of a `task:`, as a model that collects the same features.

ESPnet builds a whole model to collect statistics, and then asks its front end alone. So of the block only
`frontend` and `frontend_conf` count here. Their `default` is log-mel with the same filters, window and
logarithm as `statsprep.models.frontend.LogMel`; what that cannot do is an error, for it would change the
numbers. Everything else in the block, such as `encoder_conf` or `specaug`, is for training.
"""

import difflib
import re
from collections.abc import Mapping
from typing import Any

from statsprep.errors import ConfigError, listed, nearest

# Tasks whose collect_feats returns what the front end makes of `speech`.
_TASKS = ("ASR", "ASRTransducer", "ST", "SLU", "S2T")
_FRONTEND_KEYS = ("frontend", "frontend_conf")
# ESPnet's name: ours, and ESPnet's default.
_OPTIONS: dict[str, tuple[str, Any]] = {
    "fs": ("sample_rate_hz", 16000),
    "n_fft": ("n_fft", 512),
    "win_length": ("win_length", None),
    "hop_length": ("hop_length", 128),
    "window": ("window", "hann"),
    "center": ("center", True),
    "n_mels": ("n_mels", 80),
    "fmin": ("fmin", None),
    "fmax": ("fmax", None),
    "htk": ("htk", False),
}
_FIXED: dict[str, Any] = {"pad_mode": "reflect", "normalized": False, "onesided": True, "apply_stft": True}
_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*([kK]?)(?:[hH][zZ])?")


def is_espnet_model(model: Mapping[str, Any], task: str | None) -> bool:
    """Whether a `model:` section names no class, and has a task or is written like a block of ESPnet's."""
    has_spelling = isinstance(model.get("frontend"), str) or "frontend_conf" in model
    return "_target_" not in model and (bool(task) or has_spelling)


def espnet_frontend(model: Mapping[str, Any], task: str | None, where: str) -> dict[str, Any]:
    """The options of `LogMel` that an ESPnet block asks for.

    Args:
        model: the `model:` section.
        task: `asr`, or the dotted name of a task class, such as `espnet3.systems.asr.task.ASRTask`.
        where: what errors begin with, such as `conf/training.yaml: `.

    Raises:
        ConfigError: the task or its front end is none of those that can be matched.
    """
    known = {name.lower() for name in _TASKS}
    if task and str(task).rpartition(".")[2].removesuffix("Task").replace("_", "").lower() not in known:
        raise ConfigError(
            f"{where}task: {task!r} is not known here; expected one of {', '.join(_TASKS)} "
            "(as a name or a task class), or a model of your own: "
            "model._target_: src.model.YourModel with collect_feats(**batch)"
        )
    for key in model:
        near = difflib.get_close_matches(str(key), _FRONTEND_KEYS, n=1, cutoff=0.8)
        if near and key not in _FRONTEND_KEYS:
            raise ConfigError(f"{where}model.{key}: unknown key; did you mean {near[0]!r}?")
    if model.get("frontend", "default") != "default":
        raise ConfigError(
            f"{where}model.frontend: {model['frontend']!r} cannot be built here; expected default (log-mel), "
            "or a model of your own: model._target_: src.model.YourModel with collect_feats(**batch)"
        )
    if (model.get("model_conf") or {}).get("extract_feats_in_collect_stats") is False:
        raise ConfigError(
            f"{where}model.model_conf.extract_feats_in_collect_stats: false asks for lengths of the audio "
            "alone; set collect_stats.stats: lengths, which needs no model, or take the line out"
        )
    return _log_mel_options(model.get("frontend_conf") or {}, f"{where}model.frontend_conf")


def filled_espnet_model(model: Mapping[str, Any]) -> dict[str, Any]:
    """The block with the defaults of ESPnet's front end written out."""
    defaults = {name: default for name, (_, default) in _OPTIONS.items()}
    return {**model, "frontend": "default", "frontend_conf": defaults | (model.get("frontend_conf") or {})}


def _log_mel_options(conf: Mapping[str, Any], where: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for key, value in conf.items():
        if key in _OPTIONS:
            name, _ = _OPTIONS[key]
            if key == "fs":
                value = _rate_hz(value, where)
            if value is not None or name != "fmin":
                options[name] = value
        elif key in _FIXED:
            if value != _FIXED[key]:
                raise ConfigError(
                    f"{where}.{key}: {value!r} cannot be matched; expected {_FIXED[key]!r}, "
                    "or a model of your own under model._target_"
                )
        elif key == "frontend_conf":
            enhancement = [name for name in ("use_wpe", "use_beamformer") if (value or {}).get(name)]
            if enhancement:
                raise ConfigError(
                    f"{where}.frontend_conf.{enhancement[0]}: enhancement cannot be matched; expected false, "
                    "or a model of your own under model._target_"
                )
        else:
            known = [*_OPTIONS, *_FIXED, "frontend_conf"]
            raise ConfigError(
                f"{where}.{key}: unknown key{nearest(str(key), known)}; expected one of "
                f"{listed(known, limit=len(known))}"
            )
    return options


def _rate_hz(value: Any, where: str) -> int:
    """`16000`, or as ESPnet also has it `16k`."""
    match = _RATE.fullmatch(value) if isinstance(value, str) else None
    if match:
        return round(float(match[1]) * (1000 if match[2] else 1))
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ConfigError(f"{where}.fs: {value!r} is no sampling rate; expected Hz, such as 16000 or 16k")
