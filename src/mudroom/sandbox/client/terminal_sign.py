"""The sign on the user's terminal that questions wait elsewhere, while a program in the command has the terminal.

1. Nothing is drawn. The sign is the window's title, which is pushed and popped (XTWINOPS 22 and 23 in xterm's ctlseqs),
   the bell once, and a notification (OSC 9) where the terminal is known to show it.
2. Bytes go only between two escape sequences and between two of the program's characters (``is_between``).
3. A title that the program sets meanwhile is set again afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from mudroom.typing import Literal

SignKind = Literal["title", "bell", "notification"]

_PLAIN = ("", "dumb", "unknown", "linux")
"""Values of TERM without a window title."""
_NOTIFYING_PROGRAMS = ("iTerm.app", "WezTerm", "ghostty")
"""Values of TERM_PROGRAM, and below of TERM, for terminals that document OSC 9 as a notification."""
_NOTIFYING_TERMS = ("xterm-kitty", "xterm-ghostty", "foot", "foot-extra")
_PUSH, _POP = b"\x1b[22;0t", b"\x1b[23;0t"
_SEQUENCE = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[PX^_][^\x1b]*\x1b\\|[ -/]+[0-~]|[0-OQ-WYZ\\`-~])"
)
"""A complete escape sequence: CSI, OSC, a string, or another one (ECMA-48, 5.2 to 5.6)."""
_TITLE = re.compile(rb"\x1b\][02];([^\x07\x1b]*)(?:\x07|\x1b\\)")


def sign_kinds(environ: Mapping[bytes, bytes]) -> tuple[SignKind, ...]:
    """Return the sign parts that the terminal shows. ``environ``: the terminal's environment."""
    term = environ.get(b"TERM", b"").decode("utf-8", "replace")
    if term in _PLAIN:
        return ("bell",)
    program = environ.get(b"TERM_PROGRAM", b"").decode("utf-8", "replace")
    multiplexed = term.startswith(("screen", "tmux"))
    notifies = not multiplexed and (program in _NOTIFYING_PROGRAMS or term in _NOTIFYING_TERMS)
    return ("title", "bell", "notification") if notifies else ("title", "bell")


def is_between(tail: bytes) -> bool:
    """Return whether output that ends with ``tail`` is between two characters and outside an escape sequence."""
    return b"\x1b" not in _SEQUENCE.sub(b"", tail) and not _ends_in_character(tail)


def _ends_in_character(tail: bytes) -> bool:
    """Return whether the last UTF-8 character is incomplete."""
    for length, byte in enumerate(reversed(tail[-3:]), 1):
        if byte < 0x80:
            return False
        if byte >= 0xC0:
            return length < (4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2)
    return False


class TerminalSign:
    """Owner: the thread that writes to the terminal."""

    def __init__(self, kinds: Collection[SignKind]) -> None:
        self._kinds = kinds
        self._text = ""
        self._program_title: bytes | None = None

    @property
    def is_shown(self) -> bool:
        return bool(self._text)

    def heard(self, tail: bytes) -> None:
        """Note the title in output that ends with ``tail``, if the program has set one while the sign is shown."""
        if self._text and b"\x1b]" in tail:
            titles = [title for title in _TITLE.findall(tail) if title != self._text.encode()]
            self._program_title = titles[-1] if titles else self._program_title

    def change(self, text: str) -> bytes:
        """Return the bytes that show the sign with this text, or remove it if the text is empty."""
        before, self._text = self._text, text
        if text == before:
            return b""
        words = text.encode("ascii", "replace")
        has_title = "title" in self._kinds
        if not text:
            title, self._program_title = self._program_title, None
            return (_POP + (_set_title(title) if title is not None else b"")) if has_title else b""
        shown = _set_title(words) if has_title else b""
        if before:
            return shown
        notification = b"\x1b]9;" + words + b"\x07" if "notification" in self._kinds else b""
        return (_PUSH if has_title else b"") + shown + notification + (b"\x07" if "bell" in self._kinds else b"")


def _set_title(title: bytes) -> bytes:
    return b"\x1b]0;" + title + b"\x07"
