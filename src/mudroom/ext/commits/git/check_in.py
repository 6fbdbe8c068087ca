"""Whether git would convert a file when storing it: gitattributes(5), core.autocrlf.

mudroom runs no filters, so a file that git would convert is never stored. The check may refuse more than git converts,
but never less: a line that unsets an attribute is ignored.
"""

from __future__ import annotations

import io
from collections.abc import Iterable

from dulwich.attrs import Pattern, parse_git_attributes
from dulwich.wildmatch import MalformedPattern

from mudroom.core.tree.path import ancestors
from mudroom.ext.commits.git.user_settings import UserFiles, UserSettings
from mudroom.stage.source import Source, read_all, read_own
from mudroom.typing import NamedTuple
from mudroom.vault.git.place import RepositoryPlace

_LIMIT = 1 << 20
_PATTERN_LIMIT = 1_000
_TEXT = frozenset((b"text", b"eol", b"crlf"))
_CONVERTING = frozenset((b"filter", b"working-tree-encoding"))
_CONVERTED = (b"true", b"yes", b"on", b"1", b"input")
_GLOBAL = b"/.config/git/attributes"


class AttributeLine(NamedTuple):
    directory: bytes
    """Directory with the file that holds the line."""
    pattern: Pattern | None
    """None: it matches every path."""
    attributes: frozenset[bytes]
    """Attributes that the line sets."""


class CheckIn:
    """The attributes and settings that decide how files are stored."""

    def __init__(self, place: RepositoryPlace, settings: UserSettings, user: UserFiles) -> None:
        self._autocrlf = (settings.value(b"core", b"autocrlf") or b"false").lower() in _CONVERTED
        self._macros: set[bytes] = set()
        self._read: dict[tuple[int, bytes], list[AttributeLine]] = {}
        named = settings.value(b"core", b"attributesfile")
        own = (user.home + named[1:] if named.startswith(b"~/") else named) if named else user.home + _GLOBAL
        self._lines: list[AttributeLine] = []
        for path in (b"/etc/gitattributes", own, place.common + b"/info/attributes"):
            try:
                self._lines += self._parsed(b"", read_own(path, _LIMIT))
            except ValueError:
                self._lines.append(AttributeLine(b"", None, _CONVERTING))

    def conversion(self, path: bytes, content: bytes, sources: Iterable[Source]) -> str:
        """Return why git would convert ``content``; empty if it would not. ``sources``: where ``.gitattributes`` are
        read."""
        lines = [*self._lines]
        for source in sources:
            for directory in (b"", *ancestors(path)):
                lines += self._lines_of(source, directory)
        sets: set[bytes] = set()
        for line in lines:
            below = path[len(line.directory) + 1 :] if line.directory else path
            if line.pattern is None or line.pattern.match(below):
                sets |= line.attributes
        converting = sets & (_CONVERTING | self._macros)
        if converting:
            names = ", ".join(sorted(name.decode("ascii", "replace") for name in converting))
            return f"git would convert it ({names} in .gitattributes)"
        if b"\r\n" in content and (self._autocrlf or sets & _TEXT):
            return "git would convert its line ends"
        return "git would shorten its $Id$" if b"ident" in sets and b"$Id" in content else ""

    def _lines_of(self, source: Source, directory: bytes) -> list[AttributeLine]:
        lines = self._read.get((id(source), directory))
        if lines is None:
            path = directory + b"/.gitattributes" if directory else b".gitattributes"
            entry = source.look(path)
            data = read_all(source, path, _LIMIT) if entry is not None and entry.kind == "file" else b""
            too_large = [AttributeLine(directory, None, _CONVERTING)]
            lines = self._read[id(source), directory] = too_large if data is None else self._parsed(directory, data)
        return lines

    def _parsed(self, directory: bytes, data: bytes) -> list[AttributeLine]:
        """Return the lines that set an attribute."""
        lines = []
        for pattern, attributes in parse_git_attributes(io.BytesIO(data)):
            # a user-defined macro may stand for a filter
            if pattern.startswith(b"[attr]"):
                self._macros.add(pattern[6:])
                continue
            sets = frozenset(name for name, value in attributes.items() if value not in (False, None))
            if sets and not pattern.startswith(b"!"):
                lines.append(AttributeLine(directory, _compiled(pattern), sets))
        return lines


def _compiled(pattern: bytes) -> Pattern | None:
    if len(pattern) > _PATTERN_LIMIT:
        return None
    try:
        return Pattern(pattern)
    except MalformedPattern:
        return None
