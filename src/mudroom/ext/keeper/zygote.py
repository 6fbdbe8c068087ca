"""The zygote of launchers: a launcher that was started once, and that forks one for each command that wants it.

A launcher is a process of its own because nothing of its host is in its memory (``sandbox/launcher/launcher.py``). It
costs the start of an interpreter, which a keeper pays once. The rules of the launcher hold here, too: of mudroom only
its family is imported, and the process is single-threaded.

A request is one packet with two descriptors (SCM_RIGHTS): the socket of the launcher that is wanted, and a pipe into
which its pid is written, as 4 bytes. Several processes send: those of all commands of a keeper.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import os
import sys

from mudroom.sandbox.launcher import clearing, mediator  # noqa: F401 - a first command imports them
from mudroom.sandbox.launcher.launcher import serve
from mudroom.sandbox.launcher.wire import CMSG_CLOEXEC

_DESCRIPTOR = 4
"""Bytes."""


def main() -> None:
    """Fork launchers until nobody has the other end of the socket."""
    control = _socket.socket(fileno=int(sys.argv[-1]))
    _signal.signal(_signal.SIGCHLD, _signal.SIG_IGN)  # nobody waits for a launcher: waitpid(2), under NOTES
    while True:
        word, ancillary, _flags, _address = control.recvmsg(1, _socket.CMSG_SPACE(2 * _DESCRIPTOR), CMSG_CLOEXEC)
        if not word:
            return
        rights = b"".join(data for _level, _kind, data in ancillary)
        channel, answer = (int.from_bytes(rights[at : at + _DESCRIPTOR], sys.byteorder) for at in (0, _DESCRIPTOR))
        pid = os.fork()
        if pid == 0:
            _become_launcher(control, channel, answer)
        try:
            os.write(answer, pid.to_bytes(4, "little"))
        except BrokenPipeError:
            pass  # the command has been killed; its launcher sees that, too
        os.close(channel)
        os.close(answer)


def _become_launcher(control: _socket.socket, channel: int, answer: int) -> None:
    """Serve one host. Signals of a process group are blocked until they are ignored, as ``SpawnedLauncher`` has
    it."""
    try:
        control.close()
        os.close(answer)
        _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
        os.setsid()
        serve(_socket.socket(fileno=channel))
    finally:
        os._exit(0)
