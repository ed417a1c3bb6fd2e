"""Check a corpus: list every fault of a manifest or a Kaldi directory, counted by kind.

CORPUS is a JSONL or NeMo manifest, or a Kaldi data directory. All rows and all audio are looked at. Exit code
0 where nothing is wrong, 3 where something is.

  statsprep check data/train.jsonl
  statsprep check data/train --all --jobs 8         # wav.scp, segments, text, utt2spk, ...
  statsprep check data/train.jsonl --json > faults.json
"""

import argparse
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from statsprep.data.check import Findings

_NUM_SHOWN = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("corpus", metavar="CORPUS", help="a manifest, or a Kaldi data directory")
    parser.add_argument("--all", action="store_true", help=f"list all faults, not {_NUM_SHOWN} of each kind")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--jobs", type=_positive, metavar="N", help="processes that read audio; one a processor by default"
    )
    parser.add_argument(
        "--silence_db", type=float, metavar="DB",
        help="audio whose level (root mean square, dBFS) is below this is near-silent; -60 by default",
    )  # fmt: skip
    parser.add_argument(
        "--channel", type=_channel, metavar="N|mean",
        help="which channel of files with several, from 0; without it such files are faults",
    )  # fmt: skip
    parser.add_argument(
        "--allow_pipes", action="store_true", help="run the commands that a wav.scp holds in place of files"
    )


def execute(args: argparse.Namespace) -> int:
    from statsprep.data.check import SILENCE_DBFS, check_corpus, num_cpus
    from statsprep.errors import DataError

    findings = check_corpus(
        args.corpus,
        num_jobs=args.jobs or num_cpus(),
        silence_dbfs=SILENCE_DBFS if args.silence_db is None else args.silence_db,
        channel=args.channel,
        allow_pipes=args.allow_pipes,
        limit=None if args.all else _NUM_SHOWN,
    )
    if args.json:
        print(json.dumps(_as_json(args.corpus, findings), ensure_ascii=True, indent=1))
    else:
        _show(args.corpus, findings)
    if findings.counts:
        raise DataError(
            f"{args.corpus}: {findings.counts.total():,} faults of {len(findings.counts)} kinds; expected "
            "none; mend or remove what is listed"
        )
    return 0


def _show(corpus: str, findings: "Findings") -> None:
    from statsprep.data.faults import MEANING

    print(f"{corpus}: {findings.num_utterances:,} utterances, {findings.audio_s / 3600:,.2f} hours of audio")
    if not findings.counts:
        print("no faults")
    for kind, count, faults in findings.by_kind():
        print(f"{kind}: {count:,} ({MEANING[kind]})")
        for fault in faults:
            print(f"  {fault.line}")
        if count > len(faults):
            print(f"  (+{count - len(faults):,} more; --all lists them)")


def _as_json(corpus: str, findings: "Findings") -> dict[str, Any]:
    return {
        "corpus": corpus,
        "num_utterances": findings.num_utterances,
        "audio_s": round(findings.audio_s, 3),
        "num_faults": findings.counts.total(),
        "faults": {
            str(kind): {
                "count": count,
                "listed": [{"where": f.where, "utt_id": f.utt_id, "what": f.what} for f in faults],
            }
            for kind, count, faults in findings.by_kind()
        },
    }


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is below 1; expected a number of processes")
    return number


def _channel(text: str) -> Any:
    if text != "mean" and not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}; expected a channel counted from 0, or mean")
    return text if text == "mean" else int(text)
