"""The archive of a fork, for tests of what no archive holds: empty where ``ext/transfer`` is not installed, or
``ext/commits``, which checks its commits. No test is here."""

from __future__ import annotations

import io

from mudroom.core.registry import NotInstalled, part_or_none
from mudroom.session import Session


def archived(session: Session, fork: str, base: bytes = b"") -> bytes:
    """Return the archive, unpacked."""
    archives, stream = part_or_none("call", "archives"), io.BytesIO()
    if archives is not None:
        try:
            archives.export(session, fork, stream, base=base, packed=False)
        except NotInstalled:
            return b""
    return stream.getvalue()
