"""The gate's part in one command: its listeners are watched, and the gate is started when something first connects.

Rules of this file:
1. A command that uses no network costs nothing but its listeners: no gate is started for it.
2. Whatever goes wrong here leaves the command without a network, never with another one: its namespace has none.
3. Who is asked is asked once for the same host and port in one command, whatever the answer.
"""

from __future__ import annotations

import _thread
import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, NamedTuple

from mudroom.core.flow import Flow, Question
from mudroom.core.hosts import HostRule
from mudroom.errors import MudroomError
from mudroom.sandbox.client import Running

if TYPE_CHECKING:
    from mudroom.net.door import Door, Gate

LAST_FLOWS = 2.0
"""Seconds that the gate has, after a command, to say what there is still to be said."""


class Answer(NamedTuple):
    allowed: bool
    keep: bool = False
    """Not only for this command: the project remembers it."""


Approver = Callable[[Question], Answer]
Hush = Callable[[], AbstractContextManager[None]]
"""Keeps the command's output off the terminal while somebody is asked there."""


class _Shared:
    """The one gate of this process; ended with the last session that used it."""

    def __init__(self) -> None:
        self._lock = _thread.allocate_lock()
        self._gate: Gate | None = None
        self._users = 0

    def acquire(self) -> Gate:
        with self._lock:
            self._users += 1
            if self._gate is None:
                from mudroom.net.door import Gate

                self._gate = Gate()
            return self._gate

    def release(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users and self._gate is not None:
                self._gate.close()
                self._gate = None


SHARED = _Shared()


class Gateway:
    """What a session has of the gate: rules, somebody to ask, and the gate itself once it is needed."""

    def __init__(
        self,
        rules: Callable[[], Sequence[HostRule]],
        remember: Callable[[HostRule], None],
        approver: Approver | None,
    ) -> None:
        self.rules, self.remember, self.approver = rules, remember, approver
        self._gate: Gate | None = None

    @property
    def gate(self) -> Gate:
        if self._gate is None:
            self._gate = SHARED.acquire()
        return self._gate

    def close(self) -> None:
        if self._gate is not None:
            self._gate = None
            SHARED.release()

    @contextmanager
    def attending(self, hush: Hush = nullcontext) -> Iterator[Doorkeeper]:
        """To be entered before the command starts. The flows are complete when this is left."""
        keeper = Doorkeeper(self, hush)
        try:
            yield keeper
        finally:
            keeper.close()


class Doorkeeper:
    """Beside one command (``sandbox/capture.py``)."""

    def __init__(self, gateway: Gateway, hush: Hush) -> None:
        self._gateway, self._hush = gateway, hush
        self._running: Running | None = None
        self._listeners: list[tuple[str, int]] = []
        self._door: Door | None = None
        self.flows: list[Flow] = []
        self.notes: list[str] = []

    def began(self, running: Running) -> None:
        self._running = running

    def descriptors(self) -> Collection[int]:
        if self._door is not None:
            return [self._door.fileno()]
        if self._listeners:
            return [descriptor for _kind, descriptor in self._listeners]
        waiting = self._running.gate if self._running is not None else None
        return [] if waiting is None else [waiting.fileno()]

    def attend(self, _ready: Collection[int]) -> float:
        began = time.monotonic()
        try:
            if self._door is not None:
                self._hear(self._door)
            elif self._listeners:
                self._open()
            elif self._running is not None:
                self._listeners = self._running.listeners()
        except MudroomError as error:
            self._without_network(str(error))
        return time.monotonic() - began

    def _open(self) -> None:
        from mudroom.net.door import Listener

        listeners = [Listener(kind, descriptor) for kind, descriptor in self._listeners]
        ask = self._gateway.approver is not None
        self._door = self._gateway.gate.open(self._gateway.rules(), listeners, ask=ask)

    def _hear(self, door: Door) -> None:
        for one in door.receive():
            if isinstance(one, Flow):
                self.flows.append(one)
            else:
                self._ask(door, one)

    def _ask(self, door: Door, question: Question) -> None:
        approver = self._gateway.approver
        with self._hush():
            answer = Answer(False) if approver is None else approver(question)
        rule = HostRule("allow" if answer.allowed else "deny", question.host, (question.port,), source="asked")
        if answer.keep:
            self._gateway.remember(rule)
        door.answer(question.identity, answer.allowed, rule)

    def _without_network(self, why: str) -> None:
        """Close the listeners: what connects is refused from here on."""
        self.notes.append(f"no network: {why}")
        self.close()

    def close(self) -> None:
        door, self._door = self._door, None
        if door is not None:
            try:
                self.flows += door.shut(LAST_FLOWS)
            except MudroomError as error:
                self.notes.append(f"the gate: {error}")
        while self._listeners:
            os.close(self._listeners.pop()[1])
        self._running = None
