"""Lines for ``info/exclude``: files that git ignores. Pure; format: gitignore(5)."""

from __future__ import annotations

from collections.abc import Iterable

_HEAD = b"# shown empty by mudroom, in this fork only:\n"
_SPECIAL = b"\\*?[ "
_LINE_ENDS = b"\r\n"


def pattern_of(path: bytes) -> bytes:
    """Return the pattern that matches only this path in a repository, anchored at its top.

    A line end cannot be escaped: ``?`` stands for it, which matches any other character, too.
    """
    parts = bytearray(b"/")
    for byte in path:
        if byte in _LINE_ENDS:
            parts += b"?"
        else:
            parts += b"\\%c" % byte if byte in _SPECIAL else b"%c" % byte
    return bytes(parts)


def with_excluded(content: bytes, paths: Iterable[bytes]) -> bytes:
    """Return an exclude file's content with these paths added. Later lines win, so they come last."""
    lines = sorted({pattern_of(path) for path in paths})
    if content and not content.endswith(b"\n"):
        content += b"\n"
    return content + _HEAD + b"".join(line + b"\n" for line in lines)
