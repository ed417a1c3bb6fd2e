"""ESPnet's preprocessor under its own argument names: the same tokens, or what is not done is named."""

import numpy as np
import pytest

from statsprep.data.espnet_preprocessor import CommonPreprocessor
from statsprep.data.tokens import TextPreprocessor
from statsprep.errors import ConfigError

TOKENS = ["<blank>", "<unk>", "<space>", "a", "b", "<sos/eos>"]


@pytest.mark.parametrize("token_type", ["char", "word"])
def test_text_becomes_the_ids_of_our_own_preprocessor(token_type: str) -> None:
    theirs = CommonPreprocessor(token_type=token_type, token_list=TOKENS)
    ours = TextPreprocessor(token_type, TOKENS)  # type: ignore[arg-type]
    sample = {"text": "a bc", "speech": np.zeros(3, np.float32)}
    np.testing.assert_array_equal(theirs("u", sample)["text"], ours("u", sample)["text"])


def test_without_token_type_text_stays_and_augmentation_is_not_done() -> None:
    preprocessor = CommonPreprocessor(
        train=True, fs=16000, data_aug_effects=[[1.0, "gain", {}]], data_aug_prob=1.0, noise_scp="noise.scp"
    )
    sample = {"text": "a b", "speech": np.ones(3, np.float32)}
    assert preprocessor("u", sample) is sample


def test_a_single_channel_is_the_first() -> None:
    speech = np.arange(6, dtype=np.float32).reshape(3, 2)
    one = CommonPreprocessor(force_single_channel=True)("u", {"speech": speech})
    np.testing.assert_array_equal(one["speech"], [0, 2, 4])
    assert CommonPreprocessor()("u", {"speech": speech})["speech"] is speech


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"token_type": "bpe"}, "token_type: 'bpe' is not done here; expected char, word or null"),
        ({"speech_volume_normalize": 1.0}, "speech_volume_normalize: 1.0 changes what is measured"),
        ({"text_cleaner": ["tacotron"]}, r"text_cleaner: \['tacotron'\] changes what is measured"),
        ({"min_sample_size": 100}, "min_sample_size: 100 changes what is measured"),
    ],
)
def test_what_would_change_lengths_or_statistics_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}"):
        CommonPreprocessor(**options)  # type: ignore[arg-type]
