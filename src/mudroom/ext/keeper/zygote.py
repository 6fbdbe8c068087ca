"""The launchers' zygote: a launcher that was started once and forks another for each command that asks.

A launcher is a process of its own because its memory must contain nothing of its host's
(``sandbox/launcher/launcher.py``). Starting it takes an interpreter, which a keeper pays for once. The launcher's rules
hold here, too: of mudroom it imports only its family, and the process is single-threaded.

A request is one packet with two descriptors (SCM_RIGHTS): the socket for the new launcher, and a pipe into which its
pid is written, as 4 bytes. All of a keeper's command processes send requests.
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
    """Fork launchers until the socket's other end is closed everywhere."""
    control = _socket.socket(fileno=int(sys.argv[-1]))
    _signal.signal(_signal.SIGCHLD, _signal.SIG_IGN)  # so that launchers need not be waited for: waitpid(2), NOTES
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
    """Serve one host. Signals to the process group are blocked until they are ignored, as ``SpawnedLauncher`` does."""
    try:
        control.close()
        os.close(answer)
        _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
        os.setsid()
        serve(_socket.socket(fileno=channel))
    finally:
        os._exit(0)
