"""``mudroom completion``: shell completions, and the manual page."""

from __future__ import annotations

import argparse
import os

from mudroom.cli.terminal.context import Context
from mudroom.core.known_agents import known_agents
from mudroom.core.registry import part_or_none
from mudroom.core.tree.path import show
from mudroom.errors import UsageError
from mudroom.ext.completion import NAMES, VALUES
from mudroom.policy.config import places, user_config
from mudroom.stage.views.preflight import find_project
from mudroom.vault.store.store import vault_path

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
        context.terminal.json({"schema": "mudroom.completion/1", "shell": args.words[0], "text": text})
    else:
        context.terminal.out(text.rstrip("\n"))
    return 0


def _print_values(kind: str, words: list[str], context: Context) -> int:
    if len(words) > (kind == "paths"):
        raise UsageError(f"--values {kind} takes no word {words[-1]!r}", f"mudroom completion --values {kind}")
    found = values(kind, words[0] if words else None, context)
    if context.as_json:
        context.terminal.json({"schema": "mudroom.completion.values/1", "kind": kind, "values": found})
    elif found:
        context.terminal.out("\n".join(found))
    return 0


def values(kind: str, fork: str | None, context: Context) -> list[str]:
    """Return the words of a kind (``completion.VALUES``), sorted. Most are read from directories alone: a session is
    opened for paths only, and no policy is read."""
    if kind == "forks":
        return _names(_vault(context) + b"/forks")
    if kind == "tries":
        return _names(_vault(context) + b"/attempts")
    if kind == "paths":
        return _paths(fork, context)
    if kind == "presets":
        from mudroom.core.network.preset import PRESETS

        return sorted("@" + name for name in PRESETS)
    if kind == "profiles":
        return known_agents(user_config(context.environ)).names()
    fleet = part_or_none("fleet", "workers")
    return sorted(fleet.load(user_config(context.environ))) if fleet is not None else []


def _vault(context: Context) -> bytes:
    place = places(context.environ)
    try:
        start = os.path.realpath(context.project if context.project is not None else os.getcwdb())
    except FileNotFoundError:
        raise UsageError("the current directory does not exist any more", "cd to one that does") from None
    return vault_path(place.state, start if context.project is not None else find_project(start, place.home))


def _names(directory: bytes) -> list[str]:
    """Return the names of a vault's directories there. A name with control characters is not offered."""
    try:
        with os.scandir(directory) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []
    return sorted(show(name) for name in names if not name.startswith(b".") and show(name).encode() == name)


def _paths(fork: str | None, context: Context) -> list[str]:
    """Return a fork's changed files. A name that would be read as an option, such as ``--yes``, is not offered."""
    if fork is None:
        raise UsageError("paths are those of a fork", "mudroom completion --values paths FORK")
    from mudroom.cli.project_session import open_session

    with open_session(context, reads_policy=False) as session:
        record = session.forks.known_record(session.vault.fork(fork.partition("@")[0]).name)
    changes = record.changeset.changes if record is not None else ()
    paths = (change.path for change in changes if not change.path.startswith(b"-"))
    return sorted(show(path) for path in paths if show(path).encode() == path)
