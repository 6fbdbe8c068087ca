"""A login's two versions, inside and on the host: decide which goes to both sides. Pure.

A login is a file with tokens, mostly JSON. Rules of this file:
1. An unchanged side takes the other's version. If both have changed, the newer wins: the one whose tokens end later,
   or, if that cannot be told, the one written later.
2. Where the host has a JSON object, only another JSON object replaces it, and a list only a list: a program that was
   killed may have written only a part.
"""

from __future__ import annotations

import json
from binascii import a2b_base64

from mudroom.core.text.regex import regex
from mudroom.typing import Any, Literal, NamedTuple

LARGEST = 16 << 20
"""Bytes in a login, or in a file that lies in the home by itself (``.claude.json``)."""
_ENDS = frozenset(("exp", "expires", "expiry", "expiresat", "expirydate", "expireson"))
"""Members that hold when a token ends, in lower case without ``_`` and ``-``. ``expires_in`` is no time."""
_JWT = regex(r"[A-Za-z0-9_-]{2,}\.([A-Za-z0-9_-]{2,})\.[A-Za-z0-9_-]*")
_MILLISECONDS = 10**11
"""A greater number counts milliseconds: as seconds it would be in the year 5138."""

LoginAct = Literal["none", "to the host", "to the fork", "newer inside", "newer on the host"]


class LoginVersion(NamedTuple):
    content: bytes
    digest: str
    time: int
    """When it was written: nanoseconds since 1970."""


def compared(base: str, inside: LoginVersion, outside: LoginVersion) -> LoginAct:
    """Return the action for two existing versions. ``base``: the digest that both had; empty if that is not known."""
    if inside.digest == outside.digest or (base and inside.digest == base and outside.digest == base):
        return "none"
    if inside.digest == base:
        return "to the fork"
    if outside.digest == base:
        return "to the host"
    return "newer inside" if _is_newer(inside, outside) else "newer on the host"


def is_cut_off(inside: bytes, outside: bytes) -> bool:
    """Return whether the version inside cannot replace the host's (rule 2)."""
    return not inside or type(_parsed(outside)) not in (type(None), type(_parsed(inside)))


def ends_of(content: bytes) -> float | None:
    """Return when a login's last token ends, in seconds since 1970; None if the login does not say."""
    ends, pending = list[float](), list[Any]([_parsed(content)])
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            pending += value
        elif isinstance(value, dict):
            pending += value.values()
            ends += [_seconds(value[name]) for name in value if _plain(name) in _ENDS]
        elif isinstance(value, str):
            pending.append(_claims(value))
    return max(filter(None, ends), default=None)


def _is_newer(inside: LoginVersion, outside: LoginVersion) -> bool:
    ours, theirs = ends_of(inside.content), ends_of(outside.content)
    if ours is not None and theirs is not None and ours != theirs:
        return ours > theirs
    return inside.time > outside.time


def _parsed(content: bytes) -> dict[str, Any] | list[Any] | None:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, (dict, list)) else None


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def _seconds(value: object) -> float:
    """Return a time in seconds; 0 if it is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 10**14:
        return 0.0
    return value / 1000 if value > _MILLISECONDS else float(value)


def _claims(text: str) -> dict[str, Any] | list[Any] | None:
    """Return a JSON Web Token's claims (RFC 7519); its signature is not checked."""
    found = _JWT.fullmatch(text)
    if found is None:
        return None
    try:
        return _parsed(a2b_base64(found[1].replace("-", "+").replace("_", "/") + "=" * (-len(found[1]) % 4)))
    except ValueError:
        return None
