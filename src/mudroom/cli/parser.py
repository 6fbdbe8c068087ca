"""The parser of a verb: help, errors and every form of a command line. ``plain_options.py`` reads the usual ones."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from mudroom.errors import UsageError
from mudroom.typing import Any, NoReturn


class _Parser(argparse.ArgumentParser):
    """A parser that exits with 125, mudroom's own failure code, where argparse exits with 2, and reads whole names of
    options only: some loosen what a command may do, and the shortest form of one changes with each new option."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **given})

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, f"{self.prog} --help")


def _format(prog: str) -> argparse.HelpFormatter:
    # A fixed width: asking for that of the terminal imports shutil, and argparse makes a formatter for every option.
    return argparse.RawDescriptionHelpFormatter(prog, width=100)


def make_parser(
    verb: str, help_text: str, epilog: str | None, configure: Callable[[Any], None]
) -> argparse.ArgumentParser:
    parser = _Parser(
        prog=f"mudroom {verb}",
        description=help_text[0].upper() + help_text[1:] + ".",
        formatter_class=_format,
        epilog=epilog,
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
) -> argparse.Namespace:
    """Return the values of a verb's command line. Raise UsageError if it is wrong. ``--help`` ends the process."""
    parser = make_parser(verb, help_text, epilog, configure)
    return parser.parse_args(words) if in_order else parser.parse_intermixed_args(words)
