"""stdin and stdout for a verb that speaks a protocol on them."""

from __future__ import annotations

import os


def take_streams() -> tuple[int, int]:
    """Return new descriptors for stdin and stdout, for the protocol only. Afterwards descriptor 1 leads to stderr and 0
    to /dev/null, so no library or child can read from the stream or write to it."""
    read, write = os.dup(0), os.dup(1)  # close-on-exec (PEP 446)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return read, write
