"""BaseRunner: a user's `forward` over many indices, with one answer in every mode.

The main path: `run` makes a plan, opens the run directory, lets an executor run the pending shards, and
merges them.
"""

import contextlib
import dataclasses
import inspect
import json
import logging
import secrets
import time
import weakref
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from statsprep.engine.attempt import find_defect, read_done, set_aside
from statsprep.engine.code_hash import hash_code
from statsprep.engine.env import forget_env
from statsprep.engine.executor import Executor, default_parallel, make_executor
from statsprep.engine.fingerprint import Parts, digest_of, without
from statsprep.engine.limits import ErrorLimit, describe_errors
from statsprep.engine.manifest import Manifest, check_run_dir, open_run
from statsprep.engine.merge import merge_run, remove_leftovers
from statsprep.engine.mirror import (
    owned_run,
    pull_shards,
    push_inputs,
    remove_leftovers_on_store,
    remove_mirror_at_exit,
    withdraw_shard,
)
from statsprep.engine.plain import dotted_name, plain_config
from statsprep.engine.plan import Items, Shard, plan_shards
from statsprep.engine.progress import LogObserver, Observer
from statsprep.engine.provider import EnvironmentProvider, worker_setup_of
from statsprep.engine.report import RunReport
from statsprep.engine.shard import ShardJob, ShardReport, ShardTask
from statsprep.errors import ConfigError, DataError
from statsprep.storage.journal import Status
from statsprep.storage.paths import RunPaths
from statsprep.storage.stores import absolute

logger = logging.getLogger(__name__)

# Top-level config keys that say where and how to run, never what comes out.
_NOT_RESULTS = ("parallel", "fingerprint", "stats_dir", "exp_dir", "output_dir", "log_level")


class BaseRunner:
    """Runs `forward` for every index, in this process or wherever `set_parallel` says.

    Example:
        >>> class Lengths(BaseRunner):
        ...     @staticmethod
        ...     def forward(idx, *, dataset):
        ...         return {"length": len(dataset[idx])}

    Args:
        provider: builds what `forward` needs.
        batch_size: where set, `forward` gets a list of up to so many indices and returns a list of as many
            results.
        output_dir: where results go, a folder or the URL of one; without it they come back as a list.
        shard_subdir: folder below `output_dir`, for instance the split's name.
        shard_size: items per shard instead of the plan's own rule.
        resume: go on with an earlier run of the same thing; False starts anew.
        on_error: `raise` stops at the first failing utterance, `skip` records it and goes on.
        max_errors: with `skip`, how many may fail: a number, or a share such as `"1%"`.

    Raises:
        ConfigError: an argument out of its range.
    """

    # Whether results.jsonl is written.
    keeps_results = True
    # Where it is above 1, forward gets lists of up to so many indices without batch_size, and how they are
    # grouped must not matter.
    block_size = 1
    # Set where a runner is built from a configuration: how `replay` builds it again, for the manifest, and
    # the configuration with all defaults written out, for the fingerprint.
    origin: dict[str, Any] | None = None
    filled_config: Any = None

    def __init__(
        self,
        provider: EnvironmentProvider,
        *,
        batch_size: int | None = None,
        output_dir: str | Path | None = None,
        shard_subdir: str = "",
        shard_size: int | None = None,
        resume: bool = True,
        on_error: Literal["raise", "skip"] = "raise",
        max_errors: int | str = "1%",
    ) -> None:
        if batch_size is not None and batch_size < 1:
            raise ConfigError(f"batch_size: got {batch_size}; expected a positive number of indices, or None")
        if on_error not in ("raise", "skip"):
            raise ConfigError(f"on_error: got {on_error!r}; expected 'raise' or 'skip'")
        ErrorLimit.of(max_errors, 0)
        self.provider = provider
        self.batch_size = batch_size
        self.output_dir = None if output_dir is None else absolute(output_dir)
        self.shard_subdir = shard_subdir
        self.shard_size = shard_size
        self.resume = resume
        self.on_error = on_error
        self.max_errors = max_errors
        self.report: RunReport | None = None
        self._run_id = secrets.token_hex(8)
        weakref.finalize(self, forget_env, self._run_id)

    @staticmethod
    def forward(*args: Any, **env: Any) -> Any:
        """Write it as `forward(idx, *, dataset, ...)`: handle one index (with `batch_size`: a list of them).
        None or a Dropped, which says why, drops it; anything else must be JSON or a Record.
        """
        raise ConfigError(
            "the runner has no forward; write `@staticmethod def forward(idx, *, dataset): ...`"
        )

    @staticmethod
    def open_writers(shard_dir: Path, **env: Any) -> dict[str, Any]:
        """Open what `write_record` writes to, below `shard_dir`; called once per attempt at a shard."""
        return {}

    @staticmethod
    def write_record(writers: dict[str, Any], result: Any, state: dict[str, Any], **env: Any) -> Any:
        """Take one result, in index order.

        It is called for results taken over from a killed attempt as well, with the same JSON. `state` holds
        shard_id, shard_dir, position, index and utt_id. What it returns, such as the result with the paths of
        its files, stands in results.jsonl instead of the result.
        """

    @staticmethod
    def has_files(result: Any, state: dict[str, Any]) -> bool:
        """Whether `state["previous_dir"]`, a killed attempt's folder, still holds what `write_record` wrote
        for a result; if not, the shard goes on from this item. True by default.
        """
        return True

    @staticmethod
    def close_writers(writers: dict[str, Any], state: dict[str, Any], **env: Any) -> dict[str, Any] | None:
        """Finish the files; the dict returned is kept as JSON in the shard's `done`. By default: close each
        writer.
        """
        for writer in writers.values():
            if hasattr(writer, "close"):
                writer.close()
        return None

    @staticmethod
    def merge_files(shard_dirs: Sequence[Path], out_dir: Path) -> None:
        """Write merged files into `out_dir` from the shards in order; results.jsonl and its kin are there
        already.
        """

    def merge(self, shard_dirs: Sequence[Path]) -> Any:
        """Called in this process after the merge; what it returns is what calling the runner returns."""
        return None

    def __call__(self, indices: Iterable[int]) -> Any:
        """Run all indices.

        Returns:
            Without `output_dir` the results in index order, dropped and failed ones left out; else what
            `merge` returns, or the RunReport where it returns nothing.
        """
        if self.output_dir is None:
            return self._run_in_memory(Items.of(indices))
        report = self.run(indices)
        merged = self.merge(report.shard_dirs)
        return report if merged is None else merged

    def run(
        self,
        indices: Iterable[int],
        *,
        executor: Executor | None = None,
        observer: Observer | None = None,
        accept: Sequence[str] = (),
        overwrite: bool = False,
        retry_errors: bool = False,
    ) -> RunReport:
        """Run into `output_dir`, or go on with what is there, and merge.

        Args:
            indices: any sequence of integers.
            executor: who runs the shards; by default what `set_parallel` chose.
            observer: is told of progress; by default the log.
            accept: changes since the earlier run that do not matter: `code` or dotted config keys.
            overwrite: remove an earlier run's results first.
            retry_errors: measure those shards anew that hold failed utterances.

        Raises:
            ChangedRunError: the directory holds results of something else.
            RunInUseError: another live process works there.
            DataError: an utterance failed, or more than `max_errors` did.
            WorkerError: workers died, did not come, or could not write.
        """
        if self.output_dir is None:
            raise ConfigError(
                "output_dir: missing; run() writes files; give one, or call the runner for a list"
            )
        began = time.perf_counter()
        items = Items.of(indices)
        paths = RunPaths.at(self.output_dir, self.shard_subdir)
        check_run_dir(paths)
        overwrite = overwrite or not self.resume
        with owned_run(paths, overwrite=overwrite):
            wanted = self._describe(items)
            manifest = open_run(paths, wanted, accept=accept, overwrite=overwrite)
            self.begin(paths)
            if not paths.indices.exists():
                items.save(paths.indices)
            push_inputs(paths)
            pull_shards(paths, manifest)
            tasks, finished = _pending(paths, manifest, items, retry_errors=retry_errors)
            limit = ErrorLimit.of(self.max_errors, len(items))
            job = self._job(fingerprint=manifest.fingerprint, trusted=manifest.trusted, paths=paths)
            self._run_shards(
                job, tasks, executor, observer, limit, _Scope(paths.root.name, len(items), finished)
            )
            receipt = merge_run(paths, manifest, type(self))
            remove_leftovers(paths)
            remove_leftovers_on_store(paths, manifest)
        with contextlib.suppress(OSError):
            paths.leases.rmdir()
        remove_mirror_at_exit(paths)
        self.report = RunReport(
            receipt.counts,
            finished,
            receipt.keyed_by,
            time.perf_counter() - began,
            paths,
            len(manifest.shards),
        )
        limit.check(paths, self.report.num_failed)
        return self.report

    def begin(self, paths: RunPaths) -> None:
        """Called once the run directory is known to be this run's, before any shard; nothing by default."""

    def _run_in_memory(self, items: Items) -> list[Any]:
        began = time.perf_counter()
        tasks = [ShardTask(shard, items.slice(shard)) for shard in self._plan(items)]
        limit = ErrorLimit.of(self.max_errors, len(items))
        reports = self._run_shards(
            self._job(), tasks, None, None, limit, _Scope(type(self).__name__, len(items), 0)
        )
        reports.sort(key=lambda report: report.shard_id)
        report = RunReport({}, seconds=time.perf_counter() - began)
        report.counts = _sum_counts(reports)
        results = []
        for each in reports:
            for status, utt_id, result in json.loads(each.entries or "[]"):
                if status == Status.OK:
                    results.append(result)
                else:
                    report.memory_ids.setdefault(status, []).append(utt_id)
                if status == Status.DROPPED:
                    report.memory_dropped.append({"utt_id": utt_id, **(result or {})})
            if each.keyed_by == "position":
                report.keyed_by = "position"
        self.report = report
        if report.num_failed > limit.allowed:
            raise DataError(
                f"{type(self).__name__}: {report.num_failed} utterances failed, at most {limit.allowed} "
                "may; mend them or allow more with max_errors",
                detail=describe_errors(limit.first),
            )
        return results

    def _run_shards(
        self,
        job: ShardJob,
        tasks: Sequence[ShardTask],
        executor: Executor | None,
        observer: Observer | None,
        limit: ErrorLimit,
        scope: "_Scope",
    ) -> list[ShardReport]:
        """Run the tasks; their reports are kept only where they hold results."""
        observer = observer or LogObserver()
        kept = []
        observer.begin(scope.label, scope.num_items, scope.num_finished)
        try:
            with contextlib.ExitStack() as stack:
                if tasks and executor is None:
                    executor = stack.enter_context(make_executor(default_parallel()))
                if executor is not None and not executor.in_process:
                    _refuse_memory(job.paths)
                    job = dataclasses.replace(job, setup=worker_setup_of(self.provider))
                reports: Iterable[ShardReport] = ()
                if executor is not None and tasks:
                    reports = stack.enter_context(contextlib.closing(executor.run(job, tasks)))
                for report in reports:
                    observer.advance(report)
                    limit.add(report)
                    if job.paths is None:
                        kept.append(report)
        finally:
            observer.end()
        return kept

    def _job(self, **run: Any) -> ShardJob:
        return ShardJob(
            run_id=self._run_id,
            runner=type(self),
            setup=self.provider.build_env_local,
            batch_size=self.batch_size,
            block_size=self.block_size,
            raise_errors=self.on_error == "raise",
            **run,
        )

    def _plan(self, items: Items) -> list[Shard]:
        return plan_shards(len(items), shard_size=self.shard_size, multiple_of=self.batch_size or 1)

    def _describe(self, items: Items) -> Manifest:
        """The manifest of this run, as it would be written now."""
        config = plain_config(self.provider.config)
        parts = self.fingerprint_parts(config if self.filled_config is None else self.filled_config, items)
        return Manifest(
            fingerprint=digest_of(parts),
            parts=parts,
            num_items=len(items),
            items=items.describe(),
            shards=[[shard.start, shard.stop] for shard in self._plan(items)],
            runner=dotted_name(type(self)),
            provider=dotted_name(type(self.provider)),
            config=config,
            recipe_root=self.origin["recipe_root"] if self.origin else None,
            origin=self.origin,
        )

    def fingerprint_parts(self, config: Any, items: Items) -> Parts:
        """What the results depend on: config, options, code and data; `fingerprint.ignore` lists keys to
        leave out.
        """
        ignored = _NOT_RESULTS
        section = config.get("fingerprint") if isinstance(config, dict) else None
        if section:
            ignored += tuple(section.get("ignore", ()))
        relevant = without(config, ignored) if isinstance(config, dict) else config
        params = {key: value for key, value in self.provider.params.items() if key not in _NOT_RESULTS}
        functions = [
            value for value in params.values() if inspect.isfunction(value) or inspect.isclass(value)
        ]
        return {
            "config": relevant,
            "params": {key: plain_config(value) for key, value in params.items() if value not in functions},
            "options": {"batch_size": self.batch_size, "shard_size": self.shard_size},
            "code": hash_code([type(self), type(self.provider), *functions]),
            "data": {"items": items.describe(), **plain_config(self.provider.fingerprint())},
        }


@dataclass(frozen=True, slots=True)
class _Scope:
    """What a display shows of a run."""

    label: str
    num_items: int
    num_finished: int


def _pending(
    paths: RunPaths, manifest: Manifest, items: Items, *, retry_errors: bool
) -> tuple[list[ShardTask], int]:
    """The shards still to run, and how many items are finished; a bad shard is named and set aside."""
    tasks = []
    num_finished = 0
    for shard in manifest.plan:
        folder = paths.shard(shard.shard_id)
        if folder.exists():
            defect = find_defect(folder, shard, manifest.trusted, is_partial=bool(paths.url))
            done = read_done(folder)
            if defect is None and retry_errors and done is not None and done.counts.get("error"):
                defect = f"{done.counts['error']} failed utterances are tried again"
            if defect is None:
                num_finished += shard.num_items
                continue
            logger.warning("%s: %s; measuring this shard again", folder, defect)
            set_aside(paths, folder)
            withdraw_shard(paths, shard.shard_id)
        tasks.append(ShardTask(shard, items.slice(shard)))
    return tasks, num_finished


def _refuse_memory(paths: RunPaths | None) -> None:
    if paths is not None and paths.url.startswith("memory://"):
        raise ConfigError(
            f"{paths.url}: other processes cannot see this one's memory; expected a place that all "
            "share; use env: none, or another store"
        )


def _sum_counts(reports: Sequence[ShardReport]) -> dict[str, int]:
    total: Counter[str] = Counter({str(status): 0 for status in Status})
    for report in reports:
        total.update(report.counts)
    return dict(total)
