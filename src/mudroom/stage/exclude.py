"""What a copy of the project leaves out.

Caches, and what ``copy.exclude`` names, are never copied. If the rest is larger than a copy may be, more is left out,
one step after the other until it fits; every step is told. What is left out is in no manifest: it never counts as
deleted, and what a command makes in its place is new, so that it conflicts with what the project has there.

Patterns are those of gitignore(5), on bytes, decided from the top down as git does: what lies in a directory that is
left out cannot be brought back. Symbolic links are names like any other; nothing behind them is looked at.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from mudroom.core.tree.entry import Entry
from mudroom.core.tree.path import climb, name, parent, show
from mudroom.errors import UsageError

Items = dict[bytes, Entry]
Out = Callable[[bytes, Entry], bool]
"""Whether to leave an entry out, and all that is in it."""
Read = Callable[[bytes], bytes | None]
"""The content of a ``.gitignore``; None if it cannot be read."""

CACHES = frozenset(
    b".angular/cache .cache .gradle .mypy_cache .next/cache .nuxt/.cache .nx/cache .parcel-cache .pyre .pytest_cache "
    b".pytype .ruff_cache .sass-cache .turbo __pycache__".split()
)
"""Directories of these names, at any depth. ``copy.exclude: ["!.cache"]`` brings one back."""

MADE = frozenset(b".next .venv build dist node_modules target venv".split())
"""Directories that a build or an installation makes anew."""

_SHOWN = 3
_NAMED_GROUP = b"(?P<ps_d>/)"
"""As it is in the expressions of pathspec: never within a class, which holds no slash."""


class ExcludeRule(NamedTuple):
    regex: re.Pattern[bytes]
    out: bool
    """False: the line began with ``!``."""
    directories: bool
    """It ended with ``/``: directories only."""

    def matches(self, path: bytes, entry: Entry) -> bool:
        """Whether it names this very path. pathspec's expressions match what lies below as well; that was decided
        when the directory was."""
        if self.directories:
            slashed = path + b"/"
            return entry.kind == "directory" and any(m.end() == len(slashed) for m in self.regex.finditer(slashed))
        found = self.regex.search(path)
        return found is not None and found.lastindex is None  # the only group stands for the slash after a directory


class _Level(NamedTuple):
    """What one ``.gitignore`` says."""

    start: int
    """Where in a path that is below its directory begins what the rules are about."""
    rules: list[ExcludeRule]
    screen: re.Pattern[bytes]


def never_copied(exclude: Sequence[bytes]) -> Out:
    """For ``copy.listed``: caches, and what the patterns of ``copy.exclude`` say. Raises UsageError for a pattern that
    means nothing."""
    rules = []
    for line in exclude:
        found = list(_rules([line]))
        if not found:
            raise UsageError(f"copy.exclude: {show(line)} is no pattern of gitignore(5)")
        rules += found

    def out(path: bytes, entry: Entry) -> bool:
        said = _verdict(rules, path, entry)
        return _is_cache(path, entry) if said is None else said

    return out


def choose(items: Items, read: Read, *, limit: int | None, gitignore: bool = False) -> tuple[Items, list[str]]:
    """What of ``items`` (a directory before what is in it) is copied, and a note for every step that was taken to come
    below ``limit`` bytes. It may still be above it afterwards.

    ``gitignore``: what the project's ``.gitignore`` files name is left out in any case, and that is no step.
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
    items: Items, read: Read, *, exclude: Sequence[bytes], limit: int | None, gitignore: bool
) -> tuple[Items, dict[bytes, int]]:
    """The same of a project of which everything is in ``items``, for somebody who wants to know before: what would be
    copied, and the bytes below each path that would not be."""
    items, tops = _without(items, never_copied(exclude))
    if gitignore:
        items, more = _without(items, _ignored(items, read))
        tops |= more
    for left, more in _steps(items, read, limit):
        items, tops = left, tops | more
    return items, tops


def _steps(items: Items, read: Read, limit: int | None) -> Iterator[tuple[Items, dict[bytes, int]]]:
    """One after the other until the rest fits: what is left, and what was left out."""
    for step in (_ignored, _named(MADE), _named(frozenset((b".git",)))):
        if limit is None or weight(items) <= limit:
            return
        items, tops = _without(items, step(items, read))
        yield items, tops


def weight(items: Mapping[bytes, Entry]) -> int:
    """Bytes."""
    return sum(entry.size for entry in items.values())


def _without(items: Items, out: Out) -> tuple[Items, dict[bytes, int]]:
    """What is left, and the bytes below each path that was left out."""
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


def _named(names: frozenset[bytes]) -> Callable[[Items, Read], Out]:
    return lambda _items, _read: lambda path, entry: entry.kind == "directory" and name(path) in names


def _ignored(items: Items, read: Read) -> Out:
    return ignored(items.get, read)


def ignored(look: Callable[[bytes], Entry | None], read: Read) -> Out:
    """By the ``.gitignore`` files in the project; the deepest that says anything about a path decides. ``.git`` is
    never ignored. Each file is read when the first path in its directory is asked for. ``look``: what is at a path."""
    chains: dict[bytes, tuple[_Level, ...]] = {}

    def chain_of(directory: bytes) -> tuple[_Level, ...]:
        """What counts in a directory, its own first. Directories may be nested deeper than calls may be."""
        known = chains.get(directory)
        if known is not None:
            return known
        for one in climb(directory, chains):
            chains[one] = (*own(one), *(chains[parent(one)] if one else ()))
        return chains[directory]

    def own(directory: bytes) -> Iterator[_Level]:
        path = directory + b"/.gitignore" if directory else b".gitignore"
        entry = look(path)  # git does not follow one that is a symbolic link either
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
            said = _verdict(rules, below, entry)
            if said is not None:
                return said
        return False

    return out


def _screen(rules: Sequence[ExcludeRule]) -> re.Pattern[bytes]:
    """Finds something in every path that one of the rules names, with a slash behind it or without, and in few others:
    most files are named by none."""
    bare = (rule.regex.pattern.replace(_NAMED_GROUP, b"(?:/)") for rule in rules)  # a name may stand there only once
    try:
        return _compiled(b"|".join(b"(?:%s)" % one for one in bare))
    except re.error:
        return re.compile(b"")  # which names everything: another pathspec, that has other groups


def _compiled(regex: bytes) -> re.Pattern[bytes]:
    """``[[]`` and ``[a--b]`` are as good as any other pattern, and whose project it is wants no warning that a later
    Python may read them otherwise (re, "Possible nested set")."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return re.compile(regex, re.DOTALL)


def _verdict(rules: Sequence[ExcludeRule], path: bytes, entry: Entry) -> bool | None:
    """What the last rule that names the path says; None if none does."""
    return next((rule.out for rule in reversed(rules) if rule.matches(path, entry)), None)


def _rules(lines: Iterable[bytes]) -> Iterator[ExcludeRule]:
    """Comments, empty lines and what is no pattern give none, as with git."""
    for line in lines:
        text = line.removesuffix(b"\r")
        if not text.strip() or text.startswith(b"#"):
            continue
        from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

        try:
            regex, included = GitIgnoreSpecPattern.pattern_to_regex(text)
            compiled = _compiled(regex) if regex is not None else None
        except (ValueError, re.error):
            continue  # pathspec's words for "no pattern": the second for [z-a]
        if compiled is not None and included is not None:
            yield ExcludeRule(compiled, included, text.rstrip().endswith(b"/"))


def _listing(tops: Mapping[bytes, int]) -> str:
    """The largest by name, the rest as a number."""
    ordered = sorted(tops.items(), key=lambda item: (-item[1], item[0]))
    shown = [f"{show(path)} ({megabytes(size)})" for path, size in ordered[:_SHOWN]]
    rest = ordered[_SHOWN:]
    if rest:
        shown.append(f"{len(rest)} more ({megabytes(sum(size for _path, size in rest))})")
    return ", ".join(shown[:-1]) + " and " + shown[-1] if len(shown) > 1 else shown[0]


def megabytes(size: int) -> str:
    return f"{size / 1e6:.0f} MB" if size >= 10**7 else f"{size / 1e6:.1f} MB"
