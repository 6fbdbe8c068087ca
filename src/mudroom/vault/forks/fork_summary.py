"""Forks in a list: what there is to say of each in a few words, whatever is wrong with it or with its neighbours.

Nothing is locked for long and nothing is written: a command that was cut off is told as that, and looked at by whoever
looks closer. What a record comes to is kept as long as the record is the same file: a list is asked for often, and a
record may hold tens of thousands of changes. It is not kept with the record (``Reading.come_to``): records are kept
within a bound of bytes, and a list of more than fit in it would read each of them anew, every time. These few words of
each fit for many more forks.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from typing import Literal, NamedTuple

from mudroom.core.tree.change import Changeset, Summary
from mudroom.core.tree.path import show
from mudroom.core.tree.stack import LIVE
from mudroom.errors import MudroomError
from mudroom.stage.stamp import Stamp, is_settled, stamp_of
from mudroom.vault.forks.review import fingerprint
from mudroom.vault.store.fork import Fork, is_plain
from mudroom.vault.store.store import Vault

State = Literal["idle", "running", "mounted", "cut off", "damaged"]
_KEPT = 2_000


class VaultSummary(NamedTuple):
    """A record in short."""

    command: tuple[bytes, ...]
    exit_code: int
    level: int | None
    summary: Summary
    fingerprint: str
    """Of its changes, as ``Session.fingerprint`` has it."""


class ForkSummary(NamedTuple):
    name: str
    state: State
    problem: str = ""
    """Of a damaged one: what is wrong."""
    agent: str = ""
    named: bool = False
    created: int = 0
    """Nanoseconds since 1970."""
    parent: str = ""
    checkpoints: int = 0
    credentials: tuple[str, ...] = ()
    snapshot: bool = False
    brief: VaultSummary | None = None
    """None: no command has ended in it yet."""

    @property
    def fingerprint(self) -> str:
        """Of what it holds; empty: that cannot be known."""
        if self.brief is not None:
            return self.brief.fingerprint
        return "" if self.state == "damaged" else _NOTHING


_NOTHING = fingerprint(Changeset())
"""Of a fork in which no command has ended."""


class ForkSummaries:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[bytes, tuple[Stamp, VaultSummary]] = OrderedDict()

    def all(self, vault: Vault) -> list[ForkSummary]:
        """Of every fork, oldest first."""
        try:
            names = os.listdir(vault.path + b"/forks")
        except FileNotFoundError:
            return []
        place = vault.path + b"/forks/"
        forks = (Fork(os.fsdecode(name), place + name, vault.path, vault.reading) for name in names)
        found = [glance for fork in forks if (glance := self.one(fork)) is not None]
        return sorted(found, key=lambda one: (one.created, one.name))

    def one(self, fork: Fork) -> ForkSummary | None:
        """None: it is gone."""
        if not is_plain(fork.name):
            return ForkSummary(show(os.fsencode(fork.name)), "damaged", "no fork can have that name")
        try:
            return self._glance(fork)
        except (MudroomError, OSError, ValueError) as error:
            try:
                created = os.lstat(fork.path).st_ctime_ns
            except FileNotFoundError:
                return None
            return ForkSummary(fork.name, "damaged", _why(error), created=created)

    def _glance(self, fork: Fork) -> ForkSummary:
        state, brief = fork.state, self._brief(fork)
        return ForkSummary(
            fork.name,
            _state(fork, brief),
            "",
            fork.agent,
            state.named,
            state.created or fork.created,
            state.parent,
            len(state.checkpoints),
            fork.credentials,
            state.base != LIVE,
            brief,
        )

    def _brief(self, fork: Fork) -> VaultSummary | None:
        path, now = fork.record_path, time.time_ns()
        stamp = stamp_of(path)
        with self._lock:
            known = self._known.get(path)
            if known is not None and known[0] == stamp:
                self._known.move_to_end(path)
                return known[1]
        record = fork.record
        if record is None:
            return None
        from mudroom.vault.forks.record_view import gist_of

        gist = gist_of(fork.reading, record)
        brief = VaultSummary(record.command, record.exit_code, record.level, gist.summary, gist.fingerprint)
        if stamp is not None and is_settled(stamp.ctime, now):
            with self._lock:
                self._known[path] = stamp, brief
                while len(self._known) > _KEPT:
                    self._known.popitem(last=False)
        return brief


def _state(fork: Fork, brief: VaultSummary | None) -> State:
    if fork.interrupted is not None:
        with fork.lock_if_free("a list of forks") as free:
            return "cut off" if free else "running"
    if os.path.lexists(fork.path + b"/mount"):
        return "mounted"
    return "cut off" if brief is not None and not brief.command else "idle"


def _why(error: Exception) -> str:
    if isinstance(error, MudroomError):
        return error.message
    return error.strerror or str(error) if isinstance(error, OSError) else "something in it cannot be understood"
