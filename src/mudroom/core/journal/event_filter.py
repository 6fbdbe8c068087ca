"""Which events of a journal are wanted. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from mudroom.core.journal.event import Event, data_of, wall


class EventFilter(NamedTuple):
    """All that is said has to hold; what is empty or None says nothing."""

    kinds: tuple[str, ...] = ()
    forks: tuple[str, ...] = ()
    agent: str | None = None
    since: int | None = None
    """Nanoseconds since 1970, by the clock as it was; as ``until``."""
    until: int | None = None
    verdict: str | None = None
    """An action: ``deny`` of commands and of the gate, ``require_approval`` …"""
    grep: str | None = None
    """A text that stands somewhere in the event, in letters of any case."""

    @property
    def is_plain(self) -> bool:
        """Whether kinds and forks are all there is to look at."""
        return self[2:] == EVERYTHING[2:]

    def matches(self, event: Event) -> bool:
        if (self.kinds and event.kind not in self.kinds) or (self.forks and event.fork not in self.forks):
            return False
        if self.is_plain:
            return True
        time = wall(event)
        if (self.since is not None and time < self.since) or (self.until is not None and time >= self.until):
            return False
        data = data_of(event)
        if self.agent is not None and data.get("agent") != self.agent:
            return False
        if self.verdict is not None and self.verdict != action_of(data):
            return False
        return self.grep is None or _holds(self.grep.casefold(), event, data)


EVERYTHING = EventFilter()


def action_of(data: dict[str, Any]) -> str | None:
    """What was decided, where an event tells of a decision: about a command, or about a host."""
    verdict = data.get("verdict", data)
    found = verdict.get("action") if isinstance(verdict, dict) else verdict
    return found if isinstance(found, str) else None


def _holds(wanted: str, event: Event, data: dict[str, Any]) -> bool:
    if wanted in event.kind or wanted in event.fork.casefold():
        return True
    return any(wanted in text.casefold() for text in _texts(data))


def _texts(value: Any) -> Iterator[str]:
    """Every text in there; a list of texts is one, with spaces between, as a command is shown."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        if all(isinstance(one, str) for one in value):
            yield " ".join(value)
        else:
            for one in value:
                yield from _texts(one)
    elif isinstance(value, dict):
        for key, one in value.items():
            if isinstance(one, str | int | float):
                yield f"{key}={one}"
            else:
                yield from _texts(one)
