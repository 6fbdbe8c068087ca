"""What goes on beside the keys."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from textual.dom import DOMNode

from mudroom.core.tree.path import show
from mudroom.errors import MudroomError

Work = Callable[[], Awaitable[None]]


def begin(node: DOMNode, work: Work, group: str, *, exclusive: bool = False) -> None:
    """Have it done while the screen goes on. ``exclusive``: in the place of what else is of that group."""
    given: Any = work  # a coroutine that is called off before it has begun would be warned of
    node.run_worker(given, group=group, exclusive=exclusive)


class WorkerQueue:
    """One thing after the other: a key that comes before the last one is done with begins nothing."""

    def __init__(self, node: DOMNode, tell: Callable[[MudroomError], None]) -> None:
        """``tell``: of what could not be done."""
        self._node, self._tell = node, tell
        self._is_taken = False

    def take(self, work: Work) -> None:
        if not self._is_taken:
            self._is_taken = True
            begin(self._node, partial(self._go, work), "turn")

    async def _go(self, work: Work) -> None:
        try:
            await work()
        except MudroomError as error:
            self._tell(error)
        except OSError as error:
            self._tell(MudroomError(f"{show(os.fsencode(error.filename or ''))}: {error.strerror or error}"))
        finally:
            self._is_taken = False
