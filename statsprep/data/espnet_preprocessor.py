"""ESPnet's CommonPreprocessor, as far as it matters to lengths and statistics."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from statsprep.data.tokens import TextPreprocessor
from statsprep.errors import ConfigError


class CommonPreprocessor(TextPreprocessor):
    """Text to token ids under ESPnet's argument names, so that a recipe's section serves as it is.

    Statistics are taken without augmentation, so reverberation, noise and `data_aug_effects` are accepted and
    not used. What would change audio or text and is not done here is an error.

    Args:
        train: not used.
        token_type: "char" or "word"; None leaves text alone.
        token_list: file with one token a line, or the tokens themselves.
        unk_symbol: the token for everything that is not listed.
        space_symbol: the token for a space between characters.
        text_name: where a sample holds its text.
        speech_name: where a sample holds its audio.
        force_single_channel: keep the first of several channels, float32 (samples, channels).
        bpemodel: not used; nor are the arguments from `fs` on.
        text_cleaner: must be None, like the arguments before `fs`.

    Raises:
        ConfigError: an argument asks for something that is not done here.
    """

    def __init__(
        self,
        train: bool = False,
        token_type: str | None = None,
        token_list: Path | str | Sequence[str] | None = None,
        unk_symbol: str = "<unk>",
        space_symbol: str = "<space>",
        text_name: str = "text",
        speech_name: str = "speech",
        force_single_channel: bool = False,
        bpemodel: Any = None,
        text_cleaner: Any = None,
        g2p_type: str | None = None,
        non_linguistic_symbols: Any = None,
        nonsplit_symbol: Any = None,
        delimiter: str | None = None,
        speech_volume_normalize: float | None = None,
        min_sample_size: int = -1,
        use_lang_prompt: bool = False,
        use_nlp_prompt: bool = False,
        aux_task_names: Any = None,
        fs: int = 0,
        rir_scp: str | None = None,
        rir_apply_prob: float = 1.0,
        noise_scp: str | None = None,
        noise_apply_prob: float = 1.0,
        noise_db_range: str = "3_10",
        short_noise_thres: float = 0.5,
        data_aug_effects: Any = None,
        data_aug_num: Sequence[int] = (1, 1),
        data_aug_prob: float = 0.0,
        audio_pad_value: float = 0.0,
        whisper_language: str | None = None,
        whisper_task: str | None = None,
    ) -> None:
        if token_type not in ("char", "word", None):
            raise ConfigError(
                f"token_type: {token_type!r} is not done here; expected char, word or null; to count "
                "characters pass dataset.preprocessor.token_type=char, or write a preprocessor of your own"
            )
        refused = {
            "text_cleaner": text_cleaner,
            "g2p_type": g2p_type,
            "non_linguistic_symbols": non_linguistic_symbols,
            "nonsplit_symbol": nonsplit_symbol,
            "delimiter": delimiter,
            "speech_volume_normalize": speech_volume_normalize,
            "use_lang_prompt": use_lang_prompt,
            "use_nlp_prompt": use_nlp_prompt,
            "aux_task_names": aux_task_names,
            "min_sample_size": min_sample_size if min_sample_size > 0 else None,
        }
        for name, value in refused.items():
            if value:
                raise ConfigError(
                    f"{name}: {value!r} changes what is measured and is not done here; take it out, or write "
                    "a preprocessor of your own"
                )
        super().__init__(
            "word" if token_type == "word" else "char",
            token_list,
            text_key=text_name,
            space_symbol=space_symbol,
            unk_symbol=unk_symbol,
        )
        self.train = train
        self.splits_text = token_type is not None
        self.speech_name = speech_name
        self.force_single_channel = force_single_channel

    def __call__(self, uid: str, sample: dict[str, Any]) -> dict[str, Any]:
        """The sample with ids in place of its text, and with one channel where that is asked for.

        Raises:
            ConfigError: the token list is missing or wrong.
            UtteranceError: a token is not listed, and neither is `unk_symbol`.
        """
        speech = sample.get(self.speech_name)
        if self.force_single_channel and isinstance(speech, np.ndarray) and speech.ndim > 1:
            sample = {**sample, self.speech_name: speech[:, 0]}
        return super().__call__(uid, sample) if self.splits_text else sample
