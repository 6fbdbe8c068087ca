"""Objects and file descriptors that a ``with`` block closes at its end."""

from __future__ import annotations

import os

from mudroom.typing import Protocol, Self


class Closing:
    """A context manager by its ``close``."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        raise NotImplementedError


class _Closable(Protocol):
    def close(self) -> object: ...


class ClosedOnError:
    """A descriptor, or an object, that is closed if the block raises: its caller never gets it then."""

    def __init__(self, owned: int | _Closable) -> None:
        self._owned = owned

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        if kind is None:
            return
        if isinstance(self._owned, int):
            os.close(self._owned)
        else:
            self._owned.close()


class Descriptor:
    """An open file descriptor: the block has its number."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __enter__(self) -> int:
        return self._number

    def __exit__(self, *_error: object) -> None:
        os.close(self._number)
