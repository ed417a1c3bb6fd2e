"""`X2utt` is the inverse of `utt2X`."""

from collections import defaultdict
from pathlib import Path

import pytest

from statsprep.storage import categories
from statsprep.storage.categories import invert


def test_values_are_sorted_and_ids_keep_the_order_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "utt2lang").write_text("u3 fr\nu1 en\nu2 fr\nu0 en\n")
    invert(tmp_path / "utt2lang", tmp_path / "lang2utt")
    assert (tmp_path / "lang2utt").read_text() == "en u1 u0\nfr u3 u2\n"


def test_odd_ids_and_values_survive(
    weird_tmp_path: Path, odd_ids: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(categories, "_IDS_PER_WRITE", 3)
    values = ["NA", "null", "001", "1", '"q', "日本", "1.0"]
    pairs = [(utt_id, values[number % len(values)]) for number, utt_id in enumerate(odd_ids)]
    (weird_tmp_path / "utt2x").write_text("".join(f"{u} {v}\n" for u, v in pairs), encoding="utf-8")
    invert(weird_tmp_path / "utt2x", weird_tmp_path / "x2utt")
    expected = defaultdict(list)
    for utt_id, value in pairs:
        expected[value].append(utt_id)
    lines = (weird_tmp_path / "x2utt").read_text(encoding="utf-8").splitlines()
    assert lines == [" ".join([value, *expected[value]]) for value in sorted(expected)]
