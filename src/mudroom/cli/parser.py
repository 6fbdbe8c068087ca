"""A verb's parser of its command line: argparse, with mudroom's messages, exit code and width of the help."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from mudroom.cli.terminal.fold import fold_help
from mudroom.errors import UsageError
from mudroom.typing import Any, NoReturn

# argparse's texts stay English: usage_message.py compares them, and the search for a catalogue loads locale (1.5 ms).
setattr(argparse, "_", str)  # noqa: B010


class Rare(str):
    """The help of an option that ``VERB --help`` leaves out; ``VERB --help --all`` and the reference have it."""

    __slots__ = ()


class _Parser(argparse.ArgumentParser):
    """A parser that exits with 125, mudroom's own failure code, where argparse exits with 2. It accepts no abbreviated
    options: some options loosen protections, and the shortest unique prefix changes with each new option."""

    def __init__(self, words: Sequence[str] = (), **given: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **given})
        self._words = words

    def error(self, message: str) -> NoReturn:
        from mudroom.cli.usage_message import explain

        raise UsageError(*explain(message, self.prog, _options(self), self._words, _actions(self)))


def _actions(parser: argparse.ArgumentParser) -> list[str]:
    """Return the choices for a verb's first argument, or []."""
    first = next((action for action in parser._actions if not action.option_strings), None)
    return [str(word) for word in (first.choices or ())] if first is not None else []


def _options(parser: argparse.ArgumentParser) -> list[str]:
    """Return a verb's options, including those of its actions, because the verb reports its actions' errors."""
    options = [*parser._option_string_actions]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            options += [option for inner in action.choices.values() for option in _options(inner)]
    return options


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """A formatter with a given width. Otherwise argparse imports shutil to ask for it, and does so for every option."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return fold_help(super()._fill_text(text, width, indent), width)


def make_parser(
    verb: str,
    help_text: str,
    epilog: str | None,
    configure: Callable[[Any], None],
    columns: int = 100,
    words: Sequence[str] = (),
) -> argparse.ArgumentParser:
    """Return a verb's parser. ``columns`` is the width of its help, ``words`` the command line for error messages."""

    def formatter(prog: str) -> argparse.HelpFormatter:
        return _Formatter(prog, width=columns)

    parser = _Parser(
        prog=f"mudroom {verb}",
        description=help_text[0].upper() + help_text[1:] + ".",
        formatter_class=formatter,
        epilog=epilog,
        words=words,
    )
    configure(parser)
    return parser


def parse(
    verb: str,
    help_text: str,
    epilog: str | None,
    configure: Callable[[Any], None],
    words: Sequence[str],
    *,
    in_order: bool,
    columns: int = 100,
) -> argparse.Namespace:
    """Parse a verb's command line. Raise UsageError if it is invalid. ``--help`` ends the process, and leaves out rare
    options without ``--all``; ``columns`` is the width of the help."""
    before = words[: words.index("--")] if "--" in words else words
    parser = make_parser(verb, help_text, epilog, configure, columns, before)
    rare = [action for action in parser._actions if isinstance(action.help, Rare) and "--all" not in before]
    for action in rare:
        action.help = argparse.SUPPRESS
    if rare:
        parser.epilog = f"{len(rare)} more options: {parser.prog} --help --all\n\n{epilog or ''}"
    return parser.parse_args(words) if in_order else parser.parse_intermixed_args(words)
