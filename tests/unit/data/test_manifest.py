"""Manifest rows: what is accepted, and where and how the rest is refused."""

import json
from pathlib import Path

import pytest

from statsprep.data.manifest import audio_path, check_manifest_exists, iter_lines, parse_line
from statsprep.errors import ConfigError, DataError


def refusal(raw: str | bytes) -> str:
    with pytest.raises(DataError) as caught:
        parse_line(raw if isinstance(raw, bytes) else raw.encode(), "m.jsonl:7")
    assert caught.value.message.startswith("m.jsonl:7: ")
    assert "\n" not in caught.value.message
    return caught.value.message.removeprefix("m.jsonl:7: ")


def test_all_keys_are_kept_and_null_is_absent() -> None:
    row = parse_line(
        b'{"utt_id":"a","audio":"a.wav","start_s":1,"duration_s":2.5,"speaker":null,"snr":3}', "m:1"
    )
    assert row == {"utt_id": "a", "audio": "a.wav", "start_s": 1, "duration_s": 2.5, "snr": 3}


@pytest.mark.parametrize("utt_id", ["ünï-語", "a/b/c", "x" * 300, "a'b\"c", "é" * 2048])
def test_unusual_ids_are_accepted(utt_id: str) -> None:
    raw = json.dumps({"utt_id": utt_id, "audio": "a"}, ensure_ascii=False).encode()
    assert parse_line(raw, "m:1")["utt_id"] == utt_id


@pytest.mark.parametrize(
    "escaped",
    [" ", "a b", "a\\tb", "a\\nb", "a\\u0000", "a\\u007f", "a\\u00a0b", "a\\u2028b", "a\\u3000b", "\\ud800"],
)
def test_ids_that_would_break_text_files_are_refused(escaped: str) -> None:
    assert "white space or a control character" in refusal(f'{{"utt_id": "{escaped}", "audio": "a"}}')


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ("[1]", 'holds [1]; expected an object, such as {"utt_id": "a", "audio": "a.wav"}'),
        ('{"audio": "a"}', "has no utt_id; add one, unique among all rows"),
        ('{"utt_id": 3, "audio": "a"}', "utt_id is 3; expected a string"),
        ('{"utt_id": "", "audio": "a"}', "utt_id is empty; expected at least one character"),
        ('{"utt_id": "a"}', "has neither audio nor text; add the path of its recording as audio"),
        ('{"utt_id": "a", "audio": 1}', "audio is 1; expected the path of a file"),
        ('{"utt_id": "a", "audio": ""}', 'audio is ""; expected the path of a file'),
        ('{"utt_id": "a", "audio": "a", "text": ["b"]}', 'text is ["b"]; expected a string'),
        ('{"utt_id": "a", "audio": "a", "speaker": 4}', "speaker is 4; expected a string"),
        (
            '{"utt_id": "a", "audio": "a", "start_s": -1}',
            "start_s is -1; expected a number of seconds, at least 0",
        ),
        (
            '{"utt_id": "a", "audio": "a", "duration_s": 0}',
            "duration_s is 0; expected a number of seconds above 0",
        ),
        (
            '{"utt_id": "a", "audio": "a", "duration_s": "3"}',
            'duration_s is "3"; expected a number of seconds above 0',
        ),
        (
            '{"utt_id": "a", "audio": "a", "duration_s": NaN}',
            "duration_s is nan; expected a number of seconds above 0",
        ),
        (
            '{"utt_id": "a", "text": "b", "duration_s": 1}',
            "has start_s or duration_s but no audio; add audio or remove them",
        ),
        (b'{"utt_id": "\xff"}', "byte 13 of the line is no UTF-8; save the manifest as UTF-8"),
    ],
)
def test_wrong_rows_are_refused_with_place_and_reason(raw: str | bytes, message: str) -> None:
    assert refusal(raw) == message


def test_malformed_json_names_the_column() -> None:
    assert refusal('{"utt_id": "a",}').startswith("not JSON at column 16 (")


def test_id_of_more_than_4096_bytes_is_refused() -> None:
    assert "has 4098 bytes; expected at most 4096" in refusal(
        json.dumps({"utt_id": "é" * 2049, "audio": "a"})
    )


def test_byte_order_mark_crlf_and_blank_lines_are_stepped_over(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_bytes(b"\xef\xbb\xbfone\r\n\r\n  \ntwo\nthree")
    assert list(iter_lines(path)) == [(1, 3, b"one"), (4, 13, b"two"), (5, 17, b"three")]


def test_unreadable_manifest_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        list(iter_lines(tmp_path))
    with pytest.raises(ConfigError, match=r"dataset: manifest .*no\.jsonl does not exist"):
        check_manifest_exists(tmp_path / "no.jsonl", where="dataset")
    with pytest.raises(ConfigError, match="is a folder"):
        check_manifest_exists(tmp_path, where="dataset")


def test_relative_audio_starts_at_the_manifests_folder() -> None:
    assert audio_path({"audio": "b/c.wav"}, "/a") == "/a/b/c.wav"
    assert audio_path({"audio": "/x/c.wav"}, "/a") == "/x/c.wav"
