"""Spectrogram shapes of all utterances that are long enough."""

from typing import Any

import numpy as np

from statsprep import BaseRunner, EnvironmentProvider
from statsprep.data.dataset import ManifestDataset


class ManifestProvider(EnvironmentProvider):
    """Provides the manifest's dataset, and `params` as they are."""

    def build_env_local(self) -> dict[str, Any]:
        return {"dataset": ManifestDataset(self.config["manifest"]), **self.params}


class SpectrogramRunner(BaseRunner):
    """One spectrogram's shape per utterance; short ones are dropped."""

    @staticmethod
    def forward(idx: int, *, dataset: ManifestDataset, shortest_s: float) -> dict[str, Any] | None:
        sample = dataset[idx]
        if sample["duration_s"] < shortest_s:
            return None
        frames = np.lib.stride_tricks.sliding_window_view(sample["speech"], 512)[::128]
        spectrogram = np.abs(np.fft.rfft(frames * np.hanning(512)))
        return {"utt_id": sample["utt_id"], "shape": spectrogram.shape, "peak": spectrogram.max()}
