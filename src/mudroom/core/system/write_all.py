"""Writing all of some bytes: write(2) may write a part."""

from __future__ import annotations

import os


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write all bytes; block as the file does. Raise OSError."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
