"""A line of a file as text that a person can look at, and that does nothing but be looked at.

What would act, or would not be seen, is written out as an escape: bytes that are not UTF-8, control characters,
characters that turn the order of the others around (CVE-2021-42574, https://trojansource.codes), byte order marks and
all else that has no width of its own. A tab stays. Where the escapes are is told beside the text: a file may hold the
letters ``\\u202e`` itself.

Spans count characters; ``utf16`` makes them count as JavaScript and the DOM do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from mudroom.core.text.invisible_characters import ACTING, CHOICE, PASSED

Span = tuple[int, int]
"""Half open."""
WIDEST = 2_000
"""Characters of one line."""

_ODD = re.compile(f"[{ACTING}{PASSED}]|(?<![^\x00-\x7f{PASSED}{CHOICE}])[{CHOICE}]")


class EscapedLine(NamedTuple):
    text: str
    odd: tuple[Span, ...] = ()
    """Where an escape stands for something else."""
    cut: int = 0
    """Bytes at the end that are left out."""
    until: int = 0
    """Where in the line they begin, in bytes; 0: nothing is left out."""


def shown(line: bytes, start: int = 0, widest: int = WIDEST) -> EscapedLine:
    """``line``: without its newline. ``start``: the byte of it to begin with. At least one character is shown."""
    # Of no character more than 4 bytes: where this cuts one in two is beyond what is shown.
    part = line[start : start + 4 * widest + 4] if start or len(line) > widest else line
    text = part.decode("utf-8", "surrogateescape")
    if len(text) <= widest and _ODD.search(text) is None:
        return _told(line, start, text, text, ())
    found: list[str] = []
    odd: list[Span] = []
    at = width = 0
    for match in _ODD.finditer(text):
        plain, escape = text[at : match.start()], escaped(match[0])
        if width + len(plain) + len(escape) > widest and (width or plain):
            plain = plain[: widest - width]
            found.append(plain)
            return _told(line, start, text[: at + len(plain)], "".join(found), odd)
        found += (plain, escape)
        width += len(plain) + len(escape)
        odd.append((width - len(escape), width))
        at = match.end()
    rest = text[at : at + max(0, widest - width)]
    return _told(line, start, text[: at + len(rest)], "".join((*found, rest)), odd)


def _told(line: bytes, start: int, taken: str, text: str, odd: Sequence[Span]) -> EscapedLine:
    until = start + len(taken.encode("utf-8", "surrogateescape"))
    cut = len(line) - until
    return EscapedLine(text, tuple(odd), cut, until if cut else 0)


def escaped(character: str) -> str:
    """As ``core.path.show`` writes it."""
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    named = {"\r": "\\r", "\n": "\\n"}.get(character)
    return named or (f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")


def utf16(text: str, spans: Sequence[Span]) -> list[Span]:
    """Spans of characters as spans of UTF-16 code units."""
    if text.isascii() or not spans or max(text) < "\U00010000":
        return list(spans)
    places = [0]
    for character in text:
        places.append(places[-1] + 1 + (character > "\uffff"))
    return [(places[start], places[end]) for start, end in spans]
