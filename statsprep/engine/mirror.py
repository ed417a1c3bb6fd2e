"""A run directory on a store, worked on in a mirror: a folder of this machine that is found again by the URL.

On the store lies

    manifest.json  index.arrow  ...      as in a local run directory
    split.7/<attempt>/feats_shape  ...   the files of an attempt, under its own name
    split.7/done                         made by one of several attempts; names the folder that counts
    feats_shape  ...  merged.json        merged.json last
    .leases/run.json

because stores have no rename of folders. All else is the code of a local run, which works in the mirror. A
run that was killed goes on from its journals where the mirror is, elsewhere from the shards on the store.
"""

import atexit
import contextlib
import dataclasses
import logging
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from statsprep.engine.attempt import Done, is_merged, parse_done, read_done
from statsprep.engine.lease import StoredLease, hold_lease
from statsprep.engine.manifest import Manifest
from statsprep.errors import ConfigError, DataError
from statsprep.storage.atomic import TEMPORARY_MARK, write_bytes, write_text
from statsprep.storage.digest import find_mismatch
from statsprep.storage.paths import DONE, ERRORS, RunPaths
from statsprep.storage.stores import Store

logger = logging.getLogger(__name__)

_OWNER = ".mirror"
_INPUTS = ("index.arrow", "indices.npy", "token_list")


@contextlib.contextmanager
def owned_run(paths: RunPaths, *, overwrite: bool = False) -> Iterator[None]:
    """Own a run directory inside the block; one on a store has its mirror opened.

    Raises:
        RunInUseError: another live process works there.
        StorageError: the store cannot be reached.
    """
    _refuse_links(paths)
    with contextlib.ExitStack() as stack:
        stack.enter_context(hold_lease(paths.run_lease, refuse_live=True, where=paths.place))
        if paths.url:
            lease = StoredLease(Store(paths.url), ".leases/run.json")
            stack.enter_context(hold_lease(lease, refuse_live=True, where=paths.place))
            _open_mirror(paths, overwrite=overwrite)
        yield


def _refuse_links(paths: RunPaths) -> None:
    """Work in a run directory is work in its folders, and runs are given away: a link in one could lead to
    anybody's files.
    """
    if not paths.root.is_dir():
        return
    with os.scandir(paths.root) as entries:
        for entry in entries:
            if entry.is_symlink() and entry.is_dir():
                raise ConfigError(
                    f"{entry.path}: is a link to {os.readlink(entry.path)}; expected a folder of the run "
                    "directory itself; remove the link"
                )


def _open_mirror(paths: RunPaths, *, overwrite: bool) -> None:
    """Make the mirror agree with the store about which run this is, and mark it as this process's."""
    store = Store(paths.url)
    if overwrite:
        _remove_run(store)
    manifest = store.read("manifest.json")
    known = paths.manifest.read_bytes() if paths.manifest.is_file() else None
    if manifest is None or manifest != known:
        _empty(paths)
    for path, content in ((paths.manifest, manifest), (paths.receipt, store.read("merged.json"))):
        if content is not None:
            write_bytes(path, content)
        else:
            path.unlink(missing_ok=True)
    write_text(paths.root / _OWNER, paths.mirror_token)


def _empty(paths: RunPaths) -> None:
    for path in paths.root.iterdir():
        if path.is_dir() and path != paths.leases:
            shutil.rmtree(path, ignore_errors=True)
        # The index of the run that is about to begin is staged here already.
        elif not path.is_dir() and not path.name.startswith(".index."):
            path.unlink()


def _remove_run(store: Store) -> None:
    """Remove an earlier run's files, the manifest first, so that nothing is trusted after a kill."""
    store.remove(["manifest.json"])
    store.remove([name for name in store.sizes() if not name.startswith(".leases/")])


def push_inputs(paths: RunPaths) -> None:
    """Put what workers and later runs read where they find it; the manifest last."""
    if not paths.url:
        return
    store = Store(paths.url)
    sizes = store.sizes()
    manifest = paths.manifest.read_bytes()
    is_known = store.read("manifest.json") == manifest
    for name in _INPUTS:
        path = paths.root / name
        if path.is_file() and not (is_known and sizes.get(name) == path.stat().st_size):
            store.upload(path, name)
    if not is_known:
        store.put("manifest.json", manifest)


def fetch_input(paths: RunPaths, path: Path) -> Path:
    """The file on this machine that is `path` in the driver's run directory; a worker elsewhere downloads it.

    Raises:
        DataError: it is on neither.
    """
    here = on_this_machine(paths)
    local = here.root / path.name
    if paths.url and not local.exists():
        draft = here.root / f".{path.name}{TEMPORARY_MARK}{secrets.token_hex(4)}"
        try:
            Store(paths.url).download(path.name, draft)
        except FileNotFoundError:
            raise DataError(f"{paths.url}/{path.name}: is gone; run the same command again") from None
        os.replace(draft, local)
    return local


def on_this_machine(paths: RunPaths) -> RunPaths:
    """The run directory as this process works in it: the driver's mirror where it is on this machine, else
    one of its own that ends with the process.
    """
    if not paths.url or _is_owned_by(paths.root, paths.mirror_token):
        return paths
    own = paths.root.parent.with_name(f"{paths.root.parent.name}.{os.getpid()}.{paths.mirror_token}")
    if not own.exists():
        own.mkdir(mode=0o700, parents=True)
        atexit.register(shutil.rmtree, own, ignore_errors=True)
    return dataclasses.replace(paths, root=own / paths.root.name)


def _is_owned_by(root: Path, token: str) -> bool:
    try:
        return (root / _OWNER).read_text(encoding="utf-8") == token
    except FileNotFoundError:
        return False


def publish_shard(paths: RunPaths, shard_id: int, trusted: frozenset[str]) -> Done | None:
    """Put a committed shard on the store, unless another attempt was faster.

    Returns:
        The `done` that counts, or None where the run directory is local.
    """
    done = read_done(paths.shard(shard_id))
    if not paths.url or done is None:
        return None
    store, folder = Store(paths.url).child(f"split.{shard_id}"), paths.shard(shard_id)
    winner = parse_done(store.read(DONE))
    if winner is None or winner.attempt != done.attempt:
        for name in done.files:
            store.upload(folder / name, f"{done.attempt}/{name}")
        content = (folder / DONE).read_bytes()
        if not store.create(DONE, content):
            winner = parse_done(store.read(DONE))
            if winner is not None and winner.fingerprint in trusted and winner.attempt != done.attempt:
                store.remove([f"{done.attempt}/{name}" for name in done.files])
                shutil.rmtree(folder, ignore_errors=True)
                return winner
            store.put(DONE, content)
    if not _is_owned_by(paths.root, paths.mirror_token):
        shutil.rmtree(folder, ignore_errors=True)
    return done


def pull_shards(paths: RunPaths, manifest: Manifest) -> None:
    """Learn from one listing which shards are on the store and whole, and publish what a killed run has
    committed here but not there. Of a shard that was not measured here only `done` comes; files come when
    they are merged.
    """
    if not paths.url:
        return
    store = Store(paths.url)
    sizes = store.sizes()
    names = {f"split.{shard.shard_id}/{DONE}": shard.shard_id for shard in manifest.plan}
    contents = store.read_many([name for name in names if name in sizes])
    for name, shard_id in names.items():
        folder = paths.shard(shard_id)
        if name not in contents:
            publish_shard(paths, shard_id, manifest.trusted)
            continue
        done = parse_done(contents[name])
        if defect := _defect_on_store(done, manifest, shard_id, sizes):
            logger.warning("%s/split.%d: %s; measuring this shard again", paths.url, shard_id, defect)
            store.remove([name])
            shutil.rmtree(folder, ignore_errors=True)
            continue
        mine = read_done(folder)
        if mine is None or done is None or mine.attempt != done.attempt:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            write_bytes(folder / DONE, contents[name])


def _defect_on_store(
    done: Done | None, manifest: Manifest, shard_id: int, sizes: Mapping[str, int]
) -> str | None:
    if done is None:
        return f"{DONE} is damaged"
    if done.fingerprint not in manifest.trusted:
        return "it was measured with another config, code or data"
    for file, expected in done.files.items():
        size = sizes.get(f"split.{shard_id}/{done.attempt}/{file}")
        if size != expected["bytes"]:
            return f"{file} holds {size} bytes, {expected['bytes']} were committed"
    return None


def fetch_shards(paths: RunPaths, manifest: Manifest) -> None:
    """Download what a merge reads of the shards: the files in `split.N` itself without archives, and lists of
    files below it.

    A shard whose files are not those that were committed is taken off the store; the merge then says that it
    is missing.
    """
    if not paths.url:
        return
    for shard in manifest.plan:
        folder, store = paths.shard(shard.shard_id), Store(paths.url).child(f"split.{shard.shard_id}")
        done = read_done(folder)
        if done is None:
            continue
        wanted = {name: file for name, file in done.files.items() if is_merged(name)}
        for name in wanted:
            if not (folder / name).exists():
                with contextlib.suppress(FileNotFoundError):
                    store.download(f"{done.attempt}/{name}", folder / name)
        if defect := find_mismatch(folder, wanted):
            logger.warning("%s: %s; it must be measured again", store.url, defect)
            store.remove([DONE])
            shutil.rmtree(folder, ignore_errors=True)


def is_on_store(paths: RunPaths, files: Mapping[str, Mapping[str, int]]) -> bool:
    """Whether the merged files are on the store, by their sizes."""
    sizes = Store(paths.url).sizes()
    return all(sizes.get(name) == file["bytes"] for name, file in files.items())


def withdraw_shard(paths: RunPaths, shard_id: int) -> None:
    """Take a shard off the store that is to be measured again."""
    if paths.url:
        Store(paths.url).remove([f"split.{shard_id}/{DONE}"])


def push_merged(paths: RunPaths, files: Mapping[str, Mapping[str, int]], stale: set[str]) -> None:
    """Put the merged files on the store, merged.json last."""
    if not paths.url:
        return
    store = Store(paths.url)
    store.remove([paths.receipt.name])
    for name in files:
        store.upload(paths.root / name, name)
    store.remove(stale - set(files))
    store.put(paths.receipt.name, paths.receipt.read_bytes())


def remove_leftovers_on_store(paths: RunPaths, manifest: Manifest) -> None:
    """Remove the files of attempts that lost or died, once the run is merged."""
    if not paths.url:
        return
    store = Store(paths.url)
    attempts = {}
    for shard in manifest.plan:
        done = read_done(paths.shard(shard.shard_id))
        attempts[f"split.{shard.shard_id}"] = done.attempt if done else None
    stale = []
    for name in store.sizes():
        folder, _, rest = name.partition("/")
        attempt = rest.partition("/")[0]
        is_lost = folder in attempts and rest != DONE and attempt != attempts[folder]
        is_old_lease = folder == ".leases" and rest != "run.json"
        if is_lost or is_old_lease or TEMPORARY_MARK in name.rpartition("/")[2]:
            stale.append(name)
    store.remove(stale)


def copy_for_reading(paths: RunPaths, *, contents: bool = False) -> RunPaths:
    """A run on a store as a folder of this machine, for commands that look at it while it may go on: its
    manifest, merged files, `done` files, error records and lease. It ends with the process.

    Args:
        paths: the run directory; a local one is returned as it is.
        contents: every file of the shards as well.
    """
    if not paths.url:
        return paths
    store = Store(paths.url)
    folder = Path(tempfile.mkdtemp(prefix="statsprep-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    copied = dataclasses.replace(paths, root=folder / paths.root.name)
    for name in store.sizes():
        first, _, rest = name.partition("/")
        is_shard = first.startswith("split.")
        if rest == DONE or not is_shard:
            with contextlib.suppress(FileNotFoundError):  # it is being replaced right now
                store.download(name, copied.root / name)
    for shard in copied.shard_folders().values():
        done = read_done(shard)
        wanted = list(done.files) if done and contents else [ERRORS] if done and ERRORS in done.files else []
        for name in wanted:
            with contextlib.suppress(FileNotFoundError):
                store.download(f"{shard.name}/{done.attempt if done else ''}/{name}", shard / name)
    return copied


def remove_mirror_at_exit(paths: RunPaths) -> None:
    """A merged run needs its mirror no longer than this process."""
    if paths.url:
        atexit.register(shutil.rmtree, paths.root.parent, ignore_errors=True)
