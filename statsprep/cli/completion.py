"""Print a script that completes statsprep's commands, flags and files in a shell.

Write it where the shell looks for such scripts, or source it.

  statsprep completion bash > ~/.local/share/bash-completion/completions/statsprep
  statsprep completion zsh > ~/.zsh/completions/_statsprep     # a folder of fpath
  source <(statsprep completion bash)                           # for this shell alone
"""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=["bash", "zsh"], help="the shell to write for")


def execute(args: argparse.Namespace) -> int:
    import shtab

    from statsprep.cli.main import build_parser

    parser = build_parser()
    for action in _actions(parser):
        if _is_file(action):
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(parser, args.shell))
    return 0


def _actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    found = []
    for action in parser._actions:
        found.append(action)
        if isinstance(action, argparse._SubParsersAction):
            found += [each for command in action.choices.values() for each in _actions(command)]
    return found


def _is_file(action: argparse.Action) -> bool:
    """Every positional argument is a path or begins with one, except words from a list."""
    names_file = "FILE" in str(action.metavar)
    return action.choices is None and (names_file or not action.option_strings)
