"""Make a small speech-like corpus, measure it on a local Dask cluster, and show the results.

Everything goes into one folder, which can be removed afterwards: manifests, audio, a config to start from,
and results.

  statsprep demo
  statsprep demo /tmp/demo --num_utterances 100
"""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder", nargs="?", default="demo", type=Path, help="where to make it (default: ./demo)"
    )
    parser.add_argument(
        "--num_utterances", type=int, default=300, metavar="N", help="size of the corpus (default: 300)"
    )
    parser.add_argument("--n_workers", type=int, default=2, metavar="N", help="Dask workers (default: 2)")


def execute(args: argparse.Namespace) -> int:
    from statsprep.cli import main
    from statsprep.cli.display import shorten
    from statsprep.data.demo_corpus import write_demo_corpus

    config = write_demo_corpus(args.folder.absolute(), args.num_utterances, args.n_workers)
    print(
        f"made {args.num_utterances} utterances in {shorten(args.folder.absolute())}; two of them are broken "
        "on purpose"
    )
    code = main.main(["run", str(config)])
    if code == 0:
        stats = shorten(args.folder.absolute() / "exp" / "stats")
        code = main.main(["inspect", stats])
        print(
            f"\nnext:\n  statsprep status {stats}\n  statsprep verify {stats}\n"
            f"  statsprep run {shorten(config)}                                 # nothing is left to do\n"
            f"  statsprep run {shorten(config)} model.frontend.n_mels=40        # says what changed"
        )
    return code
