"""Parse the fields in HTTP/2 requests and responses strictly.

Rules of this file: pure. A field that an HTTP/1.1 server further on could read differently is refused: line ends,
control characters, upper case, spaces at the ends, hop-by-hop headers, two authorities (RFC 9113 8.2, 8.3, 10.3).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mudroom.core.network.host import Authority, parse_authority
from mudroom.core.tree.path import show
from mudroom.net.protocol.head import HOP, BadHead
from mudroom.typing import NamedTuple

Field = tuple[bytes, bytes]

MOST = 256
"""Maximum fields in a message."""
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9a-z-]+")
_VALUE = re.compile(rb"(?:[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?)?")
_METHOD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}")
_PATH = re.compile(rb"/[\x21\x22\x24-\x7e]*")
_STATUS = re.compile(rb"[1-5][0-9]{2}")
_LENGTH = re.compile(rb"[0-9]{1,18}")
_ONCE = (b":method", b":scheme", b":authority", b":path")
_CONNECTION = HOP - {b"te", b"trailer"}


class RequestFields(NamedTuple):
    method: str
    path: bytes
    fields: list[Field]
    """Without pseudo-header fields and ``host``."""


def parse_request(headers: Sequence[Field], origin: Authority) -> RequestFields:
    """Return the request, which must be for ``origin``, over https. Raise BadHead."""
    pseudo, fields = _split(headers)
    if set(pseudo) - set(_ONCE):
        raise BadHead(f"there is no {show(min(set(pseudo) - set(_ONCE)))} here")
    method, path = pseudo.get(b":method", b""), pseudo.get(b":path", b"")
    if not _METHOD.fullmatch(method) or method == b"CONNECT":
        raise BadHead("its method is none, or CONNECT")
    if not _PATH.fullmatch(path) and (method, path) != (b"OPTIONS", b"*"):
        raise BadHead("its path is none")
    if pseudo.get(b":scheme") != b"https":
        raise BadHead("its scheme is not https")
    authorities = [value for name, value in fields if name == b"host"]
    if b":authority" in pseudo:
        authorities.append(pseudo[b":authority"])
    if not authorities:
        raise BadHead("it does not say whom it is for")
    for authority in authorities:
        try:
            other = parse_authority(authority, 443)
        except ValueError as error:
            raise BadHead(str(error)) from error
        if other != origin:
            raise BadHead(f"it is for {origin} and for {other}", 403)
    return RequestFields(method.decode(), path, [field for field in fields if field[0] != b"host"])


def parse_response(headers: Sequence[Field]) -> tuple[int, list[Field]]:
    """Return the status and the fields. Raise BadHead."""
    pseudo, fields = _split(headers)
    if set(pseudo) != {b":status"} or not _STATUS.fullmatch(pseudo[b":status"]):
        raise BadHead("the status of the response is none")
    return int(pseudo[b":status"]), fields


def parse_trailers(headers: Sequence[Field]) -> list[Field]:
    """Return the fields. Raise BadHead."""
    pseudo, fields = _split(headers)
    if pseudo:
        raise BadHead("a pseudo-header field is among the trailers")
    return fields


def _split(headers: Sequence[Field]) -> tuple[dict[bytes, bytes], list[Field]]:
    pseudo: dict[bytes, bytes] = {}
    fields: list[Field] = []
    if len(headers) > MOST:
        raise BadHead(f"it has more than {MOST} headers", 431)
    for name, value in headers:
        name, value = bytes(name), bytes(value)
        if not _VALUE.fullmatch(value):
            raise BadHead(f"the value of {show(name)} is not what values are")
        if name.startswith(b":"):
            if fields or name in pseudo:
                raise BadHead(f"{show(name)} is not where it belongs, or there twice")
            pseudo[name] = value
            continue
        if not _NAME.fullmatch(name) or name in _CONNECTION or (name == b"te" and value.lower() != b"trailers"):
            raise BadHead(f"the header {show(name)} is not for HTTP/2")
        fields.append((name, value))
    lengths = [value for name, value in fields if name == b"content-length"]
    if len(lengths) > 1 or not all(map(_LENGTH.fullmatch, lengths)):
        raise BadHead("there is more than one content-length, or it is no number")
    return pseudo, fields
