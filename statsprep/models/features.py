"""The smallest model that statistics can be taken with: a front end."""

from typing import Any

import torch

from statsprep.errors import ConfigError
from statsprep.models.frontend import LogMel, frontend_options


class FeatureModel(torch.nn.Module):
    """Features of speech, for collecting statistics.

    The `model:` section of a training configuration serves here as it is. What it says of normalisation and
    of the encoder is accepted and not used: features are measured before both, and the statistics file that
    `normalize_conf` names is only written by this measurement.

    Args:
        frontend: options of `LogMel`, or a module that is called like one.
        normalize: not used.
        normalize_conf: not used.
        encoder: not used.
    """

    results_version = 1

    def __init__(
        self,
        frontend: dict[str, Any] | torch.nn.Module | None = None,
        normalize: str | None = None,
        normalize_conf: dict[str, Any] | None = None,
        encoder: Any = None,
    ) -> None:
        super().__init__()
        if not isinstance(frontend, torch.nn.Module):
            if frontend is not None and not isinstance(frontend, dict):
                raise ConfigError(
                    f"model.frontend: is {frontend!r}; expected a mapping, such as {{n_mels: 80}}"
                )
            frontend = LogMel(**frontend_options(frontend or {}, where="model.frontend"))
        self.frontend = frontend

    @classmethod
    def stats_config(cls, config: dict[str, Any]) -> dict[str, Any]:
        """The part of a `model:` section that statistics depend on, with defaults filled in.

        Leaving out an option and giving its default are the same; so are any two encoders.
        """
        frontend = cls.filled_config(config)["frontend"]
        versions = {"model": cls.results_version, "frontend": LogMel.results_version}
        return {"frontend": frontend, "results_version": versions}

    @classmethod
    def filled_config(cls, config: dict[str, Any]) -> dict[str, Any]:
        """A `model:` section with the options of its front end written out."""
        frontend = config.get("frontend") or {}
        if isinstance(frontend, dict) and "_target_" not in frontend:
            frontend = frontend_options(frontend, where="model.frontend")
        return {**config, "frontend": frontend}

    def collect_feats(
        self, speech: torch.Tensor, speech_lengths: torch.Tensor, **batch: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """Features to take statistics of; what else the batch holds is not looked at.

        Args:
            speech: float32 (batch, samples).
            speech_lengths: int64 (batch,), samples.

        Returns:
            feats: float32 (batch, frames, n_mels). feats_lengths: int64 (batch,), frames.

        Raises:
            UtteranceError: an utterance is too short for one frame.
        """
        feats, feats_lengths = self.frontend(speech, speech_lengths)
        return {"feats": feats, "feats_lengths": feats_lengths}
