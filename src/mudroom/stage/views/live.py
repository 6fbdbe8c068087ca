"""A running command's live mount, as a tree for file tools."""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import RLock

from mudroom.stage.buffer.files import Tree
from mudroom.stage.views.real_directory import PlainTree
from mudroom.typing import Any


class LiveTree:
    """A ``Tree`` on a descriptor that it owns. After ``close`` every call goes to ``after``. The lock keeps ``close``
    from running during a call: another file may reuse a closed descriptor's number."""

    def __init__(self, root: int, after: Tree) -> None:
        self._root, self._after = root, after
        self._tree = PlainTree(root)
        self._lock = RLock()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            with self._lock:
                if self._root >= 0:
                    return getattr(self._tree, name)(*arguments, **named)
            return getattr(self._after, name)(*arguments, **named)

        return call

    def close(self) -> None:
        with self._lock:
            if self._root >= 0:
                os.close(self._root)
                self._root = -1
