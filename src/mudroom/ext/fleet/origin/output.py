"""Errands' output: kept, as far as it is recent, and shown line by line.

A worker says at which byte in its stream each piece begins, so that a piece that came twice is taken once. Output is
any bytes: it is kept raw and shown escaped.
"""

from __future__ import annotations

from collections.abc import Callable

from mudroom.core.tree.path import show
from mudroom.ext.fleet.origin.fleet_event import ErrandOutput
from mudroom.vault.forks.background import Ring

NAMES = {1: "stdout", 2: "stderr"}
LONGEST = 1 << 12
"""Bytes that are shown as one line."""
_ShowLine = Callable[[ErrandOutput, str], None]
_Stream = tuple[str, int, int]
"""Errand, attempt, stream number."""


class Outputs:
    """Owner: the verb's thread."""

    def __init__(
        self,
        directory: Callable[[ErrandOutput], bytes],
        line: _ShowLine | None,
        limit: int,
        note: Callable[[str], None],
    ) -> None:
        """``directory``: returns the directory for an attempt's output. ``line`` is called with each line, escaped;
        None: lines are not shown. ``limit``: bytes of each stream; ``note`` is told that the rest is dropped. Workers
        hold it, too, but need not."""
        self._directory, self._line, self._limit, self._note = directory, line, limit, note
        self._left: dict[_Stream, int] = {}
        self._offsets: dict[_Stream, int] = {}
        self._rings: dict[_Stream, Ring] = {}
        self._partial_lines: dict[_Stream, bytes] = {}

    def add(self, output: ErrandOutput) -> bytes:
        """Take a piece of output. Return its new bytes."""
        stream = (output.row.errand, output.row.attempt, output.stream)
        end = self._offsets.get(stream, 0)
        new = output.data[max(0, end - output.offset) :] if output.offset < end else output.data
        self._offsets[stream] = max(end, output.offset + len(output.data))
        left = self._left.setdefault(stream, self._limit)
        self._left[stream] = max(-1, left - len(new))
        if left >= 0 and self._left[stream] < 0:
            name = f"{NAMES[output.stream]} of errand {output.row.errand} on {output.row.worker}"
            self._note(f"{name} has more than {self._limit:,} bytes (run.output_limit): the rest is dropped")
        new = new[: max(0, left)]
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
        """Close an attempt's output, which is complete."""
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
    """Return an output line that a terminal cannot obey. A line that was rewritten is shown in its last state."""
    return show(text.rstrip(b"\r").rpartition(b"\r")[2][:LONGEST].replace(b"\t", b"    "))
