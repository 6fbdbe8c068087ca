"""``mudroom completion``: shell completions, and the manual page."""

from __future__ import annotations

from mudroom.cli.terminal.context import Context
from mudroom.core.text.json_text import to_json_text
from mudroom.errors import UsageError
from mudroom.ext.completion import NAMES, VALUES
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

EXAMPLES = """\
examples:
  mudroom completion bash > ~/.local/share/bash-completion/completions/mudroom
  mudroom completion zsh > ~/.zfunc/_mudroom              ~/.zfunc in $fpath, before compinit
  mudroom completion fish > ~/.config/fish/completions/mudroom.fish
  mudroom completion man > ~/.local/share/man/man1/mudroom.1
  mudroom completion --values forks                       the words that a shell asks for

Make the directory first (mkdir -p), and the file anew after an update of mudroom."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar="bash|zsh|fish|man", help="the file to print")
    parser.add_argument("--values", choices=VALUES, help="print words of this project, one a line; paths: of FORK")


def execute(args: argparse.Namespace, context: Context) -> int:
    if args.values is not None:
        return _print_values(args.values, args.words, context)
    if len(args.words) != 1 or args.words[0] not in NAMES:
        said = f"there is no completion for {' '.join(args.words)!r}" if args.words else "no shell is named"
        raise UsageError(said, "mudroom completion bash, zsh, fish or man")
    from mudroom.ext.completion.generate import generated

    text = generated(args.words[0])
    if context.as_json:
        context.terminal.out(to_json_text({"schema": "mudroom.completion/1", "shell": args.words[0], "text": text}))
    else:
        context.terminal.out(text.rstrip("\n"))
    return 0


def _print_values(kind: str, words: list[str], context: Context) -> int:
    from mudroom.ext.completion.value import values

    if len(words) > (kind == "paths"):
        raise UsageError(f"--values {kind} takes no word {words[-1]!r}", f"mudroom completion --values {kind}")
    found = values(kind, words[0] if words else None, context)
    if context.as_json:
        context.terminal.out(to_json_text({"schema": "mudroom.completion.values/1", "kind": kind, "values": found}))
    elif found:
        context.terminal.out("\n".join(found))
    return 0
