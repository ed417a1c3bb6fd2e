"""Progress: rates count only what this run did, and failures are seen while it runs."""

import logging

import pytest

from statsprep.engine import progress
from statsprep.engine.limits import ErrorLimit
from statsprep.engine.progress import LogObserver, Progress, format_seconds
from statsprep.engine.shard import ShardReport
from statsprep.errors import ConfigError, DataError


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def report(ok: int, error: int = 0, *, num_resumed: int = 0, audio_s: float = 0.0) -> ShardReport:
    errors = [{"utt_id": f"u{n}", "kind": "empty", "type": "E", "message": "m"} for n in range(error)]
    return ShardReport(
        0, {"ok": ok, "error": error}, num_resumed=num_resumed, extra={"audio_s": audio_s}, errors=errors
    )


def test_what_was_finished_before_is_in_the_count_but_not_in_the_rate(clock: Clock) -> None:
    numbers = Progress("train", 10_000, 4000)
    clock.now += 10
    numbers.add(report(900, 100, num_resumed=500, audio_s=36_000))
    assert numbers.num_done == 5000
    assert numbers.items_per_s == pytest.approx(50)
    assert numbers.eta_s == pytest.approx(100)
    assert str(numbers) == "train: 5,000/10,000, 50 items/s, 1.00 audio h/s, 0:01:40 left, 100 failed"


def test_nothing_done_yet_has_no_time_left(clock: Clock) -> None:
    assert Progress("train", 10, 0).eta_s is None
    assert str(Progress("train", 10, 0)) == "train: 0/10"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0:00:00"), (7, "0:00:07"), (3599.6, "1:00:00"), (93_780, "26:03:00")]
)
def test_seconds_read_as_hours(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_the_log_has_a_line_at_the_start_every_ten_seconds_and_at_the_end(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    observer = LogObserver()
    observer.begin("valid", 100, 20)
    for _ in range(40):
        clock.now += 1
        observer.advance(report(2))
    observer.end()
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == "valid: 100 items, 20 finished before"
    assert lines[-1] == "valid: 100/100, 2 items/s"
    assert len(lines) == 2 + 3


def test_a_run_over_its_limit_goes_on_while_most_succeeds() -> None:
    limit = ErrorLimit.of(1, 100)
    limit.add(report(8, 2))
    assert limit.num_failed == 2
    with pytest.raises(
        DataError, match="stopped: 12 of the first 20 utterances failed, at most 1 may"
    ) as caught:
        limit.add(report(0, 10))
    assert caught.value.detail.count("\n") == 9, "ten of them are shown"
    assert "--retry_errors" in str(caught.value)


@pytest.mark.parametrize(("max_errors", "allowed"), [(0, 0), (3, 3), ("1%", 2), ("0.5%", 1), ("100%", 250)])
def test_a_limit_is_a_count_or_a_share(max_errors: int | str, allowed: int) -> None:
    assert ErrorLimit.of(max_errors, 250).allowed == allowed


@pytest.mark.parametrize("max_errors", [-1, "many", "1", 0.5, None])
def test_another_limit_is_refused(max_errors: object) -> None:
    with pytest.raises(
        ConfigError, match=r"max_errors: got .*; expected a count such as 20 or a share such as 1%"
    ):
        ErrorLimit.of(max_errors, 250)  # type: ignore[arg-type]
