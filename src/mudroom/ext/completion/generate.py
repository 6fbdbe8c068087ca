"""The text of a shell's completion, or of the manual page."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from mudroom import __version__
from mudroom.ext.completion.fish import fish
from mudroom.ext.completion.grammar import VerbLine, VerbOption, lines
from mudroom.ext.completion.posix import bash, zsh
from mudroom.ext.completion.shell_table import filled

# --- The manual page, in man(7) macros (groff_man(7)), from the same lines as the completions ---


DATE = "2026-11-26"
"""The version's date; dev/release sets it."""

_SHARED = ("--json", "--project", "--help")


def man(lines: Sequence[VerbLine], version: str) -> str:
    verbs = "".join(_verb(line) for line in lines if len(line.words) == 1)
    return filled("mudroom.1", date=DATE, version=version, verbs=verbs)


def _verb(line: VerbLine) -> str:
    name = " ".join(line.words)
    parts = [f'.SS "mudroom {name}"\n', _text(line.help[0].upper() + line.help[1:] + "."), ".PP\n", _text(line.usage)]
    parts += [_option(option) for option in line.options if not set(option.names) & set(_SHARED)]
    if line.examples:
        parts += [".PP\n.nf\n", "".join(map(_line, line.examples.split("\n"))), ".fi\n"]
    return "".join(parts)


def _option(option: VerbOption) -> str:
    names = ", ".join(f"\\fB{_escaped(name)}\\fR" for name in option.names)
    takes = f" \\fI{_escaped(option.takes)}\\fR" if option.takes else ""
    return f".TP\n{names}{takes}\n" + (_text(option.help) if option.help else "\\&\n")


def _text(text: str) -> str:
    """Return filled text as source lines for the manual page. They are wrapped at 68 characters, because escapes
    lengthen a line and a source line should have at most 80 bytes."""
    return "".join(map(_line, textwrap.wrap(text, 68, break_long_words=False, break_on_hyphens=False)))


def _line(row: str) -> str:
    row = _escaped(row.rstrip())
    return ("\\&" + row if row.startswith((".", "'")) or not row else row) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\e").replace("-", "\\-").replace("…", "...").replace("\t", "  ")


def generated(name: str) -> str:
    """Return the completion of a shell, or the manual page (``man``)."""
    if name == "man":
        return man(lines(), __version__)
    return {"bash": bash, "zsh": zsh, "fish": fish}[name](lines())
