"""A container with the launcher in it: the same ``LauncherClient`` runs commands there as anywhere else.

The launcher is the container's first process. It connects to a socket that exists only until then, and receives
descriptors over it like every launcher. When that connection ends, however mudroom ends, the launcher ends every
process that it has started, and itself; then the engine removes the container. So a container ends with the process
that started it. No container is passed on to another process, and only ``orphans.py`` has to deal with containers whose
owner is gone.
"""

from __future__ import annotations

import _socket
import json
import os
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from mudroom.core.confinement.plan import TemplatePlan
from mudroom.core.system.closing import ClosedOnError
from mudroom.errors import MudroomError
from mudroom.ext.containers.core.container import Container, ContainerMount, Engine, events_argv, remove_argv, run_argv
from mudroom.ext.containers.engine.engine import ask
from mudroom.ext.containers.engine.orphans import hold_below, make_held
from mudroom.ext.containers.engine.runtime import PLACE, PROGRAM, provide
from mudroom.sandbox.client.connection import Connection, wait_readable
from mudroom.sandbox.client.invocation import ClientTraits
from mudroom.sandbox.client.launcher_client import LauncherClient
from mudroom.sandbox.limits.gauge import Gauge, find

# --- Find out, from the engine's events, why a container ended that mudroom did not end ---
# The container itself is removed by then, with its state. Sources: docker-events(1), podman-events(1).


PATIENCE = 2.0
"""Seconds that an engine has to notice a container's end."""
_RECENT = 60.0
"""Seconds. A container's end is asked about as soon as it is noticed."""


def explain_end(engine: Engine, name: str, since: float, environ: Mapping[bytes, bytes]) -> str:
    """Return the reason as one clause for people. ``since`` is wall-clock time in seconds."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            events = parse_events(ask(events_argv(engine, name, *_period(since)), environ, PATIENCE))
        except MudroomError as error:
            return f"its engine cannot be asked why ({error.message})"
        if any(action in ("die", "died") for action, _attributes in events) or time.monotonic() > until:
            return describe_end(events)


def explain_if_ended(engine: Engine, name: str, since: float, environ: Mapping[bytes, bytes]) -> str:
    """Return the same clause for a container that may be running; empty if it has not ended, or the engine does not
    answer."""
    with suppress(MudroomError):
        events = parse_events(ask(events_argv(engine, name, *_period(since)), environ, PATIENCE))
        if any(action in ("die", "died") for action, _attributes in events):
            return describe_end(events)
    return ""


def _period(since: float) -> tuple[float, float]:
    """Return the period to ask about: from ``since``, or the last minute if the clock was set back. It does not end in
    the future: an engine would wait until then."""
    now = time.time()
    return (since if since <= now else now - _RECENT), now


def parse_events(listed: bytes) -> list[tuple[str, dict[str, str]]]:
    """Parse events into action and attributes, in order; unreadable lines are left out."""
    events = []
    for line in listed.decode("utf-8", "replace").splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if not isinstance(event, dict):
            continue
        actor = event.get("Actor") or {}
        attributes = {key: str(value) for key, value in {**actor.get("Attributes", {}), **event}.items()}
        events.append((str(event.get("Action") or event.get("status") or event.get("Status") or ""), attributes))
    return events


def describe_end(events: list[tuple[str, dict[str, str]]]) -> str:
    actions = [action for action, _attributes in events]
    for action, attributes in events:
        if action == "kill":
            number = attributes.get("signal", "")
            return f"its engine was told to kill it (signal {number})" if number else "its engine was told to kill it"
    if "oom" in actions:
        return "its memory was full, and the kernel ended the launcher with the command"
    if "remove" in actions and "died" not in actions:
        return "its engine was told to remove it"
    for action, attributes in events:
        if action in ("die", "died"):
            code = attributes.get("exitCode") or attributes.get("ContainerExitCode") or ""
            return f"its engine says that it ended by itself or was killed from outside (exit code {code or 'unknown'})"
    return "its engine does not know why"


DOOR = b"/.mudroom-door"
_UNREADABLE = (b"unreadable",)
"""A command without its own pid namespace sees the launcher, and has the same user: prctl(2)."""
ARRIVAL = 30.0
"""Seconds that a container has to connect, once its engine reports that it has started it."""


SLICE = 2.0
"""Seconds to wait before the engine is asked whether the container has ended."""
TEMPLATES = 1
"""A launcher's templates: they count towards its container's limits."""
PARTING = 5.0
"""Seconds that a launcher has to end, with every process that it has started, before its engine is asked to end it."""

_SLOW = ("podman",)
"""Engines that wait for a container's monitor to end before they remove the container: 20 s if no process reaps the
monitor (libpod/oci_conmon.go). An explicit removal does not wait."""
LAST = 0.2
"""Seconds between the command's end and the launcher's, if both have ended with their container."""


class ContainedLauncher:
    """A launcher that already runs, in a container: ``client.LauncherProcess``. Owner: its container's."""

    most_templates, is_local = TEMPLATES, False

    def __init__(self, door: _socket.socket) -> None:
        self._door = door
        self.connection: Connection | None = Connection(door)
        peer = struct.unpack("=iII", door.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12))[0]
        # 0 if it is not visible in this pid namespace (unix(7), SO_PEERCRED; pid_namespaces(7))
        self.gauge = Gauge(find(peer) if peer else None)
        self.traits = ClientTraits(gauge=self.gauge, peer=peer)

    @property
    def is_open(self) -> bool:
        return self.connection is not None and self.connection.is_open()

    def start(self) -> None:
        """Do nothing: it came with the container."""

    def require_pid(self) -> int:
        raise AssertionError("a container's limits are its engine's")

    def template_ahead(self, _shared: TemplatePlan | None) -> None:
        return None

    def has_ended(self) -> bool:
        """Return whether the launcher has ended. A container's processes do not end in a reliable order: the launcher
        may seem to live for another moment."""
        return self.connection is None or self._is_at_end(LAST)

    def _is_at_end(self, seconds: float) -> bool:
        return bool(wait_readable((self._door.fileno(),), time.monotonic() + seconds))

    def end(self) -> bool:
        """Make the launcher end, with all its sandboxes; return whether it has ended. Its socket ends with its process.
        When a pid namespace's first process ends, the kernel kills all others (pid_namespaces(7))."""
        with suppress(OSError):  # its end has gone first
            self._door.shutdown(_socket.SHUT_WR)
        return self._is_at_end(PARTING)

    def close(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()


class Box:
    """A running container. It has to be closed. Owner: the pool, or the thread that has taken it from there."""

    def __init__(
        self,
        engine: Engine,
        container: Container,
        launcher: ContainedLauncher,
        environ: Mapping[bytes, bytes],
        runtime: int = -1,
    ) -> None:
        """``runtime`` is a descriptor that holds the runtime's directory; this object closes it."""
        self.engine, self.container, self.launcher = engine, container, launcher
        self.client = LauncherClient(launcher)
        self.began = time.time()
        self._environ, self._runtime = environ, runtime

    def is_healthy(self) -> bool:
        """Return whether a command can be run in it."""
        return self.launcher.is_open

    def why_ended(self) -> str:
        """Return the engine's reason for an end that mudroom did not cause."""
        return explain_end(self.engine, self.container.name, self.began, self._environ)

    def close(self) -> None:
        """End every process in the container, and return when none runs any more. Its engine removes the container a
        moment later (``--rm``), or when the engine is available again. Harmless when repeated."""
        if self.launcher.connection is None:
            return
        has_ended = self.launcher.end()
        self.client.close()
        if not has_ended or self.engine.kind in _SLOW:
            # Either may be gone: the next session asks again (orphans.py).
            with suppress(MudroomError):
                ask(remove_argv(self.engine, self.container.name), self._environ)
        if self._runtime >= 0:
            os.close(self._runtime)
            self._runtime = -1


def start(engine: Engine, container: Container, state: bytes, environ: Mapping[bytes, bytes]) -> Box:
    """Start a container; ``container`` describes all but its first process. ``state`` is the directory for runtimes and
    doors. Raise MudroomError if that fails; the container is then removed."""
    runtime, held = _held_runtime(state + b"/runtime")
    with ClosedOnError(held):
        place = state + b"/doors/" + container.name.encode()
        os.makedirs(state + b"/doors", mode=0o700, exist_ok=True)
        descriptor = make_held(place, 0o755)
        listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            path = b"/proc/self/fd/%d/s" % descriptor  # the path itself may be longer than unix(7) permits
            listener.bind(path)
            os.chmod(path, 0o666)  # for any user in the container; the directories above keep all others out
            listener.listen(1)
            ours = (ContainerMount(runtime, PLACE), ContainerMount(place, DOOR))
            entry = (PROGRAM, b"connect", DOOR + b"/s", *(() if container.nested else _UNREADABLE))
            complete = container._replace(entry=entry, mounts=(*container.mounts, *ours))
            return Box(engine, complete, _start_container(engine, complete, listener, environ), environ, held)
        finally:
            listener.close()
            _remove(place, descriptor)


def _held_runtime(directory: bytes) -> tuple[bytes, int]:
    """Return the runtime's directory, held."""
    while True:
        runtime = provide(directory)
        # Another process may remove an old runtime before it is held; it is then made again.
        with suppress(FileNotFoundError):
            return runtime, hold_below(runtime)


def _start_container(
    engine: Engine, container: Container, listener: _socket.socket, environ: Mapping[bytes, bytes]
) -> ContainedLauncher:
    try:
        began = time.time()
        ask(run_argv(engine, container), environ)
        return ContainedLauncher(
            _wait_for_launcher(listener, lambda: explain_if_ended(engine, container.name, began, environ))
        )
    except BaseException:
        with suppress(MudroomError):
            ask(remove_argv(engine, container.name), environ)
        raise


def _wait_for_launcher(listener: _socket.socket, ended: Callable[[], str]) -> _socket.socket:
    """Wait for the launcher to connect. ``ended`` returns a reason if the engine knows that the container has ended.
    Raise MudroomError if it has ended or does not connect in time."""
    until = time.monotonic() + ARRIVAL
    while not wait_readable((listener.fileno(),), time.monotonic() + SLICE):
        why, hint = ended(), "mudroom doctor looks for the cause"
        if wait_readable((listener.fileno(),), 0.0):
            break  # the launcher was just slow
        if why:
            raise MudroomError(f"the container ended before its launcher came up: {why}", hint)
        if time.monotonic() > until:
            raise MudroomError(f"the container did not come up in {ARRIVAL:.0f} s", hint)
    accepted, _address = listener._accept()  # type: ignore[attr-defined]  # of a type whose stub lacks it
    return _socket.socket(fileno=accepted)


def _remove(place: bytes, descriptor: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(b"s", dir_fd=descriptor)
    try:
        with suppress(FileNotFoundError):
            os.rmdir(place)
    finally:
        os.close(descriptor)  # last: another process removes only a directory that is not held


def name_of(vault: bytes, number: int, now: float | None = None) -> str:
    """Return a name for a new container, unique on this machine."""
    stamp = int((time.time() if now is None else now) * 1000)
    return f"mudroom-{os.fsdecode(vault.rpartition(b'-')[2])}-{os.getpid()}-{stamp:x}-{number}"


def mounts_of(binds: Sequence[tuple[bytes, bool]]) -> tuple[ContainerMount, ...]:
    """Return a mount for every path, at the same path. A path inside another mount with the same right to write is left
    out."""
    chosen: dict[bytes, bool] = {}
    for path, writable in binds:
        chosen[path] = chosen.get(path, False) or writable
    kept: list[ContainerMount] = []
    for path in sorted(chosen):
        above = [other for other in kept if path.startswith(other.source + b"/")]
        if not above or above[-1].writable != chosen[path]:
            kept.append(ContainerMount(path, path, chosen[path]))
    return tuple(kept)
