"""Commands in containers in a virtual machine or on another computer (Docker Desktop, Apple container), which are
reached only through the engine's command line.

The container's first process is the far end of the pipes in ``ext/containers/engine/multiplex.py``, or cat(1) without a
network. When mudroom ends, in any way, that process reads the end of its input and ends, and the engine removes the
container. A command is one ``exec``; the container is made for it and removed after it, with all leftover processes.

This provides less than a launcher inside: the engine's copy of the profile alone filters the command's system calls,
refused calls are not reported, and the command cannot continue in the background.
"""

from __future__ import annotations

import _thread
import inspect
import os
import select
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from mudroom.core.confinement.plan import Plan
from mudroom.core.system.closing import ClosedOnError, Descriptor
from mudroom.errors import MudroomError, Unsupported, UsageError
from mudroom.ext.containers.core.container import (
    Container,
    Engine,
    engine_environment,
    exec_argv,
    remove_argv,
    session_argv,
    variable_lines,
)
from mudroom.ext.containers.engine import multiplex
from mudroom.ext.containers.engine.engine import ask
from mudroom.sandbox.client.client import NO_TEMPLATES, Client, Running
from mudroom.sandbox.client.invocation import NO_OPTIONS, ClientTraits, Invocation, RunOptions
from mudroom.sandbox.linux.plan import PROXY_PORT

ARRIVAL = 60.0
"""Seconds that a container has to come up: a virtual machine may have to be woken."""
_MOST_WORDS = 1 << 20
"""Bytes that are read from an engine's error output."""
_LEAVE_OUT = "pass its value in a file, and leave it out: env -u NAME mudroom …"
_CAT: tuple[bytes, ...] = (b"cat",)


def _far_end_words() -> tuple[bytes, ...]:
    """Return the command line for the far end: an image needs python3 for it."""
    return (b"python3", b"-I", b"-c", inspect.getsource(multiplex).encode() + b"\nlisten(%d)\n" % PROXY_PORT)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


class RemoteClient:
    """``client.Client`` that runs commands through the engine. Processes on this machine are started by ``local``."""

    traits, templates = ClientTraits(), NO_TEMPLATES

    def __init__(
        self, local: Client, engine: Engine, name: str, environ: Mapping[bytes, bytes], variables: bytes
    ) -> None:
        """``variables`` is a mudroom file that passes the command's variables."""
        self._local, self._engine, self._name, self._environ = local, engine, name, environ
        self._variables = variables

    def start(self) -> None:
        """Do nothing: ``local``'s owner starts and closes it."""

    def close(self) -> None:
        """Do nothing, as ``start``."""

    def clear(self, _works: Sequence[tuple[bytes, bytes]]) -> bool:
        """Return False: the directories are the host's."""
        return False

    def prepare_move(self) -> int:
        raise AssertionError("a container's limits are its engine's")

    def run(self, plan: Plan, invocation: Invocation, options: RunOptions = NO_OPTIONS) -> Running:
        """Run as ``Client.run`` does; the host waits for ``after`` itself. Raise Unsupported for a held sandbox."""
        assert not options.after and options.standing is None
        if options.held:
            raise Unsupported(
                "a command in the background at level 2",
                "an engine whose containers run on this machine itself",
                "one in a virtual machine",
                "use level 1, or Docker on Linux",
            )
        assert not options.gate and options.leaf is None
        try:
            lines = variable_lines(invocation.env)
        except ValueError as error:
            raise UsageError(f"{error}, which engines do not accept", _LEAVE_OUT) from error
        with open(os.fsdecode(self._variables), "wb", opener=_open_private) as stream:
            stream.write(lines)
        words = exec_argv(
            self._engine, self._name, invocation.argv, plan.cwd, self._variables, terminal=bool(invocation.terminal)
        )
        outside = invocation._replace(argv=words, env=self._environ)
        return self._local.run(plan, outside, RunOptions(view=options.view))


class RemoteBox:
    """A running container that only a command line reaches. It has to be closed."""

    def __init__(
        self,
        engine: Engine,
        container: Container,
        first: subprocess.Popen[bytes],
        local: Client,
        environ: Mapping[bytes, bytes],
        variables: bytes,
    ) -> None:
        self.engine, self.container = engine, container
        self._first, self._environ, self._variables = first, environ, variables
        self.client = RemoteClient(local, engine, container.name, environ, variables)

    def is_healthy(self) -> bool:
        return self._first.poll() is None

    def close(self) -> None:
        """End every process in the container, and remove it."""
        with suppress(MudroomError):  # the engine may have removed it already, or be gone itself
            ask(remove_argv(self.engine, self.container.name), self._environ)
        with suppress(FileNotFoundError):
            os.unlink(self._variables)
        for stream in (self._first.stdin, self._first.stdout, self._first.stderr):
            if stream is not None:
                stream.close()
        try:
            self._first.wait(ARRIVAL)
        except subprocess.TimeoutExpired:
            self._first.kill()
            self._first.wait()


def start_remote(
    engine: Engine,
    container: Container,
    local: Client,
    state: bytes,
    environ: Mapping[bytes, bytes],
    gate: int = 0,
) -> RemoteBox:
    """Start a container. ``gate`` is the port on this machine's loopback to which connections to its proxy go, 0 for
    none. ``state`` is the directory for running commands' variables. Raise MudroomError if that fails; the container is
    then removed."""
    place = state + b"/variables"
    os.makedirs(place, mode=0o700, exist_ok=True)
    _remove_stale(place)
    variables = place + b"/" + container.name.encode()
    complete = container._replace(entry=_far_end_words() if gate else _CAT)
    first = subprocess.Popen(
        [*session_argv(engine, complete)], env=engine_environment(environ), stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0, start_new_session=True,
    )  # fmt: skip
    box = RemoteBox(engine, complete, first, local, environ, variables)
    with ClosedOnError(box):
        _wait_until_up(first, bool(gate))
    if gate:
        assert first.stdin is not None and first.stdout is not None
        ends = os.dup(first.stdout.fileno()), os.dup(first.stdin.fileno())
        _thread.start_new_thread(_relay, (*ends, gate))
    return box


def _remove_stale(place: bytes) -> None:
    """Remove files that killed mudroom processes left: a container's name contains the pid (``box.name_of``)."""
    for name in os.listdir(place):
        owner = name.split(b"-")[-3:][0]
        try:
            os.kill(int(owner) if owner.isdigit() else 0, 0)
        except PermissionError:
            continue  # another user's process has, or now has, this pid; the file is in this user's directory
        except ProcessLookupError:
            with suppress(FileNotFoundError):
                os.unlink(place + b"/" + name)


def _relay(read: int, write: int, port: int) -> None:
    with Descriptor(write), Descriptor(read):
        multiplex.Mux(read, write, port=port).run()


def _read_until(descriptor: int, end: float) -> bytes:
    """Return the data up to the end of file, or what has come at ``end``: an engine may go on with its output
    closed."""
    data = b""
    while len(data) < _MOST_WORDS and select.select([descriptor], [], [], max(0.0, end - time.monotonic()))[0]:
        part = os.read(descriptor, 1 << 16)
        if not part:
            break
        data += part
    return data


def _wait_until_up(first: subprocess.Popen[bytes], speaks: bool) -> None:
    """Wait until the container's first process answers."""
    assert first.stdin is not None and first.stdout is not None and first.stderr is not None
    count = multiplex.HEAD.size
    if not speaks:
        with suppress(BrokenPipeError):
            first.stdin.write(bytes(count))
    received = b""
    end = time.monotonic() + ARRIVAL
    while len(received) < count:
        if not select.select([first.stdout], [], [], max(0.0, end - time.monotonic()))[0]:
            raise MudroomError(
                f"the container did not come up in {ARRIVAL:.0f} s", "mudroom doctor looks for the cause"
            )
        data = first.stdout.read(count - len(received))
        if not data:
            lines = _read_until(first.stderr.fileno(), end).decode("utf-8", "replace").strip().splitlines()
            hint = "with the gate an image needs python3" if speaks else "an image needs cat"
            raise MudroomError(
                f"the container did not come up: {lines[-1] if lines else 'it printed no message'}", hint
            )
        received += data
