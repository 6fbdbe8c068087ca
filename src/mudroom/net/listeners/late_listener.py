"""A process that makes listeners in a running command's network namespace, for rules that were added later.

Rules of this file: it runs alone (``python -I -S``), because only a single-threaded process may enter a user namespace,
and it cannot leave it again (setns(2)). Descriptor 0 is a socket to the host, 1 and 2 are the command's user and
network namespaces. It imports the standard library only.
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
QUEUE = 4096
"""As in ``src/native/launcher/listener.c``."""


def enter(user: int, net: int) -> int:
    """Enter the namespaces behind these descriptors. Return 0, or the error number."""
    libc = ctypes.CDLL(None, use_errno=True)
    for descriptor, kind in ((user, CLONE_NEWUSER), (net, CLONE_NEWNET)):
        if libc.setns(descriptor, kind) < 0:
            return ctypes.get_errno()
    return 0


def main() -> None:
    """Make a listener at each place in the arguments (ADDRESS PORT), and send them. A reply without a descriptor is an
    error number: for a place, or, once, for the namespaces."""
    host = socket.socket(fileno=os.dup(0))
    number = enter(1, 2)
    if number:
        host.send(b"%d" % number)
        return
    words = iter(sys.argv[1:])
    for address, port in zip(words, words, strict=True):
        try:
            with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as listener:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind((address, int(port)))
                listener.listen(QUEUE)
                socket.send_fds(host, [b"0"], [listener.fileno()])
        except OSError as error:
            host.send(b"%d" % (error.errno or 0))
