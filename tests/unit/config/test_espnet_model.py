"""An ESPnet model block gives its front end's options, or an error that says what to write instead."""

from typing import Any

import pytest

from statsprep.config.espnet_model import espnet_frontend, filled_espnet_model, is_espnet_model
from statsprep.errors import ConfigError

WHERE = "conf/t.yaml: "


@pytest.mark.parametrize(
    "task",
    [
        "asr",
        "asr_transducer",
        "espnet2.tasks.asr.ASRTask",
        "espnet3.systems.asr.task.ASRTask",
        "espnet3.systems.esp2_asr.task.ASRTask",
        "espnet2.tasks.slu.SLUTask",
        None,
    ],
)
def test_asr_like_tasks_are_known_by_name_and_by_class(task: str | None) -> None:
    assert espnet_frontend({"frontend": "default", "encoder": "conformer"}, task, WHERE) == {}


def test_the_options_of_the_default_front_end_get_our_names() -> None:
    conf = {"fs": "16k", "n_fft": 400, "win_length": 320, "hop_length": 160, "n_mels": 40, "fmin": 20,
            "fmax": 7600,
            "htk": True, "window": "hamming", "center": False, "pad_mode": "reflect", "normalized": False,
            "onesided": True, "apply_stft": True, "frontend_conf": {"use_wpe": False}}  # fmt: skip
    assert espnet_frontend({"frontend_conf": conf}, "asr", WHERE) == {
        "sample_rate_hz": 16000, "n_fft": 400, "win_length": 320, "hop_length": 160, "n_mels": 40, "fmin": 20,
        "fmax": 7600, "htk": True, "window": "hamming", "center": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("fs", "expected"), [(8000, 8000), ("16k", 16000), ("44.1k", 44100), ("22050", 22050)]
)
def test_rates_are_read_in_hertz_and_kilohertz(fs: Any, expected: int) -> None:
    assert espnet_frontend({"frontend_conf": {"fs": fs}}, "asr", WHERE) == {"sample_rate_hz": expected}


def test_an_absent_fmin_is_our_default() -> None:
    assert espnet_frontend({"frontend_conf": {"fmin": None, "fmax": None}}, "asr", WHERE) == {"fmax": None}


@pytest.mark.parametrize(
    ("model", "task", "message"),
    [
        (
            {},
            "tts",
            "conf/t.yaml: task: 'tts' is not known here; expected one of ASR, ASRTransducer, ST, SLU",
        ),
        ({}, "espnet2.tasks.enh.EnhancementTask", "model._target_: src.model.YourModel with collect_feats("),
        (
            {"frontend": "s3prl"},
            "asr",
            "model.frontend: 's3prl' cannot be built here; expected default (log-",
        ),
        ({"frontend": None}, "asr", "conf/t.yaml: model.frontend: None cannot be built here"),
        ({"fronted_conf": {}}, "asr", "model.fronted_conf: unknown key; did you mean 'frontend_conf'?"),
        (
            {"frontend_conf": {"n_mel": 80}},
            "asr",
            "n_mel: unknown key; did you mean 'n_mels'?; expected one of",
        ),
        ({"frontend_conf": {"fs": "fast"}}, "asr", "frontend_conf.fs: 'fast' is no sampling rate; expected"),
        ({"frontend_conf": {"fs": True}}, "asr", "frontend_conf.fs: True is no sampling rate; expected Hz"),
        (
            {"frontend_conf": {"normalized": True}},
            "asr",
            "normalized: True cannot be matched; expected False",
        ),
        ({"frontend_conf": {"frontend_conf": {"use_wpe": True}}}, "asr", "use_wpe: enhancement cannot be "),
        (
            {"model_conf": {"extract_feats_in_collect_stats": False}},
            "asr",
            "; set collect_stats.stats: lengths",
        ),
    ],
)
def test_what_cannot_be_matched_is_an_error_with_the_way_out(
    model: dict[str, Any], task: str | None, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        espnet_frontend(model, task, WHERE)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("model", "task", "expected"),
    [
        ({}, "asr", True),
        ({"frontend": "default"}, None, True),
        ({"frontend_conf": {}}, None, True),
        ({"_target_": "src.m.Model", "frontend": "default"}, "asr", False),
        ({"frontend": {"n_mels": 40}}, None, False),
        ({"normalize": "global_mvn"}, None, False),
    ],
)
def test_a_block_of_espnets_is_told_from_a_section_of_ours(
    model: dict[str, Any], task: str | None, expected: bool
) -> None:
    assert is_espnet_model(model, task) is expected


def test_a_filled_block_means_the_same_and_is_complete() -> None:
    model = {"encoder": "conformer", "frontend_conf": {"n_mels": 40}}
    full = filled_espnet_model(model)
    assert full["encoder"] == "conformer"
    assert full["frontend"] == "default"
    assert full["frontend_conf"]["hop_length"] == 128
    assert espnet_frontend(full, "asr", WHERE)["n_mels"] == 40
    assert filled_espnet_model(full) == full
