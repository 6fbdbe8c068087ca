"""Filter for journal events. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from mudroom.core.journal.event import Event, data_of, wall
from mudroom.typing import Any, NamedTuple


class EventFilter(NamedTuple):
    """An event must match all criteria. Empty criteria and None match every event."""

    kinds: tuple[str, ...] = ()
    forks: tuple[str, ...] = ()
    agent: str | None = None
    since: int | None = None
    """Nanoseconds since 1970, compared with the wall clock's time in the event, like ``until``."""
    until: int | None = None
    verdict: str | None = None
    """An action such as ``deny`` or ``require_approval``, by a command's or host's verdict."""
    grep: str | None = None
    """A text that occurs in the event, ignoring case."""

    @property
    def is_plain(self) -> bool:
        """Whether only kinds and forks are filtered."""
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
    """Return the action in an event that records a decision about a command or a host, or None."""
    verdict = data.get("verdict", data)
    action = verdict.get("action") if isinstance(verdict, dict) else verdict
    return action if isinstance(action, str) else None


def _holds(needle: str, event: Event, data: dict[str, Any]) -> bool:
    if needle in event.kind or needle in event.fork.casefold():
        return True
    return any(needle in text.casefold() for text in _texts(data))


def _texts(value: Any) -> Iterator[str]:
    """Yield every text in a JSON value. A list of texts is joined with spaces, as commands are displayed."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        if all(isinstance(item, str) for item in value):
            yield " ".join(value)
        else:
            for item in value:
                yield from _texts(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if isinstance(item, str | int | float):
                yield f"{key}={item}"
            else:
                yield from _texts(item)
