"""macOS: start commands under ``sandbox-exec``, with a warden process beside each, which reports as a launcher does.

Apple deprecates ``sandbox-exec``, but every macOS since 10.5 has it; its kernel part also confines App Store programs.
There is no other way to confine a program that is not signed for it. Where it is missing, or rejects a profile, no
command runs.
"""

from __future__ import annotations

import _socket
import _thread
import itertools
import os
import sys
from collections.abc import Sequence

from mudroom.core.confinement.plan import Plan
from mudroom.core.system import rights
from mudroom.errors import MudroomError, Unsupported
from mudroom.ext.macos.warden import send_signal
from mudroom.sandbox.client.client import NO_TEMPLATES
from mudroom.sandbox.client.connection import Connection
from mudroom.sandbox.client.failure import failure_of
from mudroom.sandbox.client.invocation import NO_OPTIONS, ClientTraits, Invocation, RunOptions
from mudroom.sandbox.client.launcher_client import Fate, LaunchedCommand
from mudroom.sandbox.host.process_table import carries, rows
from mudroom.typing import Any, NoReturn

SIGKILL = 9
SANDBOX_EXEC = b"/usr/bin/sandbox-exec"
"""An absolute path: PATH may name another program."""
_ROOT = os.path.abspath(__file__).rsplit(os.sep, 4)[0]
_START = f"import sys; sys.path.insert(0, {_ROOT!r}); from mudroom.ext.macos.warden import main; main()"
_KEPT = 64
"""Accepted profiles that are remembered."""


class DarwinClient:
    """The macOS ``client.Client``. ``_lock`` guards ``_open``; ``_taken`` is used by single dict operations."""

    traits, templates = ClientTraits(), NO_TEMPLATES

    def __init__(self, *, tool: bytes = SANDBOX_EXEC) -> None:
        """``tool`` replaces ``sandbox-exec``."""
        self._tool = tool
        self._ids = itertools.count(1)
        self._open: dict[int, Connection] = {}
        """The connection to each warden, by the warden's pid."""
        self._taken: dict[bytes, None] = {}
        """Accepted profiles, the latest last."""
        self._lock = _thread.allocate_lock()

    def start(self) -> None:
        """Do nothing: there is no resident launcher."""

    def prepare_move(self) -> int:
        """Raise Unsupported: macOS has no control groups."""
        raise Unsupported("a control group", "Linux", "macOS", "open_files and file_size hold without one")

    def clear(self, _works: Sequence[tuple[bytes, bytes]]) -> bool:
        """Return False: there are no overlays."""
        return False

    def run(self, plan: Plan, invocation: Invocation, options: RunOptions = NO_OPTIONS) -> LaunchedCommand:
        """Start a command. Raise Unsupported for options that need namespaces, and for ``after``, which the host waits
        for here."""
        if options.held:
            found = "a Mac, where no sandbox lives longer than its command"
            hint = "run it without --background"
            raise Unsupported("a command in the background", "namespaces that others can join", found, hint)
        if options._replace(view=False) != NO_OPTIONS:
            raise Unsupported("a sandbox with a network or control groups of its own", "namespaces", "macOS")
        with self._lock:  # several threads may run commands
            self._reap()
        profile = next(step[2] for step in plan.steps if step[0] == "seatbelt")
        request: dict[str, Any] = {
            "op": "run",
            "plan": plan.steps,
            **invocation.request(),
            "tool": self._tool,
            "mark": os.urandom(16).hex().encode(),
            "check": profile not in self._taken,
        }
        return self._spawn(request, profile, plan, invocation.stdio, want_view=options.view)

    def _remember_profile(self, profile: bytes) -> None:
        self._taken[profile] = None
        for old in list(self._taken)[:-_KEPT]:
            self._taken.pop(old, None)

    def _spawn(
        self, request: dict[str, Any], profile: bytes, plan: Plan, stdio: tuple[int, int, int], *, want_view: bool
    ) -> LaunchedCommand:
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
        read, write = os.pipe()
        descriptors = [*stdio, theirs.fileno(), write]
        pair = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM) if request["terminal"] else None
        if pair is not None:
            descriptors.append(pair[1].fileno())
        connection = Connection(ours)
        try:
            pid = _posix_spawn(descriptors)
            connection.send(request, ())
        except BaseException:
            ours.close()
            os.close(read)
            raise
        finally:
            theirs.close()
            os.close(write)
            if pair is not None:
                pair[1].close()
        identity = next(self._ids)
        with self._lock:
            self._open[pid] = connection
        sockets = {"channel": pair[0]} if pair is not None else {}
        if want_view:
            sockets["view"] = _view(plan)

        def failed(record: tuple[Any, ...]) -> MudroomError:
            return failure_of(record, plan.steps, request["argv"][0])

        fate = Fate(
            failed,
            lambda: _end_marked(b"MUDROOM_RUN=" + request["mark"]),
            lambda _op: not connection.is_open(),  # the warden has ended, and its command before
            lambda: self._remember_profile(profile),
        )
        return LaunchedCommand(connection, identity, read, fate, sockets)

    def _reap(self) -> None:
        """Reap wardens that have ended."""
        for pid in list(self._open):
            if os.waitpid(pid, os.WNOHANG)[0]:
                self._open.pop(pid).close()

    def close(self) -> None:
        """End every command."""
        for connection in self._open.values():
            connection.close()
        for pid in self._open:
            os.waitpid(pid, 0)
        self._open.clear()


def _end_marked(mark: bytes) -> NoReturn:
    """Kill a command's processes after its warden was killed from outside the sandbox, and raise MudroomError. They are
    found by their mark: a variable in the environment that the command's processes inherit."""
    left = [0]
    while left:
        left = [row[0] for row in rows() if carries(row[0], mark)]
        for pid in left:
            send_signal(pid, SIGKILL)
    raise MudroomError("mudroom's process beside the command was killed", "run the command again; nothing was applied")


def _posix_spawn(descriptors: Sequence[int]) -> int:
    """Start a warden with these descriptors, numbered from 0, and none of this process's others."""
    free = max(*descriptors, len(descriptors)) + 1
    # In two moves, by numbers above all of them: old and new numbers may overlap.
    actions: list[tuple[int, int, int]] = [
        (os.POSIX_SPAWN_DUP2, descriptor, free + number) for number, descriptor in enumerate(descriptors)
    ]
    actions += [(os.POSIX_SPAWN_DUP2, free + number, number) for number in range(len(descriptors))]
    closing = [(os.POSIX_SPAWN_CLOSE, free + number) for number in range(len(descriptors))]
    return os.posix_spawn(
        sys.executable,
        [sys.executable, "-I", "-S", "-c", _START],
        {"PATH": os.defpath, "LC_ALL": "C"},
        file_actions=[*actions, *closing],
    )


def _view(plan: Plan) -> _socket.socket:
    """Return a socket that holds a descriptor for the copy. There is no mount to wait for."""
    place = next(step[1] for step in plan.steps if step[0] == "view")
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        rights.send(theirs, b"v", [descriptor])
    finally:
        os.close(descriptor)
        theirs.close()
    return ours
