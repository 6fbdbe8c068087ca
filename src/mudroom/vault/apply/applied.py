"""List of applies, each with its fork, time and size. Read from the journal unless archived, because that is cheaper
than reading the plans."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress

from mudroom.core.journal.event import Event
from mudroom.core.journal.event_filter import EventFilter
from mudroom.errors import MudroomError
from mudroom.typing import NamedTuple
from mudroom.vault.apply.transaction import ApplyDirectory
from mudroom.vault.store.store import Vault

LARGE = 8 << 20
"""Bytes. Larger plans are not read for a list."""


class ApplyDetail(NamedTuple):
    name: str
    state: str
    """As in ``Changes.applies``."""
    fork: str = ""
    time: int = 0
    """Nanoseconds since 1970; 0 if unknown."""
    written: int = 0
    removed: int = 0
    conflicts: int = 0
    kept: int = 0
    """Number of files where the project's version was kept, as decided."""


def details(vault: Vault, applies: Sequence[tuple[str, str]]) -> list[ApplyDetail]:
    """Return details in the order of ``applies``: names and states, oldest first."""
    events = _read_events(vault, [name for name, _state in applies])
    return [_detail(vault, name, state, events.get(name)) for name, state in applies]


def _read_events(vault: Vault, names: Sequence[str]) -> dict[str, Event]:
    """Return the journal's newest event for each apply. Empty if the journal is missing or cannot be read; other
    readers of the journal report that."""
    events: dict[str, Event] = {}
    if not names or not os.path.exists(vault.path + b"/journal.db"):
        return events
    missing = set(names)
    with suppress(MudroomError, OSError, ValueError):  # show the details known without the journal
        newest = vault.journal.newest(EventFilter(("apply", "recover")), archived=False)
        for event, _looked_at in zip(newest, range(50 + 4 * len(names)), strict=False):
            name = json.loads(event.data).get("apply")
            if name in missing:
                events[name] = event
                missing.remove(name)
                if not missing:
                    break
    return events


def _detail(vault: Vault, name: str, state: str, event: Event | None) -> ApplyDetail:
    if event is not None:
        data = json.loads(event.data)
        written, removed, conflicts, spared = (
            _number(data.get(key)) for key in ("written", "removed", "conflicts", "kept")
        )
        return ApplyDetail(name, state, event.fork, event.time, written, removed, conflicts, spared)
    place = ApplyDirectory(vault.path + b"/applies/" + name.encode())
    try:
        kept = place.state()
        if kept is None or os.stat(place.path + b"/plan." + kept.encode()).st_size > LARGE:
            return ApplyDetail(name, state)
        record = place.load()
    except (MudroomError, OSError):
        return ApplyDetail(name, state)
    removed = sum(op.kind == "remove" for op in record.ops)
    written = sum(op.kind in ("place", "swap", "chmod") for op in record.ops)
    return ApplyDetail(name, state, record.fork, record.started, written, removed, kept=len(record.dropped))


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
