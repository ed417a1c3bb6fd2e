"""The recipe's code on sample data."""

import json
from pathlib import Path

from src.make_data import SILENT, make_data
from src.prepare import LoudnessRunner, SpeechProvider


def test_silence_is_dropped_and_the_rest_is_measured(tmp_path: Path) -> None:
    make_data(tmp_path, num_utterances=10)
    provider = SpeechProvider({"manifest": str(tmp_path / "train.jsonl")}, params={"silence_dbfs": -50.0})
    runner = LoudnessRunner(provider)
    results = runner(range(8))
    assert [result["utt_id"] for result in results] == [
        f"utt_{n:03d}" for n in range(8) if f"utt_{n:03d}" != SILENT
    ]
    assert runner.report is not None
    assert runner.report.dropped_ids == [SILENT]
    assert all(-40 < result["loudness_dbfs"] < 0 for result in results)
    assert results[0]["chars_per_s"] > 0


def test_results_go_to_files_and_a_second_run_has_nothing_to_do(tmp_path: Path) -> None:
    make_data(tmp_path, num_utterances=10)
    provider = SpeechProvider({"manifest": str(tmp_path / "train.jsonl")})
    for num_resumed in (0, 8):
        runner = LoudnessRunner(provider, output_dir=tmp_path / "exp")
        runner(range(8))
        assert runner.report is not None
        assert runner.report.num_skipped == num_resumed
    lines = (tmp_path / "exp" / "results.jsonl").read_text(encoding="utf-8").splitlines()
    assert len([json.loads(line) for line in lines]) == 7
