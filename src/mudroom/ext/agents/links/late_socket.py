"""A process that makes sockets in the network namespace of a running command, until that command ends.

Rules of this file: as in ``late_listener.py``. It runs alone, because only a process with one thread may enter a user
namespace, and none can leave it again (setns(2)). Descriptor 0 is a socket to the host, 1 and 2 are the command's user
and network namespaces, 3 reaches its end when the command has ended: a process that stayed would keep the namespace.
It connects nothing, so a server inside cannot hold it up. It imports the standard library only.
"""

from __future__ import annotations

import os
import select
import socket

from mudroom.net.listeners.late_listener import enter

FAMILIES = {b"4": socket.AF_INET, b"6": socket.AF_INET6}
READY = b"ready"


def main() -> None:
    """Send READY, or an error number. Then send a socket of the family for each request, or the error number."""
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
