"""Attempts: what an earlier one finished is taken over, and one rename decides whose shard it is."""

import json
import shutil
from pathlib import Path

import pytest

from statsprep.engine import attempt as attempt_module
from statsprep.engine.attempt import Attempt, Done, find_defect, read_done, set_aside
from statsprep.engine.plan import Shard
from statsprep.errors import StorageError, WorkerError
from statsprep.storage.journal import Entry, JournalWriter, Status
from statsprep.storage.paths import DONE, RunPaths

SHARD = Shard(3, 30, 34)
TRUSTED = frozenset({"f1"})


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    return RunPaths(tmp_path)


def begin(paths: RunPaths, num_entries: int = 0, fingerprint: str = "f1", shard: Shard = SHARD) -> Attempt:
    """An attempt that has finished some items."""
    attempt = Attempt(paths, shard, fingerprint)
    journal = JournalWriter(attempt.folder)
    journal.append([Entry(position, Status.OK, f"u{position}", position) for position in range(num_entries)])
    journal.close()
    return attempt


def commit(attempt: Attempt, text: str = "data") -> Done:
    (attempt.folder / "feats_shape").write_text(text)
    (attempt.folder / "sub").mkdir(exist_ok=True)
    (attempt.folder / "sub" / "a.npy").write_text("a")
    return attempt.commit(
        counts={"ok": 3, "dropped": 1}, num_resumed=0, keyed_by="utt_id", extra={"audio_s": 1.5}
    )


def test_a_committed_shard_says_what_it_holds_and_can_be_trusted(paths: RunPaths) -> None:
    done = commit(begin(paths, 4))
    folder = paths.shard(3)
    assert read_done(folder) == done
    assert sorted(path.name for path in folder.iterdir()) == [DONE, "feats_shape", "sub"]
    assert list(done.files) == ["feats_shape", "sub/a.npy"]
    assert (done.fingerprint, done.num_items, done.extra) == ("f1", 4, {"audio_s": 1.5})
    assert done.max_rss_bytes > 1_000_000
    assert find_defect(folder, SHARD, TRUSTED) is None
    assert list(paths.attempts.iterdir()) == []


def test_each_defect_of_a_shard_is_told(paths: RunPaths) -> None:
    commit(begin(paths, 4))
    folder = paths.shard(3)
    assert find_defect(folder, Shard(4, 30, 34), TRUSTED) == "done has 4 items of shard 3, the plan has 4"
    assert find_defect(folder, Shard(3, 30, 35), TRUSTED) == "done has 4 items of shard 3, the plan has 5"
    assert (
        find_defect(folder, SHARD, frozenset({"f2"})) == "it was measured with another config, code or data"
    )
    (folder / "feats_shape").write_text("dat")
    assert find_defect(folder, SHARD, TRUSTED) == "feats_shape holds 3 bytes, 4 were committed"
    (folder / DONE).write_text((folder / DONE).read_text()[:-9])
    assert find_defect(folder, SHARD, TRUSTED) == "done is missing or damaged"
    (folder / DONE).write_text("")
    assert find_defect(folder, SHARD, TRUSTED) == "done is missing or damaged"
    (folder / DONE).write_text('{"items": 4}')
    assert find_defect(folder, SHARD, TRUSTED) == "done is missing or damaged"


@pytest.mark.parametrize(
    ("name", "is_read_again"),
    [
        ("feats_shape", True),
        ("collect_feats/feats.scp", True),
        ("feats.ark", False),
        ("audio/0-a.flac", False),
    ],
)
def test_what_a_merge_reads_is_checked_by_digest_and_the_rest_by_size(
    name: str, is_read_again: bool, paths: RunPaths
) -> None:
    attempt = begin(paths, 4)
    (attempt.folder / name).parent.mkdir(exist_ok=True)
    (attempt.folder / name).write_text("1234")
    commit(attempt)
    folder = paths.shard(SHARD.shard_id)
    assert find_defect(folder, SHARD, TRUSTED, whole=True) is None
    (folder / name).write_text("4321")
    other = f"{name} has other content than was committed"
    assert find_defect(folder, SHARD, TRUSTED) == (other if is_read_again else None)
    assert find_defect(folder, SHARD, TRUSTED, whole=True) == other
    (folder / name).write_text("123")
    assert find_defect(folder, SHARD, TRUSTED) == f"{name} holds 3 bytes, 4 were committed"
    (folder / name).unlink()
    assert find_defect(folder, SHARD, TRUSTED) == f"{name} is missing"
    assert find_defect(folder, SHARD, TRUSTED, is_partial=True) is None


def test_the_earlier_attempt_that_got_furthest_is_taken_over(paths: RunPaths) -> None:
    first, second, third = (Attempt(paths, SHARD, "f1").folder for _ in range(3))
    for folder, num_entries in ((first, 1), (second, 3), (third, 2)):
        shutil.rmtree(paths.attempts / folder.name, ignore_errors=True)
        (paths.attempts / folder.name).mkdir(parents=True)
        journal = JournalWriter(folder)
        journal.append([Entry(position, Status.OK, "u", 0) for position in range(num_entries)])
        journal.close()
    found = Attempt(paths, SHARD, "f1")
    assert found.previous == second
    assert sorted(paths.attempts.iterdir()) == sorted([second, found.folder])
    begun = JournalWriter(found.folder)
    begun.close()
    commit(found)
    assert list(paths.attempts.iterdir()) == []


def test_an_attempt_of_another_fingerprint_is_discarded(paths: RunPaths) -> None:
    begin(paths, 3, fingerprint="f0")
    found = Attempt(paths, SHARD, "f1")
    assert found.previous is None
    assert list(paths.attempts.iterdir()) == [found.folder]


def test_attempts_at_other_shards_are_left_alone(paths: RunPaths) -> None:
    other = begin(paths, 3, shard=Shard(33, 0, 4)).folder
    assert Attempt(paths, SHARD, "f1").previous is None
    assert other.exists()


def test_the_loser_of_a_race_discards_itself_and_reports_the_winner(paths: RunPaths) -> None:
    """Two attempts at once, because a lease was taken over wrongly."""
    first = begin(paths, 4)
    aside = first.folder.rename(paths.root / "aside")
    second = begin(paths, 4)
    aside.rename(first.folder)
    won, lost = commit(first, "winner"), commit(second, "loser")
    assert lost == won
    assert (paths.shard(3) / "feats_shape").read_text() == "winner"
    assert find_defect(paths.shard(3), SHARD, TRUSTED) is None
    assert list(paths.attempts.iterdir()) == []


@pytest.mark.parametrize("damage", ["cut", "no done", "other fingerprint", "a file", "empty folder"])
def test_a_bad_shard_in_the_way_is_set_aside(damage: str, paths: RunPaths) -> None:
    folder = paths.shard(3)
    if damage == "a file":
        folder.write_text("no folder")
    elif damage == "empty folder":
        folder.mkdir()
    else:
        commit(begin(paths, 4, fingerprint="f0" if damage == "other fingerprint" else "f1"), "bad")
        if damage == "cut":
            (folder / "feats_shape").write_text("")
        elif damage == "no done":
            (folder / DONE).unlink()
    commit(begin(paths, 4), "good")
    assert find_defect(folder, SHARD, TRUSTED) is None
    assert (folder / "feats_shape").read_text() == "good"
    assert list(paths.attempts.iterdir()) == []


def test_somebody_who_keeps_writing_there_is_an_error(
    paths: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = begin(paths, 4)

    def come_back(paths: RunPaths, folder: Path) -> None:
        assert folder.is_dir()

    monkeypatch.setattr(attempt_module, "set_aside", come_back)
    paths.shard(3).mkdir()
    (paths.shard(3) / "junk").write_text("x")
    with pytest.raises(WorkerError, match=r"split\.3: another process keeps writing there"):
        commit(attempt)


def test_setting_aside_what_is_gone_is_no_error(paths: RunPaths) -> None:
    set_aside(paths, paths.shard(3))
    assert list(paths.attempts.iterdir()) == []


def test_a_full_disk_commits_nothing(paths: RunPaths) -> None:
    attempt = begin(paths, 4)
    (attempt.folder / DONE).symlink_to("/dev/full")
    with pytest.raises(StorageError, match=r"/done: cannot write \(No space left on device\)"):
        commit(attempt)
    assert not paths.shard(3).exists()


def test_done_is_json_for_other_programs(paths: RunPaths) -> None:
    commit(begin(paths, 4))
    content = json.loads((paths.shard(3) / DONE).read_text())
    assert content["counts"] == {"ok": 3, "dropped": 1}
    assert content["files"]["feats_shape"]["bytes"] == 4
