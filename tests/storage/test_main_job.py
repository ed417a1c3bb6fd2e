"""collect_stats with manifests, audio and results on a real store: the bytes of a local run, whatever
happens.
"""

import json
import random
import signal
import time
from pathlib import Path

import pytest

from statsprep.data.demo_corpus import write_demo_corpus
from tests.integration.conftest import Finished, StatsprepCommand, wait_until
from tests.storage.conftest import Place

pytestmark = [pytest.mark.storage, pytest.mark.timeout(600)]

NUM_UTTERANCES = 60
SHARD_SIZE = 6
NUM_KILLS = 20
TWO_WORKERS = ("parallel.env=local", "parallel.n_workers=2")
# What differs where the audio is elsewhere: the manifest's path in the fingerprint, and the paths in errors.
OF_THE_PLACE = frozenset({"manifest.json", "merged.json", "errors.jsonl"})

CONFIG = f"""
stats_dir: exp
data: data
dataset:
  train: [{{manifest: "${{data}}/train.jsonl"}}]
  valid: [{{manifest: "${{data}}/valid.jsonl"}}]
  preprocessor: {{_target_: statsprep.data.tokens.TextPreprocessor, token_type: char}}
model: {{frontend: {{sample_rate_hz: 16000, n_mels: 40}}}}
collect_stats:
  {{categories: {{category: speaker}}, max_errors: 3, shard_size: {SHARD_SIZE}, splits: [train]}}
"""


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    write_demo_corpus(folder, NUM_UTTERANCES, 1)
    return folder / "data"


@pytest.fixture(scope="session")
def local_run(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The merged files of a local run."""
    command = StatsprepCommand(tmp_path_factory.mktemp("local"))
    (command.folder / "config.yaml").write_text(CONFIG, encoding="utf-8")
    command("run", "config.yaml", f"data={corpus}")
    found = (command.folder / "exp" / "train").iterdir()
    return merged({path.name: path.read_bytes() for path in found if path.is_file()})


@pytest.fixture
def local(local_run: dict[str, bytes], statsprep: StatsprepCommand) -> dict[str, bytes]:
    """The same, and the config in the folder of the command."""
    (statsprep.folder / "config.yaml").write_text(CONFIG, encoding="utf-8")
    return local_run


def merged(files: dict[str, bytes]) -> dict[str, bytes]:
    """The files that a run has merged, less what speaks of its place."""
    names = json.loads(files["merged.json"])["files"]
    return {name: files[name] for name in names if name not in OF_THE_PLACE}


@pytest.fixture
def remote(corpus: Path, place: Place, local: dict[str, bytes]) -> Place:
    place.upload(corpus, "corpus")
    return place


def arguments(place: Place, stats_dir: str = "exp") -> tuple[str, ...]:
    return "run", "config.yaml", f"data={place.url}/corpus", f"stats_dir={place.url}/{stats_dir}"


def test_same_bytes_as_on_local_disk(
    remote: Place, local: dict[str, bytes], statsprep: StatsprepCommand
) -> None:
    for name, words in (("alone", ()), ("two", TWO_WORKERS)):
        statsprep(*arguments(remote, name), *words)
        files = remote.files(f"{name}/train")
        assert merged(files) == local
        errors = [json.loads(line) for line in files["errors.jsonl"].splitlines()]
        assert [error["kind"] for error in errors] == ["empty", "unreadable"]
        # Nothing is left of leases, drafts and attempts that were not needed.
        assert not [file for file in files if file.startswith(".")]
    status = statsprep("status", f"{remote.url}/two", "--json").out
    assert [(run["state"], run["num_finished"]) for run in json.loads(status)] == [("merged", 54)]
    assert f"{remote.url}/two/train: 54 utterances" in statsprep("inspect", f"{remote.url}/two").out
    assert "whole" in statsprep("verify", f"{remote.url}/two/train").out
    again = statsprep(*arguments(remote, "two"))
    assert "54 finished before" in again.err


def test_kill_at_random_moments_and_rerun(
    remote: Place, local: dict[str, bytes], statsprep: StatsprepCommand
) -> None:
    """In process and on two workers; every second time the mirror is lost with the process, as on another
    machine.
    """
    draw = random.Random(place_seed(remote))
    began = time.monotonic()
    statsprep(*arguments(remote, "whole"))
    whole_s = time.monotonic() - began
    for number in range(NUM_KILLS):
        stats_dir = f"exp{number // 4}"
        words = TWO_WORKERS if number % 2 else ()
        started = statsprep.start(*arguments(remote, stats_dir), *words, TMPDIR=scratch(statsprep, number))
        time.sleep(draw.uniform(0.3, 1.0) * whole_s)
        started.kill()
        wait_until(lambda: not started.members(), timeout_s=60)  # noqa: B023
        if number % 4 == 3:
            statsprep(*arguments(remote, stats_dir), *words, TMPDIR=scratch(statsprep, number))
            assert merged(remote.files(f"{stats_dir}/train")) == local


def scratch(statsprep: StatsprepCommand, number: int) -> str:
    folder = statsprep.folder / f"tmp{number // 2}"
    folder.mkdir(exist_ok=True)
    return str(folder)


def place_seed(place: Place) -> str:
    return place.url.partition(":")[0]


def test_two_drivers_at_once_never_mix(
    remote: Place, local: dict[str, bytes], statsprep: StatsprepCommand
) -> None:
    """One of them works, the other says so; also where they are on machines that share nothing but the
    store.
    """
    for number in range(3):
        ends = both(statsprep, arguments(remote, f"exp{number}"), arguments(remote, f"exp{number}"))
        assert sorted(end.code for end in ends) in ([0, 0], [0, 4]), [end.err for end in ends]
        for end in ends:
            if end.code == 4:
                assert len(end.errors) == 1
                assert "works in this run directory" in end.errors[0]
        assert merged(remote.files(f"exp{number}/train")) == local


def test_two_configs_at_once_never_mix(
    remote: Place, local: dict[str, bytes], statsprep: StatsprepCommand
) -> None:
    one = arguments(remote)
    ends = both(statsprep, one, (*one, "model.frontend.n_mels=20"))
    assert sorted(end.code for end in ends)[0] == 0
    assert sorted(end.code for end in ends)[1] in (2, 4)
    if ends[0].code == 0:
        assert merged(remote.files("exp/train")) == local
    statsprep(*one, "--overwrite")
    assert merged(remote.files("exp/train")) == local


def both(statsprep: StatsprepCommand, *commands: tuple[str, ...]) -> list[Finished]:
    """Run commands side by side, each with a mirror of its own."""
    started = [
        statsprep.start(*words, TMPDIR=scratch(statsprep, 100 + 2 * number))
        for number, words in enumerate(commands)
    ]
    return [each.wait() for each in started]


def test_a_changed_or_lost_object_is_found_and_measured_again(
    remote: Place, local: dict[str, bytes], statsprep: StatsprepCommand
) -> None:
    statsprep(*arguments(remote))
    filesystem, path = remote.filesystem()
    shapes = sorted(name for name in filesystem.find(f"{path}/exp/train") if name.endswith("/feats_shape"))
    filesystem.rm_file(next(name for name in shapes if "/split.1/" in name))
    content = filesystem.cat_file(next(name for name in shapes if "/split.2/" in name))
    filesystem.pipe_file(next(name for name in shapes if "/split.2/" in name), content[::-1])
    filesystem.rm_file(f"{path}/exp/train/feats_stats.npz")
    problems = statsprep("verify", f"{remote.url}/exp", code=3).out
    assert "split.1" in problems
    assert "split.2" in problems
    assert "feats_stats.npz" in problems
    elsewhere = scratch(statsprep, 200)
    for _ in range(2):  # a file of the right size with other content is seen when it is merged
        last = statsprep.start(*arguments(remote), TMPDIR=elsewhere).wait()
        if last.code == 0:
            break
        assert "run the same command again" in last.err
    last.check()
    assert merged(remote.files("exp/train")) == local


def test_a_stopped_run_goes_on(remote: Place, local: dict[str, bytes], statsprep: StatsprepCommand) -> None:
    started = statsprep.start(*arguments(remote))
    wait_until(lambda: [name for name in remote.names("exp") if name.endswith("/done")])
    started.interrupt(signal.SIGTERM)
    assert started.wait().check(75).errors == [
        "error: stopped; what was finished is saved; run the same command again to go on"
    ]
    statsprep(*arguments(remote))
    assert merged(remote.files("exp/train")) == local


def test_what_cannot_be_reached_is_named_in_one_line(remote: Place, statsprep: StatsprepCommand) -> None:
    nowhere = dict(remote.env)
    for name in nowhere:
        if name.endswith(("SECRET", "PORT", "ENDPOINT_URL")):
            nowhere[name] = {"SECRET": "wrong", "PORT": "1", "URL": "http://127.0.0.1:1"}[
                name.rpartition("_")[2]
            ]
    seen = statsprep.start(*arguments(remote), **nowhere).wait(timeout_s=120)
    assert seen.code in (2, 4), seen.err
    assert len(seen.errors) == 1
    assert remote.url in seen.errors[0]
    assert "Traceback" not in seen.err


def test_missing_audio_costs_one_utterance(
    remote: Place, local: dict[str, bytes], statsprep: StatsprepCommand
) -> None:
    filesystem, path = remote.filesystem()
    gone = sorted(filesystem.find(f"{path}/corpus/audio"))[5]
    filesystem.rm_file(gone)
    statsprep(*arguments(remote))
    errors = remote.files("exp/train")["errors.jsonl"].splitlines()
    assert Path(gone).stem in {json.loads(line)["utt_id"] for line in errors}
    assert len(errors) == 3
