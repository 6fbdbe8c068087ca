"""Parse an HTTP/1 request's head strictly: a head that two servers could read differently is refused.

Rules of this file: pure. A head ends with an empty line; every line with CR LF. No folded lines, no space before a
colon, one Content-Length or one ``Transfer-Encoding: chunked`` and not both, one Host, no version but 1.0 and 1.1 (RFC
9112 sections 2.2, 3, 5, 6.1 and 6.3 name the attacks).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mudroom.typing import NamedTuple

LIMIT = 16 << 10
"""Maximum bytes in a head."""
END = b"\r\n\r\n"

_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}) ([\x21-\x7e]+) HTTP/1\.([01])")
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
_LENGTH = re.compile(rb"[0-9]{1,18}")
_SINGLE = (b"host", b"content-length", b"transfer-encoding")
_HOP = (
    "connection keep-alive proxy-connection proxy-authenticate proxy-authorization te trailer transfer-encoding upgrade"
)
HOP = frozenset(_HOP.encode().split())
"""Hop-by-hop fields (RFC 9110 7.6.1)."""


_METHODS = frozenset(b"GET HEAD POST PUT PATCH DELETE OPTIONS TRACE CONNECT COPY MOVE MKCOL PROPPATCH PURGE".split())
_OF_METHOD, _OF_PATH = re.compile(rb"method|verb|override"), re.compile(rb"ur[il]\b|path|rewrite|route|destination")
_PATH = re.compile(rb"[\s\"'<(]*(?:/|\\|%2f|[a-z][a-z0-9+.-]*://)", re.IGNORECASE)
_HARMLESS = frozenset(
    b"accept accept-charset accept-encoding accept-language access-control-request-headers"
    b" access-control-request-method authorization baggage content-digest content-encoding content-language"
    b" content-md5 content-type cookie date digest etag expect from host if-match if-modified-since if-none-match"
    b" if-range if-unmodified-since link origin proxy-authorization range referer repr-digest sec-websocket-key"
    b" sec-websocket-protocol signature signature-input trailer traceparent tracestate upgrade user-agent via"
    b" want-digest x-amz-security-token x-amz-content-sha256 x-amz-user-agent x-goog-api-client x-goog-hash".split()
)
"""Headers whose value may look like a method or a path, and that no server takes for its request's."""


class BadHead(ValueError):
    """``status`` is the HTTP status for the client."""

    def __init__(self, reason: str, status: int = 400) -> None:
        super().__init__(reason)
        self.status = status


class RequestHead(NamedTuple):
    method: str
    target: bytes
    minor: int
    """The minor version: HTTP/1.0 or HTTP/1.1."""
    fields: list[tuple[bytes, bytes]]
    """As they were sent: some servers, and people, depend on a name's case."""
    raw: bytes

    def get(self, name: bytes) -> bytes | None:
        return next((value for field, value in self.fields if field.lower() == name), None)

    @property
    def has_body(self) -> bool:
        return self.get(b"content-length") not in (None, b"0") or self.get(b"transfer-encoding") is not None


def parse_head(raw: bytes) -> RequestHead:
    """Return the head; ``raw`` ends with the empty line. Raise BadHead."""
    first, *lines = raw.removesuffix(END).split(b"\r\n")
    match = _LINE.fullmatch(first)
    if match is None:
        raise BadHead("the first line is no request of HTTP/1.0 or HTTP/1.1")
    method, target, minor = match.groups()
    fields = []
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise BadHead("a header is not what headers are: one line, a name, a colon, no control characters")
        fields.append((name, value.strip(b" \t")))
    head = RequestHead(method.decode(), target, int(minor), fields, raw)
    _check_framing(head)
    return head


def _check_framing(head: RequestHead) -> None:
    names = [name.lower() for name, _value in head.fields]
    for name in _SINGLE:
        if names.count(name) > 1:
            raise BadHead(f"there is more than one {name.decode()}")
    length, coding = head.get(b"content-length"), head.get(b"transfer-encoding")
    if length is not None and not _LENGTH.fullmatch(length):
        raise BadHead("the content-length is no number")
    if coding is not None and (length is not None or head.minor == 0 or coding.lower() != b"chunked"):
        raise BadHead("the transfer-encoding is not just chunked, or not alone, or not of HTTP/1.1")
    if head.minor and head.get(b"host") is None:
        raise BadHead("there is no host header")


def end_to_end(fields: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the fields without the hop-by-hop fields, including those that the Connection header names."""
    named = {
        part.strip().lower() for name, value in fields if name.lower() == b"connection" for part in value.split(b",")
    }
    return [(name, value) for name, value in fields if name.lower() not in HOP and name.lower() not in named]


def as_judged(method: str, path: str, fields: Sequence[tuple[bytes, bytes]]) -> tuple[str, str]:
    """Return method and path as rules judge them. If a header may carry another method or path, it is marked, so that
    it is unknown: no rule for some methods or paths lets it through (``core/network/host_rules.py``).

    Servers know many such headers: X-HTTP-Method-Override (Google's APIs, Rack), X-Original-URL (IIS, CVE-2018-14773),
    Destination (WebDAV), X-Amz-Copy-Source. So a header does if its name says so, or if its value is a method or begins
    as a path or URL does, unless it is known to be harmless.
    """
    for name, value in fields:
        # CGI takes ``_`` in a name for ``-`` (RFC 3875 4.1.18)
        folded = name.lower().replace(b"_", b"-")
        if folded in _HARMLESS or folded in HOP or folded.startswith(b":"):
            continue
        says_method, says_path = _OF_METHOD.search(folded), _OF_PATH.search(folded)
        is_named = says_method or says_path
        if says_method or (not is_named and value.strip(b" \t\"'").upper() in _METHODS):
            method = f"{method} ({folded.decode()})"
        if says_path or (not is_named and _PATH.match(value)):
            path = f"{path} #{folded.decode()}"
    return method, path
