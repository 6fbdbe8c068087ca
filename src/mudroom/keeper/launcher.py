"""Launchers for the commands that a keeper runs, forked by the zygote."""

from __future__ import annotations

import _socket
import os
import select
import sys

from mudroom.errors import MudroomError
from mudroom.sandbox.client.client import FIRST_TO_GO, GROUP_SIGNALS, Client
from mudroom.sandbox.client.connection import Connection

_ROOT = os.path.abspath(__file__).rsplit(os.sep, 3)[0]
_START = f"import sys; sys.path.insert(0, {_ROOT!r}); from mudroom.keeper.zygote import main; main()"


class LauncherSource:
    """The zygote's socket, which the keeper and the processes of its commands have. A packet is sent whole (unix(7),
    SOCK_SEQPACKET), so they do not disturb each other."""

    def __init__(self) -> None:
        """Start the zygote. It has none of this process's descriptors."""
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        os.set_inheritable(theirs.fileno(), True)
        try:
            self.pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", "-c", _START, str(theirs.fileno())],
                {"PATH": os.defpath, "LC_ALL": "C"},
                setsid=True,
                setsigmask=GROUP_SIGNALS,
            )
        finally:
            theirs.close()
        self._control = ours
        _offer(self.pid)

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


class ForkedClient(Client):
    """A launcher that the zygote forks. Its parent is another process, so its end is told by a pidfd (pidfd_open(2)).

    Owner: the thread of the command.
    """

    def __init__(self, source: LauncherSource) -> None:
        super().__init__()
        self._source = source
        self._is_forked = False
        self._answer = -1

    def start(self) -> None:
        try:
            ours, self._answer = self._source.request()
        except OSError:
            super().start()
            return
        self._is_forked = True
        self._launcher = Connection(ours)

    def prepare_move(self) -> int:
        self._learn_pid()
        if not self._pid:  # "0" would move this process (cgroups(7))
            raise MudroomError("the sandbox launcher died", "run the command again; nothing was applied")
        return super().prepare_move()

    def close(self) -> None:
        """End the launcher and all its sandboxes."""
        if not self._is_forked:
            super().close()
            return
        self._learn_pid()
        pid, self._pid = self._pid, 0
        try:
            pidfd = os.pidfd_open(pid) if pid else -1
        except ProcessLookupError:
            pidfd = -1
        super().close()
        if pidfd >= 0:
            select.select([pidfd], [], [])
            os.close(pidfd)

    def _learn_pid(self) -> None:
        """Wait until the launcher is forked. A zygote that has died leaves the pid 0, and requests fail."""
        if self._answer >= 0:
            self._pid = int.from_bytes(os.read(self._answer, 4), "little")
            os.close(self._answer)
            self._answer = -1


def _offer(pid: int) -> None:
    """Make launchers the kernel's first choice when no memory is left, as ``Client.start`` does."""
    try:
        with open(f"/proc/{pid}/oom_score_adj", "r+b", buffering=0) as stream:
            if int(stream.read()) < FIRST_TO_GO:
                stream.write(b"%d" % FIRST_TO_GO)
    except OSError:
        pass  # not mounted, or forbidden: the kernel then chooses by size alone
