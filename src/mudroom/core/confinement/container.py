"""Containers as policies, cards and views know them: image names, and the user inside. Pure.

Source: the reference grammar (distribution/reference in the OCI distribution project).
"""

from __future__ import annotations

from mudroom.core.text.regex import regex

HOST = "host"
"""Not an image: the host's own system directories and toolchains, mounted read-only."""
COMPONENT = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
_DOMAIN = r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?"
_NAME = regex(
    rf"(?:{_DOMAIN}/)?{COMPONENT}(?:/{COMPONENT})*(?::[A-Za-z0-9_][A-Za-z0-9._-]{{0,127}})?(?:@sha256:[0-9a-f]{{64}})?"
    r"|sha256:[0-9a-f]{64}"
)
_LONGEST = 255

NOBODY = (65532, 65532)
"""User and group for containers that root starts: no container runs as root. The number is customary in images without
a root user."""


def name_error(name: str) -> str:
    """Return why this cannot be an image name; empty if it can."""
    if not name:
        return "is empty"
    if len(name) > _LONGEST:
        return f"is longer than {_LONGEST} characters"
    return "" if _NAME.fullmatch(name) else "is not the name of an image"


def user_of(uid: int, gid: int) -> tuple[int, int]:
    """Return uid and gid for a container started by this user."""
    return (uid, gid or NOBODY[1]) if uid else NOBODY
