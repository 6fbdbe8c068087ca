"""A fork's standing sandbox, as the fork sees it: the holder of the fork's lock ends it first.

A session may keep a fork's overlays mounted from one command to the next (``session/confinement/standing.py``). Two
mounts with one upper layer are forbidden, no other process may change a mounted layer, and files under review must be
out of reach. So:

1. A socket at ``forks/<name>/standing``, the door, exists before the mount does, and is removed after it has gone. The
   holder of the fork's lock does both.
2. The holder of the fork's lock dissolves the sandbox before anything else: it connects, and one byte arrives when no
   process and no mount is left. A process in the sandbox answers (``src/native/launcher/launcher.c``), not the session
   that owns it; so the answer comes even while the session waits or is stopped by its terminal.
3. Only a command that is about to run in the sandbox, and a query for the lock's holder, leave it standing.
4. Without an answer, its processes were killed and may still be dying. Then the kernel is asked until the overlays are
   gone (``stage/views/released.py``).
"""

from __future__ import annotations

import _socket
import os
from collections.abc import Sequence

from mudroom.core.system.closing import ClosedOnError
from mudroom.errors import MudroomError, SandboxAlive
from mudroom.stage.views.released import released
from mudroom.vault.socket_path import short_path

PATIENCE = 10.0
"""Seconds to wait for an answer: a sandbox without a command has nothing else to do."""


def open_door(door: bytes) -> _socket.socket:
    """Return the listening socket at a fork's door, for its sandbox. Hold the fork's lock; no other door may exist.
    Raise OSError."""
    listening = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    with ClosedOnError(listening):
        with short_path(door) as path:
            listening.bind(path)
        listening.listen()
    return listening


def end_sandbox(name: str, door: bytes, uppers: Sequence[bytes], scratch: bytes) -> None:
    """End a fork's standing sandbox. The fork has a door. Hold the fork's lock.

    ``uppers``: its overlays' writable directories. ``scratch``: as for ``released``. Raise SandboxAlive if the overlays
    stay mounted, MudroomError if the sandbox does not answer.
    """
    if not _is_gone(name, door):
        present = [upper for upper in uppers if os.path.isdir(upper)]
        if not all(released(present, scratch)):
            raise SandboxAlive(
                f"the files of the fork {name} are still mounted for commands of a mudroom that was killed",
                "try again in a moment",
            )
    os.unlink(door)


def _is_gone(name: str, door: bytes) -> bool:
    """Ask a sandbox to end. Return whether it answered that no process and no mount is left."""
    asking = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    asking.settimeout(PATIENCE)
    try:
        with short_path(door) as path:
            asking.connect(path)
        return asking.recv(1) == b"g"
    except TimeoutError:
        hint = "continue or end the mudroom that has run commands in it"
        raise MudroomError(f"the sandbox that stands for the fork {name} does not answer", hint) from None
    except OSError:
        return False
    finally:
        asking.close()
