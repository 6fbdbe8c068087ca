"""Launchers for the commands that a keeper runs, forked by the zygote.

A launcher is forked before its command, and makes a template for the last command's steps (``prepared.py``). A
command with other steps runs exactly as it does in-process.
"""

from __future__ import annotations

import _socket
import os
import select
import sys

from mudroom.core.confinement.plan import TemplatePlan
from mudroom.errors import MudroomError
from mudroom.ext.keeper.caller import CallerSurroundings, Elsewhere, take_over
from mudroom.ext.keeper.prepared import PreparedTemplate
from mudroom.sandbox.client.connection import Connection
from mudroom.sandbox.client.invocation import ClientTraits
from mudroom.sandbox.client.launcher_client import FIRST_TO_GO, TEMPLATES, SpawnedLauncher, spawn_interpreter

_ROOT = os.path.abspath(__file__).rsplit(os.sep, 4)[0]
_START = "from mudroom.ext.keeper.zygote import main; main()"


def launcher_files() -> tuple[str, ...]:
    """Return the code files that only the zygote's interpreter loads."""
    family = f"{_ROOT}/mudroom/sandbox/launcher"
    names = sorted(name for name in os.listdir(family) if name.endswith(".py"))
    return (f"{_ROOT}/mudroom/ext/keeper/zygote.py", *(f"{family}/{name}" for name in names))


class LauncherSource:
    """The zygote's socket, shared by the keeper and its command processes. A packet is sent whole (unix(7),
    SOCK_SEQPACKET), so they do not disturb each other."""

    def __init__(self) -> None:
        """Start the zygote. It inherits none of this process's descriptors."""
        self._control, self.pid = spawn_interpreter(_START, _socket.SOCK_SEQPACKET)

    def request(self) -> tuple[_socket.socket, int]:
        """Ask for a launcher and return at once. Return the socket to it, and a pipe from which its pid is read. Raise
        OSError if the zygote is gone."""
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
        reader, writer = os.pipe()
        rights = b"".join(number.to_bytes(4, sys.byteorder) for number in (theirs.fileno(), writer))
        try:
            self._control.sendmsg([b"l"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
        except OSError:
            ours.close()
            os.close(reader)
            raise
        finally:
            theirs.close()
            os.close(writer)
        return ours, reader

    def close(self) -> None:
        self._control.close()


class ForkedLauncher:
    """A launcher that the zygote forks: a ``client.LauncherProcess``. It is not this process's child, so a pidfd
    reports its end (pidfd_open(2)). If the zygote is gone, this process spawns a launcher instead.

    Owner: the command's thread.
    """

    most_templates, is_local = TEMPLATES, True
    traits = ClientTraits(awaits_tick=True)

    def __init__(self, source: LauncherSource) -> None:
        self._source = source
        self._spawned = SpawnedLauncher()
        self.connection: Connection | None = None
        self._pid = 0
        self._answer = -1
        self._prepared: PreparedTemplate | None = None
        self.used: TemplatePlan | None = None
        """The last command's shared steps; None: it had none."""
        self.took_prepared = False
        """Whether a command has had the template that was made ahead."""
        self._surroundings: CallerSurroundings | None = None
        """Those of the caller, if they are others than the zygote's."""

    def start(self) -> None:
        if self.connection is not None and self.connection.is_open():
            return  # it was started ahead
        self.drop_prepared()
        try:
            self._fork()
        except OSError:
            self._spawned.start()
            self.connection = self._spawned.connection
        else:
            try:
                self._take_over()
            except Elsewhere as error:
                raise MudroomError(
                    "the sandbox launcher may not enter this control group",
                    "run the command again; nothing was applied",
                ) from error

    def surround(self, wanted: CallerSurroundings) -> None:
        """Give the command's launcher its caller's surroundings, and drop what was made ahead. Raise Elsewhere if that
        is not permitted."""
        self._surroundings = wanted
        self.drop_prepared()
        if self.connection is not None:
            self._take_over()

    def _take_over(self) -> None:
        if self._surroundings is not None:
            oom = max(FIRST_TO_GO, int(self._surroundings.oom))  # as of each launcher
            take_over(self._surroundings._replace(oom=f"{oom}\n"), self.require_pid())

    def _fork(self) -> None:
        self._close_answer()
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()  # it has died
        ours, self._answer = self._source.request()
        self.connection = Connection(ours)

    # --- ahead of a command ---

    def start_ahead(self, plan: TemplatePlan | None) -> PreparedTemplate | None:
        """Start a launcher, and a template for this plan. Return the template, or None if there is none."""
        try:
            if self.connection is None:
                self._fork()
            if plan is not None and self.connection is not None:
                self.drop_prepared()
                self._prepared = PreparedTemplate(self.connection, plan)
        except (OSError, MudroomError):
            pass  # the zygote or the launcher is gone, or a limit is reached: a command will find and report that
        return self._prepared

    def drop_prepared(self) -> None:
        prepared, self._prepared = self._prepared, None
        if prepared is not None:
            prepared.close()

    def template_ahead(self, shared: TemplatePlan | None, *, native: bool) -> Connection | None:
        self.used = shared
        prepared, self._prepared = self._prepared, None
        if prepared is None:
            return None
        if shared is None or not native:
            prepared.close()
            return None
        template = prepared.taken(shared)
        self.took_prepared = self.took_prepared or template is not None
        return template

    # --- its end ---

    def has_ended(self) -> bool:
        return False

    def require_pid(self) -> int:
        """Wait until the launcher is forked, and return its pid. Raise MudroomError if a dead zygote left none."""
        if self._answer >= 0:
            self._pid = int.from_bytes(os.read(self._answer, 4), "little")
            self._close_answer()
        pid = self._pid or self._spawned.pid
        if not pid:  # pid 0 would move this process itself (cgroups(7))
            raise MudroomError("the sandbox launcher died", "run the command again; nothing was applied")
        return pid

    def close(self) -> None:
        """End the launcher and all its sandboxes."""
        self.drop_prepared()
        self._close_answer()
        pid, self._pid = self._pid, 0
        # Wait only if the pid was asked for: the launcher is then in a control group, which is removed next.
        # Otherwise there is no need: it is the zygote's child, and its command has a result.
        try:
            pidfd = os.pidfd_open(pid) if pid else -1
        except ProcessLookupError:
            pidfd = -1
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()
        self._spawned.close()
        if pidfd >= 0:
            select.select([pidfd], [], [])
            os.close(pidfd)

    def _close_answer(self) -> None:
        answer, self._answer = self._answer, -1
        if answer >= 0:
            os.close(answer)
