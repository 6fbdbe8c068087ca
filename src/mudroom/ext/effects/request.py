"""A PUT, PATCH or DELETE of one resource, and a POST with a natural key, as far as they are held.

Rules of this file: pure, and for untrusted bytes; ValueError for all that is not understood. It is known of each
request whether a second one changes what the first has left: PUT and DELETE do not (RFC 9110 9.2.2), a merge patch does
not (RFC 7396), a request with a precondition does not pass twice (RFC 9110 13.1), and of a POST the server takes each
key once, as the user's rule says. Another PATCH is sent once, or is unknown.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from mudroom.core.network.host_rules import decoded
from mudroom.core.network.inspection import is_header, is_value
from mudroom.core.text.regex import regex

_PATH = regex(r"/[!-~]{0,2000}")
_KEY = regex(r"[!-~]{1,200}")
_CODINGS = ("accept-encoding", "content-encoding")
"""The gate stores the body unpacked."""
_OPERATIONS = regex(rb'(?i)"operation"\s*:\s*(?:"([^"\\]*)")?')
_MERGE = "application/merge-patch+json"
_PRECONDITIONS = ("if-match", "if-none-match", "if-unmodified-since")


class HttpRequest(NamedTuple):
    method: str
    headers: tuple[tuple[str, str], ...]
    """As its client has sent them, in lower case; without those of the connection, and without its login."""
    key: str = ""
    """Of a POST: name and value of what the server takes once."""
    seen: str = ""
    """What was at the path before it was sent: ``seen``; empty: it was not sent yet."""

    def label(self, path: str) -> str:
        return f"{self.method} {path}" + (f" ({self.key})" if self.key else "")

    @property
    def may_repeat(self) -> bool:
        names = dict(self.headers)
        is_merge = self.method == "PATCH" and names.get("content-type", "").partition(";")[0].strip().lower() == _MERGE
        return self.method != "PATCH" or is_merge or not names.keys().isdisjoint(_PRECONDITIONS)


def is_request_path(path: str) -> bool:
    """Return whether a path with its query is surely read by all servers as it is written."""
    return _PATH.fullmatch(path) is not None and "#" not in path and decoded(path) is not None


def names_method(requests: Sequence[str], method: str) -> bool:
    """Return whether requests with a method may be held. ``requests``: as in ``HostRule``."""
    return any(word.partition("=")[0] == method for word in requests)


def is_query(body: bytes) -> bool:
    """Return whether no server takes a GraphQL request for a mutation: that begins with its name, which cannot be
    omitted or escaped (GraphQL of October 2021, 2.3), and JSON does not escape it."""
    return _is_plain(body) and b"mutation" not in body and b"subscription" not in body


def is_download(body: bytes) -> bool:
    """Return whether no server takes a batch request of git LFS for an upload. Some read names in any case, and the
    last of two (Go's encoding/json)."""
    return _is_plain(body) and [word.lower() for word in _OPERATIONS.findall(body)] == [b"download"]


def _is_plain(body: bytes) -> bool:
    """Return whether a body is a JSON object whose words are written as they are."""
    try:
        return b"\\u" not in body and isinstance(msgspec.json.decode(body), dict)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False


def parse_request(
    method: str, path: str, headers: Sequence[tuple[str, str]], body: bytes, requests: Sequence[str]
) -> HttpRequest:
    """Return what a request asks for. ``requests``: as in ``HostRule``."""
    if not is_request_path(path):
        raise ValueError(f"{method} of a path that servers may read in several ways")
    kept: dict[str, str] = {}
    for name, value in headers:
        lower = name.lower()
        if is_header(name) and lower not in _CODINGS:
            if value and not is_value(value):
                raise ValueError(f"{method} with a header {lower} that is not plain ASCII")
            kept[lower] = f"{kept[lower]}, {value}" if lower in kept else value
    if method in requests:
        return HttpRequest(method, tuple(kept.items()))
    keys = [word.partition("=")[2] for word in requests if word.startswith(f"{method}=")]
    for key in keys:
        value = _field(body, key) if key.startswith(".") else kept.get(key.lower(), "")
        if _KEY.fullmatch(value):
            return HttpRequest(method, tuple(kept.items()), f"{key}: {value}")
    raise ValueError(f"{method} {path.partition('?')[0]}" + (f" without {' or '.join(keys)}" if keys else ""))


def _field(body: bytes, place: str) -> str:
    try:
        value: Any = msgspec.json.decode(body)
        for name in place.split(".")[1:]:
            value = value[name]
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
        return ""
    return str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else ""


def seen(status: int, body: bytes) -> str:
    return f"{status} {hashlib.sha256(body).hexdigest()}"


def is_done(request: HttpRequest, sent: bytes, status: int, there: bytes) -> bool:
    """Return whether a server that answers a GET so has what the request asks for, and had something else before. A
    server that hides what is there from this user answers as one that has nothing, before and after."""
    if request.method == "DELETE":
        return status in (404, 410) and request.seen.startswith("2")
    if request.method == "POST" or status != 200:
        return False
    if request.method == "PUT":
        return sent == there or _canonical(sent) == _canonical(there) != b""
    try:
        patch = msgspec.json.decode(sent)
        return isinstance(patch, Mapping) and _holds(msgspec.json.decode(there), patch)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False


def _holds(there: Any, patch: Any) -> bool:
    """Return whether a merge patch changes nothing (RFC 7396 2)."""
    if not isinstance(patch, Mapping):
        return msgspec.json.encode(there) == msgspec.json.encode(patch)  # 1 is not true
    return isinstance(there, Mapping) and all(
        name not in there if value is None else name in there and _holds(there[name], value)
        for name, value in patch.items()
    )


def _canonical(data: bytes) -> bytes:
    """Return a JSON text in one form; empty if it is none."""
    try:
        return msgspec.json.encode(msgspec.json.decode(data), order="deterministic")
    except (msgspec.DecodeError, UnicodeDecodeError):
        return b""


def undo_words(request: HttpRequest, path: str) -> str:
    """Return why a request that was sent is not taken back, and what is left."""
    is_new = request.method == "PUT" and request.seen.startswith(("404", "410"))
    return _UNDO["new" if is_new else request.method].format(path=path)


_REPLACED = "what was there before is not kept: PUT {path} with it, in a fork, is held again"
_UNDO = {
    "new": "nothing was there before: DELETE {path} in a fork is held again",
    "POST": "what it has made there is not known to mudroom: a DELETE of it in a fork is held again",
    "PUT": _REPLACED,
    "PATCH": _REPLACED,
    "DELETE": _REPLACED,
}
