"""Summaries of all forks for a list. A damaged fork does not prevent the list.

Forks are locked only briefly and never written. An interrupted command is reported as such and not examined further.

A record's summary is cached until the record's file changes, because lists are requested often and a record may hold
tens of thousands of changes. It is not cached with the record (``FileReader.derive``): the record cache is bounded by
bytes, and a list with more records than fit would read each record again, every time. The short summaries fit for many
more forks.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict

from mudroom.core.network.fork_host import SUFFIX, label_of
from mudroom.core.tree.change import Changeset, Summary
from mudroom.core.tree.path import show
from mudroom.core.tree.stack import LIVE
from mudroom.stage.stamp import Stamp, is_settled, stamp_of
from mudroom.typing import Literal, NamedTuple
from mudroom.vault.forks.damage import UNREADABLE, reason_of, require_layers
from mudroom.vault.forks.endpoint import endpoint_of
from mudroom.vault.forks.record_view import view_record
from mudroom.vault.forks.review import fingerprint, of_look
from mudroom.vault.store.fork import Fork, is_plain, last_holder
from mudroom.vault.store.store import Vault

State = Literal["idle", "running", "mounted", "cut off", "damaged"]
_KEPT = 2_000


class RecordSummary(NamedTuple):
    """A record's summary."""

    command: tuple[bytes, ...]
    exit_code: int
    level: int | None
    summary: Summary
    fingerprint: str
    """Fingerprint of its changes as a look, because a list shows no contents."""


class ForkSummary(NamedTuple):
    name: str
    state: State
    problem: str = ""
    """The reason, if the fork is damaged."""
    agent: str = ""
    named: bool = False
    created: int = 0
    """Nanoseconds since 1970."""
    parent: str = ""
    checkpoints: int = 0
    credentials: tuple[str, ...] = ()
    snapshot: bool = False
    brief: RecordSummary | None = None
    """None if no command has ended in it yet."""
    endpoint: str = ""
    """URL for the agent that runs in it, for forks that may reach it; empty: none is registered."""
    level: int | None = None
    """Level at which that agent runs."""

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the fork's changes; empty if unknown."""
        if self.brief is not None:
            return self.brief.fingerprint
        return "" if self.state == "damaged" else _NO_CHANGES


_NO_CHANGES = of_look(fingerprint(Changeset()))
"""Fingerprint for a fork in which no command has ended."""


class ForkSummaries:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cache: OrderedDict[bytes, tuple[Stamp, RecordSummary]] = OrderedDict()

    def all(self, vault: Vault) -> list[ForkSummary]:
        """Return all forks' summaries, oldest first."""
        try:
            names = os.listdir(vault.path + b"/forks")
        except FileNotFoundError:
            return []
        place = vault.path + b"/forks/"
        forks = (Fork(os.fsdecode(name), place + name, vault.path, vault.reading) for name in names)
        summaries = [summary for fork in forks if (summary := self.get(fork)) is not None]
        return sorted(summaries, key=lambda summary: (summary.created, summary.name))

    def get(self, fork: Fork) -> ForkSummary | None:
        """Return a fork's summary, or None if it is gone."""
        if not is_plain(fork.name):
            return ForkSummary(show(os.fsencode(fork.name)), "damaged", "no fork can have that name")
        try:
            return self._summarise(fork)
        except UNREADABLE as error:
            if fork.is_blank:
                return None
            try:
                created = os.lstat(fork.path).st_ctime_ns
            except FileNotFoundError:
                return None
            return ForkSummary(fork.name, "damaged", reason_of(error), created=created)

    def _summarise(self, fork: Fork) -> ForkSummary:
        require_layers(fork)
        state, brief = fork.state, self._summarise_record(fork)
        at_work = _state(fork, brief)
        endpoint = endpoint_of(fork) if at_work == "running" else None
        label = label_of(fork.name) if endpoint is not None else ""
        return ForkSummary(
            fork.name,
            at_work,
            "",
            fork.agent,
            state.named,
            state.created or fork.created,
            state.parent,
            len(state.checkpoints),
            fork.credentials,
            state.base != LIVE,
            brief,
            f"http://{label}{SUFFIX}{endpoint.path}" if endpoint is not None and label else "",
            endpoint.level if endpoint is not None else None,
        )

    def _summarise_record(self, fork: Fork) -> RecordSummary | None:
        path, now = fork.record_path, time.time_ns()
        stamp = stamp_of(path)
        with self._lock:
            cached = self._cache.get(path)
            if cached is not None and cached[0] == stamp:
                self._cache.move_to_end(path)
                return cached[1]
        record = fork.record
        if record is None:
            return None

        view = view_record(fork.reading, record)
        brief = RecordSummary(record.command, record.exit_code, record.level, view.summary, of_look(view.fingerprint))
        if stamp is not None and is_settled(stamp.ctime, now):
            with self._lock:
                self._cache[path] = stamp, brief
                while len(self._cache) > _KEPT:
                    self._cache.popitem(last=False)
        return brief


def _state(fork: Fork, brief: RecordSummary | None) -> State:
    if fork.interrupted is not None:
        with fork.lock_if_free(last_holder(fork), standing=True) as free:
            return "cut off" if free else "running"
    if os.path.lexists(fork.path + b"/mount"):
        return "mounted"
    return "cut off" if brief is not None and not brief.command else "idle"
