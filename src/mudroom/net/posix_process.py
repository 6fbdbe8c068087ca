"""The gate's process on Linux and macOS: how the host starts it, and how it takes its control socket. The twin of
``nt_process.py``.

The host loads this module for each command that uses the network, so imports that only the gate process needs are made
in its functions.
"""

from __future__ import annotations

import os
import select
import socket
import sys
from collections.abc import Callable
from contextlib import suppress

from mudroom.core.system.packet import packet_pair
from mudroom.core.system.process import ProcessHandle
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

RESERVED = 400
"""Descriptors in the process that are not for connections."""
_OPEN_MAX = 10_240
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = f"import sys; sys.path.insert(0, {_ROOT!r}); from mudroom.net.process import main; main()"


def start(program: str, memory: int) -> tuple[socket.socket, ProcessHandle]:
    """Start the process, which limits itself to ``memory`` bytes. Return the control socket and the process. Raise
    OSError."""
    ours, theirs = packet_pair()
    try:
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-c", program, str(memory)],
            {"PATH": os.defpath, "LC_ALL": "C"},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, theirs.fileno(), 0),
                (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setpgroup=0,  # terminal keys must not signal the gate
        )
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()
    return ours, ProcessHandle(pid)


def is_readable(channel: socket.socket | int, timeout: float) -> bool:
    poller = select.poll()
    poller.register(channel, select.POLLIN)
    return bool(poller.poll(timeout * 1000))


def take_control() -> tuple[socket.socket, int]:
    """Return the control socket and the maximum number of descriptors; called in the gate process. Limits its memory as
    ``start`` says (RLIMIT_DATA, setrlimit(2); with mappings since Linux 4.7)."""
    import resource
    import signal

    _close_inherited()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # its memory contains the traffic
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the signal is for the command, not for its network
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    # setrlimit(2) on macOS refuses RLIM_INFINITY for it, and takes OPEN_MAX from sys/syslimits.h
    most = _OPEN_MAX if sys.platform == "darwin" and hard_limit == resource.RLIM_INFINITY else hard_limit
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard_limit))
    _, hard_memory = resource.getrlimit(resource.RLIMIT_DATA)
    memory = int(sys.argv[1])
    most_memory = memory if hard_memory == resource.RLIM_INFINITY else min(memory, hard_memory)
    resource.setrlimit(resource.RLIMIT_DATA, (most_memory, most_memory))
    return socket.socket(fileno=0), most


def _close_inherited() -> None:
    if sys.platform == "darwin":
        for name in os.listdir("/dev/fd"):  # SC_OPEN_MAX may be unbounded there
            if int(name) > 2:
                with suppress(OSError):  # the descriptor used for the listing
                    os.close(int(name))
        return
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))


def watch_host(loop: asyncio.AbstractEventLoop, ended: Callable[[], None]) -> object:
    """Call ``ended`` when the host process ends; called in the gate process. A fork of the host may keep the control
    socket open, so its end is not enough. Return an object to keep until then."""
    host = ProcessHandle(os.getppid())
    loop.add_reader(host.fileno(), ended)
    return host
