"""The host's end of the launcher: start it once, then send it plans.

``Client.start()`` costs an interpreter start, which goes on in the background; ``Client.run`` a few hundred
microseconds of its own. Safe to use from several threads: a run reports over its own pipe.
"""

from __future__ import annotations

import _socket
import _thread
import marshal
import os
import select
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from mudroom.core.plan import Plan, describe
from mudroom.errors import CommandNotStarted, MudroomError

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Imported and not run as a script, so that its byte code is cached: compiling it would double its start.
_START = f"import sys; sys.path.insert(0, {_ROOT!r}); from mudroom.sandbox.launcher import main; main()"

ENOENT, ENOTDIR = 2, 20


class StepFailed(MudroomError):
    """A plan could not be performed; the command has not run. ``op`` is the step's, or clone or map_ids."""

    def __init__(self, op: str, number: int, message: str) -> None:
        super().__init__(message)
        self.op = op
        self.number = number


class Exit(NamedTuple):
    status: int
    """As wait(2) gives it."""
    user: float
    system: float
    """CPU seconds of the command and the children it waited for."""
    max_rss: int
    """KiB."""
    refused: tuple[bytes, ...] = ()
    """Metadata changes outside the sandbox's own directories that the mediator refused, as "chmod /path"."""


class Running:
    """One command in its sandbox. ``fileno()`` becomes readable when it is over."""

    def __init__(self, client: Client, identity: int, report: int, plan: Plan, program: bytes) -> None:
        self._client = client
        self._id = identity
        self._report = report
        self._plan = plan
        self._program = program

    def fileno(self) -> int:
        return self._report

    def signal(self, number: int) -> None:
        """Send a signal to the sandbox's init: it forwards TERM, HUP, USR1 and USR2; KILL ends everything at once."""
        self._client.send({"op": "signal", "id": self._id, "signal": number}, ())

    def wait(self) -> Exit:
        """Block until every process of the sandbox is gone. Raises StepFailed or CommandNotStarted if the command
        never ran, MudroomError if the launcher died."""
        chunks = []
        while chunk := os.read(self._report, 65536):
            chunks.append(chunk)
        os.close(self._report)
        self._report = -1
        data = b"".join(chunks)
        if not data:
            return self._ended_without_report()
        return self._judge(marshal.loads(data))

    def _ended_without_report(self) -> Exit:
        if self._client.alive():
            return Exit(9, 0.0, 0.0, 0)  # init itself was killed, which takes all with it
        raise MudroomError("the sandbox launcher died", "run the command again; nothing was applied")

    def _judge(self, record: tuple[Any, ...]) -> Exit:
        if record[0] == "exited":
            return Exit(*record[1:])
        _failed, index, op, number, detail = record
        if op == "exec":
            raise _not_started(self._program, number)
        what = describe(self._plan.steps[index]) if index >= 0 else op
        raise StepFailed(op, number, f"cannot set up the sandbox: {what}: {os.strerror(number)} {detail}".rstrip())


def _not_started(program: bytes, number: int) -> CommandNotStarted:
    name = os.fsdecode(program)
    if number in (ENOENT, ENOTDIR):
        return CommandNotStarted(f"{name}: command not found", 127, "the sandbox sees the PATH of this shell")
    return CommandNotStarted(f"{name}: {os.strerror(number).lower()}", 126, "is it an executable file?")


class Client:
    def __init__(self) -> None:
        self._lock = _thread.allocate_lock()
        self._socket: _socket.socket | None = None
        self._pid = 0
        self._next = 0

    def start(self) -> None:
        """Start the launcher and return at once; the first run waits for it if need be."""
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
        os.set_inheritable(theirs.fileno(), True)
        try:
            self._pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", "-c", _START, str(theirs.fileno())],
                {"PATH": os.defpath, "LC_ALL": "C"},
            )
        finally:
            theirs.close()
        self._socket = ours

    def alive(self) -> bool:
        if not self._pid:
            return False
        pid, _status = os.waitpid(self._pid, os.WNOHANG)
        if pid:
            self._pid = 0
        return not pid

    def send(self, message: Mapping[str, Any], descriptors: Sequence[int]) -> None:
        data = marshal.dumps(dict(message))
        with self._lock:
            if self._socket is None:
                raise MudroomError("the sandbox launcher is not running")
            try:
                rights = b"".join(fd.to_bytes(4, "little") for fd in descriptors)
                carried = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)] if rights else []
                self._socket.sendmsg([len(data).to_bytes(4, "little")], carried)
                self._socket.sendall(data)
            except OSError as error:
                raise MudroomError(f"the sandbox launcher is gone: {error.strerror}") from error

    def run(
        self,
        plan: Plan,
        argv: Sequence[bytes],
        env: Mapping[bytes, bytes],
        stdio: tuple[int, int, int],
        *,
        new_session: bool,
    ) -> Running:
        """Start a command. ``stdio`` stay the caller's to close. PATH is searched inside the sandbox."""
        read, write = os.pipe2(os.O_CLOEXEC)
        try:
            with self._lock:
                self._next += 1
                identity = self._next
            search = [entry for entry in env.get(b"PATH", os.fsencode(os.defpath)).split(b":") if entry]
            request = {
                "op": "run",
                "id": identity,
                "namespaces": plan.namespaces,
                "maps": plan.maps,
                "plan": plan.steps,
                "mediation": plan.mediation,
                "argv": list(argv),
                "env": dict(env),
                "search": search,
                "new_session": new_session,
            }
            self.send(request, (*stdio, write))
        except BaseException:
            os.close(read)
            raise
        finally:
            os.close(write)
        return Running(self, identity, read, plan, argv[0])

    def close(self) -> None:
        """End the launcher and every sandbox of it."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._pid:
            os.waitpid(self._pid, 0)
            self._pid = 0


def wait_readable(descriptors: Sequence[int], deadline: float | None) -> list[int]:
    """Descriptors that are readable or at their end; empty when ``deadline`` (monotonic seconds) has come."""
    poller = select.poll()
    for descriptor in descriptors:
        poller.register(descriptor, select.POLLIN)
    timeout = None if deadline is None else max(0, int((deadline - time.monotonic()) * 1000) + 1)
    return [descriptor for descriptor, _event in poller.poll(timeout)]
