"""Background work for a screen."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from textual.dom import DOMNode

from mudroom.api import MudroomError, show

Work = Callable[[], Awaitable[None]]


def begin(node: DOMNode, work: Work, group: str, *, exclusive: bool = False) -> None:
    """Run work in the background. ``exclusive``: cancel the group's other work."""
    untyped: Any = work  # a coroutine that is cancelled before it starts would cause a warning
    node.run_worker(untyped, group=group, exclusive=exclusive)


class WorkerQueue:
    """Runs one work at a time. A key that arrives meanwhile is dropped."""

    def __init__(self, node: DOMNode, report_error: Callable[[MudroomError], None]) -> None:
        """``report_error`` receives a MudroomError."""
        self._node, self._report_error = node, report_error
        self._is_busy = False

    def run_unless_busy(self, work: Work) -> None:
        if not self._is_busy:
            self._is_busy = True
            begin(self._node, partial(self._run, work), "turn")

    async def _run(self, work: Work) -> None:
        try:
            await work()
        except MudroomError as error:
            self._report_error(error)
        except OSError as error:
            self._report_error(MudroomError(f"{show(os.fsencode(error.filename or ''))}: {error.strerror or error}"))
        finally:
            self._is_busy = False
