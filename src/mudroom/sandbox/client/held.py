"""The host's end of a held sandbox, which several commands share (``src/native/launcher/init.c``): make it, start
commands in it, end it.

Thread-safe, as ``Client`` is.
"""

from __future__ import annotations

import _socket
import itertools
import os
import time
from contextlib import suppress

from mudroom.core.confinement.plan import Plan
from mudroom.core.system import rights
from mudroom.core.system.closing import ClosedOnError, Descriptor
from mudroom.errors import MudroomError, UsageError
from mudroom.sandbox.client.connection import Connection, wait_readable, with_report
from mudroom.sandbox.client.failure import failure_of, no_directory
from mudroom.sandbox.client.invocation import KILLED, NO_OPTIONS, Invocation, RunOptions
from mudroom.sandbox.client.launcher_client import Fate, LaunchedCommand
from mudroom.typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mudroom.sandbox.client.client import Client, Running

ENDING = "mudroom ps lists the commands there, mudroom ps --end ID ends one"

SIGKILL = 9
_FSCONFIG, _RECONFIGURE = 431, 7
"""The system call on all machines, and FSCONFIG_CMD_RECONFIGURE (include/uapi/linux/mount.h)."""
GRACE = 2.0
"""Seconds that a sandbox has to end after the last command, before it is killed."""


def join(connection: Connection, identity: int, invocation: Invocation, cwd: bytes, **more: Any) -> LaunchedCommand:
    """Start a command in the held sandbox at the other end of ``connection``, as ``Client.run`` does in its own
    sandbox. ``cwd``: a path inside. ``signal`` affects this command alone, KILL all processes that it has started;
    ``pause`` affects the whole sandbox."""
    request = {"op": "command", "id": identity, "cwd": cwd, **invocation.request(), **more}
    pair = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM) if invocation.terminal else None
    try:
        passed = (pair[1].fileno(),) if pair is not None else ()
        report = with_report(connection, request, (*invocation.stdio, *passed))
    except BaseException:
        if pair is not None:
            pair[0].close()
        raise
    finally:
        if pair is not None:
            pair[1].close()
    fate = _fate_of(connection, cwd, invocation.argv[0])
    return LaunchedCommand(connection, identity, report, fate, {"channel": pair[0]} if pair is not None else {})


def _fate_of(connection: Connection, cwd: bytes, program: bytes) -> Fate:
    """Return a command's fate in a held sandbox. If the sandbox is ended (``HeldSandbox.end``), so is the command: that
    is no error, and no signal is needed any more."""

    def failed(record: tuple[Any, ...]) -> MudroomError:
        if record[2] == "refused":
            return UsageError(record[4], ENDING)
        if record[2] == "cwd":
            return no_directory(cwd, record[3])
        return failure_of(record, (("cwd", cwd),), program)  # the only step, after the sandbox's own

    return Fate(failed, lambda: KILLED, lambda op: op == "signal" and connection.is_closed)


class HeldSandbox:
    """A sandbox without its own command. ``fileno()`` becomes readable when it is gone."""

    def __init__(self, running: Running, door: Connection, peer: int = 0, refresher: int = -1) -> None:
        """``peer``: as in ``ClientTraits``. ``refresher``: a descriptor that reconfigures the overlay, or -1. It keeps
        the overlay alive until ``end``."""
        self.running = running
        self.door = door
        self.peer = peer
        self.notes: list[str] = []
        """Notes about failures, for its commands' results."""
        self._refresher = [refresher] if refresher >= 0 else []  # a list: the thread that pops it closes it
        self._ids = itertools.count(1)

    def __del__(self) -> None:
        self._close_refresher()

    def _refresh(self) -> None:
        """Make the overlay forget its cached names, so that the next command sees the project's renamed, new and
        deleted files. An entry that a process holds (open file, working directory) keeps its name until released.

        A reconfiguration drops every unused entry from the file system's name cache, including those for missing names
        (reconfigure_super in fs/super.c, shrink_dcache_sb).
        """
        for refresher in self._refresher:
            number = _reconfigure(refresher)
            if number:
                text = "commands beside one in the background see the project as it was when they were started"
                self.notes.append(f"{text}: {os.strerror(number)}")
                self._close_refresher()

    def _close_refresher(self) -> None:
        with suppress(IndexError):  # no overlay, or closed already
            os.close(self._refresher.pop())

    def fileno(self) -> int:
        return self.running.fileno()

    def new_id(self) -> int:
        """Return a new command id, unique in this sandbox."""
        return next(self._ids)

    def run(self, invocation: Invocation, cwd: bytes) -> LaunchedCommand:
        """Start a command. ``cwd``: a path inside."""
        self._refresh()
        return join(self.door, self.new_id(), invocation, cwd)

    def end(self, grace: float = GRACE) -> None:
        """End every process in the sandbox at once. Block until its mounts are gone, too. Harmless when repeated."""
        self._close_refresher()
        self.door.close()
        if self.running.fileno() < 0:
            return
        if not wait_readable([self.fileno()], time.monotonic() + grace):
            self.running.signal(SIGKILL)
        self.running.wait_gone()


def _reconfigure(refresher: int) -> int:
    """Call fsconfig(2) with FSCONFIG_CMD_RECONFIGURE. Return 0 or an error number."""
    import ctypes

    call = ctypes.CDLL(None, use_errno=True).syscall
    arguments = (_FSCONFIG, refresher, _RECONFIGURE, None, None, 0)
    done = call(*(ctypes.c_long(each) if each is not None else None for each in arguments))
    return ctypes.get_errno() if done < 0 else 0


def hold(client: Client, plan: Plan, options: RunOptions = NO_OPTIONS) -> HeldSandbox:
    """Perform a plan without a command. Block until that is done; raise StepFailed if it fails."""
    with Descriptor(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)) as null:
        running = client.run(plan, Invocation((b"",), {}, (null, null, null)), options._replace(held=True))
    with ClosedOnError(running):
        door = running.door()
    with ClosedOnError(running), ClosedOnError(door):
        refresher = _received_refresher(door)
    return HeldSandbox(running, Connection(door), client.traits.peer, refresher)


def _received_refresher(door: _socket.socket) -> int:
    """Return the descriptor that the step ``view`` has sent before the sandbox was ready, or -1."""
    _data, descriptors, _is_cut = rights.receive(door, 1, 1)
    return descriptors[0] if descriptors else -1
