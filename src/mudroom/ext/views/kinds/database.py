"""A SQLite file as its schema and rows. Only a copy in memory is opened; views, triggers and virtual tables are text.

1. The bytes become a database in memory (sqlite3_deserialize): no file is opened or locked, and a ``-wal`` beside it is
   not read. Bytes 18 and 19 of the header name the journal, which memory does not have: they are set to 1
   (https://www.sqlite.org/fileformat2.html, 1.3.3).
2. What a hostile file needs is off: https://www.sqlite.org/security.html, "Untrusted SQLite Database Files".
3. Only columns of ordinary tables are read, none that is generated.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator

from mudroom.core.text.plural import counted
from mudroom.core.text.regex import regex
from mudroom.ext.views.kinds.row import FileView, FileViewRow, NoView, cut, kind_of_row, listed, summed, text_lines
from mudroom.typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

MOST_COMPARED = 20_000
"""Rows of a table that are compared."""
MOST_SHOWN = 20
_SECONDS = 4.0
_STEPS = 10_000
"""Of SQLite's machine between two looks at the clock."""
_VIRTUAL = regex(r"(?is)\s*create\s+virtual\b.*")
_SETTINGS = (
    "PRAGMA trusted_schema=OFF", "PRAGMA cell_size_check=ON", "PRAGMA query_only=ON", "PRAGMA mmap_size=0",
    "PRAGMA temp_store=MEMORY", "PRAGMA writable_schema=OFF",
)  # fmt: skip
_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: 16 << 20,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 1 << 20,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 50,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 1,
}


class SchemaItem(NamedTuple):
    type: str
    sql: str
    root: int
    """Page; 0: it holds no rows of its own."""


_Schema = dict[tuple[str, str], SchemaItem]


class Database:
    """A database in memory. Owner: the caller of ``view``."""

    def __init__(self, data: bytes | None, side: str) -> None:
        self._side = side
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        self._end = time.monotonic() + _SECONDS
        self._connection.text_factory = lambda raw: raw.decode("utf-8", "backslashreplace")
        for category, most in _LIMITS.items():
            self._connection.setlimit(category, most)
        self._connection.set_progress_handler(lambda: time.monotonic() > self._end, _STEPS)
        if data is not None:
            if not data.startswith(b"SQLite format 3\0") or len(data) < 512:
                raise NoView(f"the {side} file is no SQLite database, or is encrypted")
            self._call(lambda: self._connection.deserialize(data[:18] + b"\1\1" + data[20:]))
        for setting in _SETTINGS:
            self.ask(setting)

    def ask(self, statement: str) -> list[Any]:
        return self._call(lambda: self._connection.execute(statement).fetchmany(MOST_COMPARED + 1))

    def _call(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except (sqlite3.Error, OverflowError, ValueError) as error:
            raise NoView(f"the {self._side} database cannot be read: {error}") from None

    def schema(self) -> _Schema:
        rows = self.ask("SELECT type, name, sql, rootpage FROM sqlite_schema ORDER BY name")
        return {
            (str(name), str(type_)): SchemaItem(str(type_), str(sql or ""), root if isinstance(root, int) else 0)
            for type_, name, sql, root in rows
        }

    def count(self, table: str) -> int:
        return int(self.ask(f"SELECT count(*) FROM main.{_quoted(table)}")[0][0])

    def rows(self, table: str) -> tuple[list[str], dict[Any, tuple[Any, ...]]]:
        """Return the columns, and the rows by primary key or rowid."""
        info = self.ask(f"PRAGMA main.table_info({_quoted(table)})")
        columns = [str(row[1]) for row in info]
        key = [str(row[1]) for row in sorted(info, key=lambda row: row[5]) if row[5]]
        if not key:
            key = [next((name for name in ("rowid", "_rowid_", "oid") if name not in map(str.lower, columns)), "")]
            if not key[0]:
                return columns, {}
        names = ", ".join(map(_quoted, (*key, *columns)))
        rows = self.ask(f"SELECT {names} FROM main.{_quoted(table)}")
        return columns, {tuple(row[: len(key)]): tuple(row[len(key) :]) for row in rows}


def view(path: bytes, before: bytes | None, after: bytes | None) -> FileView:
    del path
    old, new = Database(before, "old"), Database(after, "new")
    schemas = old.schema(), new.schema()
    notes: list[str] = []
    rows = [*_schema_rows(*schemas), *_table_rows(old, new, schemas, notes)]
    if any(data is not None and data[18:20] == b"\2\2" for data in (before, after)):
        notes.append("it has a write-ahead log: rows that are only in the -wal file beside it are not seen")
    return FileView("database", summed(rows, "the same schema and rows"), cut(rows, notes, "row"), notes)


def _schema_rows(old: _Schema, new: _Schema) -> Iterator[FileViewRow]:
    for key in sorted(old.keys() | new.keys()):
        one, other = old.get(key), new.get(key)
        if (one.sql if one else None) == (other.sql if other else None):
            continue
        lines = text_lines(*((item.sql + "\n").encode("utf-8", "replace") if item else b"" for item in (one, other)))
        runs = key[1] in ("trigger", "view")
        note = "runs inside programs that open the file" if runs and other is not None else ""
        yield FileViewRow(kind_of_row(one, other), f"{key[1]} {key[0]}", note=note, flagged=bool(note), lines=lines)


def _table_rows(
    old: Database, new: Database, schemas: tuple[_Schema, _Schema], notes: list[str]
) -> Iterator[FileViewRow]:
    tables = [{name for (name, type_), item in schema.items() if type_ == "table"} for schema in schemas]
    for table in sorted(tables[0] | tables[1]):
        items = [schema.get((table, "table")) for schema in schemas]
        if any(item is not None and (not item.root or _VIRTUAL.fullmatch(item.sql)) for item in items):
            notes.append(f"{table}: a virtual table, not opened")
            continue
        row = _table_row(
            table, *(side if item is not None else None for side, item in zip((old, new), items, strict=True))
        )
        if row is not None:
            yield row


def _table_row(table: str, old: Database | None, new: Database | None) -> FileViewRow | None:
    counts = [side.count(table) if side is not None else None for side in (old, new)]
    first, second = (counted(count, "row") if count is not None else "" for count in counts)
    row = FileViewRow(kind_of_row(old, new), f"rows of {table}", first, second)
    if old is None or new is None:
        return row if any(counts) else None
    if max(count or 0 for count in counts) > MOST_COMPARED:
        row.note = f"more than {MOST_COMPARED:,}: only their number is compared"
        return row
    (old_columns, before), (new_columns, after) = old.rows(table), new.rows(table)
    if before == after and old_columns == new_columns:
        return None if counts[0] == counts[1] else row
    words = {"added": 0, "removed": 0, "changed": 0}
    for key in [*before, *(key for key in after if key not in before)]:
        one, other = before.get(key), after.get(key)
        if one == other:
            continue
        word = kind_of_row(one, other)
        words[word] += 1
        if len(row.rows) < MOST_SHOWN:
            sides = _differing(
                dict(zip(old_columns, one or (), strict=False)), dict(zip(new_columns, other or (), strict=False))
            )
            row.rows.append(FileViewRow(word, ", ".join(map(_value, key)), sides[0], sides[1]))
    row.note = listed(words)
    return row if row.note else None


def _differing(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    names = [name for name in {**old, **new} if name not in old or name not in new or old[name] != new[name]]
    return [", ".join(f"{name}={_value(side[name])}" for name in names if name in side) for side in (old, new)]


def _value(value: object) -> str:
    if isinstance(value, bytes):
        return f"{counted(len(value), 'byte')}"
    text = repr(value) if value is not None else "NULL"
    return text if len(text) <= 80 else text[:79] + "…"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
