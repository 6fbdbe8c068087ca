"""Messages between the gate, which reads the client's requests, and the host process, which stores pushes.

The gate sends one line of JSON, then a push's body as the client has sent it, and the end of file; the host answers
with JSON and the end of file. Both ends parse strictly.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from mudroom.core.text.regex import regex

LONGEST = 16 << 10
"""Bytes in the first line."""
MOST_BODY = 256 << 20
"""Bytes of a push that can be held."""
_PATH = regex(r"/[A-Za-z0-9._~@+/-]{1,500}")


class HeldQuestion(msgspec.Struct, array_like=True):
    kind: str
    """``push``, or ``refs``: only what is held."""
    scheme: Literal["http", "https"]
    path: str
    """Of the repository."""
    credential: str = ""
    """The variable whose placeholder was in the request; empty: none."""
    login: str = ""
    """The header with that credential, ``{}`` for its value: ``basic user:{}``, ``Bearer {}``."""


class HeldAnswer(msgspec.Struct, array_like=True):
    refs: list[str] = []
    """The refs of the push."""
    capabilities: list[str] = []
    problem: str = ""
    """Why the push is not held."""
    held: dict[str, str] = {}
    """Ids by ref, as the held pushes will leave them."""


def is_repository(path: str) -> bool:
    """Return whether a path is surely read by all servers as it is written."""
    parts = path.split("/")[1:]
    return _PATH.fullmatch(path) is not None and not {"", ".", ".."} & set(parts)
