"""Token lists are deterministic, and texts become ids."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statsprep.data.tokens import TextPreprocessor, build_token_list, read_token_list
from statsprep.data.verdicts import UtteranceError
from statsprep.errors import ConfigError


def test_tokens_are_ordered_by_count_then_code_point() -> None:
    assert build_token_list(["b a", "ab c"], "char") == [
        "<blank>",
        "<unk>",
        "<space>",
        "a",
        "b",
        "c",
        "<sos/eos>",
    ]
    assert build_token_list(["b a", "b <unk>"], "word") == ["<blank>", "<unk>", "b", "a", "<sos/eos>"]


@given(st.lists(st.text(alphabet="abc é\u2028", max_size=6), max_size=6), st.randoms())
def test_order_of_texts_does_not_matter(texts: list[str], random: object) -> None:
    shuffled = list(texts)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert build_token_list(texts, "char") == build_token_list(shuffled, "char")


@given(st.lists(st.text(alphabet="abc é\u2028\u0085", max_size=6), max_size=6))
def test_written_list_gives_back_the_same_ids(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str]
) -> None:
    tokens = build_token_list(texts, "char")
    path = tmp_path_factory.mktemp("t") / "tokens.txt"
    path.write_text("\n".join(tokens) + "\n", encoding="utf-8", newline="\n")
    assert read_token_list(path) == {token: i for i, token in enumerate(tokens)}


def test_text_becomes_int64_ids_and_the_sample_is_not_changed() -> None:
    preprocessor = TextPreprocessor("char", ["<blank>", "<unk>", "<space>", "a"])
    sample = {"text": "a bé", "speaker": "s"}
    ids = preprocessor("u", sample)["text"]
    assert (ids.tolist(), ids.dtype) == ([3, 2, 1, 1], np.int64)
    assert sample["text"] == "a bé"
    assert preprocessor("u", {"text": ""})["text"].shape == (0,)


def test_words_and_other_text_keys() -> None:
    preprocessor = TextPreprocessor("word", ["<unk>", "hello"], text_key="transcript")
    assert preprocessor("u", {"transcript": "hello  world"})["transcript"].tolist() == [1, 0]


def test_samples_without_text_pass_even_without_a_token_list() -> None:
    sample = {"speech": np.zeros(3)}
    assert TextPreprocessor()("u", sample) is sample
    with pytest.raises(ConfigError, match="token_list: is not set"):
        TextPreprocessor()("u", {"text": "a"})


def test_unlisted_token_without_an_unknown_symbol_is_named() -> None:
    with pytest.raises(UtteranceError, match="token 'b' is not in the token list, nor is <unk>"):
        TextPreprocessor("char", ["a"])("u", {"text": "ab"})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a\nb\na\n", "token 'a' appears twice (line 1 and line 3); remove one"),
        ("", "token list is empty; expected one token a line"),
        ("a\n\nb\n", "line 2 is ''; expected a token"),
    ],
)
def test_wrong_token_list_is_named_with_its_lines(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "tokens.txt"
    path.write_text(content)
    with pytest.raises(ConfigError) as caught:
        TextPreprocessor(token_list=path)("u", {"text": "a"})
    assert caught.value.message == f"{path}: {message}"


def test_list_is_read_when_first_needed(tmp_path: Path) -> None:
    preprocessor = TextPreprocessor(token_list=str(tmp_path / "later.txt"))
    with pytest.raises(ConfigError, match="cannot be read"):
        preprocessor("u", {"text": "a"})
    (tmp_path / "later.txt").write_bytes(b"\xef\xbb\xbf<unk>\r\na\r\n")
    assert preprocessor("u", {"text": "a"})["text"].tolist() == [1]


def test_unknown_token_type_is_refused() -> None:
    with pytest.raises(ConfigError, match="token_type: is 'chars'; did you mean 'char'"):
        TextPreprocessor("chars")  # type: ignore[arg-type]
