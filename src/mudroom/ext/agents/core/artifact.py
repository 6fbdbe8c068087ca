"""Artefact patterns in an agent's card, and their matching. Pure.

``**`` matches any number of directories; ``*`` and ``?`` match within one name. A pattern without a slash matches a
path's last part in any directory; a pattern that names a directory matches everything in it. The work is at most the
pattern's length times the path's length, because both are untrusted: the agent's author wrote the pattern, and the
agent wrote the path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

PATTERN_LIMIT = 256
"""Characters."""


def pattern_error(pattern: str) -> str:
    """Return the problem with a pattern, or an empty text if it is valid."""
    parts = pattern.removesuffix("/").split("/")
    if not pattern or len(pattern) > PATTERN_LIMIT:
        return f"must have 1 to {PATTERN_LIMIT} characters"
    if pattern.startswith(("/", "~", "!")) or not all(parts) or {".", ".."} & set(parts):
        return "is not a pattern of paths in the project"
    if not pattern.isprintable():
        return "holds characters that cannot be shown"
    return ""


def matcher(patterns: Sequence[str]) -> Callable[[bytes], bool]:
    """Return a function that tells whether any pattern matches a path in the project."""
    compiled = [_compiled(pattern) for pattern in patterns]

    def matches(path: bytes) -> bool:
        parts = path.split(b"/")
        return any(_stands_for(pattern, parts) for pattern in compiled)

    return matches


Part = Callable[[bytes], bool] | None
"""Matches one name; None: any number of directories."""


def _compiled(pattern: str) -> list[Part]:
    parts = pattern.removesuffix("/").encode().split(b"/")
    return [_part(part) for part in (parts if len(parts) > 1 else [b"**", *parts])]


def _part(pattern: bytes) -> Part:
    """Return one part's matcher. Most parts are a name, a prefix or a suffix, which need no loop."""
    stars = pattern.count(b"*")
    if pattern == b"**":
        return None
    if b"?" not in pattern and stars == 0:
        return pattern.__eq__
    if b"?" not in pattern and stars == 1 and pattern.startswith(b"*"):
        return lambda name: name.endswith(pattern[1:])
    if b"?" not in pattern and stars == 1 and pattern.endswith(b"*"):
        return lambda name: name.startswith(pattern[:-1])
    return lambda name: _matches(pattern, name)


def _stands_for(pattern: Sequence[Part], parts: Sequence[bytes]) -> bool:
    """Return whether the pattern matches the path or a directory above it."""
    # The possible numbers of path parts that the pattern has consumed so far.
    reached = {0}
    for number, matches in enumerate(pattern):
        if matches is not None:
            reached = {at + 1 for at in reached if at < len(parts) and matches(parts[at])}
        elif number + 1 < len(pattern):
            reached = set(range(min(reached), len(parts)))
        else:
            return min(reached) < len(parts)
        if not reached:
            return False
    return True


def _matches(pattern: bytes, name: bytes) -> bool:
    """Match one name with ``*`` and ``?``; the last star takes as few characters as possible."""
    at = pos = 0
    star, after = -1, 0
    while pos < len(name):
        if at < len(pattern) and pattern[at : at + 1] == b"*":
            star, after = at, pos
            at += 1
        elif at < len(pattern) and pattern[at : at + 1] in (b"?", name[pos : pos + 1]):
            at += 1
            pos += 1
        elif star >= 0:
            after += 1
            at, pos = star + 1, after
        else:
            return False
    return not pattern[at:].strip(b"*")
