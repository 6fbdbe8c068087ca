"""A terminal for work that another screen or a page shows."""

from __future__ import annotations

from collections.abc import Mapping

from mudroom.cli.terminal.terminal import Terminal


class RecordingTerminal(Terminal):
    """Collects messages, and asks nothing."""

    def __init__(self, variables: Mapping[bytes, bytes]) -> None:
        super().__init__(variables)
        self.interactive = False
        self.messages: list[str] = []

    def say(self, text: str = "") -> None:
        self.messages.append(text)

    out = note = say

    def progress(self, label: str, done: int, total: int) -> None:
        """Ignored: a screen shows progress itself (``Forks.tell_progress``)."""
