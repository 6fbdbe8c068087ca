"""Count the calls of this thread: of functions, and into the kernel by their functions. No test is here.

A time on a busy machine proves nothing; a count is the same everywhere.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")
MODULES = ("posix", "fcntl", "select", "_socket")
"""Modules whose functions are calls into the kernel."""
HARMLESS = frozenset(
    {"fspath", "fsencode", "fsdecode", "WIFEXITED", "poll", "register", "fileno", "CMSG_LEN", "is_dir"}
)
"""Functions there that are none, or hardly ever."""
KINDS = ("socket", "poll", "ScandirIterator", "FileIO", "DirEntry")
"""Kinds of objects there whose methods are calls into the kernel."""
BY_CTYPES = frozenset({"_openat2", "_renameat2", "sync_filesystem"})
"""Functions of mudroom that are one call each, by ctypes, of which the interpreter tells nothing."""


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Count this thread's calls into the kernel."""
    calls: Counter[str] = Counter()

    def look(frame: Any, event: str, function: Any) -> None:
        if event == "call" and frame.f_code.co_name in BY_CTYPES:
            calls[frame.f_code.co_name] += 1
        if event != "c_call" or function.__name__ in HARMLESS:
            return
        owner = getattr(function, "__self__", None)
        module = getattr(owner, "__name__", None) or type(owner).__module__
        if module in MODULES or type(owner).__name__ in KINDS:
            calls[function.__name__] += 1

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        yield calls
    finally:
        sys.setprofile(before)


def within(most: int, call: Callable[[], T]) -> T:
    """Return what ``call`` returns. Fail as soon as it has called more functions, of Python and of C, than ``most``."""
    count = 0

    def look(_frame: Any, event: str, _function: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")
        assert count <= most, f"more than {most:,} calls"

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        return call()
    finally:
        sys.setprofile(before)
