"""Headers in requests between forks: the calling fork, and the number of forks that a request has passed.

Rules: the gate writes both into plain HTTP/1 requests to a fork. The client's own are removed in every spelling that a
server may take for them: CGI and WSGI know names in capitals with ``_`` for each other character (RFC 3875 4.1.18), so
only a name's letters and digits count. The hop count is the client's plus one: a server that passes its requests on, as
a proxy does, passes the header on, and a circle ends. Pure.
"""

from __future__ import annotations

FORK = b"x-mudroom-fork"
HOPS = b"x-mudroom-hops"
MOST_HOPS = 8
"""Forks that a request may pass."""
LOOP = f"the request has passed {MOST_HOPS} forks: it goes round in a circle"

Fields = list[tuple[bytes, bytes]]


def _bare(name: bytes) -> bytes:
    # CGI and WSGI write every other character as ``_`` (RFC 3875 4.1.18)
    return bytes(c for c in name.lower() if 97 <= c <= 122 or 48 <= c <= 57)


_OURS = {_bare(FORK), _bare(HOPS)}


def is_ours(name: bytes) -> bool:
    """Return whether a server may take a header with this name for one of the gate's headers."""
    return _bare(name) in _OURS


def with_caller(fields: Fields, caller: str) -> Fields | None:
    """Return a request's fields with the gate's headers instead of the client's; None if it has passed too many forks.
    ``caller``: the calling fork's label; empty: it has none, and the header is left out."""
    hops = 1 + max((_number(value) for name, value in fields if _bare(name) == _bare(HOPS)), default=0)
    if hops > MOST_HOPS:
        return None
    kept = [(name, value) for name, value in fields if not is_ours(name)]
    ours = [(FORK, caller.encode())] if caller else []
    return [*kept, *ours, (HOPS, b"%d" % hops)]


def _number(value: bytes) -> int:
    """Return the largest number in a list; items that are not numbers are ignored."""
    numbers = [part.strip() for part in value.split(b",")]
    return max((MOST_HOPS if len(part) > 4 else int(part) for part in numbers if part.isdigit()), default=0)
