"""The output of errands: kept, as far as it is recent, and shown line by line.

A worker says at which byte of its stream each piece begins, so that what came twice is taken once. Output is any bytes:
what is kept is raw, what is shown is escaped.
"""

from __future__ import annotations

from collections.abc import Callable

from mudroom.core.tree.path import show
from mudroom.ext.fleet.origin.report import Printed
from mudroom.vault.forks.background import Ring

NAMES = {1: "stdout", 2: "stderr"}
LONGEST = 1 << 12
"""Bytes of a line that are shown as one."""
_Stream = tuple[str, int, int]
"""Errand, attempt, number of the stream."""


class Outputs:
    """Owner: the thread of the verb."""

    def __init__(self, held: Callable[[Printed], bytes], line: Callable[[Printed, str], None] | None) -> None:
        """``held``: returns the directory in which the output of an attempt is kept. ``line`` is called with each line,
        escaped; None: lines are not shown."""
        self._held, self._line = held, line
        self._ends: dict[_Stream, int] = {}
        self._rings: dict[_Stream, Ring] = {}
        self._rests: dict[_Stream, bytes] = {}

    def add(self, printed: Printed) -> bytes:
        """Take a piece of output. Return what of it is new."""
        stream = (printed.row.errand, printed.row.attempt, printed.stream)
        end = self._ends.get(stream, 0)
        new = printed.data[max(0, end - printed.offset) :] if printed.offset < end else printed.data
        self._ends[stream] = max(end, printed.offset + len(printed.data))
        if not new:
            return b""
        if stream not in self._rings:
            self._rings[stream] = Ring(self._held(printed) + b"/" + NAMES[printed.stream].encode())
        self._rings[stream].write(new)
        if self._line is not None:
            self._show(stream, printed, new, self._line)
        return new

    def _show(self, stream: _Stream, printed: Printed, new: bytes, line: Callable[[Printed, str], None]) -> None:
        *lines, rest = (self._rests.pop(stream, b"") + new).split(b"\n")
        while len(rest) > LONGEST:
            lines.append(rest[:LONGEST])
            rest = rest[LONGEST:]
        for text in lines:
            line(printed, show_line(text))
        if rest:
            self._rests[stream] = rest

    def end(self, errand: str, attempt: int) -> None:
        """The output of an attempt is complete."""
        for number in NAMES:
            stream = (errand, attempt, number)
            ring = self._rings.pop(stream, None)
            if ring is not None:
                ring.close()
            self._rests.pop(stream, None)

    def close(self) -> None:
        for errand, attempt, _number in list(self._rings):
            self.end(errand, attempt)


def show_line(text: bytes) -> str:
    """Return a line of output that a terminal cannot obey. Of a line that was rewritten, the last state is shown."""
    return show(text.rstrip(b"\r").rpartition(b"\r")[2][:LONGEST].replace(b"\t", b"    "))
