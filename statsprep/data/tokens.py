"""Text to token ids, and the token list that says which id is which."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from statsprep.data.verdicts import UtteranceError, Verdict
from statsprep.errors import ConfigError, nearest

TokenType = Literal["char", "word"]
BLANK, UNKNOWN, SPACE, SOS_EOS = "<blank>", "<unk>", "<space>", "<sos/eos>"


class TextPreprocessor:
    """Replaces the text of a sample by its token ids, int64 (tokens,). Samples without text pass unchanged.

    The token list is read at the first text, so that a recipe can be loaded before it is written.

    Args:
        token_type: "char" or "word".
        token_list: file with one token a line, or the tokens themselves; the position is the id.
        text_key: where a sample holds its text.
        space_symbol: the token for a space between characters.
        unk_symbol: the token for everything that is not listed.
    """

    def __init__(
        self,
        token_type: TokenType = "char",
        token_list: Path | str | Sequence[str] | None = None,
        text_key: str = "text",
        space_symbol: str = SPACE,
        unk_symbol: str = UNKNOWN,
    ) -> None:
        _check_token_type(token_type)
        self.token_type = token_type
        self.token_list = token_list
        self.text_key = text_key
        self.space_symbol = space_symbol
        self.unk_symbol = unk_symbol
        self._ids: dict[str, int] | None = None

    def __call__(self, uid: str, sample: dict[str, Any]) -> dict[str, Any]:
        """The sample with ids in place of its text.

        Raises:
            ConfigError: the token list is missing or wrong.
            UtteranceError: a token is not listed, and neither is `unk_symbol`.
        """
        text = sample.get(self.text_key)
        if not isinstance(text, str):
            return sample
        if self._ids is None:
            self._ids = self._load_ids()
        unknown = self._ids.get(self.unk_symbol)
        tokens = split_text(text, self.token_type, space_symbol=self.space_symbol)
        ids = [self._ids.get(token, unknown) for token in tokens]
        if None in ids:
            raise UtteranceError(
                f"token {tokens[ids.index(None)]!r} is not in the token list, nor is "
                f"{self.unk_symbol}; add one of them",
                kind=Verdict.EXCEPTION,
            )
        return {**sample, self.text_key: np.array(ids, np.int64)}

    def _load_ids(self) -> dict[str, int]:
        if self.token_list is None:
            raise ConfigError(
                "dataset.preprocessor.token_list: is not set, but samples have text; "
                "give a file with one token a line"
            )
        if isinstance(self.token_list, str | Path):
            return read_token_list(self.token_list)
        return _number_tokens(self.token_list, "dataset.preprocessor.token_list", "item ")


def split_text(text: str, token_type: TokenType, *, space_symbol: str = SPACE) -> list[str]:
    """The tokens of a text: its words, or its characters with `space_symbol` for a space."""
    if token_type == "word":
        return text.split()
    return [space_symbol if character == " " else character for character in text]


def build_token_list(texts: Iterable[str], token_type: TokenType, *, space_symbol: str = SPACE) -> list[str]:
    """The tokens of `texts`, most frequent first, then by code point, between the special ones.

    Returns:
        `<blank>`, `<unk>`, the tokens, `<sos/eos>`: the same list for the same texts in any order.
    """
    _check_token_type(token_type)
    counts = Counter(
        token for text in texts for token in split_text(text, token_type, space_symbol=space_symbol)
    )
    for special in (BLANK, UNKNOWN, SOS_EOS):
        counts.pop(special, None)
    return [BLANK, UNKNOWN, *sorted(counts, key=lambda token: (-counts[token], token)), SOS_EOS]


def read_token_list(path: Path | str) -> dict[str, int]:
    """Ids by token, from a file with one token a line.

    Raises:
        ConfigError: the file is missing, empty, no UTF-8, or lists a token twice.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(
            f"{path}: token list cannot be read ({error.strerror}); "
            "correct token_list, or write the file first"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path}: token list is no UTF-8 at byte {error.start}; save it as UTF-8"
        ) from error
    # Not splitlines(): U+2028 and its kin are tokens here.
    return _number_tokens(
        text.replace("\r\n", "\n").removesuffix("\n").split("\n") if text else [], str(path), "line "
    )


def _number_tokens(tokens: Sequence[str], where: str, unit: str) -> dict[str, int]:
    if not tokens:
        raise ConfigError(f"{where}: token list is empty; expected one token a line")
    ids: dict[str, int] = {}
    for i, token in enumerate(tokens):
        if not isinstance(token, str) or not token:
            raise ConfigError(f"{where}: {unit}{i + 1} is {token!r}; expected a token")
        if token in ids:
            raise ConfigError(
                f"{where}: token {token!r} appears twice ({unit}{ids[token] + 1} and {unit}{i + 1}); "
                "remove one"
            )
        ids[token] = i
    return ids


def _check_token_type(token_type: str) -> None:
    if token_type not in ("char", "word"):
        raise ConfigError(
            f"token_type: is {token_type!r}{nearest(str(token_type), ('char', 'word'))}; "
            "expected char or word"
        )
