"""Messages between the gate, which reads the client's requests, and the host process, which stores effects.

The gate sends one line of JSON, then an effect's body as the client has sent it, and the end of file; the host answers
with JSON and the end of file. Both ends parse strictly.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from mudroom.core.text.regex import regex
from mudroom.ext.effects.publish import PackageRequest

LONGEST = 64 << 10
"""Bytes in the first line."""
MOST_BODY = 256 << 20
"""Bytes of an effect that can be held."""
_PATH = regex(r"/[A-Za-z0-9._~@+/-]{1,500}")
_USER = regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


Scheme = Literal["http", "https", "ssh", "smtp", "smtps"]


class HeldQuestion(msgspec.Struct, array_like=True):
    kind: str
    """``push``, ``publish``, ``request`` or ``mail``; ``refs``, ``pages`` or ``page``: only what is held;
    ``ssh``: the connection becomes that of an ssh, whose failure is a packet."""
    scheme: Scheme
    path: str
    """Of the repository, over ssh as its client names it; for a publish and a page the request's; for another request
    with its query."""
    credential: str = ""
    """The variable whose placeholder was in the request; empty: none."""
    login: str = ""
    """The header with that credential, ``{}`` for its value: ``basic user:{}``, ``Bearer {}``. Over ssh the user."""
    content_type: str = ""
    """Of a publish or another request."""
    method: str = ""
    """Of a request; for ``ssh``: ``upload`` or ``receive``."""
    headers: list[tuple[str, str]] = []
    """Of a request, without its login; of a mail's envelope: ``from`` and ``to``."""


class HeldAnswer(msgspec.Struct, array_like=True):
    refs: list[str] = []
    """The refs of the push; what is published or requested; the held pages."""
    kind: str = ""
    """Of the effect, as it is held."""
    capabilities: list[str] = []
    problem: str = ""
    """Why it is not held."""
    held: dict[str, str] = {}
    """Ids by ref, as the held pushes will leave them."""
    file: bytes | None = None
    """The published file that lies at the path."""
    page: list[PackageRequest] = []
    """The held publishes that the page at the path will tell, without their files."""


def is_repository(path: str) -> bool:
    """Return whether a path is surely read by all servers as it is written."""
    parts = path.split("/")[1:]
    return _PATH.fullmatch(path) is not None and not {"", ".", ".."} & set(parts)


def is_ssh_repository(path: str) -> bool:
    """Return whether a path, which over ssh may be relative, is surely read by all servers as it is written."""
    return is_repository(path if path.startswith("/") else f"/{path}") and not path.startswith("-")


def is_user(name: str) -> bool:
    return _USER.fullmatch(name) is not None
