"""A process that connects to a server in the network namespace of a running command.

Rules of this file: as in ``late_listener.py``. It runs alone, because only a process with one thread may enter a user
namespace, and none can leave it again (setns(2)). Descriptor 0 is a socket to the host, 1 and 2 are the command's user
and network namespaces. It imports the standard library only.
"""

from __future__ import annotations

import os
import socket
import sys

from mudroom.net.entrances.late_listener import enter

PATIENCE = 3.0
"""Seconds for a connection inside; on loopback it is made at once, or refused, unless the server's queue is full."""
_LOOPBACKS = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))


def main() -> None:
    """Connect to the port of the argument and send the socket, or else the error number."""
    host = socket.socket(fileno=os.dup(0))
    error = enter(1, 2)
    if error:
        host.send(b"%d" % error)
        return
    for family, address in _LOOPBACKS:
        try:
            with socket.socket(family) as inner:
                inner.settimeout(PATIENCE)
                inner.connect((address, int(sys.argv[1])))
                inner.settimeout(None)
                socket.send_fds(host, [b"0"], [inner.fileno()])
                return
        except OSError as failure:
            error = error or failure.errno or 110  # ETIMEDOUT has no number in a TimeoutError
    host.send(b"%d" % error)
