"""What a command in the foreground prints, for whoever watches from another process, as far as it is captured at all:
what goes to a terminal is nobody else's.

forks/<name>/printed/
    stdout, stderr  the last of it, as of a background command (Ring); there until the next command in the fork begins

It is never in the way: what cannot be written is not there to be watched. A command that prints nothing costs one look.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mudroom.vault.forks.background import Ring

Heard = Callable[[str, bytes], None]
PLACE = b"/printed"
"""Below the directory of the fork."""


class LiveOutput:
    """``with Printed(fork.path, heard) as also: …``: ``also`` tells ``heard``, and keeps what it is told."""

    def __init__(self, fork: bytes, heard: Heard | None) -> None:
        self._place, self._heard = fork + PLACE, heard
        self._rings: dict[str, Ring] = {}
        self._is_off = False

    def __enter__(self) -> Heard:
        try:
            for name in os.listdir(self._place):
                os.unlink(self._place + b"/" + name)
        except FileNotFoundError:
            pass  # no command has printed anything here yet
        except OSError:
            self._is_off = True
        return self._take

    def __exit__(self, *_error: object) -> None:
        for ring in self._rings.values():
            ring.close()

    def _take(self, name: str, chunk: bytes) -> None:
        if not self._is_off:
            try:
                (self._rings.get(name) or self._begin(name)).write(chunk)
            except OSError:  # a full disk, say: the command goes on
                self._is_off = True
        if self._heard is not None:
            self._heard(name, chunk)

    def _begin(self, name: str) -> Ring:
        from mudroom.vault.forks.background import Ring

        try:
            os.mkdir(self._place, 0o700)
        except FileExistsError:
            pass
        ring = self._rings[name] = Ring(self._place + b"/" + name.encode())
        return ring
