"""FeatureModel: features for statistics, and which part of its configuration they depend on."""

import pytest
import torch

from statsprep.errors import ConfigError
from statsprep.models.features import FeatureModel
from statsprep.models.frontend import LogMel

SECTION = {
    "frontend": {"sample_rate_hz": 8000, "n_fft": 256, "hop_length": 80, "n_mels": 40},
    "normalize": "global_mvn",
    "normalize_conf": {"stats_file": "exp/not/written/yet.npz"},
    "encoder": {"num_layers": 12},
}


def test_a_training_section_serves_before_its_stats_file_exists() -> None:
    model = FeatureModel(**SECTION)  # type: ignore[arg-type]
    feats = model.collect_feats(torch.randn(2, 800), torch.tensor([800, 700]), text=torch.zeros(2, 3))
    assert feats["feats"].shape == (2, 11, 40)
    assert feats["feats_lengths"].tolist() == [11, 9]


def test_a_front_end_may_be_given_as_a_module() -> None:
    frontend = LogMel(n_mels=23)
    assert FeatureModel(frontend).frontend is frontend
    assert FeatureModel().collect_feats(torch.randn(1, 800), torch.tensor([800]))["feats"].shape[2] == 80


def test_statistics_depend_on_the_front_end_only() -> None:
    base = FeatureModel.stats_config(SECTION)
    assert FeatureModel.stats_config({**SECTION, "encoder": {"num_layers": 6}, "normalize": None}) == base
    assert FeatureModel.stats_config({**SECTION, "frontend": {**SECTION["frontend"], "n_mels": 80}}) != base  # type: ignore[dict-item]


def test_spelling_out_a_default_changes_nothing() -> None:
    assert FeatureModel.stats_config({}) == FeatureModel.stats_config(
        {"frontend": {"n_mels": 80, "fmax": None}}
    )
    assert FeatureModel.stats_config({}) != FeatureModel.stats_config({"frontend": {"n_mels": 81}})


def test_unknown_front_end_options_are_named() -> None:
    for call in (
        lambda: FeatureModel({"n_mel": 80}),
        lambda: FeatureModel.stats_config({"frontend": {"n_mel": 80}}),
    ):
        with pytest.raises(
            ConfigError, match=r"model\.frontend\.n_mel: unknown key; did you mean 'n_mels'\?"
        ):
            call()
    with pytest.raises(ConfigError, match=r"model\.frontend: is 'fbank'; expected a mapping"):
        FeatureModel("fbank")  # type: ignore[arg-type]


def test_writing_out_what_none_stands_for_changes_nothing() -> None:
    frontend = {"sample_rate_hz": 8000, "n_fft": 256}
    written_out = {**frontend, "win_length": 256, "fmax": 4000.0}
    assert FeatureModel.stats_config({"frontend": written_out}) == FeatureModel.stats_config(
        {"frontend": frontend}
    )
    assert FeatureModel.filled_config({"frontend": frontend, "encoder": 1})["encoder"] == 1
    speech, lengths = torch.randn(1, 800), torch.tensor([800])
    same = [
        FeatureModel(options).collect_feats(speech, lengths)["feats"] for options in (frontend, written_out)
    ]
    assert torch.equal(*same)
