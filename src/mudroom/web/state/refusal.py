"""An HTTP answer that is a problem, and the problem that each exception of mudroom becomes."""

from __future__ import annotations

from typing import Any

from mudroom.core.tree.path import show
from mudroom.errors import DecidedMeanwhile, ForkMoved, MudroomError, UsageError
from mudroom.web.shape import ProblemShape


class Refusal(Exception):
    """An answer that is a problem. ``status`` of HTTP: RFC 9110, 15."""

    def __init__(self, status: int, code: str, error: str, hint: str = "") -> None:
        super().__init__(error)
        self.status, self.problem = status, ProblemShape(error, code, hint)


_STATUS = {
    DecidedMeanwhile: (409, "decided"),
    ForkMoved: (409, "moved"),
    UsageError: (400, "bad-request"),
    MudroomError: (409, "failed"),
}


def refusal_of(error: Exception) -> Refusal:
    """Of what a handler may raise; anything else is a fault of ours, and stays one."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, MudroomError):
        status, code = next(found for kind, found in _STATUS.items() if isinstance(error, kind))
        return Refusal(status, code, error.message, error.hint)
    if isinstance(error, OSError):
        where = f"{show(_bytes(error.filename))}: " if error.filename else ""
        return Refusal(409, "failed", f"{where}{error.strerror or error}")
    raise error


def fault() -> Refusal:
    """What is told of an exception that no handler should raise; what it was is on the server's stderr."""
    return Refusal(500, "failed", "mudroom failed", "this is a fault of mudroom's; the server's output says where")


def _bytes(name: Any) -> bytes:
    return name if isinstance(name, bytes) else str(name).encode("utf-8", "surrogateescape")
