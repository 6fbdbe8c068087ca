"""Choose which project files a copy leaves out.

Caches and the paths that ``copy.exclude`` names are never copied. If the rest is larger than the copy's limit, more is
left out in steps until the rest fits; each step adds a note. A path that is left out is in no manifest. It therefore
never counts as deleted, and a file that a command creates in its place is new, so it conflicts with the project's file
there.

Patterns are those of gitignore(5) (``core/tree/pattern.py``), applied from the top down as git does: a path inside an
excluded directory cannot be included again. Symbolic links are treated as plain names; their targets are not examined.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from mudroom.core.tree.entry import Entry
from mudroom.core.tree.path import climb, name, parent, show
from mudroom.core.tree.pattern import PathPattern, compiled, parsed, pattern_error
from mudroom.errors import UsageError
from mudroom.typing import NamedTuple

Items = dict[bytes, Entry]
Excludes = Callable[[bytes, Entry], bool]
"""Return True to leave an entry out, with everything in it."""
ReadPatterns = Callable[[bytes], bytes | None]
"""Return a ``.gitignore`` file's content, or None if it cannot be read."""

CACHES = frozenset(
    b".angular/cache .cache .gradle .mypy_cache .next/cache .nuxt/.cache .nx/cache .parcel-cache .pyre .pytest_cache "
    b".pytype .ruff_cache .sass-cache .turbo __pycache__".split()
)
"""Directories with these names, at any depth. ``copy.exclude: ["!.cache"]`` includes one again."""

BUILD_OUTPUTS = frozenset(b".next .venv build dist node_modules target venv".split())
"""Directories that a build or an installation recreates."""

_SHOWN = 3
_NAMED_GROUP = b"(?P<ps_d>/)"
"""The group's text in pathspec's expressions. It is never inside a character class, because none holds a slash."""


class _Level(NamedTuple):
    """The rules in one ``.gitignore``."""

    start: int
    """Offset in a full path at which the part relative to the file's directory begins."""
    rules: list[PathPattern]
    screen: re.Pattern[bytes]


def never_copied(exclude: Sequence[bytes]) -> Excludes:
    """Return the predicate for ``copy.listed``: caches, and the paths that the patterns of ``copy.exclude`` match.
    Raise UsageError for a line that is not a pattern."""
    for line in exclude:
        if wrong := pattern_error(line):
            raise UsageError(f"copy.exclude: {show(line)!r} {wrong}", "a pattern: *.log, /build/, !keep.log")
    rules = list(_rules(exclude))

    def out(path: bytes, entry: Entry) -> bool:
        excluded = _verdict(rules, path, entry)
        return _is_cache(path, entry) if excluded is None else excluded

    return out


def choose(items: Items, read: ReadPatterns, *, limit: int | None, gitignore: bool = False) -> tuple[Items, list[str]]:
    """Return the entries to copy from ``items`` (a directory before its contents), with a note for each step that was
    taken to get below ``limit`` bytes. The rest may still be above the limit.

    ``gitignore``: also leave out the paths that the project's ``.gitignore`` files match, without a note.
    """
    if gitignore:
        items, _tops = _without(items, _ignored(items, read))
    notes = []
    for left, tops in _steps(items, read, limit):
        items = left
        if tops:
            notes.append(f"left out of the copy: {_listing(tops)}")
    return items, notes


def left_out(
    items: Items, read: ReadPatterns, *, exclude: Sequence[bytes], limit: int | None, gitignore: bool
) -> tuple[Items, dict[bytes, int]]:
    """Return the entries from a complete project listing that a copy would hold, and the bytes below each path that it
    would leave out. This is the preview of ``choose``."""
    items, tops = _without(items, never_copied(exclude))
    if gitignore:
        items, more = _without(items, _ignored(items, read))
        tops |= more
    for left, more in _steps(items, read, limit):
        items, tops = left, tops | more
    return items, tops


def _steps(items: Items, read: ReadPatterns, limit: int | None) -> Iterator[tuple[Items, dict[bytes, int]]]:
    """Leave out more, step by step, until the rest fits. After each step, yield the rest and the paths left out."""
    for step in (_ignored, _named(BUILD_OUTPUTS), _named(frozenset((b".git",)))):
        if limit is None or weight(items) <= limit:
            return
        items, tops = _without(items, step(items, read))
        yield items, tops


def weight(items: Mapping[bytes, Entry]) -> int:
    """Return the total size in bytes."""
    return sum(entry.size for entry in items.values())


def _without(items: Items, out: Excludes) -> tuple[Items, dict[bytes, int]]:
    """Return the remaining entries, and the bytes below each path that was left out."""
    kept: Items = {}
    inside: dict[bytes, bytes] = {}
    tops: dict[bytes, int] = {}
    for path, entry in items.items():
        top = inside.get(parent(path), b"")
        if not top and not out(path, entry):
            kept[path] = entry
            continue
        inside[path] = top or path
        tops[inside[path]] = tops.get(inside[path], 0) + entry.size
    return kept, tops


def _is_cache(path: bytes, entry: Entry) -> bool:
    last = name(path)
    return entry.kind == "directory" and (last in CACHES or name(parent(path)) + b"/" + last in CACHES)


def _named(names: frozenset[bytes]) -> Callable[[Items, ReadPatterns], Excludes]:
    return lambda _items, _read: lambda path, entry: entry.kind == "directory" and name(path) in names


def _ignored(items: Items, read: ReadPatterns) -> Excludes:
    return ignored(items.get, read)


def ignored(look: Callable[[bytes], Entry | None], read: ReadPatterns) -> Excludes:
    """Return the predicate for the project's ``.gitignore`` files. The deepest file with a matching rule decides.
    ``.git`` is never ignored. Each file is read when the first path in its directory is tested. ``look`` returns the
    entry at a path."""
    chains: dict[bytes, tuple[_Level, ...]] = {}

    def chain_of(directory: bytes) -> tuple[_Level, ...]:
        """Return the levels that apply in a directory, its own first. Iterative, because directories may nest deeper
        than the call stack."""
        chain = chains.get(directory)
        if chain is not None:
            return chain
        for above in climb(directory, chains):
            chains[above] = (*own(above), *(chains[parent(above)] if above else ()))
        return chains[directory]

    def own(directory: bytes) -> Iterator[_Level]:
        path = directory + b"/.gitignore" if directory else b".gitignore"
        entry = look(path)  # like git, do not follow a symbolic link
        data = read(path) if entry is not None and entry.kind == "file" else None
        rules = list(_rules((data or b"").removeprefix(b"\xef\xbb\xbf").split(b"\n")))
        if rules:
            yield _Level(len(directory) + 1 if directory else 0, rules, _screen(rules))

    def out(path: bytes, entry: Entry) -> bool:
        if b".git" in path and b".git" in path.split(b"/"):
            return False
        for start, rules, screen in chain_of(parent(path)):
            below = path[start:]
            if screen.search(below) is None and screen.search(below + b"/") is None:
                continue
            excluded = _verdict(rules, below, entry)
            if excluded is not None:
                return excluded
        return False

    return out


def _screen(rules: Sequence[PathPattern]) -> re.Pattern[bytes]:
    """Return one expression that matches every path that a rule matches, with or without a trailing slash, and few
    others. Most files match no rule, so this saves trying all rules."""
    # A group name may occur only once in an expression.
    bare = (rule.regex.pattern.replace(_NAMED_GROUP, b"(?:/)") for rule in rules)
    try:
        return compiled(b"|".join(b"(?:%s)" % pattern for pattern in bare))
    except re.error:
        return re.compile(b"")  # matches everything: another version of pathspec, with other groups


def _verdict(rules: Sequence[PathPattern], path: bytes, entry: Entry) -> bool | None:
    """Return the last matching rule's verdict, or None if no rule matches the path."""
    return next((rule.out for rule in reversed(rules) if _is_exactly(rule, path, entry)), None)


def _is_exactly(rule: PathPattern, path: bytes, entry: Entry) -> bool:
    """Return whether a rule matches this path itself: the paths below were decided with their directory."""
    if rule.directories:
        slashed = path + b"/"
        return entry.kind == "directory" and any(m.end() == len(slashed) for m in rule.regex.finditer(slashed))
    match = rule.regex.search(path)
    return match is not None and match.lastindex is None  # the only group is the slash after a directory


def _rules(lines: Iterable[bytes]) -> Iterator[PathPattern]:
    return (rule for line in lines if (rule := parsed(line)) is not None)


def _listing(tops: Mapping[bytes, int]) -> str:
    """List the largest by name, the rest as a count."""
    ordered = sorted(tops.items(), key=lambda item: (-item[1], item[0]))
    rest = ordered[_SHOWN:]
    more = f"{len(rest)} more ({megabytes(sum(size for _path, size in rest))})" if rest else ""
    return _joined([f"{show(path)} ({megabytes(size)})" for path, size in ordered[:_SHOWN]], more)


def named(paths: Sequence[bytes]) -> str:
    """List the first paths by name, the rest as a count."""
    return _joined([show(path) for path in paths[:_SHOWN]], f"{len(paths) - _SHOWN} more" * (len(paths) > _SHOWN))


def _joined(shown: list[str], more: str) -> str:
    words = [*shown, more] if more else shown
    return ", ".join(words[:-1]) + " and " + words[-1] if len(words) > 1 else words[0]


def megabytes(size: int) -> str:
    return f"{size / 1e6:.0f} MB" if size >= 10**7 else f"{size / 1e6:.1f} MB"
