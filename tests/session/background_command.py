"""Commands in the background of a fork, started by the library."""

from __future__ import annotations

from clocks import give_way
from mudroom.session import Session
from mudroom.session.background import Background

SH = (b"sh", b"-c")
SERVER = "echo up; echo there > made; while :; do sleep 0.02; done"


def heard(background: Background, what: bytes) -> None:
    """Until it has printed that; a test has its own limit of time."""
    while what not in background.output()[0]:
        assert background.poll() is None, background.output()
        give_way()


def started(session: Session, script: str, timeout: float | None = None) -> Background:
    background = session.start([*SH, script.encode()], fork="f", timeout=timeout)
    heard(background, b"up")
    return background
