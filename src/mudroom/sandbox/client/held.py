"""The host's end of a held sandbox, which several commands share (``sandbox/launcher/holder.py``): make it, start
commands in it, end it.

Safe to use from several threads, as ``Client`` is.
"""

from __future__ import annotations

import _socket
import itertools
import os
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mudroom.core.confinement.plan import Plan
from mudroom.errors import MudroomError, UsageError
from mudroom.sandbox.client.client import Client, Exit, Running
from mudroom.sandbox.client.connection import Connection, wait_readable, with_report

ENDING = "mudroom ps lists the commands there, mudroom ps --end ID ends one"

if TYPE_CHECKING:
    from mudroom.sandbox.limits.cgroup import Leaf

SIGKILL = 9
GRACE = 2.0
"""Seconds that a sandbox has to end after the last command, before it is killed."""


class JoinedCommand(Running):
    """A command in a shared sandbox. ``signal`` affects this command alone, KILL all processes that it has started;
    ``pause`` and ``view`` affect the whole sandbox."""

    def _ended_without_report(self) -> Exit:
        return Exit(SIGKILL, 0.0, 0.0, 0)  # the sandbox was ended with every process in it

    def _failed(self, record: tuple[Any, ...]) -> MudroomError:
        if record[2] == "refused":
            return UsageError(record[4], ENDING)
        if record[2] == "cwd":
            return UsageError(f"the command cannot work in its directory: {os.strerror(record[3])}")
        return super()._failed(record)


def join(
    connection: Connection,
    identity: int,
    argv: Sequence[bytes],
    env: Mapping[bytes, bytes],
    cwd: bytes,
    stdio: tuple[int, int, int],
    terminal: Sequence[int] = (),
    **more: Any,
) -> JoinedCommand:
    """Start a command in the held sandbox at the other end of ``connection``, as ``Client.run`` does in its own
    sandbox. ``cwd`` is a path inside."""
    search = [entry for entry in env.get(b"PATH", os.fsencode(os.defpath)).split(b":") if entry]
    request = {
        "op": "command",
        "id": identity,
        "argv": list(argv),
        "env": dict(env),
        "search": search,
        "cwd": cwd,
        "terminal": tuple(terminal),
        **more,
    }
    pair = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM) if terminal else None
    try:
        report = with_report(connection, request, (*stdio, *((pair[1].fileno(),) if pair is not None else ())))
    except BaseException:
        if pair is not None:
            pair[0].close()
        raise
    finally:
        if pair is not None:
            pair[1].close()
    return JoinedCommand(connection, identity, report, (), argv[0], None, pair[0] if pair is not None else None)


class HeldSandbox:
    """A sandbox without a command of its own. ``fileno()`` becomes readable when it is gone."""

    def __init__(self, running: Running, door: Connection, peer: int = 0) -> None:
        """``peer`` is that of the sandbox's ``Client``."""
        self.running = running
        self.door = door
        self.peer = peer
        self._ids = itertools.count(1)

    def fileno(self) -> int:
        return self.running.fileno()

    def new_id(self) -> int:
        """Return a new command id, unique in this sandbox."""
        return next(self._ids)

    def run(
        self,
        argv: Sequence[bytes],
        env: Mapping[bytes, bytes],
        cwd: bytes,
        stdio: tuple[int, int, int],
        terminal: Sequence[int] = (),
    ) -> JoinedCommand:
        return join(self.door, self.new_id(), argv, env, cwd, stdio, terminal)

    def end(self, grace: float = GRACE) -> None:
        """End every process in the sandbox at once. Block until its mounts are gone, too. Harmless when repeated."""
        self.door.close()
        if self.running.fileno() < 0:
            return
        if not wait_readable([self.fileno()], time.monotonic() + grace):
            self.running.signal(SIGKILL)
        self.running.wait_gone()


def hold(
    client: Client, plan: Plan, *, want_view: bool = False, want_gate: bool = False, leaf: Leaf | None = None
) -> HeldSandbox:
    """Perform a plan without a command. Block until that is done; raise StepFailed if it fails."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        running = client.run(
            plan, (b"",), {}, (null, null, null), want_view=want_view, want_gate=want_gate, leaf=leaf, held=True
        )
    finally:
        os.close(null)
    door, running.door = running.door, None
    assert door is not None
    try:
        running.ready()
    except BaseException:
        door.close()
        running.close()
        raise
    return HeldSandbox(running, Connection(door), client.peer)
