"""A row in the API: method, path, request and answer types, and the handler.

A handler is a plain function that takes an ``ApiCall`` and runs in a thread. Its request has been validated by type,
and its answer is a type from ``ext/web/shape``. A handler raises exceptions and never makes a response: each error
becomes a ``ProblemShape``.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from mudroom.api import show
from mudroom.ext.web.state.refusal import Refusal

if TYPE_CHECKING:
    from mudroom.ext.web.state.server_state import ServerState

BODY_LIMIT = 8 << 20
"""Bytes in a request; the largest is a file merged by hand."""


class ApiCall(NamedTuple):
    """A validated request."""

    server: ServerState
    path: Mapping[str, str]
    """The variable parts of the path."""
    query: Any
    """An instance of the endpoint's ``query`` type; None if it has none."""
    body: Any


class Endpoint(NamedTuple):
    method: str
    path: str
    """Below ``/api/v1``; with ``{project}`` and ``{fork}`` as in OpenAPI."""
    summary: str
    handle: Callable[[ApiCall], Any]
    gives: Any
    """The answer's type; None: ``handle`` returns a ``Raw``."""
    takes: Any = None
    """The body's type."""
    query: Any = None
    """A Struct; fields without default are required."""
    status: int = 200


class Raw(NamedTuple):
    """An answer that is not JSON."""

    data: bytes
    media_type: str
    headers: Mapping[str, str]


def decode_body(kind: Any, body: bytes | bytearray) -> Any:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal(400, "bad-request", f"the request cannot be parsed: {error}") from None


def decode_query(kind: Any, pairs: Mapping[str, str]) -> Any:
    """Return the validated query parameters. Unknown parameters are refused, as are unknown fields in a body."""
    names = {field.name for field in msgspec.structs.fields(kind)} if kind is not None else set()
    for name in pairs:
        if name not in names:
            raise Refusal(400, "bad-request", f"there is no parameter {show(name.encode('utf-8', 'replace'))}")
    if kind is None:
        return None
    try:
        return msgspec.convert(dict(pairs), kind, strict=False)
    except msgspec.ValidationError as error:
        raise Refusal(400, "bad-request", f"a parameter cannot be parsed: {error}") from None


_ID = re.compile(r"[A-Za-z0-9_-]{1,8192}\Z")


def path_of(identity: str) -> bytes:
    """Return a path's bytes from its ``id``, without further checks. Raise Refusal if it is not an id."""
    if not _ID.match(identity):
        raise Refusal(400, "bad-request", "that is no id of a path")
    try:
        return binascii.a2b_base64(identity.translate(_FROM_URL) + "=" * (-len(identity) % 4))
    except binascii.Error:
        raise Refusal(400, "bad-request", "that is no id of a path") from None


def id_of(path: bytes) -> str:
    """Return a path's id: RFC 4648, 5, without padding."""
    return binascii.b2a_base64(path, newline=False).decode().rstrip("=").translate(_TO_URL)


_TO_URL, _FROM_URL = str.maketrans("+/", "-_"), str.maketrans("-_", "+/")
