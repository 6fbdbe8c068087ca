"""Shows a file's line as text that is safe to display.

Characters that would act or be invisible are written as escapes: bytes that are not UTF-8, control characters,
characters that change the text direction (CVE-2021-42574, https://trojansource.codes), byte order marks, and all other
characters without a width. A tab stays. The escapes' positions are returned beside the text, since a file may hold the
letters ``\\u{202e}`` itself.

Spans count characters.
"""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.core.text.invisible_characters import ACTING, CHOICE, PASSED, escape_character
from mudroom.core.text.regex import regex
from mudroom.typing import NamedTuple

Span = tuple[int, int]
"""Half-open range."""
WIDEST = 2_000
"""Most characters shown for one line."""

_ODD = regex(f"[{ACTING}{PASSED}]|(?<![^\x00-\x7f{PASSED}{CHOICE}])[{CHOICE}]")


class EscapedLine(NamedTuple):
    text: str
    odd: tuple[Span, ...] = ()
    """Where the escapes are."""
    cut: int = 0
    """Bytes left out at the end."""
    until: int = 0
    """Byte offset in the line at which the omitted part begins; 0: no part is omitted."""


def escape_line(line: bytes, start: int = 0, widest: int = WIDEST) -> EscapedLine:
    """Return the line as displayable text. ``line``: without its newline. ``start``: offset of the first byte to show.
    At least one character is shown."""
    # No character has more than 4 bytes: a character that is cut in two here lies beyond the shown part.
    part = line[start : start + 4 * widest + 4] if start or len(line) > widest else line
    text = part.decode("utf-8", "surrogateescape")
    if len(text) <= widest and _ODD.search(text) is None:
        return _escaped_line(line, start, text, text, ())
    pieces: list[str] = []
    odd: list[Span] = []
    at = width = 0
    for match in _ODD.finditer(text):
        plain, escape = text[at : match.start()], escape_character(match[0])
        if width + len(plain) + len(escape) > widest and (width or plain):
            plain = plain[: widest - width]
            pieces.append(plain)
            return _escaped_line(line, start, text[: at + len(plain)], "".join(pieces), odd)
        pieces += (plain, escape)
        width += len(plain) + len(escape)
        odd.append((width - len(escape), width))
        at = match.end()
    rest = text[at : at + max(0, widest - width)]
    return _escaped_line(line, start, text[: at + len(rest)], "".join((*pieces, rest)), odd)


def _escaped_line(line: bytes, start: int, taken: str, text: str, odd: Sequence[Span]) -> EscapedLine:
    until = start + len(taken.encode("utf-8", "surrogateescape"))
    cut = len(line) - until
    return EscapedLine(text, tuple(odd), cut, until if cut else 0)
