"""The context manager of objects that have to be closed."""

from __future__ import annotations

from mudroom.typing import Self


class Closing:
    """``with`` closes the object at the end of its block."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        raise NotImplementedError
