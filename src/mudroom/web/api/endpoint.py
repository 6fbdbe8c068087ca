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
from mudroom.web.state.refusal import Refusal

if TYPE_CHECKING:
    from mudroom.web.state.server_state import ServerState

BODY_LIMIT = 8 << 20
"""Bytes of a request: a file that was merged by hand is the largest there is."""


class ApiCall(NamedTuple):
    """One request, checked."""

    server: ServerState
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
