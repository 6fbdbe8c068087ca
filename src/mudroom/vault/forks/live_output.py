"""A foreground command's output, for watchers in other processes.

forks/<name>/printed/
    stdout, stderr  the last output, as for a background command (Ring), until the fork's next command begins

Only captured output is kept, not output to a terminal. A write error never disturbs the command. A command without
output costs one directory listing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mudroom.vault.forks.background import Ring

Heard = Callable[[str, bytes], None]
PLACE = b"/printed"
"""Path below the fork's directory."""


class LiveOutput:
    """Use ``with LiveOutput(fork.path, heard) as write: …``. ``write`` calls ``heard`` and keeps the output.

    Owner: the thread that attends to the command.
    """

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
        return self._write

    def __exit__(self, *_error: object) -> None:
        for ring in self._rings.values():
            ring.close()

    def _write(self, name: str, chunk: bytes) -> None:
        if not self._is_off:
            try:
                (self._rings.get(name) or self._open_ring(name)).write(chunk)
            except OSError:  # for example a full disk: the command continues
                self._is_off = True
        if self._heard is not None:
            self._heard(name, chunk)

    def _open_ring(self, name: str) -> Ring:
        from mudroom.vault.forks.background import Ring

        with suppress(FileExistsError):
            os.mkdir(self._place, 0o700)
        ring = self._rings[name] = Ring(self._place + b"/" + name.encode())
        return ring
