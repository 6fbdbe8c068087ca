"""One container with the launcher in it: commands are run there as they are anywhere else, by the same ``Client``.

The launcher is the container's first process. It connects to a socket that is there until then, and has descriptors
passed to it like every launcher. When that connection ends, however mudroom ends, it ends all that it has started, and
itself; then the engine removes the container.
"""

from __future__ import annotations

import _socket
import os
import select
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from mudroom.core.container import Container, Engine, Mount, remove_argv, run_argv
from mudroom.errors import MudroomError
from mudroom.sandbox.client import Client, Connection
from mudroom.sandbox.engine import ask
from mudroom.sandbox.runtime import PLACE, entry, provide

DOOR = b"/.mudroom-door"
_START = (
    f"import _socket; door = _socket.socket(1, 1 | {_socket.SOCK_CLOEXEC}); "
    f"door.connect({os.fsdecode(DOOR)!r} + '/s'); "
    "from mudroom.sandbox.launcher import serve; serve(door)"
)
_UNREADABLE = "from mudroom.sandbox.kernel import PR_SET_DUMPABLE, prctl; prctl(PR_SET_DUMPABLE, 0); "
"""Commands that have no pid namespace of their own see the launcher, and are of the same user: prctl(2)."""
ARRIVAL = 30.0
"""Seconds that a container has to come up, once its engine says that it has started it."""


class BoxClient(Client):
    """A launcher that is there already."""

    def __init__(self, door: _socket.socket) -> None:
        super().__init__()
        self._launcher = Connection(door)

    @property
    def is_open(self) -> bool:
        return self._launcher is not None and self._launcher.is_open()

    def start(self) -> None:
        raise AssertionError("it came with the container")

    def settle(self) -> int:
        raise AssertionError("a container's limits are its engine's")


class Box:
    """A running container. To be closed."""

    def __init__(self, engine: Engine, container: Container, client: BoxClient, environ: Mapping[bytes, bytes]) -> None:
        self.engine, self.container, self.client = engine, container, client
        self._environ = environ

    def is_healthy(self) -> bool:
        """Whether a command can be run in it."""
        return self.client.is_open

    def close(self) -> None:
        """End all that runs in it, and remove it."""
        self.client.close()
        with suppress(MudroomError):  # the engine may have removed it already, or be gone itself
            ask(remove_argv(self.engine, self.container.name), self._environ)


def start(engine: Engine, container: Container, state: bytes, environ: Mapping[bytes, bytes]) -> Box:
    """Start a container; ``container`` says everything but its first process. ``state``: where runtimes and doors are.
    Raises MudroomError if that cannot be done; nothing is left of it then."""
    runtime = provide(state + b"/runtime")
    place = state + b"/doors/" + container.name.encode()
    os.makedirs(state + b"/doors", mode=0o700, exist_ok=True)
    os.mkdir(place)
    os.chmod(place, 0o755)
    descriptor = os.open(place, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
    try:
        path = b"/proc/self/fd/%d/s" % descriptor  # its own may be longer than unix(7) permits
        listener.bind(path)
        os.chmod(path, 0o666)  # whoever the container's user is; nobody else gets past the directories above
        listener.listen(1)
        ours = (Mount(runtime, PLACE), Mount(place, DOOR))
        made = container._replace(
            entry=entry(runtime, _START if container.nested else _UNREADABLE + _START),
            mounts=(*container.mounts, *ours),
        )
        try:
            ask(run_argv(engine, made), environ)
            return Box(engine, made, BoxClient(_arrival(listener)), environ)
        except BaseException:
            with suppress(MudroomError):
                ask(remove_argv(engine, made.name), environ)
            raise
    finally:
        listener.close()
        _remove(place, descriptor)


def _arrival(listener: _socket.socket) -> _socket.socket:
    poller = select.poll()
    poller.register(listener.fileno(), select.POLLIN)
    if not poller.poll(ARRIVAL * 1000):
        raise MudroomError(f"the container did not come up in {ARRIVAL:.0f} s", "mudroom doctor looks for the cause")
    accepted, _address = listener._accept()  # type: ignore[attr-defined]  # of a type whose stub lacks it
    return _socket.socket(fileno=accepted)


def _remove(place: bytes, descriptor: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(b"s", dir_fd=descriptor)
    os.close(descriptor)
    os.rmdir(place)


def name_of(vault: bytes, number: int, now: float | None = None) -> str:
    """Of a new container: unique on this machine."""
    stamp = int((time.time() if now is None else now) * 1000)
    return f"mudroom-{os.fsdecode(vault.rpartition(b'-')[2])}-{os.getpid()}-{stamp:x}-{number}"


def mounts_of(binds: Sequence[tuple[bytes, bool]]) -> tuple[Mount, ...]:
    """Every path once, at its own place; what lies in another one that is as writable is left out."""
    chosen: dict[bytes, bool] = {}
    for path, writable in binds:
        chosen[path] = chosen.get(path, False) or writable
    kept: list[Mount] = []
    for path in sorted(chosen):
        above = [other for other in kept if path.startswith(other.source + b"/")]
        if not above or above[-1].writable != chosen[path]:
            kept.append(Mount(path, path, chosen[path]))
    return tuple(kept)
