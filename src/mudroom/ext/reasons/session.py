"""What was observed at the hunks of a fork: commands by the journal, turns by the conversations of its agents.

Computed on request, for one file at a time. Nothing is written, and nothing is said to be a cause.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from contextlib import suppress

from mudroom.core.journal.event_filter import EventFilter
from mudroom.core.registry import part_or_none
from mudroom.core.text.hunk import Hunk, hunks
from mudroom.core.text.linediff import split_lines
from mudroom.core.tree.path import is_below
from mudroom.errors import UsageError
from mudroom.ext.reasons.core.blame import Blame, FileVersions, blame
from mudroom.ext.reasons.core.step import STEPS, TURNS, Lineage, ReachedHost, Step, steps_of
from mudroom.ext.reasons.transcript import LARGEST, Conversation, parse_conversation
from mudroom.ext.reasons.turn import ObservedTurn, turn_of
from mudroom.ext.review.roots import root_of
from mudroom.ext.review.rows import RowDifference, difference, review_fork
from mudroom.session import Session
from mudroom.stage.layers.union import OneLayer
from mudroom.typing import NamedTuple
from mudroom.vault.forks.collection import LARGEST as LARGEST_FILE
from mudroom.vault.forks.collection import digest_of
from mudroom.vault.store.fork import Fork

MOST_EVENTS, MOST_LAYERS, MOST_HOSTS = 100_000, 200, 10


class Observed(NamedTuple):
    """What was observed at one hunk."""

    hunk: Hunk | None
    """None: the whole file, which has no hunks."""
    blame: Blame
    turn: ObservedTurn | None
    hosts: tuple[str, ...]
    """That the possible commands reached before; of a turn, before its call."""


class ObservedFile(NamedTuple):
    path: bytes
    """As in the review."""
    rows: tuple[Observed, ...]
    steps: tuple[Step, ...]
    """All of the fork."""
    unknown: int
    """Steps whose paths are not recorded."""
    cut: int
    """Steps that changed more paths than are recorded."""


class Reasons:
    """Of one fork. Owner: the caller, in one thread. What it has read is kept: make another one after a command."""

    def __init__(self, session: Session, fork: str) -> None:
        """Raise UsageError if the fork does not exist."""
        self._session, self.fork = session, session.vault.fork(fork).name
        self._steps: dict[bytes, tuple[tuple[Step, ...], tuple[ReachedHost, ...]]] = {}
        self._conversations: list[Conversation] | None = None

    @property
    def conversations(self) -> list[Conversation]:
        """The conversations that agents have had in the fork."""
        if self._conversations is None:
            agents = part_or_none("agents", "conversation")
            fork = self._session.vault.fork(self.fork)
            found = agents.read_conversations(fork, LARGEST + 1) if agents is not None else ()
            self._conversations = [parse_conversation(*each) for each in found]
        return self._conversations

    @property
    def secrets(self) -> Collection[str]:
        """Values that are not shown."""
        return self._session.vault.secrets()

    @property
    def skipped(self) -> int:
        """Parts of conversations that could not be read."""
        return sum(conversation.skipped for conversation in self.conversations)

    def of_file(self, path: bytes) -> ObservedFile:
        """Return what was observed at each hunk of a changed file. Raise UsageError if there is no change at the path,
        ForkMoved if the file has changed since it was recorded."""
        root = root_of(self._session, self.fork, path)
        if root.path not in self._steps:
            self._steps[root.path] = _steps(root.session, root.fork)
        steps, flows = self._steps[root.path]
        seen, inner = difference(self._session, self.fork, path), root.inner(path)
        versions = _versions(root.session.vault.fork(root.fork), inner, seen)
        entry = seen.change.staged
        rows: list[Observed] = []
        parts = _hunks(seen)
        for hunk, found in zip(parts, blame(steps, inner, parts, versions), strict=True):
            chosen = [steps[number] for number in found.steps]
            turn = turn_of(self.conversations, chosen, inner, hunk, entry.mtime if entry is not None else 0)
            rows.append(Observed(hunk, found, turn, _hosts(chosen, flows, turn)))
        unknown = sum(step.paths is None for step in steps)
        return ObservedFile(path, tuple(rows), steps, unknown, sum(step.left_out > 0 for step in steps))

    def of_line(self, path: bytes, line: int) -> ObservedFile:
        """Return only the hunk with this line, counted as the fork has the file. Raise UsageError if no hunk has it."""
        seen = self.of_file(path)
        rows = tuple(row for row in seen.rows if row.hunk is None or _holds(row.hunk, line))
        if not rows:
            raise UsageError(f"no hunk has the line {line}", f"mudroom diff {self.fork} shows the hunks")
        return seen._replace(rows=rows)


def new_range(hunk: Hunk) -> tuple[int, int]:
    """Return a hunk's first line and number of lines in the fork."""
    first, _comma, count = hunk.header.split(b" ")[2][1:].partition(b",")
    return int(first), int(count)


def _holds(hunk: Hunk, line: int) -> bool:
    first, count = new_range(hunk)
    return first <= line < first + max(count, 1)


def _hunks(seen: RowDifference) -> tuple[Hunk | None, ...]:
    if seen.texts is None:
        return (None,)
    old, new = seen.texts.sides
    return hunks(b"".join(old), b"".join(new)) or (None,)


def _steps(session: Session, fork: str) -> tuple[tuple[Step, ...], tuple[ReachedHost, ...]]:
    journal, lineage = session.vault.journal, Lineage(fork)
    for count, event in enumerate(journal.newest(EventFilter(TURNS))):
        if count >= MOST_EVENTS or not lineage.follow(event):
            break
    else:
        lineage.close()
    names = tuple(dict.fromkeys(name for name, _low, _high in lineage.spans))
    return steps_of(filter(lineage.has, journal.events(last=MOST_EVENTS, where=EventFilter(STEPS, names))))


def _versions(fork: Fork, path: bytes, seen: RowDifference) -> FileVersions:
    """Return the file's contents in the fork's layers. No link in them is followed."""
    old, new = seen.texts.sides if seen.texts is not None else ([], [])
    entry, now = seen.change.staged, b"".join(new)
    by_digest: dict[str, list[bytes]] = {}
    for layer in fork.sealed[:MOST_LAYERS] if seen.texts is not None else ():
        with suppress(OSError), OneLayer(layer) as source:
            with os.fdopen(source.open(path), "rb") as stream:
                content = stream.read(LARGEST_FILE + 1)
            if len(content) <= LARGEST_FILE:
                by_digest[digest_of(content)] = split_lines(content)
    digest = None if entry is not None and seen.texts is None else digest_of(now) if entry is not None else ""
    return FileVersions(digest, new, by_digest, old)


def _hosts(steps: list[Step], flows: tuple[ReachedHost, ...], turn: ObservedTurn | None) -> tuple[str, ...]:
    def was_before(flow: ReachedHost) -> bool:
        return any(step.began <= flow.time <= step.ended for step in steps) and (
            turn is None or flow.time <= turn.call.until
        )

    return tuple(dict.fromkeys(flow.host for flow in flows if was_before(flow)))[:MOST_HOSTS]


def changed_files(session: Session, fork: str, paths: Sequence[bytes]) -> list[bytes]:
    """Return the changed paths of a fork at or below these; none: all."""
    rows = [change.path for change in review_fork(session, fork).rows if change.entry.kind != "directory"]
    exact = {*paths}
    return [path for path in rows if not paths or path in exact or any(is_below(path, above) for above in paths)]
