"""Write manifests of the Asterisk core sounds: 2,831 recordings of four voices in five languages.

The Debian packages asterisk-core-sounds-{en,es,fr,it,ru}{,-wav} hold transcripts and recordings
(8 kHz mono, CC BY-SA 3.0).
"""

import argparse
import gzip
import hashlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from statsprep.errors import DataError, StatsprepError, listed
from statsprep.storage.atomic import write_text
from statsprep.storage.jsonl import compact

SOUNDS = Path("/usr/share/asterisk/sounds")
DOCS = Path("/usr/share/doc")
VALID_PERCENT = 10
_LEFT_OUT = {
    "no_transcript": "recordings without a transcript (in the stats manifests only)",
    "empty_transcript": "recordings with an empty transcript (in the stats manifests only)",
    "no_recording": "transcripts without a recording",
    "repeated_transcript": "transcripts of a name that has one already (the first is kept)",
}


@dataclass(slots=True)
class Corpus:
    """Manifest rows of all recordings, and the ids that were left out by reason."""

    rows: list[dict[str, str]] = field(default_factory=list)
    left_out: dict[str, list[str]] = field(default_factory=lambda: {reason: [] for reason in _LEFT_OUT})


def read_corpus(sounds: Path, docs: Path) -> Corpus:
    """Read every voice's folder; links to the same folders are skipped.

    Raises:
        DataError: there are no recordings, or a language has no transcripts.
    """
    corpus = Corpus()
    folders = (
        sorted(p for p in sounds.iterdir() if p.is_dir() and not p.is_symlink()) if sounds.is_dir() else []
    )
    for folder in folders:
        _add_voice(corpus, folder, docs)
    if not corpus.rows:
        raise DataError(
            f"{sounds}: no recordings; install them with: "
            "apt install asterisk-core-sounds-{en,es,fr,it,ru}{,-wav}"
        )
    corpus.rows.sort(key=lambda row: row["utt_id"])
    return corpus


def _add_voice(corpus: Corpus, folder: Path, docs: Path) -> None:
    """Add the recordings of one folder, named like `en_US_f_Allison`."""
    language, speaker = folder.name.split("_")[0], folder.name.split("_")[-1]
    package = f"core-sounds-{language}"
    transcripts = _read_transcripts(docs / f"asterisk-{package}" / f"{package}.txt.gz", folder.name, corpus)
    for path in sorted(folder.rglob("*.wav")):
        name = path.relative_to(folder).with_suffix("").as_posix()
        utt_id = f"{folder.name}/{name}"
        row = {
            "utt_id": utt_id,
            "audio": str(path),
            "speaker": speaker,
            "language": language,
            "dataset": folder.name,
        }
        text = transcripts.pop(name, None)
        if text:
            row["text"] = text
        else:
            corpus.left_out["no_transcript" if text is None else "empty_transcript"].append(utt_id)
        corpus.rows.append(row)
    corpus.left_out["no_recording"] += [f"{folder.name}/{name}" for name in transcripts]


def _read_transcripts(path: Path, voice: str, corpus: Corpus) -> dict[str, str]:
    """Texts by name, from lines `name: text`; lines that begin with ; are comments."""
    if not path.exists():
        raise DataError(f"{path}: no transcripts; install the package {path.parent.name}")
    transcripts: dict[str, str] = {}
    with gzip.open(path, "rt", encoding="utf-8-sig") as lines:
        for line in lines:
            name, separator, text = line.partition(":")
            if line.startswith(";") or not separator:
                continue
            if name in transcripts:
                corpus.left_out["repeated_transcript"].append(f"{voice}/{name}")
                continue
            transcripts[name] = " ".join(text.split())
    return transcripts


def is_valid_id(utt_id: str) -> bool:
    """Whether an utterance belongs to the validation set: fixed by its id, whatever else is in the corpus."""
    return (
        int.from_bytes(hashlib.blake2b(utt_id.encode(), digest_size=8).digest(), "big") % 100 < VALID_PERCENT
    )


def write_manifests(corpus: Corpus, folder: Path) -> dict[str, Any]:
    """Write the four manifests and report.json; returns the report."""
    folder.mkdir(parents=True, exist_ok=True)
    counts = {}
    for prefix, needs_text in (("", True), ("stats_", False)):
        for split in ("train", "valid"):
            rows = [
                row
                for row in corpus.rows
                if is_valid_id(row["utt_id"]) == (split == "valid") and ("text" in row or not needs_text)
            ]
            name = f"{prefix}{split}.jsonl"
            write_text(folder / name, "".join(compact(row) + "\n" for row in rows))
            counts[name] = len(rows)
    report = {"recordings": len(corpus.rows), "manifests": counts, "left_out": corpus.left_out}
    write_text(folder / "report.json", compact(report) + "\n")
    return report


def describe_report(report: dict[str, Any], folder: Path) -> str:
    """The report for a person."""
    lines = [f"{report['recordings']} recordings"]
    lines += [f"{folder / name}: {count} utterances" for name, count in report["manifests"].items()]
    for reason, ids in report["left_out"].items():
        lines.append(f"{len(ids)} {_LEFT_OUT[reason]}: {listed(ids)}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the script; returns its exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=(
            "example:\n"
            "  python deploy/corpora/asterisk.py data/asterisk\n"
            "  statsprep run configs/asterisk/stats.yaml"
        ),
    )
    parser.add_argument("folder", type=Path, help="where the manifests and report.json go")
    parser.add_argument("--sounds", type=Path, default=SOUNDS, help="folder of the recordings (%(default)s)")
    parser.add_argument(
        "--docs", type=Path, default=DOCS, help="folder of the packages' documents (%(default)s)"
    )
    options = parser.parse_args(arguments)
    try:
        report = write_manifests(read_corpus(options.sounds, options.docs), options.folder)
    except StatsprepError as error:
        sys.stderr.write(f"error: {error.message}\n")
        return error.exit_code
    sys.stdout.write(describe_report(report, options.folder) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
