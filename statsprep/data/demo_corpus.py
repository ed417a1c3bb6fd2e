"""A small speech-like corpus, made from formulas: voiced syllables with formants, pauses, several
speakers.
"""

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from statsprep.storage.atomic import write_bytes, write_text

SAMPLE_RATE_HZ = 16_000
_SPEAKERS = {"anna": 210.0, "bela": 120.0, "chen": 165.0, "dora": 235.0}
# First and second formants in Hz, roughly those of a, e, i, o, u.
_VOWELS = {"a": (800, 1200), "e": (500, 1900), "i": (300, 2300), "o": (500, 900), "u": (320, 750)}

_CONFIG = """\
# Made by `statsprep demo`. Measure again with: statsprep run {config}
stats_dir: {folder}/exp/stats

dataset:
  _target_: statsprep.data.organizer.DataOrganizer
  train:
    - {{manifest: {folder}/data/train.jsonl}}
  valid:
    - {{manifest: {folder}/data/valid.jsonl}}
  preprocessor:
    _target_: statsprep.data.tokens.TextPreprocessor
    token_type: char

model:
  _target_: statsprep.models.features.FeatureModel
  frontend: {{sample_rate_hz: 16000, n_mels: 80}}

collect_stats:
  categories: {{category: speaker}}
  max_errors: 2                # the two broken files

parallel:
  env: local
  n_workers: {n_workers}
"""


def write_demo_corpus(folder: Path, num_utterances: int, n_workers: int) -> Path:
    """Write audio, manifests and a config below `folder`; the same every time.

    Of the train split one file has no samples and one is no audio at all.

    Returns:
        The config's path.
    """
    import soundfile

    audio = folder / "data" / "audio"
    audio.mkdir(parents=True, exist_ok=True)
    rows = []
    for number in range(num_utterances):
        random = np.random.default_rng(number)
        speaker = sorted(_SPEAKERS)[number % len(_SPEAKERS)]
        text = " ".join(_word(random) for _ in range(random.integers(1, 8)))
        utt_id = f"{speaker}_{number:04d}"
        path = audio / f"{utt_id}.wav"
        samples = np.zeros(0) if number == 7 else _speak(text, _SPEAKERS[speaker], random)
        soundfile.write(path, samples, SAMPLE_RATE_HZ, subtype="PCM_16")
        if number == 11:
            write_bytes(path, b"this is no audio\n")
        rows.append({"utt_id": utt_id, "audio": f"audio/{path.name}", "text": text, "speaker": speaker})
    split = max(1, num_utterances // 10)
    for name, part in (("train", rows[:-split]), ("valid", rows[-split:])):
        write_text(folder / "data" / f"{name}.jsonl", "".join(json.dumps(row) + "\n" for row in part))
    config = folder / "statsprep.yaml"
    write_text(config, _CONFIG.format(folder=folder, config=config, n_workers=n_workers))
    return config


def _word(random: np.random.Generator) -> str:
    return "".join(
        random.choice(list("bdgmn")) + random.choice(list(_VOWELS)) for _ in range(random.integers(1, 4))
    )


def _speak(text: str, pitch_hz: float, random: np.random.Generator) -> NDArray[np.float64]:
    """One syllable per consonant and vowel, a pause per space, a little noise over all."""
    parts = []
    for letter in text:
        length = int(SAMPLE_RATE_HZ * random.uniform(0.05, 0.12))
        if letter in _VOWELS:
            parts.append(_vowel(letter, pitch_hz * random.uniform(0.9, 1.1), 2 * length))
        else:
            parts.append(random.normal(0, 0.02 if letter != " " else 0.001, length))
    speech = np.concatenate(parts)
    return np.clip(speech + random.normal(0, 0.003, len(speech)), -1, 1)


def _vowel(letter: str, pitch_hz: float, length: int) -> NDArray[np.float64]:
    """Harmonics of the pitch, strong near the vowel's formants."""
    seconds = np.arange(length) / SAMPLE_RATE_HZ
    harmonics = np.arange(1, int(4000 / pitch_hz))[:, None]
    frequencies = harmonics * pitch_hz
    gains = sum(np.exp(-(((frequencies - formant) / 150) ** 2)) for formant in _VOWELS[letter]) + 0.02
    wave = (gains * np.sin(2 * np.pi * frequencies * seconds)).sum(axis=0)
    shaped: NDArray[np.float64] = 0.3 * wave / np.abs(wave).max() * np.hanning(length)
    return shaped
