"""One row of the API: a method and a path, what it takes, what it gives, and who makes that.

A handler is a plain function of a ``ApiCall``, run in a thread; its request is checked by its types before, and its
answer is one of ``shape.py``. All that goes wrong becomes a ``ProblemShape``: a handler raises, and never makes a
response.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from mudroom.core.tree.path import show
from mudroom.errors import DecidedMeanwhile, ForkMoved, MudroomError, UsageError
from mudroom.web.shape import ProblemShape

if TYPE_CHECKING:
    from mudroom.web.state.house import House

BODY_LIMIT = 8 << 20
"""Bytes of a request: a file that was merged by hand is the largest there is."""


class Refusal(Exception):
    """An answer that is a problem. ``status`` of HTTP: RFC 9110, 15."""

    def __init__(self, status: int, code: str, error: str, hint: str = "") -> None:
        super().__init__(error)
        self.status, self.problem = status, ProblemShape(error, code, hint)


class ApiCall(NamedTuple):
    """One request, checked."""

    house: House
    path: Mapping[str, str]
    """The variable parts of the path."""
    query: Any
    """As the endpoint says; None: it takes none."""
    body: Any


class Endpoint(NamedTuple):
    method: str
    path: str
    """Below ``/api/v1``; ``{project}`` and ``{fork}`` as OpenAPI has them."""
    summary: str
    handle: Callable[[ApiCall], Any]
    gives: Any
    """The type of the answer; None: ``handle`` returns a ``Raw``."""
    takes: Any = None
    """The type of the body."""
    query: Any = None
    """A Struct whose fields have defaults, or are needed."""
    status: int = 200


class Raw(NamedTuple):
    """An answer that is no JSON."""

    data: bytes
    media_type: str
    headers: Mapping[str, str]


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


def decoded(kind: Any, body: bytes) -> Any:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal(400, "bad-request", f"the request cannot be understood: {error}") from None


def queried(kind: Any, pairs: Mapping[str, str]) -> Any:
    """The words behind the ``?``; what is not known is refused, as in a body."""
    names = {field.name for field in msgspec.structs.fields(kind)} if kind is not None else set()
    for name in pairs:
        if name not in names:
            raise Refusal(400, "bad-request", f"there is no parameter {show(name.encode('utf-8', 'replace'))}")
    if kind is None:
        return None
    try:
        return msgspec.convert(dict(pairs), kind, strict=False)
    except msgspec.ValidationError as error:
        raise Refusal(400, "bad-request", f"a parameter cannot be understood: {error}") from None


_ID = re.compile(r"[A-Za-z0-9_-]{1,8192}\Z")


def path_of(identity: str) -> bytes:
    """The bytes behind an ``id`` of a path; not checked further. Raises Refusal."""
    if not _ID.match(identity):
        raise Refusal(400, "bad-request", "that is no id of a path")
    try:
        return binascii.a2b_base64(identity.translate(_FROM_URL) + "=" * (-len(identity) % 4))
    except binascii.Error:
        raise Refusal(400, "bad-request", "that is no id of a path") from None


def id_of(path: bytes) -> str:
    """RFC 4648, 5, without padding."""
    return binascii.b2a_base64(path, newline=False).decode().rstrip("=").translate(_TO_URL)


_TO_URL, _FROM_URL = str.maketrans("+/", "-_"), str.maketrans("-_", "+/")
