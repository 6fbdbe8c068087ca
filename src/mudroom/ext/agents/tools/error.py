"""The error for a call that cannot be performed as requested."""

from __future__ import annotations

from mudroom.typing import Any


class ToolError(Exception):
    """``message``: what and why; ``instead``: what to do, for a model; ``data``: more for programs."""

    def __init__(self, message: str, instead: str = "", **data: Any) -> None:
        super().__init__(message)
        self.message, self.instead, self.data = message, instead, data
