"""The list of changed files, grouped below directory headings, with marks and counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size

from mudroom.core.merge.pick import Pick
from mudroom.core.tree.path import name, parent, show_path
from mudroom.ext.order.core.risk import RISKS, FileRisk, Risk
from mudroom.ext.review.roots import named_directory
from mudroom.ext.tui.choice import SIGNS, Item, Mark, mark_of, mark_of_all, signs
from mudroom.ext.tui.line import styled_path
from mudroom.ext.tui.pane import Pane, Pieces

_VERBS = {"added": "+", "modified": "~", "deleted": "-", "renamed": "→"}


class FileRow(NamedTuple):
    item: Item | None
    """None if the row is a directory."""
    directory: bytes
    members: tuple[Item, ...] = ()
    """A directory's rows, listed or folded."""


IGNORED = b"\0"
"""The directory of the last heading, for all that git ignores. No path has a NUL."""
_RISK = b"\0risk "
"""Begin of the directory of a risk's heading."""
_UNKNOWN = FileRisk("generated")
"""Of a repository, which is applied on request."""


def heading_of(risk: Risk) -> bytes:
    """Return the directory of a risk's heading."""
    return _RISK + risk.encode()


def rows_of(
    items: Sequence[Item],
    folded: frozenset[bytes],
    ignored: Callable[[Item], bool] = lambda _item: False,
    risks: Callable[[Item], FileRisk] | None = None,
) -> list[FileRow]:
    """Return the rows. Each directory with items has a heading, except the project's root. Items that git ignores are
    together at the end, unless nothing else is listed. ``risks``: a heading for each risk instead, the costliest first,
    if there are several."""
    groups: dict[bytes, list[Item]] = {}
    inside = [item for item in items if ignored(item)]
    last = {item.path for item in inside} if len(inside) < len(items) else set()
    listed = [item for item in items if item.path not in last]
    if risks is not None and len({risks(item).risk for item in listed}) > 1:
        listed.sort(key=lambda item: (risks(item).key, item.path))
        for item in listed:
            groups.setdefault(heading_of(risks(item).risk), []).append(item)
    else:
        for item in listed:
            groups.setdefault(parent(item.path), []).append(item)
    if last:
        groups[IGNORED] = inside
    rows: list[FileRow] = []
    for directory, members in groups.items():
        if directory:
            rows.append(FileRow(None, directory, tuple(members)))
            if directory in folded:
                continue
        rows += [FileRow(item, directory) for item in members]
    return rows


class FileList(Pane):
    def __init__(self) -> None:
        super().__init__(id="list")
        self.rows: list[FileRow] = []
        self.picks: Mapping[bytes, Pick] = {}
        self.flags: Mapping[bytes, frozenset[str]] = {}
        self.seen: Mapping[bytes, bool] = {}
        self.labels: Mapping[bytes, str] = {}
        """The names of the other projects in which the fork has changes, by path."""
        self.risks: Mapping[bytes, FileRisk] = {}
        self.remarked: frozenset[bytes] = frozenset()
        """Paths with open remarks that were sent."""
        self.by_risk = True
        self.folded: set[bytes] = {IGNORED, heading_of("dull")}
        self._items: Sequence[Item] = ()

    def show_items(self, items: Sequence[Item]) -> None:
        """Show items. The cursor stays on its path if that is still listed."""
        before = self.current
        self._items = items
        risks = self._risk_of if self.by_risk and self.risks else None
        self.rows = rows_of(items, frozenset(self.folded), self._is_ignored, risks)
        cursor = (
            0
            if before is not None
            else next((number for number, row in enumerate(self.rows) if row.item is not None), 0)
        )
        for number, row in enumerate(self.rows):
            if before is not None and _row_key(row) == _row_key(before):
                cursor = number
                break
        self.show_rows(len(self.rows), cursor)

    def _is_ignored(self, item: Item) -> bool:
        return "ignored" in self.flags.get(item.path, ())

    def title(self, row: FileRow) -> str:
        return title_of(row, self.labels)

    def _risk_of(self, item: Item) -> FileRisk:
        is_conflict = "conflict" in self.flags.get(item.path, ())
        if is_conflict:
            return FileRisk("conflict")
        return FileRisk("remark") if item.path in self.remarked else self.risks.get(item.change.path, _UNKNOWN)

    def turn(self) -> None:
        """Group by risk, or by directory."""
        self.by_risk = not self.by_risk
        self.show_items(self._items)

    @property
    def current(self) -> FileRow | None:
        return self.rows[self.cursor] if self.cursor < len(self.rows) else None

    def fold(self) -> None:
        """Fold or unfold the directory at the cursor."""
        row = self.current
        if row is not None and row.item is None:
            self.folded ^= {row.directory}
            self.show_items(self._items)

    def next_file(self, by: int) -> bool:
        """Go to the next or previous file. Return False if there is none."""
        number = self.cursor + by
        while 0 <= number < len(self.rows):
            if self.rows[number].item is not None:
                self.go(number)
                return True
            number += by
        return False

    def row(self, number: int, width: int) -> Pieces:
        row = self.rows[number]
        pointer = "▌" if number == self.cursor else " "
        if row.item is None:
            mark = mark_of_all(mark_of(self.picks.get(item.path)) for item in row.members)
            fold = "▸" if row.directory in self.folded else "▾"
            is_counted = row.directory in self.folded or row.directory.startswith(_RISK)
            tail = f" {len(row.members):,}" if is_counted else ""
            room = width - 8 - len(tail)
            return [
                (pointer, "head"),
                _mark(mark),
                (f" {fold} ", "dim"),
                *styled_path(fit_text(self.title(row), room), "head"),
                (tail, "dim"),
            ]
        return self._file(row.item, row.directory, pointer, width)

    def _file(self, item: Item, directory: bytes, pointer: str, width: int) -> Pieces:
        change = item.change
        seen = "v" if self.seen.get(item.path) else " "
        flags = signs(self.flags.get(item.path, ()))
        counts = [(f" +{change.lines_added:,}", "added")] if change.lines_added else []
        counts += [(f" -{change.lines_removed:,}", "removed")] if change.lines_removed else []
        if item.is_repository:
            counts = [(f" {len(item.inside):,}", "dim")]
        indent = "  " if directory else ""
        path = item.path if directory.startswith(b"\0") else name(item.path)
        shown = show_path(path) + ("/" if change.entry.kind == "directory" or item.is_repository else "")
        used = 8 + len(indent) + (len(flags) + 1 if flags else 0) + sum(len(text) for text, _style in counts)
        return [
            (pointer, "head"),
            _mark(mark_of(self.picks.get(item.path))),
            (seen + indent, "good"),
            (_VERBS[change.verb] + " ", {"added": "added", "deleted": "removed"}.get(change.verb, "dim")),
            (flags + " " if flags else "", "warn"),
            *styled_path(fit_text(shown, max(4, width - used)), ""),
            *counts,
        ]


def title_of(row: FileRow, labels: Mapping[bytes, str] = MappingProxyType({})) -> str:
    if row.directory.startswith(_RISK):
        return next(words for risk, words in RISKS.items() if heading_of(risk) == row.directory)
    return "ignored by git" if row.directory == IGNORED else named_directory(row.directory, labels)


def _row_key(row: FileRow) -> tuple[bytes, bytes]:
    return row.directory, row.item.path if row.item is not None else b""


def _mark(mark: Mark) -> tuple[str, str]:
    return SIGNS[mark], {"all": "good", "part": "warn", "none": "dim"}[mark]


def fit_text(text: str, width: int) -> str:
    """Return the text in exactly ``width`` cells. A long name is cut at its beginning: the end tells more."""
    if cell_len(text) <= width:
        return set_cell_size(text, max(0, width))
    while text and cell_len(text) > width - 1:
        text = text[max(1, (cell_len(text) - width) // 2) :]
    return set_cell_size("…" + text, max(0, width))
