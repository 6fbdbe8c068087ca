"""A running command's live mount, as a tree for file tools."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from threading import RLock

from mudroom.stage.views.real_directory import PlainTree
from mudroom.typing import Any


class LiveTree:
    """A ``Tree`` on a descriptor that it owns. After ``close`` every call raises OSError (ESTALE). The lock keeps
    ``close`` from running during a call: another file may reuse a closed descriptor's number."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._tree = PlainTree(root)
        self._lock = RLock()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._tree, name)

        def call(*arguments: Any, **named: Any) -> Any:
            with self._lock:
                if self._root < 0:
                    raise OSError(errno.ESTALE, "the command that had these files has ended")
                return method(*arguments, **named)

        return call

    def close(self) -> None:
        with self._lock:
            if self._root >= 0:
                os.close(self._root)
                self._root = -1
