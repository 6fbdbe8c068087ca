"""A process that makes sockets in a running command's network namespace. A socket belongs to the namespace in which it
was made, and can be connected from outside.

Rules of this file: those of ``late_listener.py``. Descriptor 3 reaches end of file when the command has ended.
"""

from __future__ import annotations

import os
import select
import socket

from mudroom.net.listeners.late_listener import enter

FAMILIES = {b"4": socket.AF_INET, b"6": socket.AF_INET6}
LOOPBACKS = ((b"4", "127.0.0.1"), (b"6", "::1"))
"""A server listens on either or both: ``localhost`` may be either, and Node prefers the second."""
READY = b"ready"


def main() -> None:
    """Send READY, or an error number. Then send a socket in the requested family for each request, or the error
    number."""
    host = socket.socket(fileno=os.dup(0))
    error = enter(1, 2)
    host.send(b"%d" % error if error else READY)
    if error:
        return
    for descriptor in (0, 1, 2):
        os.close(descriptor)
    poller = select.poll()
    poller.register(host, select.POLLIN)
    poller.register(3, select.POLLIN)
    while True:
        ready = dict(poller.poll())
        request = host.recv(16) if host.fileno() in ready else b""
        if 3 in ready or not request:
            return
        try:
            with socket.socket(FAMILIES[request], socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as made:
                socket.send_fds(host, [b"0"], [made.fileno()])
        except OSError as failure:
            host.send(b"%d" % (failure.errno or 0))
