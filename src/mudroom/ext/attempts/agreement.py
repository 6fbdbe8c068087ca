"""Path-by-path agreement between several changesets with one base, to choose one candidate.

* Two candidates have the same *result* at a path if both deleted it, or if kind, mode, link target and content are
  equal. Times, owners and extended attributes do not count.
* Directories have no content here: their files are compared as paths.
* A candidate that did not change a path keeps the base's entry. That is no result.
* A content is asked for only where entries with equal shape and size are different files. An unread content (None)
  equals no known one: its candidates form one group, and the path is not ``compared``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

from mudroom.core.tree.change import Change, Changeset, counted_changes
from mudroom.core.tree.entry import Entry
from mudroom.core.tree.path import sort_key
from mudroom.typing import Literal, NamedTuple

Extent = Literal["different", "some", "unknown", "same"]
EXTENTS: tuple[Extent, ...] = ("different", "some", "unknown", "same")
"""How far candidates agree at a path, most interesting first: the changes differ; only some changed it; equal shapes
with unread contents; all made the same change."""

Content = Callable[[bytes, int], "Hashable | None"]
"""Return a value that is equal for equal file contents, given the path and the candidate's number, or None if it was
not read."""


class PathAgreement(NamedTuple):
    path: bytes
    groups: tuple[tuple[int, ...], ...]
    """Candidates by result. The groups, and the candidates in each, are in candidate order."""
    unchanged: tuple[int, ...]
    """Candidates that did not change the path."""
    compared: bool = True
    """False if a content was not read."""

    @property
    def extent(self) -> Extent:
        if len(self.groups) > 1:
            return "different"
        if self.unchanged:
            return "some"
        return "same" if self.compared else "unknown"


def changed_paths(changesets: Iterable[Changeset]) -> list[bytes]:
    """Return the paths counted as changed in at least one changeset, in walking order."""
    paths = {change.path for changeset in changesets for change in counted_changes(changeset.changes)}
    return sorted(paths, key=sort_key)


def agreement(path: bytes, changesets: Sequence[Mapping[bytes, Change]], content: Content) -> PathAgreement:
    """Return how far the candidates agree at a path. ``changesets`` holds each candidate's changes by path."""
    shapes: dict[Hashable, dict[int, Entry | None]] = {}
    unchanged: list[int] = []
    for number, changes in enumerate(changesets):
        change = changes.get(path)
        if change is None:
            unchanged.append(number)
        else:
            shapes.setdefault(_shape(change.staged), {})[number] = change.staged
    groups: list[tuple[int, ...]] = []
    compared = True
    for members in shapes.values():
        for token, group in _by_content(path, members, content).items():
            compared &= token is not None or len(group) == 1
            groups.append(tuple(group))
    return PathAgreement(path, tuple(sorted(groups)), tuple(unchanged), compared)


def _shape(entry: Entry | None) -> Hashable:
    return None if entry is None else (entry.kind, entry.mode, entry.target, entry.size)


def _by_content(path: bytes, members: Mapping[int, Entry | None], content: Content) -> dict[Hashable, list[int]]:
    """Group candidates with equal shape by content."""
    # equal inode and times are one file: forks of a fork share its layers
    files: dict[Hashable, list[int]] = {}
    for number, entry in members.items():
        files.setdefault(_file(entry), []).append(number)
    if len(files) == 1:
        return files
    contents: dict[Hashable, list[int]] = {}
    for numbers in files.values():
        contents.setdefault(content(path, numbers[0]), []).extend(numbers)
    return {token: sorted(numbers) for token, numbers in contents.items()}


def _file(entry: Entry | None) -> Hashable:
    """Return a key that identifies a file with content. All entries without content have the same key."""
    if entry is None or entry.kind != "file" or not entry.size:
        return ()
    return entry.device, entry.inode, entry.mtime, entry.ctime
