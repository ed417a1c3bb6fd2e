"""Results are JSON in every mode; what is not names the utterance and the way out."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from statsprep.data.verdicts import UtteranceError, Verdict
from statsprep.engine.records import error_record, to_json
from statsprep.errors import ConfigError


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (np.int64(3), 3),
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        ((1, (2, np.uint8(3))), [1, [2, 3]]),
        ({"shape": np.zeros((3, 80)).shape}, {"shape": [3, 80]}),
        ({1: "int key"}, {"1": "int key"}),
        (Path("/a/b"), "/a/b"),
        ("\udc80", "\udc80"),
        (0, 0),
        ("", ""),
        ([], []),
        (False, False),
    ],
)
def test_results_are_what_json_reads_back(result: Any, expected: Any) -> None:
    value, text = to_json(result, "index 0")
    assert value == expected
    assert type(value) is type(expected)
    assert "\n" not in text


@pytest.mark.parametrize(
    ("result", "seen"),
    [
        (np.zeros(3), "numpy.ndarray"),
        ({"a": [object()]}, "builtins.object"),
        (float("nan"), "not JSON compliant"),
        ([np.float64("inf")], "not JSON compliant"),
        ({(1, 2): 3}, "keys must be str"),
        ({1, 2}, "builtins.set"),
        (b"bytes", "builtins.bytes"),
    ],
)
def test_what_is_no_json_names_the_place_and_a_way_out(result: Any, seen: str) -> None:
    with pytest.raises(ConfigError) as caught:
        to_json(result, "index 7 (utterance 'u7')")
    assert str(caught.value).startswith("index 7 (utterance 'u7'): forward returned what is no JSON (")
    assert seen in str(caught.value)
    assert ".tolist()" in str(caught.value)


def test_a_result_that_holds_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ConfigError, match="index 0: forward returned what is no JSON"):
        to_json(loop, "index 0")


def test_an_error_record_holds_all_that_a_person_needs() -> None:
    def fail() -> None:
        raise UtteranceError("a.wav: no samples", kind=Verdict.EMPTY)

    try:
        fail()
    except UtteranceError as error:
        record = error_record(error, utt_id="u7", index=7)
    text = record.pop("traceback")
    assert record == {
        "utt_id": "u7", "index": 7, "kind": "empty", "type": "UtteranceError", "message": "a.wav: no samples"
    }  # fmt: skip
    assert "in fail" in text
    assert error_record(ValueError("x"), utt_id="u", index=0)["kind"] == "exception"
