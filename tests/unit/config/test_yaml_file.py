"""A file is read as its author meant it, or refused with the line at fault."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statsprep.config.yaml_file import dump, parse_value, read_mapping
from statsprep.errors import ConfigError

Write = Callable[[str, str], Path]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a.yaml: the file is empty; expected keys such as 'stats_dir: exp/stats'"),
        ("# only a comment\n", "a.yaml: the file is empty; expected keys such as 'stats_dir: exp/stats'"),
        (
            "- 1\n",
            "a.yaml: the top level is a list; expected a mapping with keys such as 'stats_dir: exp/stats'",
        ),
        ("a:\n\tb: 1\n", "a.yaml:2:1: a tab; YAML is indented with spaces; replace it"),
        ("a: [1\nb: 2\n", "a.yaml:2:2: expected ',' or ']', but got ':' (while parsing a flow sequence)"),
        ("a: b: c\n", "a.yaml:1:5: a second ': ' in a line; quote the value or start a new line"),
        ("a: 1\nb: 2\na: 3\n", "a.yaml:3:1: key 'a' is given twice (before in line 1); remove one of them"),
        (
            "a:\n  - {c: 1, c: 2}\n",
            "a.yaml:2:12: key 'c' is given twice (before in line 2); remove one of them",
        ),
        ("a: &x [*x]\n", "a.yaml:1:4: an alias inside the value it refers to; write the value out"),
        (
            "a: !!python/name:os.system\n",
            "a.yaml:1:4: could not determine a constructor "
            "for the tag 'tag:yaml.org,2002:python/name:os.system'",
        ),
        (
            "a: \x00",
            "a.yaml: unacceptable character #x0000: special characters are not allowed "
            'in "<unicode string>", position 3',
        ),
    ],
)
def test_bad_yaml_is_one_line_with_place_and_way_out(write: Write, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_mapping(write("a.yaml", text))
    assert str(caught.value) == message


def test_missing_file_and_folder_are_told_apart(folder: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read_mapping(Path("no.yaml"))
    assert str(caught.value) == "no.yaml: no such file; expected a YAML file; check the path"
    Path("conf").mkdir()
    with pytest.raises(ConfigError) as caught:
        read_mapping(Path("conf"))
    assert (
        str(caught.value)
        == "conf: this is a folder; expected a YAML file; name the file, e.g. conf/training.yaml"
    )


def test_other_encodings_are_refused_and_a_byte_order_mark_is_not(folder: Path) -> None:
    Path("a.yaml").write_bytes("a: müde".encode("latin-1"))
    with pytest.raises(ConfigError) as caught:
        read_mapping(Path("a.yaml"))
    assert str(caught.value) == "a.yaml: byte 4 is not UTF-8; save the file as UTF-8"
    Path("a.yaml").write_bytes("\ufeffa: müde\r\nb: 1\r\n".encode())
    assert read_mapping(Path("a.yaml")) == {"a": "müde", "b": 1}


def test_a_merge_key_may_be_overridden_without_being_a_duplicate(write: Write) -> None:
    path = write(
        "a.yaml", "base: &base {one: 1, two: 1}\nmid: &mid {<<: *base, two: 2}\ntop: {<<: *mid, one: 3}\n"
    )
    assert read_mapping(path)["top"] == {"one": 3, "two": 2}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("1e6", 1e6),
        ("2.5E+3", 2.5e3),
        ("4", 4),
        ("-1", -1),
        ("1.5", 1.5),
        ("30:00", 1800),
        ("04:00:00", "04:00:00"),
        ("2024-01-31", "2024-01-31"),
        ("1%", "1%"),
        ("e10", "e10"),
        ("[a, 1]", ["a", 1]),
        ("null", None),
        ("", None),
        ("${stats_dir}/train", "${stats_dir}/train"),
    ],
)
def test_a_value_is_read_as_it_looks(text: str, value: object) -> None:
    parsed = parse_value(text)
    assert (parsed, type(parsed)) == (value, type(value))


_PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\x85\u2028\u2029\ufeff"))
    | st.sampled_from(
        ["1e-4", "1E5", "2026-01-01", "12:30:00", "on", "~", "null", "0x1f", "=", "<<", "a: b", "#"]
    ),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("abc", min_size=1), inner),
    max_leaves=10,
)


@given(tree=st.dictionaries(st.text("abcdef_.", min_size=1), _PLAIN, min_size=1))
def test_what_is_dumped_reads_back_as_it_was(tree: dict[str, Any]) -> None:
    """The dumper knows what our loader takes for a number or a date."""
    assert parse_value(dump(tree)) == tree
    assert list(parse_value(dump(tree))) == list(tree)


def test_what_is_used_twice_is_written_twice() -> None:
    shared = {"x": 1}
    assert dump({"a": shared, "b": shared}) == "a:\n  x: 1\nb:\n  x: 1\n"


@pytest.mark.parametrize(
    "tag", ["python/object/apply:os.system", "python/name:os.system", "python/module:os"]
)
def test_a_python_tag_is_refused(write: Write, tag: str) -> None:
    with pytest.raises(ConfigError, match=r"^a\.yaml:1:4: could not determine a constructor for the tag"):
        read_mapping(write("a.yaml", f"a: !!{tag} ['touch ran']\n"))
    assert not Path("ran").exists()
