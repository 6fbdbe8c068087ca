"""The gate's process on Windows: how the host starts it, and how it takes its control socket. The twin of
``posix_process.py``."""

from __future__ import annotations

import os
import select
import signal
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from mudroom.ext.windows.system.nt_packet import PacketSocket, packet_pair
from mudroom.ext.windows.win32.child import Child, given_socket

if TYPE_CHECKING:
    import asyncio

RESERVED = 100
"""Sockets that the process needs for other things than connections."""
MOST_SOCKETS = 500
"""For one process: CPython's select() on Windows serves 512 sockets (FD_SETSIZE in Modules/selectmodule.c)."""
_ROOT = os.path.abspath(__file__).rsplit(os.sep, 5)[0]
_LIBRARY = os.path.dirname(os.path.dirname(os.path.abspath(msgspec.__file__ or "")))
"""The directory with the libraries: the interpreter is started outside a virtual environment."""
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
    """In the gate's process: return the control socket, and how many sockets it may have. Its job limits its memory."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return given_socket(), MOST_SOCKETS


def watch_host(_loop: asyncio.AbstractEventLoop, _ended: Callable[[], None]) -> object:
    """Do nothing: its job ends it with the host."""
    return None
