"""Write a recipe to start from: a provider and a runner of its own, two configs, sample data, and a test.

DIR must be missing or empty. The recipe runs as it is and says in its comments what to change.

  statsprep init my_recipe
"""

import argparse
from pathlib import Path

from statsprep.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", type=Path, help="where to write it")


def execute(args: argparse.Namespace) -> int:
    from statsprep.cli.display import shorten

    folder: Path = args.folder.absolute()
    names = write_recipe(folder)
    print(f"wrote {len(names)} files into {shorten(folder)}; see README.md there")
    print(
        f"\nnext:\n  cd {shorten(folder)}\n  python -m src.make_data                  # sample recordings\n"
        "  statsprep run conf/prepare.yaml         # its own runner\n"
        "  statsprep run                           # lengths and statistics: conf/training.yaml\n"
        "  python -m pytest                        # its own test"
    )
    return 0


def write_recipe(folder: Path) -> list[str]:
    """Write the template's files below `folder`; returns their names.

    Raises:
        ConfigError: something is there already.
    """
    from importlib.resources import files

    from statsprep.storage.atomic import write_bytes

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        seen = "holds files" if folder.is_dir() else "is a file"
        raise ConfigError(f"{folder}: {seen}; expected a new or empty folder; choose another name")
    template = Path(str(files("statsprep"))) / "templates" / "recipe"
    sources = sorted(path for path in template.rglob("*") if path.is_file() and path.suffix != ".pyc")
    for source in sources:
        target = folder / source.relative_to(template)
        target.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(target, source.read_bytes())
    return [str(source.relative_to(template)) for source in sources]
