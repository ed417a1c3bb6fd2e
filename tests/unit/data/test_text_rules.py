"""Text rules: applied in their order, proved by their own test cases whenever they are loaded."""

import textwrap
from pathlib import Path
from typing import Any

import pytest

from statsprep.data.text_rules import TextRules
from statsprep.errors import ConfigError


@pytest.fixture
def rules(tmp_path: Path) -> Any:
    """Loads rules from YAML text."""

    def load(text: str, **options: Any) -> TextRules:
        path = tmp_path / "rules.yaml"
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return TextRules(path, **options)

    return load


RULES = r"""
    nfkc: true
    lowercase: true
    rules:
      - {pattern: "[.,!?]", replace: ""}
      - {pattern: '(\d+) ?%', replace: '\1 percent'}
    test_cases:
      - {in: "Up 5%, OK?", out: "up 5 percent ok"}
      - {in: " Ｆｕｌｌ   width ", out: "full width"}
"""


def test_rules_are_applied_in_order_and_keep_the_other_fields(rules: Any) -> None:
    sample = {"utt_id": "a", "text": "ＹＥＳ,  100 % sure!"}
    assert rules(RULES)(sample) == {"utt_id": "a", "text": "yes 100 percent sure"}
    assert sample["text"] == "ＹＥＳ,  100 % sure!"


def test_other_keys_and_missing_text(rules: Any) -> None:
    assert rules("lowercase: true", text_key="words")({"words": "A"}) == {"words": "a"}
    assert rules("lowercase: true")({"words": "A"}) == {"words": "A"}


def test_spaces_stay_where_that_is_asked_for(rules: Any) -> None:
    assert rules("{collapse_spaces: false, lowercase: true}").normalise(" A  B ") == " a  b "


def test_a_failing_test_case_names_file_case_got_and_expected(rules: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        rules("""
            rules: [{pattern: a, replace: b}]
            test_cases: [{in: c, out: c}, {in: aa, out: ab}]
        """)
    message = str(caught.value)
    assert (
        "rules.yaml: test_cases.1: 'aa' became 'bb'; expected 'ab'; correct the rules or the case" in message
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lowercas: true", "unknown key 'lowercas'; did you mean 'lowercase'?"),
        ("nfkc: 1", "nfkc: is 1; expected true or false"),
        ("rules: {pattern: a}", "rules: is {'pattern': 'a'}; expected a list such as"),
        ("rules: [{pattern: a}]", "rules.0: has 'pattern'; expected pattern and replace"),
        ("rules: [{pattern: a, replace: 5}]", "rules.0.replace: is 5; expected text; put it in quotes"),
        ("rules: [{pattern: '(', replace: ''}]", "rules.0: '(' -> '' is no substitution of Python's re"),
        (
            r"rules: [{pattern: a, replace: '\2'}]",
            "is no substitution of Python's re (invalid group reference 2",
        ),
        ("test_cases: [{input: a, out: b}]", "test_cases.0: has 'input', 'out'; expected in and out"),
    ],
)
def test_a_mistake_in_the_file_is_named(text: str, message: str, rules: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        rules(text)
    assert str(caught.value).startswith(str(caught.value).partition("rules.yaml")[0] + "rules.yaml: ")
    assert message in str(caught.value)


def test_fingerprint_holds_the_rules_but_not_the_test_cases(rules: Any) -> None:
    one = rules("{lowercase: true, test_cases: [{in: A, out: a}]}").fingerprint()
    assert one == rules("lowercase: true").fingerprint() == {"lowercase": True}
    assert rules("{lowercase: true, nfkc: true}").fingerprint() != one
