"""How far a run is: counts, rate, time left; as log lines here, as a bar in the command line."""

import logging
import time
from typing import Protocol

from statsprep.engine.shard import ShardReport

logger = logging.getLogger(__name__)
_LOG_INTERVAL_S = 10.0


class Observer(Protocol):
    """Is told how a run goes."""

    def begin(self, label: str, num_items: int, num_done: int) -> None:
        """A run starts; `num_done` items are finished already."""

    def advance(self, report: ShardReport) -> None:
        """A shard ended."""

    def end(self) -> None:
        """No more shards will end, for whatever reason."""


class Progress:
    """The numbers behind every display. Rates count only what this run did itself."""

    def __init__(self, label: str, num_items: int, num_done: int) -> None:
        self.label = label
        self.num_items = num_items
        self.num_done = num_done
        self.num_failed = 0
        self._num_before = num_done
        self._audio_s = 0.0
        self._began = time.monotonic()

    def add(self, report: ShardReport) -> None:
        self.num_done += report.num_items
        self._num_before += report.num_resumed
        self.num_failed += report.counts.get("error", 0)
        self._audio_s += report.extra.get("audio_s", 0.0)

    @property
    def items_per_s(self) -> float:
        return (self.num_done - self._num_before) / max(time.monotonic() - self._began, 1e-3)

    @property
    def eta_s(self) -> float | None:
        rate = self.items_per_s
        return (self.num_items - self.num_done) / rate if rate else None

    def __str__(self) -> str:
        parts = [f"{self.label}: {self.num_done:,}/{self.num_items:,}"]
        if self.num_done > self._num_before:
            parts.append(f"{self.items_per_s:,.0f} items/s")
        if self._audio_s:
            hours_per_s = self._audio_s / 3600 / max(time.monotonic() - self._began, 1e-3)
            parts.append(f"{hours_per_s:.2f} audio h/s")
        if self.eta_s is not None and self.num_done < self.num_items:
            parts.append(f"{format_seconds(self.eta_s)} left")
        if self.num_failed:
            parts.append(f"{self.num_failed} failed")
        return ", ".join(parts)


def format_seconds(seconds: float) -> str:
    """`0:00:07`, `26:03:00`."""
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


class LogObserver:
    """A log line at the start, every ten seconds, and at the end."""

    def __init__(self) -> None:
        self._progress: Progress | None = None
        self._last = 0.0

    def begin(self, label: str, num_items: int, num_done: int) -> None:
        self._progress = Progress(label, num_items, num_done)
        self._last = time.monotonic()
        logger.info("%s: %s items, %s finished before", label, f"{num_items:,}", f"{num_done:,}")

    def advance(self, report: ShardReport) -> None:
        if self._progress is None:
            return
        self._progress.add(report)
        if time.monotonic() - self._last > _LOG_INTERVAL_S:
            self._last = time.monotonic()
            logger.info("%s", self._progress)

    def end(self) -> None:
        logger.info("%s", self._progress)
