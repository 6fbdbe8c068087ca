"""Find matching lines in files: plain text here, an expression in a separate process (``match.py``)."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable

from mudroom.core.text.regex import regex
from mudroom.ext.agents.tools import match
from mudroom.ext.agents.tools.error import ToolError

SECONDS = 20.0
"""Most seconds for one file."""
_SPECIAL = regex(r"[\\.^$*+?{}\[\]|()]")
_LOOK = 0.1
_PAUSE = 0.005
"""Seconds between two looks at a pipe that cannot be waited for."""


class Matcher:
    """Used by one thread, as a context manager."""

    def __init__(self, pattern: str, *, ignore_case: bool, cancelled: Callable[[], bool] = lambda: False) -> None:
        """Raise ToolError if the pattern is not a valid regular expression."""
        self._plain = b"" if ignore_case or _SPECIAL.search(pattern) else pattern.encode("utf-8", "replace")
        self._cancelled = cancelled
        self._child: subprocess.Popen[bytes] | None = None  # the caller's thread alone
        self._rest = b""
        if not self._plain:
            self._start(pattern, ignore_case=ignore_case)

    def __enter__(self) -> Matcher:
        return self

    def __exit__(self, *_error: object) -> None:
        child = self._child
        if child is not None:
            child.kill()
            child.wait()
            for stream in (child.stdin, child.stdout):
                if stream is not None:
                    stream.close()

    def lines(self, content: bytes, shown: str) -> list[int]:
        """Return the matching lines' numbers, counted from 1. Raise ToolError if that takes too long."""
        if self._plain:
            if self._plain not in content:
                return []
            return [number for number, line in enumerate(content.split(b"\n"), 1) if self._plain in line][: match.MOST]
        numbers: list[int] = json.loads(self._asked(b"%d\n%s" % (len(content), content), shown))
        return numbers

    def _start(self, pattern: str, *, ignore_case: bool) -> None:
        argv = [sys.executable, "-I", "-S", "-B", match.__file__]
        self._child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, cwd="/")
        try:
            request = json.dumps({"pattern": pattern, "ignore_case": ignore_case}).encode()
            answer = json.loads(self._asked(request + b"\n", "the pattern"))
            if "error" in answer:
                hint = "the syntax is that of Python's re; a backslash before . * + ? ( ) [ ] { } | takes it literally"
                raise ToolError(f"not a regular expression: {answer['error']}", hint)
        except BaseException:
            self.__exit__()
            raise

    def _asked(self, request: bytes, shown: str) -> bytes:
        """Send a request and return the answer's line."""
        child = self._child
        assert child is not None and child.stdin is not None and child.stdout is not None
        until, left = time.monotonic() + SECONDS, memoryview(request)
        read, write = child.stdout.fileno(), child.stdin.fileno()
        while b"\n" not in self._rest:
            if self._cancelled():
                raise ToolError("the search was cancelled")
            if time.monotonic() >= until:
                raise ToolError(
                    f"{shown}: the expression took more than {SECONDS:g} s",
                    "make it simpler: no repeat inside a repeat, such as (a+)+",
                )
            readable, writable = _ready(read, write if left else -1)
            if writable:
                left = left[os.write(write, left[: 1 << 16]) :]  # a pipe that polls writable takes 4,096 bytes at least
            if readable:
                piece = os.read(read, 1 << 16)
                if not piece:
                    raise ToolError(f"{shown}: the search has failed", "try a simpler expression")
                self._rest += piece
        line, _newline, self._rest = self._rest.partition(b"\n")
        return line


def _ready(read: int, write: int) -> tuple[bool, bool]:
    """Return whether bytes can be read, and whether bytes can be written. ``write`` -1: there is nothing to write. Wait
    ``_LOOK`` seconds at most."""
    if sys.platform == "win32":  # cannot wait for a pipe; the other process reads everything before it answers
        from mudroom.ext.windows.win32.pipe_end import is_readable

        readable = is_readable(read)
        if not readable and write < 0:
            time.sleep(_PAUSE)
        return readable, write >= 0
    readers, writers, _ = select.select([read], [write] if write >= 0 else [], [], _LOOK)
    return bool(readers), bool(writers)
