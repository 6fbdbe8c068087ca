"""The steps of a fork: its commands and edits, as the journal has them. Pure.

A fork's events are under the names that it had, and under those of the forks that it was made of. ``Lineage`` follows
them from the newest event back: over a rename, to a parent, and over a rollback to the checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mudroom.core.journal.event import Event, data_of, encoded_field, wall
from mudroom.core.tree.path import ancestors
from mudroom.typing import Any, NamedTuple

TURNS = ("fork", "rename", "discard", "rollback", "checkpoint")
"""Kinds of events that change which events are a fork's."""
STEPS = ("run", "background", "background_end", "edit", "recover", "unmount", "flow")


class PathTouch(NamedTuple):
    kind: str
    """added, modified, deleted or mode; ``below``: of a directory whose paths are not all recorded."""
    digest: str
    """The content's after the step; empty if it is not recorded."""


class Step(NamedTuple):
    event: int
    """The event's number."""
    kind: str
    """run, background, edit (file tools), recover (cut off) or unmount (by hand, in a mount)."""
    command: tuple[str, ...]
    agent: str
    began: int
    ended: int
    """Nanoseconds since 1970."""
    exit_code: int | None
    paths: Mapping[bytes, PathTouch] | None
    """None: they are not recorded."""
    left_out: int
    """Changed paths that are not in ``paths``."""

    def touch(self, path: bytes) -> PathTouch | None:
        """Return what the step did to a path, or None if that is nothing, or not known."""
        if self.paths is None:
            return None
        touch = self.paths.get(path)
        if touch is None and self.left_out:
            above = (self.paths.get(directory) for directory in ancestors(path))
            found = next((each for each in above if each is not None and each.kind in ("added", "deleted")), None)
            return PathTouch("below", "") if found is not None else None
        return touch


class ReachedHost(NamedTuple):
    host: str
    time: int


class Lineage:
    """The names and numbers of a fork's events. Give it the events of ``TURNS``, newest first."""

    def __init__(self, fork: str) -> None:
        self.spans: list[tuple[str, int, int]] = []
        """Name, and the numbers between which its events are the fork's, both excluded."""
        self._name, self._upper, self._point = fork, 1 << 62, ""

    def follow(self, event: Event) -> bool:
        """Follow the fork over an event. Return False if no earlier event is its own."""
        if event.fork != self._name or event.number >= self._upper:
            return True
        data = data_of(event)
        if event.kind == "checkpoint":
            if self._point and data.get("checkpoint") == self._point:
                self._upper, self._point = event.number, ""
            return True
        if event.kind == "discard" and not self._point:
            self._close(event.number)
            return False
        self._close(event.number)
        self._upper = event.number
        if event.kind == "rename":
            self._name = str(data.get("was", ""))
        elif event.kind == "rollback":
            self._point = str(data.get("checkpoint") or "")
        elif event.kind == "fork":
            self._name, self._point = str(data.get("parent") or ""), str(data.get("at") or "")
        return bool(self._name)

    def _close(self, number: int) -> None:
        self.spans.append((self._name, number, self._upper))

    def close(self) -> None:
        """There are no more events."""
        if self._name:
            self._close(0)

    def has(self, event: Event) -> bool:
        return any(name == event.fork and low < event.number < high for name, low, high in self.spans)


def steps_of(events: Iterable[Event]) -> tuple[tuple[Step, ...], tuple[ReachedHost, ...]]:
    """Return a fork's steps and the hosts that it reached, in order. ``events``: the fork's own of ``STEPS``, oldest
    first. Fields that an older or newer mudroom wrote otherwise are taken for missing."""
    steps: list[Step] = []
    flows: list[ReachedHost] = []
    started: dict[Any, Event] = {}
    for event in events:
        data, time = data_of(event), wall(event)
        if event.kind == "flow":
            if data.get("verdict") == "allow":
                flows.append(
                    ReachedHost(f"{data.get('host')}:{data.get('port')}", _number(data.get("started")) or time)
                )
        elif event.kind == "background":
            started[data.get("id")] = event
        elif event.kind == "background_end":
            begun = started.pop(data.get("id"), None)
            first = {**data_of(begun), **data} if begun is not None else data
            steps.append(_step(event, "background", first, wall(begun) if begun is not None else time, time))
        elif event.kind != "recover" or data.get("outcome") == "collected":
            milliseconds = _number(data.get("duration_ms")) or 0
            steps.append(_step(event, event.kind, data, time - milliseconds * 1_000_000, time))
    return tuple(steps), tuple(flows)


def _step(event: Event, kind: str, data: Mapping[str, Any], began: int, ended: int) -> Step:
    words = data.get("command")
    command = tuple(map(str, words)) if isinstance(words, list) else ()
    rows = data.get("paths", [] if not data.get("changed") and kind != "background" else None)
    paths = None
    if isinstance(rows, list):
        whole = [
            row for row in rows if isinstance(row, list) and len(row) == 3 and all(isinstance(e, str) for e in row)
        ]
        paths = {encoded_field(path): PathTouch(what, digest) for path, what, digest in whole}
    agent = data.get("agent")
    return Step(
        event.number, kind, command, agent if isinstance(agent, str) else "", began, ended,
        _number(data.get("exit_code")), paths, _number(data.get("paths_left_out")) or 0,
    )  # fmt: skip


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and abs(value) < 1 << 62 else None
