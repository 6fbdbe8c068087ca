"""A word of a command as far as it is known before anything runs.

* ``literal``: the program gets exactly this text.
* ``pattern``: names of files are put in its place (``*.py``); nothing else is.
* ``computed``: something else is put in its place: a variable, what a command prints, braces, a home directory.

``text`` of the last two is how the word is written, without its quotes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

Kind = Literal["literal", "pattern", "computed"]
_WORSE: tuple[Kind, ...] = ("literal", "pattern", "computed")
STANDARD = (b"/bin/", b"/usr/bin/", b"/usr/local/bin/", b"/sbin/", b"/usr/sbin/", b"/usr/local/sbin/")


class Word(NamedTuple):
    text: bytes
    kind: Kind = "literal"
    fixed: int = 0
    """Of a word that is not literal: how many of its first bytes are known all the same."""

    @property
    def literal(self) -> bool:
        return self.kind == "literal"

    @property
    def start(self) -> bytes:
        """What it is known to begin with."""
        return self.text if self.kind == "literal" else self.text[: self.fixed]

    @property
    def at_home(self) -> bool:
        """Whether it begins with a home directory that the shell fills in."""
        return self.kind == "computed" and self.text.startswith((b"~", b"$HOME", b"${HOME}")) and not self.fixed

    @property
    def may_be_option(self) -> bool:
        return self.start.startswith(b"-") or (not self.start and not self.literal and not self.at_home)


UNKNOWN = Word(b"", "computed")


def glued(pieces: Sequence[Word]) -> Word:
    """One word that is written in several pieces: ``'a'"b"c``."""
    text, fixed, kind = b"", 0, _WORSE[0]
    for piece in pieces:
        if kind == "literal":
            fixed = len(text) + len(piece.start)
        text += piece.text
        kind = max(kind, piece.kind, key=_WORSE.index)
    return Word(text, kind, 0 if kind == "literal" else fixed)


def literals(argv: Sequence[bytes]) -> tuple[Word, ...]:
    return tuple(Word(text) for text in argv)


def known(words: Sequence[Word]) -> tuple[bytes, ...]:
    """The literal words from the first on; a program of the system goes by its base name."""
    found: list[bytes] = []
    for word in words:
        if not word.literal:
            break
        found.append(word.text)
    if found:
        found[0] = program_name(found[0])
    return tuple(found)


def program_name(text: bytes) -> bytes:
    """``/usr/bin/rm`` is ``rm``; a path to anywhere else stays as it is written."""
    head, slash, tail = text.rpartition(b"/")
    return tail if tail and head + slash in STANDARD else text
