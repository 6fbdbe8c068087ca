"""Small programs that run in a command's network namespace (``late_listener.py``). Each is a separate process, because
a process cannot leave a user namespace again."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
_PROGRAM = "import sys; sys.path.insert(0, {root!r}); from {name} import main; main()"


def start(name: str, words: Sequence[str], namespaces: Sequence[int]) -> tuple[int, socket.socket]:
    """Run a module's function ``main`` with ``words`` as its arguments. Return the process id, which the caller waits
    for, and a socket for the replies. ``namespaces``: the command's user and network namespaces."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        given = (theirs.fileno(), *namespaces)
        above = max(given) + 1  # otherwise a dup2 could overwrite a descriptor that a later dup2 copies
        moves = [(os.POSIX_SPAWN_DUP2, descriptor, above + number) for number, descriptor in enumerate(given)]
        moves += [(os.POSIX_SPAWN_DUP2, above + number, number) for number in range(len(given))]
        command = [sys.executable, "-I", "-S", "-c", _PROGRAM.format(root=_ROOT, name=name), *words]
        try:
            pid = os.posix_spawn(sys.executable, command, {"PATH": os.defpath, "LC_ALL": "C"}, file_actions=moves)
        except OSError:
            ours.close()
            raise
    return pid, ours


@contextmanager
def inside(name: str, words: Sequence[str], namespaces: Sequence[int]) -> Iterator[socket.socket]:
    """``start`` a program and yield its socket. After the block, wait until the program has ended."""
    pid, ours = start(name, words, namespaces)
    try:
        yield ours
    finally:
        ours.close()
        os.waitpid(pid, 0)
