"""The output of errands: kept, as far as it is recent, and shown line by line.

A worker says at which byte of its stream each piece begins, so that what came twice is taken once. Output is any bytes:
what is kept is raw, what is shown is escaped.
"""

from __future__ import annotations

from collections.abc import Callable

from mudroom.core.tree.path import show
from mudroom.ext.fleet.origin.fleet_event import ErrandOutput
from mudroom.vault.forks.background import Ring

NAMES = {1: "stdout", 2: "stderr"}
LONGEST = 1 << 12
"""Bytes of a line that are shown as one."""
_ShowLine = Callable[[ErrandOutput, str], None]
_Stream = tuple[str, int, int]
"""Errand, attempt, number of the stream."""


class Outputs:
    """Owner: the thread of the verb."""

    def __init__(self, directory: Callable[[ErrandOutput], bytes], line: _ShowLine | None) -> None:
        """``directory``: returns the directory in which the output of an attempt is kept. ``line`` is called with each
        line, escaped; None: lines are not shown."""
        self._directory, self._line = directory, line
        self._offsets: dict[_Stream, int] = {}
        self._rings: dict[_Stream, Ring] = {}
        self._partial_lines: dict[_Stream, bytes] = {}

    def add(self, output: ErrandOutput) -> bytes:
        """Take a piece of output. Return what of it is new."""
        stream = (output.row.errand, output.row.attempt, output.stream)
        end = self._offsets.get(stream, 0)
        new = output.data[max(0, end - output.offset) :] if output.offset < end else output.data
        self._offsets[stream] = max(end, output.offset + len(output.data))
        if not new:
            return b""
        if stream not in self._rings:
            self._rings[stream] = Ring(self._directory(output) + b"/" + NAMES[output.stream].encode())
        self._rings[stream].write(new)
        if self._line is not None:
            self._show(stream, output, new, self._line)
        return new

    def _show(self, stream: _Stream, output: ErrandOutput, new: bytes, line: _ShowLine) -> None:
        *lines, rest = (self._partial_lines.pop(stream, b"") + new).split(b"\n")
        while len(rest) > LONGEST:
            lines.append(rest[:LONGEST])
            rest = rest[LONGEST:]
        for text in lines:
            line(output, show_line(text))
        if rest:
            self._partial_lines[stream] = rest

    def end(self, errand: str, attempt: int) -> None:
        """The output of an attempt is complete."""
        for number in NAMES:
            stream = (errand, attempt, number)
            ring = self._rings.pop(stream, None)
            if ring is not None:
                ring.close()
            self._partial_lines.pop(stream, None)

    def close(self) -> None:
        for errand, attempt, _number in list(self._rings):
            self.end(errand, attempt)


def show_line(text: bytes) -> str:
    """Return a line of output that a terminal cannot obey. Of a line that was rewritten, the last state is shown."""
    return show(text.rstrip(b"\r").rpartition(b"\r")[2][:LONGEST].replace(b"\t", b"    "))
