"""Objects and file descriptors that a ``with`` block closes at its end."""

from __future__ import annotations

import os

from mudroom.typing import Self


class Closing:
    """A context manager by its ``close``."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        raise NotImplementedError


class Descriptor:
    """An open file descriptor: the block has its number."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __enter__(self) -> int:
        return self._number

    def __exit__(self, *_error: object) -> None:
        os.close(self._number)
