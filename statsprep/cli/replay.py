"""Run one item of a run again, in this process, with the env that the run gave it.

Prints what forward returned as JSON (exit code 0), or the traceback of what it raised (exit code 3); with
--pdb a debugger opens where it was raised. Nothing is written into RUN_DIR, which alone says how to build
provider and runner. This runs the code that its recipe has now, where that is the recipe of the current
folder or one that --recipe names; of another recipe nothing is run.

  statsprep replay exp/stats/train --utt anna_0007
  statsprep replay exp/prep --index 12 --pdb
"""

import argparse
import contextlib
import dataclasses
import difflib
import itertools
import json
import os
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statsprep.errors import ConfigError, DataError, listed

if TYPE_CHECKING:
    from statsprep.cli.trust import Trust
    from statsprep.engine.manifest import Manifest
    from statsprep.storage.paths import RunPaths

# Enough to find a near name in; comparing with all of a large corpus would take minutes.
_IDS_COMPARED = 100_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from statsprep.cli.trust import add_trust_arguments

    parser.add_argument("run_dir", metavar="RUN_DIR", help="stats_dir/<split>, or the output_dir")
    item = parser.add_mutually_exclusive_group(required=True)
    item.add_argument("--utt", metavar="ID", help="the utterance with this id")
    item.add_argument("--index", type=int, metavar="N", help="the index that forward gets")
    parser.add_argument("--pdb", action="store_true", help="open the debugger where forward raised")
    add_trust_arguments(parser)
    parser.add_argument(
        "--allow_pipes", action="store_true", help="run the commands that the run's wav.scp holds"
    )


def execute(args: argparse.Namespace) -> int:
    from statsprep.cli.trust import Trust, runs_commands
    from statsprep.engine.env import bind_env
    from statsprep.engine.manifest import read_manifest
    from statsprep.engine.mirror import copy_for_reading
    from statsprep.storage.paths import find_run_dirs

    runs = find_run_dirs(args.run_dir)
    if len(runs) > 1:
        names = [each.place for each in runs]
        raise ConfigError(f"{args.run_dir}: holds {len(runs)} runs; expected one of {listed(names)}")
    here = copy_for_reading(runs[0], contents=True)
    paths = dataclasses.replace(here, root=here.root.absolute())
    manifest, trust = read_manifest(paths), Trust.of(args)
    if runs_commands([manifest.origin, manifest.config]) and not args.allow_pipes:
        raise ConfigError(
            f"{paths.place}: its audio comes from commands (allow_pipes: true); if you trust them, pass "
            "--allow_pipes"
        )
    with _as_started(manifest, paths, trust):
        forward, is_batched, env = _rebuild(manifest, paths, trust)
        index = args.index if args.utt is None else _find_index(args.utt, env, paths)
        _check_index(index, manifest, paths)
        arguments = bind_env(forward, env)
        try:
            results = forward([index] if is_batched else index, **arguments)
        except Exception as error:
            traceback.print_exc()
            if args.pdb:
                import pdb

                pdb.post_mortem(error.__traceback__)
            raise DataError(
                f"{paths.place}: index {index} ({_utt_id(env, index)!r}) failed as above; mend it, then "
                "`statsprep run` with --retry_errors"
            ) from None
        result = results[0] if is_batched and results is not None else results
        is_stats = manifest.origin is not None and manifest.origin["kind"] == "collect_stats"
        described = _described(result, index, env, is_stats=is_stats)
        print(json.dumps(described, indent=1, ensure_ascii=False))
    return 0


@contextlib.contextmanager
def _as_started(manifest: "Manifest", paths: "RunPaths", trust: "Trust") -> Iterator[None]:
    """The folder and the module path that the run was started with."""
    from statsprep.config.recipe import recipe_on_path

    if manifest.origin is None:
        raise ConfigError(
            f"{paths.place}: the run was started from Python, and its provider cannot be built from files; "
            "expected a run of `statsprep run`; call forward(INDEX, **provider.build_env_local()) yourself"
        )
    folder = manifest.origin.get("cwd")
    if not isinstance(folder, str) or not os.path.isdir(folder):
        raise ConfigError(
            f"{paths.place}: was started in {folder}, which is not there; replay it where it ran"
        )
    with contextlib.chdir(folder):
        if trust.covers(manifest.recipe_root):
            recipe_on_path(trust.root(manifest.recipe_root))
        yield


def _rebuild(manifest: "Manifest", paths: "RunPaths", trust: "Trust") -> tuple[Any, bool, dict[str, Any]]:
    """The runner's forward, whether it takes a list, and the env.

    Raises:
        ConfigError: it needs code that may not run, or its configuration cannot be built any more.
        DataError: the manifest does not say how.
    """
    origin = _Origin.of(manifest, paths)
    try:
        return _build(origin, manifest, dataclasses.replace(paths, url=""), trust)
    except ConfigError as error:
        if foreign := [root for root in origin.roots if not trust.covers(root)]:
            raise trust.refusal(paths.place, foreign[0], error.message) from error
        raise


@dataclass(frozen=True, slots=True)
class _Origin:
    """What a manifest says of how its run was made; `spec` is empty for a recipe's own runner."""

    kind: str
    recipe_root: str
    config_path: str
    spec: dict[str, Any]

    @classmethod
    def of(cls, manifest: "Manifest", paths: "RunPaths") -> "_Origin":
        content = manifest.origin or {}
        found = cls(
            content.get("kind", ""),
            content.get("recipe_root", ""),
            content.get("config_path", ""),
            content.get("spec", {}),
        )
        texts = (found.kind, found.recipe_root, found.config_path)
        is_whole = all(isinstance(each, str) for each in texts) and isinstance(found.spec, dict)
        if not is_whole or found.kind not in ("collect_stats", "prepare", "recipe") or not found.recipe_root:
            raise DataError(
                f"{paths.manifest}: origin does not say how the run was made; the file was edited or is "
                "damaged; restore it"
            )
        return found

    @property
    def roots(self) -> list[str]:
        """The folders whose code the run was made with."""
        dataset = self.spec.get("dataset")
        found = [self.recipe_root, self.spec.get("recipe_root"), self.spec.get("dataset_root")]
        found.append(dataset.get("recipe_root") if isinstance(dataset, dict) else None)
        return [str(root) for root in found if root is not None]

    def trusted_spec(self, trust: "Trust") -> dict[str, Any]:
        """The spec with the folders and packages alone whose code may run."""
        spec = {**self.spec, "allow": trust.packages}
        for name in ("recipe_root", "dataset_root"):
            if name in spec:
                spec[name] = trust.root(str(spec[name]))
        dataset = spec.get("dataset")
        if isinstance(dataset, dict) and dataset.get("recipe_root") is not None:
            spec["dataset"] = {**dataset, "recipe_root": str(trust.root(str(dataset["recipe_root"])))}
        return spec


def _build(
    origin: _Origin, manifest: "Manifest", paths: "RunPaths", trust: "Trust"
) -> tuple[Any, bool, dict[str, Any]]:
    if origin.kind == "collect_stats":
        from statsprep.providers.stats import build_env, read_spec
        from statsprep.runners import CollectStatsRunner

        stats_spec = _read(read_spec, origin, paths, trust)
        return CollectStatsRunner.forward, True, build_env(stats_spec, {})
    if origin.kind == "prepare":
        from statsprep.providers.prepare import build_prepare_env, read_prepare_spec
        from statsprep.runners.prepare import PrepareRunner

        prepare_spec = _read(read_prepare_spec, origin, paths, trust)
        return PrepareRunner.forward, False, build_prepare_env(prepare_spec)
    from statsprep.runners.from_config import build_runner

    policy = trust.policy(origin.recipe_root)
    runner = build_runner(manifest.config, policy, Path(origin.config_path))
    is_batched = runner.batch_size is not None or runner.block_size > 1
    return runner.forward, is_batched, dict(runner.provider.build_env_local())


def _read(read: Callable[..., Any], origin: _Origin, paths: "RunPaths", trust: "Trust") -> Any:
    try:
        return read(origin.trusted_spec(trust), paths)
    except (KeyError, TypeError) as error:
        raise DataError(
            f"{paths.manifest}: origin.spec is none of this version ({type(error).__name__}: {error}); "
            "restore the file, or run the command that started the run again"
        ) from error


def _known_ids(env: Mapping[str, Any]) -> Any:
    dataset = env.get("dataset")
    utt_ids = getattr(dataset, "utt_ids", None)
    return utt_ids() if callable(utt_ids) and getattr(dataset, "has_utt_ids", True) else None


def _utt_id(env: Mapping[str, Any], index: int) -> str:
    ids = _known_ids(env)
    return str(index) if ids is None else str(ids[index])


def _find_index(utt_id: str, env: Mapping[str, Any], paths: "RunPaths") -> int:
    """From the dataset's ids; where it has none, from what the run has written so far."""
    ids = _known_ids(env)
    known = enumerate(map(str, ids)) if ids is not None else _recorded(paths)
    seen: list[str] = []
    for index, each in known:
        if each == utt_id:
            return index
        if len(seen) < _IDS_COMPARED:
            seen.append(each)
    near = difflib.get_close_matches(utt_id, seen, n=3)
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"it has {listed(seen) or 'none yet'}"
    raise ConfigError(f"{paths.place}: no utterance {utt_id!r}; {hint}")


def _recorded(paths: "RunPaths") -> Iterator[tuple[int, str]]:
    from statsprep.storage.jsonl import read_jsonl
    from statsprep.storage.paths import DROPPED, ERRORS, RESULTS

    for folder in (paths.root, *paths.shard_folders().values()):
        for path in (folder / name for name in (RESULTS, DROPPED, ERRORS)):
            lines: Iterable[Any] = read_jsonl(path) if path.is_file() else ()
            yield from ((line["index"], line["utt_id"]) for line in lines)


def _check_index(index: int, manifest: "Manifest", paths: "RunPaths") -> None:
    import numpy as np

    within = manifest.items.get("range")
    try:
        items: Any = range(*within) if within else np.lib.format.open_memmap(paths.indices, mode="r")
    except (OSError, ValueError, EOFError, TypeError, OverflowError) as error:
        reason = str(error).partition("\n")[0]
        raise DataError(f"{paths.indices}: is no array of indices ({reason}); restore the file") from error
    if index in items:
        return
    first = [int(each) for each in itertools.islice(items, 5)]
    seen = f"from {items[0]} to {items[-1]}" if within and len(items) else f"such as {listed(first)}"
    raise ConfigError(
        f"{paths.place}: index {index} is none of the run's {len(items):,} items; expected one {seen}"
    )


def _described(result: Any, index: int, env: Mapping[str, Any], *, is_stats: bool) -> dict[str, Any]:
    from statsprep.engine.records import Dropped, Record, to_json

    found: dict[str, Any] = {"utt_id": _utt_id(env, index), "index": index}
    if result is None or isinstance(result, Dropped):
        reason = to_json(dataclasses.asdict(result), f"index {index}")[0] if result else None
        return found | {"status": "dropped", "reason": reason}
    record = result if isinstance(result, Record) else Record(result)
    value, _ = to_json(record.result, f"index {index}")
    if _known_ids(env) is None and isinstance(value, dict):
        found["utt_id"] = str(value.get("utt_id", index))
    found |= {"status": "ok", "result": value}
    if is_stats:
        return found | {"stats": {key: _moments(rows) for key, rows in record.rows.items()}}
    for name, arrays in (("rows", record.rows), ("side", record.side)):
        if arrays:
            found[name] = {key: _summary(each) for key, each in arrays.items()}
    return found


def _moments(rows: Any) -> dict[str, list[float]]:
    """Least and greatest over the dimensions of each row that `measure` gives."""
    from statsprep.stats.moments import M2, MAX, MEAN, MIN

    names = {"mean": MEAN, "m2": M2, "min": MIN, "max": MAX}
    return {name: [float(rows[row].min()), float(rows[row].max())] for name, row in names.items()}


def _summary(array: Any) -> dict[str, Any]:
    """Shape, and the range of all numbers."""
    summary: dict[str, Any] = {"shape": list(array.shape), "dtype": str(array.dtype)}
    return summary | {"min": float(array.min()), "max": float(array.max())} if array.size else summary
