"""A worker's GPUs, each given to one errand at a time: by a lock on disk, so that links from other origins see it, too.

The variables tell a program which ones it has. They are an agreement, no protection: a command that may use GPUs sees
the device nodes of all.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from mudroom.core.system.closing import Descriptor
from mudroom.errors import MudroomError
from mudroom.session.confinement.grant import graphics
from mudroom.vault.lock import LOCK_EX, try_lock

GPU_VARIABLES = (b"CUDA_VISIBLE_DEVICES", b"HIP_VISIBLE_DEVICES")
_KINDS = (("/dev", re.compile(r"nvidia[0-9]+")), ("/dev/dri", re.compile(r"renderD[0-9]+")))


def count_gpus() -> int:
    """Return how many GPUs commands can use here: cards of one vendor's driver, else render nodes."""
    if not graphics().devices:
        return 0
    for directory, pattern in _KINDS:
        if os.path.isdir(directory) and (found := sum(map(bool, map(pattern.fullmatch, os.listdir(directory))))):
            return found
    return 0


class GpuPool:
    def __init__(self, locks: bytes, count: int) -> None:
        """``locks``: a directory of this user."""
        self._locks, self._count = locks, count

    @contextmanager
    def take(self, wanted: int) -> Iterator[tuple[int, ...]]:
        """Yield the numbers of so many GPUs that no other errand uses. Raise MudroomError if there are fewer."""
        with ExitStack() as held:
            taken: list[int] = []
            for number in range(self._count if wanted else 0):
                path = self._locks + b"/gpu-%d" % number
                lock = Descriptor(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
                descriptor = held.enter_context(lock)
                if len(taken) < wanted and try_lock(descriptor, LOCK_EX):
                    taken.append(number)
            if len(taken) < wanted:
                raise MudroomError(
                    f"{wanted} of its {self._count} GPUs are needed, {len(taken)} are free",
                    "another origin uses them; run it again later",
                )
            yield tuple(taken)
