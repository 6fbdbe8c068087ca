"""The command line as values, read from the verbs' parsers. Completions and the manual page are written from them.

Rules of this file:
1. Verbs, options, choices and help come from the parsers; none are repeated here.
2. A value's kind is found by its metavar. ``_ARGUMENTS`` has the words that no parser declares, such as an action's.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from mudroom.cli.main import VERBS, offered_verbs, verb_parser
from mudroom.core.registry import twin
from mudroom.typing import NamedTuple

_KINDS = {
    "FORK": "forks", "FORK[@CHECKPOINT]": "forks", "fork": "forks", "PATH": "files", "FILE": "files", "CARD": "files",
    "DIR": "directories",
}  # fmt: skip
_OPTION_KINDS = {"--fork": "forks", "--on": "workers", "--project": "directories"}
_ARGUMENTS = {
    "apply": "forks paths", "resolve": "forks paths", "diff": "forks paths", "discard": "forks", "unmount": "forks",
    "review": "forks+tries", "mount": "forks directories", "fork rename": "forks", "fork rm": "forks",
    "net allow": "presets", "net deny": "presets", "net rm": "presets",
    "try show": "tries", "try discard": "tries", "agent show": "profiles", "agent settings": "forks",
    "fleet rm": "workers", "vault export": "forks files", "vault import": "files", "policy check": "files",
    "policy trust": "files", "hook install": "profiles", "hook shell": "directories",
}  # fmt: skip
_ACTIONS = {"try": ("ls", "show", "discard"), "hook": ("install", "shell")}
"""Actions for verbs whose parser takes any words."""


class VerbOption(NamedTuple):
    names: tuple[str, ...]
    takes: str
    """Its value's metavar; empty if it takes none."""
    kind: str
    """The value's kind, if it can be completed; otherwise empty."""
    choices: tuple[str, ...]
    help: str


class VerbLine(NamedTuple):
    """A verb, or a verb's action."""

    words: tuple[str, ...]
    help: str
    options: tuple[VerbOption, ...]
    actions: tuple[str, ...]
    """Alternatives for the first word."""
    arguments: tuple[str, ...]
    """Kinds for the words after that; the last kind repeats. Alternatives are joined by ``+``."""
    usage: str
    examples: str


def lines() -> tuple[VerbLine, ...]:
    """Return all verbs that run on this system, each followed by its actions."""
    platform: str = sys.platform
    verbs = [verb for verb in offered_verbs() if platform != "win32" or verb in twin("main").PORTED]
    return tuple(line for verb in verbs for line in _lines_of(verb))


def _lines_of(verb: str) -> Iterator[VerbLine]:
    parser = verb_parser(verb)
    subs = next((act for act in parser._actions if isinstance(act, argparse._SubParsersAction)), None)
    actions: tuple[str, ...] = _ACTIONS.get(verb, ())
    if subs is not None:
        actions = tuple(subs.choices)
    elif (places := _positionals(parser)) and places[0].choices:
        actions = tuple(map(str, places[0].choices))
    examples = parser.epilog or ""
    yield VerbLine(
        (verb,), VERBS[verb].help, _options(parser), actions, _arguments(verb, parser), _usage(parser), examples
    )
    for action in actions:
        own = subs.choices[action] if subs is not None else parser
        kinds = tuple(_ARGUMENTS.get(f"{verb} {action}", "").split())
        if subs is not None and not kinds:
            kinds = tuple(_kind(place.metavar or place.dest) for place in _positionals(own) if not place.choices)
        yield VerbLine((verb, action), "", _options(own), (), kinds, _usage(own), "")


def _arguments(verb: str, parser: argparse.ArgumentParser) -> tuple[str, ...]:
    if verb in _ARGUMENTS:
        return tuple(_ARGUMENTS[verb].split())
    return tuple(_kind(place.metavar or place.dest) for place in _positionals(parser) if not place.choices)


def _kind(metavar: object) -> str:
    return _KINDS.get(str(metavar), "")


def _positionals(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [act for act in parser._actions if not act.option_strings]


def _options(parser: argparse.ArgumentParser) -> tuple[VerbOption, ...]:
    found = []
    for act in parser._actions:
        if not act.option_strings or act.help == argparse.SUPPRESS:
            continue
        words = "|".join(map(str, act.choices or ())) or act.dest.upper()
        takes = "" if act.nargs == 0 else str(act.metavar or words)
        names = tuple(act.option_strings)
        kind = "" if not takes else next((_OPTION_KINDS[name] for name in names if name in _OPTION_KINDS), _kind(takes))
        choices = tuple(map(str, act.choices or ()))
        found.append(VerbOption(names, takes, kind, choices, (act.help or "").replace("%%", "%")))
    return tuple(found)


def _usage(parser: argparse.ArgumentParser) -> str:
    return " ".join(parser.format_usage().removeprefix("usage: ").split())
