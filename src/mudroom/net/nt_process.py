"""The gate's process on Windows: how the host starts it, and how it takes its control socket. The twin of what
``door.py`` and ``process.py`` ask of POSIX."""

from __future__ import annotations

import os
import select
import signal
import socket

import msgspec

from mudroom.system.nt_packet import PacketSocket, packet_pair
from mudroom.windows.child import Child, given_socket

MOST_SOCKETS = 500
"""Of one process: select() of CPython on Windows serves 512 sockets (FD_SETSIZE of Modules/selectmodule.c)."""
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_LIBRARY = os.path.dirname(os.path.dirname(os.path.abspath(msgspec.__file__ or "")))
"""Where the libraries are: the interpreter is started outside of a virtual environment."""
PROGRAM = f"import sys; sys.path[:0] = [{_ROOT!r}, {_LIBRARY!r}]; from mudroom.net.process import main; main()"


def start(program: str, memory: int) -> tuple[PacketSocket, Child]:
    """Start the process, with ``memory`` bytes at most. Return the control socket and the process. Raise OSError."""
    ours, theirs = packet_pair()
    try:
        child = Child(program, memory)
        try:
            child.give(theirs)
        except OSError:
            child.kill_child()
            child.close()
            raise
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()
    ours.process = child.pid
    return ours, child


def is_readable(channel: socket.socket | int, timeout: float) -> bool:
    return bool(select.select([channel], [], [], timeout)[0])


def take_control() -> tuple[socket.socket, int]:
    """In the process itself: return the control socket, and how many sockets it may have. Its memory, and its end with
    the host, are its job's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return given_socket(), MOST_SOCKETS
