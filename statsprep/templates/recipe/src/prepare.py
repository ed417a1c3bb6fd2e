"""A provider and a runner: how loud and how fast is each recording, and which ones are silent?

The provider builds, once in every process, what `forward` needs. The runner's `forward` handles one index.
The same two classes run in this process, on all cores, and on a cluster.
"""

from typing import Any

import numpy as np

from statsprep import BaseRunner, Dropped, EnvironmentProvider
from statsprep.data.dataset import ManifestDataset


class SpeechProvider(EnvironmentProvider):
    """Provides the manifest's recordings, and the `params` of the config's `provider:` section."""

    def build_env_local(self) -> dict[str, Any]:
        # self.config is the whole config, so any key of it can be used here.
        dataset = ManifestDataset(self.config["manifest"])
        return {"dataset": dataset, **self.params}


class LoudnessRunner(BaseRunner):
    """Loudness and speaking rate of each utterance; silence is dropped."""

    @staticmethod
    def forward(
        idx: int, *, dataset: ManifestDataset, silence_dbfs: float = -50.0
    ) -> dict[str, Any] | Dropped:
        """Names after the `*` are filled from the env that the provider returns.

        Returns:
            JSON, which becomes a line of results.jsonl, or the reason why the utterance is left out, which
            becomes one of dropped.jsonl. An error is recorded in errors.jsonl, and the run goes on.
        """
        sample = dataset[idx]
        speech = sample["speech"].astype(np.float64)
        rms = np.sqrt(np.mean(speech**2))
        loudness_dbfs = 20 * np.log10(max(rms, 1e-10))
        if loudness_dbfs < silence_dbfs:
            return Dropped("silence", round(loudness_dbfs, 2), f"at least {silence_dbfs} dBFS")
        return {
            "utt_id": sample["utt_id"],
            "loudness_dbfs": round(loudness_dbfs, 2),
            "chars_per_s": round(len(sample.get("text", "")) / sample["duration_s"], 2),
            "duration_s": sample["duration_s"],
        }
