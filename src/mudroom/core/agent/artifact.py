"""Which files of an agent's fork its card calls artefacts: patterns, and what they stand for. Pure.

``**`` stands for any number of directories, ``*`` and ``?`` for what is within one name. A pattern without a slash is
for the last part of a path, wherever that is; one that names a directory is for all that is in it. The work is at most
the length of the pattern times that of the path: the one was written by the agent's author, the other by the agent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

PATTERN_LIMIT = 256
"""Characters."""


def pattern_error(pattern: str) -> str:
    """What is wrong with a pattern; empty if nothing is."""
    parts = pattern.removesuffix("/").split("/")
    if not pattern or len(pattern) > PATTERN_LIMIT:
        return f"has no character, or more than {PATTERN_LIMIT}"
    if pattern.startswith(("/", "~", "!")) or not all(parts) or {".", ".."} & set(parts):
        return "is not a pattern of paths in the project"
    if not pattern.isprintable():
        return "holds characters that cannot be shown"
    return ""


def matcher(patterns: Sequence[str]) -> Callable[[bytes], bool]:
    """What tells of a path of the project whether one of the patterns stands for it."""
    compiled = [_compiled(pattern) for pattern in patterns]

    def matches(path: bytes) -> bool:
        parts = path.split(b"/")
        return any(_stands_for(one, parts) for one in compiled)

    return matches


def is_artifact(path: bytes, patterns: Sequence[str]) -> bool:
    """Whether one of the patterns stands for a file of the project."""
    return matcher(patterns)(path)


Part = Callable[[bytes], bool] | None
"""Of one name; None: any number of directories."""


def _compiled(pattern: str) -> list[Part]:
    parts = pattern.removesuffix("/").encode().split(b"/")
    return [_part(part) for part in (parts if len(parts) > 1 else [b"**", *parts])]


def _part(pattern: bytes) -> Part:
    """Most are a name, or a name that ends or begins so: those need no loop."""
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
    """Whether the pattern matches the path or a directory above it. ``reached``: how many parts of the path may be used
    up by what has been read of the pattern."""
    reached = {0}
    for number, one in enumerate(pattern):
        if one is not None:
            reached = {at + 1 for at in reached if at < len(parts) and one(parts[at])}
        elif number + 1 < len(pattern):
            reached = set(range(min(reached), len(parts)))
        else:
            return min(reached) < len(parts)
        if not reached:
            return False
    return True


def _matches(pattern: bytes, name: bytes) -> bool:
    """One name, by ``*`` and ``?``: the last star takes as little as will do."""
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
