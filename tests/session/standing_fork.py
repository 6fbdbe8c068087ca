"""A fork whose sandbox stands between its commands."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from conftest import Place
from mudroom.session import Session

COMMANDS = 3
"""After the third a sandbox stands."""


def out(session: Session, script: str, fork: str = "f", **options: Any) -> str:
    result = session.run([b"sh", b"-c", script.encode()], fork=fork, **options)
    assert result.exit_code == 0, result.stderr
    return result.stdout.decode()


def stand(session: Session, fork: str = "f") -> None:
    for _command in range(COMMANDS):
        out(session, "true", fork)
    assert stands(session, fork)


def stands(session: Session, fork: str = "f") -> bool:
    return os.path.lexists(session.vault.fork(fork).path + b"/standing")


def mounts_of(place: Place) -> list[str]:
    """Return the processes with an overlay of any fork of this place over a directory of the host."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            lines = Path(f"/proc/{name}/mounts").read_text().splitlines()
            if any(f"{place.state}/" in line and "/work " in line for line in lines):
                found.append(name)
        except OSError:
            continue
    return found
