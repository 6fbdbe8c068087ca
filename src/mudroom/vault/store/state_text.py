"""The text of a fork's state file, read and written at a cost that does not grow with the number of checkpoints.

A fork that is frozen after every change of its file tools has thousands of checkpoints, and its state is read a dozen
times between two of them. The last texts are therefore kept with their states, and only the lines of new checkpoints
are made. A text is compared as a whole, so that no stamp of a file is relied on.
"""

from __future__ import annotations

from mudroom.core.tree.stack import Checkpoint, ForkState, checkpoint_line, from_text, head_text

KEPT = 8
"""Texts kept: those of the forks in use."""


class StateTexts:
    """The last states with their texts. Thread-safe: values are replaced as a whole; a lost one costs a parse."""

    def __init__(self) -> None:
        self._states: dict[bytes, ForkState] = {}
        self._lines: tuple[tuple[Checkpoint, ...], tuple[bytes, ...]] = ((), ())

    def parse(self, text: bytes) -> ForkState:
        """Return the state. Raise ValueError with the reason if it is damaged."""
        state = self._states.get(text)
        if state is None:
            state = from_text(text.decode("ascii"))
            self._keep(text, state)
        return state

    def format(self, state: ForkState) -> bytes:
        points, lines = self._lines
        pairs = zip(points, state.checkpoints, strict=False)
        same = next(
            (at for at, pair in enumerate(pairs) if pair[0] is not pair[1]), min(len(points), len(state.checkpoints))
        )
        new = (f"{checkpoint_line(point)}\n".encode("ascii") for point in state.checkpoints[same:])
        lines = (*lines[:same], *new)
        self._lines = state.checkpoints, lines
        text = b"".join((head_text(state).encode("ascii"), *lines, b"end\n"))
        self._keep(text, state)
        return text

    def _keep(self, text: bytes, state: ForkState) -> None:
        recent = list(self._states.items())[1 - KEPT :]
        self._states = dict([*recent, (text, state)])


TEXTS = StateTexts()
