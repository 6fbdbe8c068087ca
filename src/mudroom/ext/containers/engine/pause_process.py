"""The process that rootless Podman leaves behind.

The first command of rootless Podman starts a process that holds the user's namespaces, and leaves it running
(podman-system-migrate(1): the "pause process"). ``mudroom doctor`` only looks, so it ends the one that its own look has
started. While it looks, this process adopts the orphans of its commands (PR_SET_CHILD_SUBREAPER, prctl(2)): a pause
process among its children is its own, and one that was there before is not. Podman starts another when it needs one.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_SET_CHILD_SUBREAPER, _GET_CHILD_SUBREAPER = 36, 37
"""prctl(2), linux/prctl.h."""
_NAMES = (b"podman pause", b"catatonit")
"""Names of the process: Podman's own, and the program that newer versions run (``catatonit -P``)."""


@contextmanager
def left_as_found() -> Iterator[None]:
    """End the pause processes that are started in the context."""
    if sys.platform != "linux":
        yield
        return
    import ctypes

    libc = ctypes.CDLL(None)
    was = ctypes.c_int()
    libc.prctl(_GET_CHILD_SUBREAPER, ctypes.byref(was), 0, 0, 0)
    libc.prctl(_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0)
    before = set(_pause_processes())
    try:
        yield
    finally:
        for pid in set(_pause_processes()) - before:
            os.kill(pid, signal.SIGKILL)  # a child that is not waited for keeps its pid
            os.waitpid(pid, 0)
        libc.prctl(_SET_CHILD_SUBREAPER, ctypes.c_ulong(was.value), 0, 0, 0)


def _pause_processes() -> Iterator[int]:
    """Yield the pause processes among this process's children."""
    parent = b"%d" % os.getpid()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as stream:
                head, _bracket, rest = stream.read().rpartition(b")")
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
        if head.partition(b"(")[2] in _NAMES and rest.split()[1] == parent:
            yield int(name)
