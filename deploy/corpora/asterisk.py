"""Write manifests of the Asterisk core sounds: 2,831 recordings of four voices in five languages.

The Debian packages asterisk-core-sounds-{en,es,fr,it,ru}{,-wav} hold transcripts and recordings
(8 kHz mono, CC BY-SA 3.0).

The corpus comes as JSONL ({,stats_}{train,valid}.jsonl), and the stats manifests also as NeMo's
(nemo/stats_{train,valid}.json) and as Kaldi directories (kaldi/stats_{train,valid}). kaldi/all holds every
recording and every line of the lists, for `statsprep check`. The lists are read to the letter: the byte order
mark that begins the Italian one makes its title no comment but an entry without text, which is one of the 17
transcripts without a recording and of the 8 empty ones.
"""

import argparse
import gzip
import hashlib
import sys
from collections.abc import Iterable, Sequence
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
    "empty_transcript": "empty transcripts (their recordings are in the stats manifests only)",
    "no_recording": "transcripts without a recording",
    "repeated_transcript": "transcripts of a name that has one already (the first is kept)",
}


@dataclass(slots=True)
class Corpus:
    """Manifest rows of all recordings, all entries of the lists, and the ids that were left out by reason."""

    rows: list[dict[str, str]] = field(default_factory=list)
    entries: list[tuple[str, str]] = field(default_factory=list)
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
        text = transcripts.pop(utt_id, None)
        if text:
            row["text"] = text
        elif text is None:
            corpus.left_out["no_transcript"].append(utt_id)
        corpus.rows.append(row)
    corpus.left_out["no_recording"] += transcripts


def _read_transcripts(path: Path, voice: str, corpus: Corpus) -> dict[str, str]:
    """Texts by id, from lines `name: text`; lines that begin with ; are comments."""
    if not path.exists():
        raise DataError(f"{path}: no transcripts; install the package {path.parent.name}")
    transcripts: dict[str, str] = {}
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            if line.startswith(";") or line.isspace():
                continue
            name, _, text = line.partition(":")
            utt_id, text = f"{voice}/{'_'.join(name.split())}", " ".join(text.split())
            corpus.entries.append((utt_id, text))
            if not text:
                corpus.left_out["empty_transcript"].append(utt_id)
            if utt_id in transcripts:
                corpus.left_out["repeated_transcript"].append(utt_id)
            else:
                transcripts[utt_id] = text
    return transcripts


def is_valid_id(utt_id: str) -> bool:
    """Whether an utterance belongs to the validation set: fixed by its id, whatever else is in the corpus."""
    return (
        int.from_bytes(hashlib.blake2b(utt_id.encode(), digest_size=8).digest(), "big") % 100 < VALID_PERCENT
    )


def write_manifests(corpus: Corpus, folder: Path) -> dict[str, Any]:
    """Write the manifests in all forms and report.json; returns the report."""
    counts = {}
    for prefix, needs_text in (("", True), ("stats_", False)):
        for split in ("train", "valid"):
            rows = [
                row
                for row in corpus.rows
                if is_valid_id(row["utt_id"]) == (split == "valid") and ("text" in row or not needs_text)
            ]
            name = f"{prefix}{split}.jsonl"
            _write_lines(folder / name, map(compact, rows))
            counts[name] = len(rows)
            if not needs_text:
                write_nemo(rows, folder / "nemo" / f"{prefix}{split}.json")
                texts = [(row["utt_id"], row["text"]) for row in rows if "text" in row]
                write_kaldi(rows, texts, folder / "kaldi" / f"{prefix}{split}")
    write_kaldi(corpus.rows, corpus.entries, folder / "kaldi" / "all")
    report = {"recordings": len(corpus.rows), "manifests": counts, "left_out": corpus.left_out}
    write_text(folder / "report.json", compact(report) + "\n")
    return report


def write_nemo(rows: Sequence[dict[str, str]], path: Path) -> None:
    """Write a manifest as NeMo does, without ids."""
    names = {"audio": "audio_filepath", "text": "text", "speaker": "speaker", "language": "lang"}
    _write_lines(
        path,
        (
            compact(
                {"duration": duration_s(row), **{new: row[key] for key, new in names.items() if key in row}}
            )
            for row in rows
        ),
    )


def write_kaldi(rows: Sequence[dict[str, str]], texts: Sequence[tuple[str, str]], folder: Path) -> None:
    """Write a Kaldi data directory."""
    _write_lines(folder / "text", (f"{utt_id} {text}".rstrip() for utt_id, text in texts))
    _write_lines(folder / "utt2dur", (f"{row['utt_id']} {duration_s(row):.6g}" for row in rows))
    for name, key in (("wav.scp", "audio"), ("utt2spk", "speaker"), ("utt2lang", "language")):
        _write_lines(folder / name, (f"{row['utt_id']} {row[key]}" for row in rows))


def duration_s(row: dict[str, str]) -> float:
    """How long a recording lasts, from its header."""
    import soundfile

    return float(soundfile.info(row["audio"]).duration)


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, "".join(f"{line}\n" for line in lines))


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
