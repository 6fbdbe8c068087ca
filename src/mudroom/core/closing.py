"""The context manager of an object that has ``close``. Pure."""

from __future__ import annotations

from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self


class Closing:
    """A ``with`` block closes the object at its end."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        raise NotImplementedError
