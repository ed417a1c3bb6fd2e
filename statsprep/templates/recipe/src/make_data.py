"""Make sample recordings: tones in place of speech, one of them silent. Replace data/ by your own.

python -m src.make_data
"""

import json
from pathlib import Path

import numpy as np
import soundfile

SAMPLE_RATE_HZ = 16000
SILENT = "utt_003"
TEXTS = ["one", "two words", "three short words", "nothing at all", "some more words to read"]


def make_data(folder: Path, num_utterances: int = 20) -> None:
    """Write audio/*.wav, train.jsonl and valid.jsonl; the same every time."""
    (folder / "audio").mkdir(parents=True, exist_ok=True)
    rows = []
    for number in range(num_utterances):
        random = np.random.default_rng(number)
        utt_id, text = f"utt_{number:03d}", TEXTS[number % len(TEXTS)]
        seconds = np.arange(int(SAMPLE_RATE_HZ * (0.3 + 0.06 * len(text)))) / SAMPLE_RATE_HZ
        level = 0.0 if utt_id == SILENT else random.uniform(0.05, 0.5)
        samples = level * np.sin(2 * np.pi * random.uniform(100, 300) * seconds)
        soundfile.write(folder / "audio" / f"{utt_id}.wav", samples, SAMPLE_RATE_HZ, subtype="PCM_16")
        rows.append({"utt_id": utt_id, "audio": f"audio/{utt_id}.wav", "text": text})
    cut = num_utterances - max(1, num_utterances // 5)
    for name, part in (("train", rows[:cut]), ("valid", rows[cut:])):
        lines = "".join(json.dumps(row) + "\n" for row in part)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")


if __name__ == "__main__":
    make_data(Path("data"))
