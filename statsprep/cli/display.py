"""What people see: a progress bar on a terminal, log lines elsewhere, and tables of results."""

import contextlib
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from statsprep.engine.limits import summarise_errors
from statsprep.engine.progress import LogObserver, Observer, format_seconds
from statsprep.engine.progress import Progress as Numbers
from statsprep.engine.report import RunReport
from statsprep.engine.shard import ShardReport
from statsprep.errors import printable
from statsprep.storage.paths import RunPaths
from statsprep.storage.stores import parent


class BarObserver:
    """A rich bar per run: items, rate, audio hours a second, time left, failures."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._task: TaskID | None = None
        self._numbers = Numbers("", 0, 0)

    def begin(self, label: str, num_items: int, num_done: int) -> None:
        self._numbers = Numbers(label, num_items, num_done)
        self._task = self._bars.add_task(label, total=num_items, completed=num_done, numbers="")

    def advance(self, report: ShardReport) -> None:
        self._numbers.add(report)
        self._update()

    def end(self) -> None:
        self._update()

    def _update(self) -> None:
        if self._task is not None:
            text = str(self._numbers).partition(": ")[2]
            self._bars.update(self._task, completed=self._numbers.num_done, numbers=text)


@contextlib.contextmanager
def make_observer() -> Iterator[Observer]:
    """A bar where standard error is a terminal, log lines elsewhere."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield LogObserver()
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[numbers]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as bars:
        yield BarObserver(bars)


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A table on standard output, its numbers to the right."""
    table = Table(
        title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    for position, name in enumerate(header):
        table.add_column(name, justify="left" if position == 0 else "right", no_wrap=position == 0)
    for row in rows:
        table.add_row(*map(printable, row))
    Console(markup=False).print(table)


def say(text: str) -> None:
    """Print lines of text that may hold other people's words."""
    print(*map(printable, text.split("\n")), sep="\n")


def show_reports(reports: Sequence[RunReport]) -> None:
    """What a run did, what failed, and what to type next."""
    rows = [
        [shorten(report.paths.place if report.paths else ""), f"{report.num_items:,}"]
        + [f"{report.counts.get(status, 0):,}" for status in ("ok", "dropped", "error")]
        + [f"{report.num_skipped:,}", format_seconds(report.seconds)]
        for report in reports
    ]
    print_table("results", ["run", "items", "ok", "dropped", "failed", "resumed", "time"], rows)
    for report in reports:
        if report.paths is None:
            continue
        if report.keyed_by == "position":
            say(
                f"{shorten(report.paths.place)}: keyed by position; give the dataset utt_ids() to key by "
                "utterance id"
            )
        if report.num_failed:
            say(f"{shorten(report.paths.place)}: {report.num_failed} failed, see errors.jsonl")
            say(summarise_errors(report.paths))
    for place in dict.fromkeys(_above_splits(report.paths) for report in reports if report.paths):
        say(f"next: {shlex.join(['statsprep', 'inspect', shorten(place)])}")


def _above_splits(paths: RunPaths) -> str:
    return parent(paths.place) if paths.root.name in ("train", "valid") else paths.place


def shorten(place: Path | str) -> str:
    """A path relative to the current folder where it lies below it; a URL as it is."""
    is_below = Path(place).is_relative_to(Path.cwd())
    return str(Path(place).relative_to(Path.cwd()) if is_below else place)
