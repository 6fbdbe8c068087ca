"""A verb's parser of its command line: argparse, with mudroom's messages, exit code and width of the help."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from mudroom.cli.terminal.fold import fold_help
from mudroom.errors import UsageError
from mudroom.typing import Any, NoReturn

# argparse's texts stay English: usage_message.py compares them, and the search for a catalogue loads locale (1.5 ms).
setattr(argparse, "_", str)  # noqa: B010


class Rare(str):
    """The help of an option that ``VERB --help`` leaves out; ``VERB --help --all`` and the reference have it."""

    __slots__ = ()


class Parser(argparse.ArgumentParser):
    """A parser that exits with 125, mudroom's own failure code, where argparse exits with 2. It accepts no abbreviated
    options: some options loosen protections, and the shortest unique prefix changes with each new option.

    Owner: the thread that reads a command line."""

    words: Sequence[str] = ()
    """The command line, for error messages and the help."""

    def __init__(self, columns: int = 0, **given: Any) -> None:
        """``columns``: the width of the help. Without it argparse imports shutil to ask for it, and does so for every
        option."""
        self.columns = columns
        super().__init__(**{"allow_abbrev": False, **given})

    def error(self, message: str) -> NoReturn:
        from mudroom.cli.usage_message import explain

        raise UsageError(*explain(message, self.prog, _options(self), self.words, _actions(self)))

    def format_help(self) -> str:
        """Return the help, without rare options unless it is asked for with ``--all``."""
        rare = {action: action.help for action in self._actions if isinstance(action.help, Rare)}
        if not rare or "--all" in self.words:
            return super().format_help()
        epilog = self.epilog
        for action in rare:
            action.help = argparse.SUPPRESS
        self.epilog = f"{len(rare)} more options: {self.prog} --help --all\n\n{epilog or ''}"
        try:
            return super().format_help()
        finally:
            self.epilog = epilog
            for action, text in rare.items():
                action.help = text

    def _get_formatter(self) -> argparse.HelpFormatter:
        return _Formatter(self.prog, width=self.columns) if self.columns else super()._get_formatter()


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
    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return fold_help(super()._fill_text(text, width, indent), width)


def make_parser(verb: str, help_text: str, epilog: str | None = None) -> Parser:
    description = help_text[0].upper() + help_text[1:] + "."
    return Parser(100, prog=f"mudroom {verb}", description=description, epilog=epilog)


def parse(parser: Parser, words: Sequence[str], *, in_order: bool, columns: int = 100) -> argparse.Namespace:
    """Parse a verb's command line. Raise UsageError if it is invalid. ``--help`` ends the process; ``columns`` is the
    width of the help."""
    parser.words = words[: words.index("--")] if "--" in words else words
    parser.columns = columns
    args = parser.parse_args(words) if in_order else parser.parse_intermixed_args(words)
    for name, value in vars(args).items():
        if isinstance(value, list):
            setattr(args, name, [*value])  # a default is the parser's
    return args
