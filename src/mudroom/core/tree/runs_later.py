"""When a file runs by itself later, by its name: ``data/runs_later.txt``, compiled at first use.

A name counts in any spelling that some file system takes for it: other case, Unicode forms, characters that HFS+
ignores, and on NTFS trailing dots and blanks, streams and short names (``PACKAG~1.JSO``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache, lru_cache

from mudroom.core.text.regex import regex
from mudroom.core.text.table import read_table
from mudroom.core.tree.change import Change
from mudroom.core.tree.git_name import spell
from mudroom.typing import NamedTuple

_SHORT = regex(rb"([^.~]{1,6})~[1-9][0-9]?(?:\.([^.]{0,3}))?")
"""A short name on NTFS or FAT: six characters, a number, and the extension's first three characters."""


_DOCUMENTS = tuple(b".md .rst .adoc .png .svg .jpg .jpeg .gif .ico .webp .pdf .css .html".split())
"""Document endings: a pattern with ``*`` at its end or inside matches such a name only if the name begins with a
dot."""


_PROSE = (*_DOCUMENTS, b".mdc", b".mdx")
"""Endings of documents, in which a file that is mentioned is not run."""


class LaterRow(NamedTuple):
    runner: str
    when: str
    """Completes "runs by itself later: …"."""
    source: str
    patterns: tuple[str, ...]
    listings: tuple[str, ...] = ()
    """Patterns of files that list names and run none of them."""


class LaterGroup(NamedTuple):
    """Paths that run at the same time, or a directory that is shown as a whole."""

    when: str
    paths: tuple[bytes, ...]
    files: int
    """Number of changes; more than the paths if a path is a directory with its contents."""


def later_rows(table: str) -> list[LaterRow]:
    """Return the rows of ``runs_later``, or of ``whole_directories``."""
    rows = (row.split(" | ") for row in read_table(table))
    return [_row(runner, when, source, names.split()) for runner, when, source, names in rows]


def _row(runner: str, when: str, source: str, names: list[str]) -> LaterRow:
    listings = tuple(name[1:] for name in names if name[0] == "=")
    return LaterRow(runner, when, source, tuple(name.lstrip("=") for name in names), listings)


def runs_later(path: bytes) -> str:
    """Return when the file at ``path`` runs by itself, as far as its name tells; "" if it does not."""
    above, _slash, name = path.rpartition(b"/")
    rules = _rules()
    of_directory = _of_directory(above) if above else None
    if of_directory is not None:
        return of_directory.when
    spelling = spell(name)
    row = rules.directories.get(spelling) or rules.names.get(spelling) or _by_part(rules, spelling)
    if row is None:
        row = _by_place(rules, above, spelling) if above else rules.names.get(b"/" + spelling)
    return row.when if row is not None else ""


def manifest_when(path: bytes) -> str:
    """Return when files run that the file at ``path`` names, "" if it is not read as a manifest: it does not run later
    by its name, it is a document, or it only lists names (a lock file)."""
    spelling = spell(path.rpartition(b"/")[2])
    if spelling.endswith(_PROSE) or _ends_in(spelling, _rules().listings):
        return ""
    return runs_later(path).partition(":")[0]


def _ends_in(spelling: bytes, names: frozenset[bytes]) -> bool:
    return spelling in names or spelling[spelling.rfind(b".") :] in names


def link_runs_later(path: bytes) -> str:
    """Return when a file runs whose name in the table begins with this path (``.cargo`` in ``.cargo/config``), "" if
    there is none. A link at the path puts another directory there, whose own name tells nothing."""
    parts = tuple(map(spell, path.split(b"/")))
    for above, row in _rules().beginnings.get(parts[-1], ()):
        if parts[:-1][len(parts) - 1 - len(above) :] == above:
            return row.when
    return ""


def whole_directory(path: bytes) -> bytes:
    """Return the outermost directory in ``path`` that is not reviewed file by file; b"" if there is none."""
    parts = path.split(b"/")
    rules = _rules()
    for index, spelling in enumerate(map(spell, parts)):
        if spelling in rules.whole or (index and (spell(parts[index - 1]), spelling) in rules.whole_pairs):
            return b"/".join(parts[: index + 1])
    return b""


def group_later(changes: Iterable[Change]) -> list[LaterGroup]:
    """Return the changes that run later, by time, in the order of their first paths. A directory that is not reviewed
    file by file is one path. ``changes`` have reasons (``Change.runs``)."""
    groups: dict[str, dict[bytes, int]] = {}
    tops: dict[bytes, str] = {}
    for change in changes:
        if not change.runs:
            continue
        top = _whole_of(change.path)
        when = tops.setdefault(top, change.runs) if top else change.runs
        paths = groups.setdefault(when, {})
        shown = top + b"/" if top else change.path
        paths[shown] = paths.get(shown, 0) + (change.entry.kind != "directory")
    return [LaterGroup(when, tuple(paths), sum(paths.values())) for when, paths in groups.items()]


def _whole_of(path: bytes) -> bytes:
    above = path.rpartition(b"/")[0]
    return _whole_directory(above) or (whole_directory(path) if above != path else b"")


class _Rules:
    """The tables by pattern type. Values are rows."""

    def __init__(self) -> None:
        self.names: dict[bytes, LaterRow] = {}
        self.directories: dict[bytes, LaterRow] = {}
        self.ends: dict[bytes, LaterRow] = {}
        self.directory_ends: dict[bytes, LaterRow] = {}
        self.begins: dict[bytes, LaterRow] = {}
        self.paths: dict[bytes, list[tuple[tuple[bytes, ...], LaterRow]]] = {}
        """Components that precede a name, by the name: ``a/b`` under ``b``."""
        self.directory_paths: dict[bytes, list[tuple[tuple[bytes, ...], LaterRow]]] = {}
        self.beginnings: dict[bytes, list[tuple[tuple[bytes, ...], LaterRow]]] = {}
        """The same for the directories in such paths: ``a`` in ``a/b``."""
        self.ends_in: dict[bytes, list[tuple[bytes, LaterRow]]] = {}
        """Name endings, by the directory's name: ``a/*.end`` under ``a``."""
        self.middles: list[tuple[bytes, bytes, LaterRow]] = []
        self.inner: list[tuple[bytes, LaterRow]] = []
        self.short: dict[tuple[bytes, bytes], LaterRow] = {}
        self.whole: set[bytes] = set()
        listings: set[bytes] = set()
        """Names, and name endings with their dot, of files that list names and run none of them."""
        self.whole_pairs: set[tuple[bytes, bytes]] = set()
        for table, whole in (("whole_directories", True), ("runs_later", False)):
            for row in later_rows(table):
                listings.update(pattern.lower().lstrip("*").encode() for pattern in row.listings)
                for pattern in row.patterns:
                    self._add(pattern.lower().encode(), row, whole=whole)
        self.listings = frozenset(listings)
        self.begin = tuple(self.begins)
        self.middle_ends = tuple({end for _begin, end, _row in self.middles})

    def _add(self, pattern: bytes, row: LaterRow, *, whole: bool) -> None:
        is_directory = pattern.endswith(b"/")
        *above, last = pattern.rstrip(b"/").split(b"/")
        if above == [b""]:
            self.names[pattern] = row
            return
        for index, part in enumerate(above):
            self.beginnings.setdefault(part, []).append((tuple(above[:index]), row))
        if above and b"*" in last:
            self.ends_in.setdefault(above[-1], []).append((last.lstrip(b"*"), row))
        elif above:
            table = self.directory_paths if is_directory else self.paths
            table.setdefault(last, []).append((tuple(above), row))
            if whole:
                self.whole_pairs.add((above[-1], last))
        elif last.startswith(b"*") and last.endswith(b"*"):
            self.inner.append((last.strip(b"*"), row))
        elif last.startswith(b"*") and not last.startswith(b"*."):
            self.middles.append((b"", last[1:], row))
        elif last.startswith(b"*"):
            (self.directory_ends if is_directory else self.ends).setdefault(last[1:], row)
        elif last.endswith(b"*"):
            self.begins.setdefault(last[:-1], row)
        elif b"*" in last:
            begin, _star, end = last.partition(b"*")
            self.middles.append((begin, end, row))
        else:
            (self.directories if is_directory else self.names).setdefault(last, row)
            self.short.setdefault(_short_name(last), row)
            if whole:
                self.whole.add(last)


@cache
def _rules() -> _Rules:
    return _Rules()


def _by_part(rules: _Rules, spelling: bytes) -> LaterRow | None:
    """Return the row for a name's end or beginning, or for the name that it abbreviates."""
    at = spelling.find(b".")
    while at >= 0:
        row = rules.ends.get(spelling[at:]) or rules.directory_ends.get(spelling[at:])
        if row is not None and at:
            return row
        at = spelling.find(b".", at + 1)
    if not spelling.endswith(_DOCUMENTS) or spelling.startswith(b"."):
        row = _by_beginning(rules, spelling)
        if row is not None:
            return row
    if b"~" in spelling:
        short = _SHORT.fullmatch(spelling)
        if short is not None:
            return rules.short.get((short[1][:6], short[2] or b""))
    return None


def _by_beginning(rules: _Rules, spelling: bytes) -> LaterRow | None:
    if spelling.startswith(rules.begin):
        return next(row for begin, row in rules.begins.items() if spelling.startswith(begin))
    for begin, end, row in rules.middles if spelling.endswith(rules.middle_ends) else ():
        if spelling.startswith(begin) and spelling.endswith(end) and len(spelling) >= len(begin) + len(end):
            return row
    return next((row for part, row in rules.inner if part in spelling), None)


def _by_place(rules: _Rules, above: bytes, spelling: bytes) -> LaterRow | None:
    """Return the row for a name in certain directories."""
    candidates = rules.paths.get(spelling, []) + rules.directory_paths.get(spelling, [])
    if candidates:
        parts = tuple(map(spell, above.split(b"/")))
        for names, placed in candidates:
            if parts[-len(names) :] == names:
                return placed
    ends = rules.ends_in.get(spell(above.rpartition(b"/")[2]), [])
    return next((row for end, row in ends if spelling.endswith(end)), None)


@lru_cache(4096)
def _of_directory(path: bytes) -> LaterRow | None:
    """Return the row for a directory and everything in it: the outermost such directory counts."""
    rules = _rules()
    parts = [spell(part) for part in path.split(b"/")]
    for index, part in enumerate(parts):
        row = rules.directories.get(part) or next(_ends(rules.directory_ends, part), None)
        if row is None and b"~" in part and (short := _SHORT.fullmatch(part)) is not None:
            row = rules.short.get((short[1], short[2] or b""))
        if row is not None:
            return row
        for names, row in rules.directory_paths.get(part, ()):
            if tuple(parts[max(0, index - len(names)) : index]) == names:
                return row
        if part.startswith(b".") and part.startswith(rules.begin):
            return next(row for begin, row in rules.begins.items() if part.startswith(begin))
    return None


@lru_cache(4096)
def _whole_directory(path: bytes) -> bytes:
    return whole_directory(path) if path else b""


def _ends(table: dict[bytes, LaterRow], name: bytes) -> Iterator[LaterRow]:
    if b"." in name:
        for end, row in table.items():
            if name.endswith(end) and name != end:
                yield row


def _short_name(name: bytes) -> tuple[bytes, bytes]:
    """Return how a name's short name begins, and its extension: without leading dots, blanks and inner dots."""
    stem, dot, extension = name.lstrip(b".").rpartition(b".")
    if not dot:
        stem, extension = extension, b""
    return stem.replace(b" ", b"").replace(b".", b"")[:6], extension[:3]
