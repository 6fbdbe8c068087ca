"""Bytes between the user's terminal and a command, and the display that the command leaves behind.

A command may leave a terminal in a state that hides later text: an unterminated string (``OSC`` takes the following
text for a window title), invisible text (SGR 8), the line drawing character set, margins, no wrap at the line end, no
tab stops. So a preview or question could be displayed wrongly. ``RESTORED`` ends that. It is written only after output
with an escape sequence or another character that may act, and never to a terminal that shows escape sequences instead
of acting on them (``TERM=dumb``: Emacs's shell, ed).

Sources: ECMA-48; xterm's ctlseqs. Not restored: palette colours (OSC 4), which may be the user's own, and the alternate
screen, on which text is visible.
"""

from __future__ import annotations

import os
import re
import select
import time

from mudroom.sandbox.client.connection import wait_ready

LIMIT = 1 << 16
"""Bytes in transit in one direction; a writer of more has to wait."""
_TAIL = 4096
"""Last output bytes, searched for the start of an unfinished escape sequence."""
_ACTING = re.compile(rb"[\x0e\x1b\x80-\x9f]")
"""SO, ESC, and C1 controls, whose bytes also occur in other UTF-8 characters."""
_PATIENCE = 5
"""Seconds that a question waits for a terminal full of output. If it takes no bytes for so long, the user has stopped
it (Ctrl-S), and it shows no question either."""
RESTORED = b"".join(
    (
        b"\x1b\\",  # ST ends a string
        b"\x1b]8;;\x1b\\",  # no hyperlink
        b"\x1b[?69l\x1b7\x1b[r\x1b8",  # no margins; DECSTBM moves the cursor, which DECRC brings back
        b"\x1b[0m\x1b(B\x0f",  # plain text, in ASCII
        b"\x1b[?7h\x1b[4l\x1b[?5W",  # wrapping at the line end; no insert mode; a tab stop every 8 columns
        b"\x1b[?25h\x1b[?2026l",  # the cursor is visible; no synchronized update
    )
)
"""Bytes after which text is displayed as written. They do not change what is on the screen."""


class TerminalFlow:
    """Bytes in one direction: from ``source`` to ``target``, both non-blocking where possible.

    Owner: the relay's thread.
    """

    def __init__(self, source: int, target: int, *, is_input: bool, acts: bool = True) -> None:
        """``acts``: the target acts on escape sequences."""
        self.source, self.target, self.is_input = source, target, is_input
        self.waiting = b""
        self.tail = b""
        """The last output."""
        self.ended = False
        self._acts = acts and not is_input
        self._has_acted = False
        """The output may have changed how later text is displayed."""

    @property
    def done(self) -> bool:
        return self.ended and not self.waiting

    def take(self) -> None:
        try:
            chunk = os.read(self.source, LIMIT)
        except BlockingIOError:
            return
        except OSError:  # EIO: the other side of a pseudo-terminal is closed, or the terminal is gone
            chunk = b""
        self.waiting += chunk
        self.ended = not chunk
        if self.is_input:
            return
        self.tail = (self.tail + chunk)[-_TAIL:]
        self._has_acted = self._acts and (self._has_acted or _ACTING.search(chunk) is not None)
        if self.ended and self._has_acted:
            self.waiting += RESTORED

    def give(self) -> None:
        try:
            self.waiting = self.waiting[os.write(self.target, self.waiting) :]
        except BlockingIOError:
            return
        except OSError:  # EPIPE, EIO: no reader is left, and further bytes are dropped
            self.waiting, self.ended = b"", self.ended or self.is_input

    def restore(self) -> None:
        """Restore the display at once, although output may wait: a question is about to be asked. Wait for room if the
        terminal is full: otherwise a command that fills it would control how the question is displayed."""
        if not self._has_acted:
            return
        self._has_acted = bool(self.waiting)
        rest, deadline = RESTORED, time.monotonic() + _PATIENCE
        while rest:
            try:
                rest = rest[os.write(self.target, rest) :]
            except BlockingIOError:
                if not wait_ready({self.target: select.POLLOUT}, deadline):
                    return
            except OSError:
                return  # the terminal has gone: the question does not get there either
