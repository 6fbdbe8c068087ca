"""The parser of a verb: help, errors and every form of a command line. ``plain_options.py`` reads the usual ones."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from mudroom.cli.terminal.fold import fold_help
from mudroom.errors import UsageError
from mudroom.typing import Any, NoReturn


class _Parser(argparse.ArgumentParser):
    """A parser that exits with 125, mudroom's own failure code, where argparse exits with 2, and reads whole names of
    options only: some loosen what a command may do, and the shortest form of one changes with each new option."""

    def __init__(self, words: Sequence[str] = (), **given: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **given})
        self._words = words

    def error(self, message: str) -> NoReturn:
        from mudroom.cli.usage_message import explain

        raise UsageError(*explain(message, self.prog, _options(self), self._words, _actions(self)))


def _actions(parser: argparse.ArgumentParser) -> list[str]:
    """Return the words of which a verb takes one, in its first place."""
    first = next((action for action in parser._actions if not action.option_strings), None)
    return [str(word) for word in (first.choices or ())] if first is not None else []


def _options(parser: argparse.ArgumentParser) -> list[str]:
    """Return the options of a verb, also those of its actions: an error of an action is raised by the verb."""
    options = [*parser._option_string_actions]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            options += [option for inner in action.choices.values() for option in _options(inner)]
    return options


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """The width is given: argparse imports shutil to ask for it, and makes a formatter for every option."""

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
    """``columns``: width of its help. ``words``: a command line, for what is said about it."""

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
    """Return the values of a verb's command line. Raise UsageError if it is wrong. ``--help`` ends the process.
    ``columns``: width of the help."""
    before = words[: words.index("--")] if "--" in words else words
    parser = make_parser(verb, help_text, epilog, configure, columns, before)
    return parser.parse_args(words) if in_order else parser.parse_intermixed_args(words)
