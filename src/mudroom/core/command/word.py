"""A word in a command, as far as it is known before anything runs.

* ``literal``: the program gets exactly this text.
* ``pattern``: the shell replaces the word by file names (``*.py``), and by nothing else.
* ``computed``: the shell replaces a part of the word by something else: a variable, a command's output, braces, a home
  directory.

For ``pattern`` and ``computed``, ``text`` is the word as written, without its quotes.
"""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.typing import Literal, NamedTuple

Kind = Literal["literal", "pattern", "computed"]
_WORSE: tuple[Kind, ...] = ("literal", "pattern", "computed")
STANDARD = (b"/bin/", b"/usr/bin/", b"/usr/local/bin/", b"/sbin/", b"/usr/sbin/", b"/usr/local/sbin/")


class Word(NamedTuple):
    text: bytes
    kind: Kind = "literal"
    fixed: int = 0
    """Number of known leading bytes, in a word that is not literal."""
    is_several: bool = False
    """Whether the shell may turn it into several words, or none: ``$x`` without quotes, ``"$@"``."""

    @property
    def literal(self) -> bool:
        return self.kind == "literal"

    @property
    def start(self) -> bytes:
        """The word's known beginning."""
        return self.text if self.kind == "literal" else self.text[: self.fixed]

    @property
    def at_home(self) -> bool:
        """Whether the word begins with a home directory that the shell fills in."""
        return self.kind == "computed" and self.text.startswith((b"~", b"$HOME", b"${HOME}")) and not self.fixed

    @property
    def may_be_option(self) -> bool:
        return self.start.startswith(b"-") or (not self.start and not self.literal and not self.at_home)


UNKNOWN = Word(b"", "computed", 0, True)


def concatenate(pieces: Sequence[Word]) -> Word:
    """Return the word that is written in several pieces: ``'a'"b"c``."""
    text, fixed, kind = b"", 0, _WORSE[0]
    for piece in pieces:
        if kind == "literal":
            fixed = len(text) + len(piece.start)
        text += piece.text
        kind = max(kind, piece.kind, key=_WORSE.index)
    return Word(text, kind, 0 if kind == "literal" else fixed, any(piece.is_several for piece in pieces))


def literal_words(argv: Sequence[bytes]) -> tuple[Word, ...]:
    return tuple(Word(text) for text in argv)


def known_words(words: Sequence[Word]) -> tuple[bytes, ...]:
    """Return the leading literal words. The first is a base name if it names a system program."""
    texts: list[bytes] = []
    for word in words:
        if not word.literal:
            break
        texts.append(word.text)
    if texts:
        texts[0] = program_name(texts[0])
    return tuple(texts)


def program_name(text: bytes) -> bytes:
    """Return ``rm`` for ``/usr/bin/rm``. A path outside the system directories stays as written."""
    head, slash, tail = text.rpartition(b"/")
    return tail if tail and head + slash in STANDARD else text
