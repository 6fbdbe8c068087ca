"""Refusals: answers that are a problem, and the problem for each exception."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mudroom.core.tree.path import show
from mudroom.errors import DecidedMeanwhile, ForkMoved, MudroomError, UsageError
from mudroom.ext.web.shape import ProblemShape


class Refusal(Exception):
    """An answer that is a problem. ``status``: HTTP status, RFC 9110, 15."""

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
    """Return the refusal for a handler's exception. Other exceptions are server faults: raise them again."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, MudroomError):
        status, code = next(outcome for kind, outcome in _STATUS.items() if isinstance(error, kind))
        return Refusal(status, code, error.message, error.hint)
    if isinstance(error, OSError):
        path = f"{show(_bytes(error.filename))}: " if error.filename else ""
        return Refusal(409, "failed", f"{path}{error.strerror or error}")
    raise error


@contextmanager
def refusing_missing() -> Iterator[None]:
    """Refuse (404) where what a request names is missing. Other exceptions are for ``refusal_of``."""
    try:
        yield
    except UsageError as error:
        raise Refusal(404, "not-found", error.message, error.hint) from None


def fault() -> Refusal:
    """Return the refusal for an unexpected exception; the exception itself is on the server's stderr."""
    return Refusal(500, "failed", "mudroom failed", "this is a fault of mudroom's; the server's output says where")


def _bytes(name: Any) -> bytes:
    return name if isinstance(name, bytes) else str(name).encode("utf-8", "surrogateescape")
