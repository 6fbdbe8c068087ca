"""Patterns of gitignore(5), on bytes: those of ``secrets.mask``, ``secrets.show``, ``copy.exclude`` and ``.gitignore``.

A pattern without a slash, except at its end, is a name at any depth; another one is a path from the top. A pattern that
matches a directory matches everything below it. The usual patterns, a name, a path, ``*.pem`` and ``id_*``, are decided
here: the library's import takes longer than most commands. All others are the library's; a test compares both with git.
"""

from __future__ import annotations

from functools import cache

from mudroom.typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterable

_SPECIAL = frozenset(b"*?[\\!#")
_NO_PATH = frozenset((b"", b".", b".."))


class PathPattern(NamedTuple):
    regex: re.Pattern[bytes]
    """Matches the paths below a matched directory as well; the only group is the slash after the directory."""
    out: bool
    """False if the line began with ``!``."""
    directories: bool
    """Whether the pattern ended with ``/``: it matches directories only."""


def parsed(line: bytes) -> PathPattern | None:
    """Return a line's pattern. None for a comment, an empty line or an invalid pattern, which match nothing in git
    either."""
    text = line.removesuffix(b"\r")
    if not text.strip() or text.startswith(b"#"):
        return None
    import re

    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

    try:
        # a/**/ means the directories below a; the library takes it for the files as well (1.0)
        regex, included = GitIgnoreSpecPattern.pattern_to_regex(text + b"*/" if text.endswith(b"/**/") else text)
        if regex is None or included is None:
            return None
        return PathPattern(compiled(regex), included, text.rstrip().endswith(b"/"))
    except (ValueError, re.error):
        return None  # the library reports an invalid pattern with either; re.error for [z-a]


def compiled(regex: bytes) -> re.Pattern[bytes]:
    """Compile a pattern without FutureWarning ("Possible nested set"). ``[[]`` and ``[a--b]`` are valid patterns, and a
    warning that a later Python may read them differently does not help the project's owner."""
    import re
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return re.compile(regex, re.DOTALL)


def matches(path: bytes, patterns: Iterable[bytes]) -> bool:
    """Return whether one of the patterns matches the file at ``path``, or a directory above it. None begins with
    ``!``."""
    return any(_test_of(pattern)(path) for pattern in patterns)


def is_meant(name: str, pattern: str) -> bool:
    """Return whether a pattern without slashes means an agent of this name."""
    return name == pattern or ("/" not in name and matches(name.encode(), (pattern.encode(),)))


def pattern_error(pattern: bytes) -> str:
    """Return why a pattern can match no path; "" if it can."""
    text = pattern.removeprefix(b"!")
    parts = text.strip(b"/").split(b"/")
    if not text.strip(b"/ ") or text.startswith(b"#"):
        return "names nothing"
    if not _NO_PATH.isdisjoint(parts):
        return "holds an empty part, '.' or '..'"
    if _is_plain(text) or _is_name_with_star(text) or parsed(pattern) is not None:
        return ""
    return "is not a pattern of gitignore(5)"


def _is_plain(pattern: bytes) -> bool:
    return _SPECIAL.isdisjoint(pattern) and not pattern.endswith(b" ")


def _is_name_with_star(pattern: bytes) -> bool:
    """Return whether the pattern is ``*NAME`` or ``NAME*``."""
    name = pattern[1:] if pattern.startswith(b"*") else pattern.removesuffix(b"*")
    return name != b"" and name != pattern and b"/" not in name and _is_plain(name)


@cache
def _test_of(pattern: bytes) -> Callable[[bytes], bool]:
    if _is_plain(pattern):
        text, is_directory = pattern.strip(b"/"), pattern.endswith(b"/")
        if b"/" in pattern[:-1]:
            return lambda path: path.startswith(text + b"/") or (path == text and not is_directory)
        return lambda path: text in (path.split(b"/")[:-1] if is_directory else path.split(b"/"))
    if _is_name_with_star(pattern):
        name = pattern.strip(b"*")
        if pattern.startswith(b"*"):
            return lambda path: any(part.endswith(name) for part in path.split(b"/"))
        return lambda path: any(part.startswith(name) for part in path.split(b"/"))
    found = parsed(pattern)
    return lambda path: found is not None and found.regex.search(path) is not None
