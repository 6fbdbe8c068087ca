"""A client of sandboxes, and a command that runs in one, as a session knows them: protocols.

Each platform has a client of its own, a plain class (``sandbox/platform.py``). The one of Linux, containers and keepers
starts commands through a launcher: ``launcher_client.py``. A command with a launcher, or with a warden beside it
(macOS), is a ``LaunchedCommand`` there; one of Windows is a process of its job.

Clients are safe to use from several threads, except for ``start`` and ``close``, which are for the owner to call, and
``prepare_move``, for the holder of the lock of the limits.
"""

from __future__ import annotations

from mudroom.errors import Unsupported
from mudroom.sandbox.client.invocation import NO_OPTIONS, ClientTraits, Exit, Invocation, RunOptions
from mudroom.typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import _socket
    from collections.abc import Callable, Sequence

    from mudroom.core.confinement.plan import Plan, StandingPlan, TemplatePlan
    from mudroom.sandbox.client.connection import Connection
    from mudroom.sandbox.client.template import StandingSandbox


class Running(Protocol):
    """A command in its sandbox. The thread that waits for the command calls these; other threads may signal and pause
    it. Its open descriptors are closed by ``wait_gone``, by ``close``, or when the last reference to it goes."""

    notes: tuple[str, ...]
    """What is different in this command's confinement, for its result."""

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when the command is over. Raise Unsupported if the system has
        none."""

    @property
    def over(self) -> int:
        """That descriptor; -1 if the system has none."""

    def has_report(self) -> bool:
        """Return whether the command's end is known, so that ``wait`` would not block."""

    def signal(self, number: int) -> None:
        """Send a signal to the command. INT and QUIT are for its process group. KILL ends every process of the sandbox
        at once."""

    def pause(self) -> None:
        """Stop every process of the sandbox. On return none of them can write, until ``resume``. Writes through
        ``view`` are not theirs and still possible. SIGKILL works at once, other signals after ``resume``.

        Pauses are not counted: one ``resume`` undoes any number of them. Harmless when the command has ended. Raise
        MudroomError if a process does not come to rest within a few seconds; all processes then continue.
        """

    def resume(self) -> None:
        """Continue the processes that ``pause`` stopped. A process that its own job control had stopped stays
        stopped."""

    def view(self) -> int:
        """Return a descriptor (O_PATH) of the mount in which the command works, for openat2(2) and similar calls below
        it. Block until it is mounted, which is before the command starts.

        Request it by ``RunOptions.view``; take it once. The caller closes it before the fork is mounted again: it keeps
        the mount alive. Any thread may wait here while another is in ``wait``. Links and FIFOs in it come from the
        command: resolve beneath it and follow no links. Raise MudroomError if the sandbox ended before that; ``wait``
        has the reason.
        """

    def terminal(self) -> tuple[int, _socket.socket] | None:
        """Return the master of the command's pseudo-terminal, and a socket. The command waits until ``b"g"`` is sent
        there, and ``b"s"`` arrives whenever it has been stopped. Return None if the sandbox ended before that.

        Request it by ``Invocation.terminal`` and take it once; the caller closes both. Blocks as ``view`` does.
        """

    @property
    def gate(self) -> _socket.socket | None:
        """Readable when the gate's listeners have arrived; None if they were not requested or were taken."""

    def listeners(self) -> list[tuple[str, int]]:
        """Return the gate's listeners in the sandbox's network namespace, as (kind, descriptor), with its namespaces
        ``user`` and ``net``; the caller closes them. Take them once, when ``gate`` is readable. Empty if they were not
        requested or were taken, or if the sandbox ended before that."""

    def open_gate(self, target: tuple[str, int], key: bytes, /) -> Callable[[], Sequence[str]]:
        """Let connections through the command's bridge to this address, each after the key. Return a function that
        returns what was refused. Raise Unsupported where a command has no bridge."""

    def door(self) -> _socket.socket:
        """Block until a held sandbox accepts commands, and return the socket over which it is asked for them
        (``held.py``). The caller closes it; take it once. Raise StepFailed, or MudroomError if the launcher died."""

    def wait(self) -> Exit:
        """Block until every process of the command is gone. Raise StepFailed or CommandNotStarted if the command never
        ran, MudroomError if the launcher died.

        The sandbox's init, and with it its mounts, may live on for a moment: call ``wait_gone`` before the same fork is
        mounted again.
        """

    def wait_gone(self) -> None:
        """Block, after ``wait``, until init and every mount of the sandbox are gone, too."""

    def close(self) -> None:
        """Close all descriptors without waiting. Harmless when repeated."""


class Templates(Protocol):
    """Processes that keep a part of a sandbox for several commands."""

    def stand(self, plan: StandingPlan, door: int) -> StandingSandbox:
        """Make a standing sandbox: a template of one fork. ``door``: a listening socket, at which it is dissolved; the
        caller closes it. Raise StepFailed if a step fails."""

    def end_idle(self) -> None:
        """End the templates that run no command: each has a copy of every mount of the host as it was then."""

    def forgo_native(self) -> None:
        """Make no native init from now on: MUDROOM_NATIVE is 0."""


class Client(Protocol):
    """A client of sandboxes."""

    @property
    def traits(self) -> ClientTraits: ...

    @property
    def templates(self) -> Templates: ...

    def start(self) -> None:
        """Start what commands need, unless it runs, and return at once; the first run waits for it if necessary."""

    def run(self, plan: Plan, invocation: Invocation, options: RunOptions = NO_OPTIONS) -> Running:
        """Start a command. Raise Unsupported for options that the system does not have."""

    def clear(self, works: Sequence[tuple[bytes, bytes]]) -> bool:
        """Have work directories of overlays removed, as (parent, name), and return at once. Return False if that is not
        possible: then nothing is done."""

    def prepare_move(self) -> int:
        """Return the pid of the launcher, which is about to be moved into another control group. Raise Unsupported if
        the system has none."""

    def close(self) -> None:
        """End every command, and what ``start`` has started."""


class LauncherProcess(Protocol):
    """A launcher as its client holds it."""

    most_templates: int
    is_local: bool
    """Whether it sees the files of this machine, and no command can have written those beside it."""

    @property
    def traits(self) -> ClientTraits: ...

    @property
    def connection(self) -> Connection | None:
        """None: not started, or closed."""

    def start(self) -> None:
        """Start it, unless it runs, and return at once."""

    def require_pid(self) -> int:
        """Return its pid; 0 if it was not started. Raise MudroomError if it has ended before that was known."""

    def template_ahead(self, shared: TemplatePlan | None, *, native: bool) -> Connection | None:
        """Return a template that was made ahead of a command with these shared steps, or None. It is used from now on.
        ``native``: whether its init may be native."""

    def has_ended(self) -> bool:
        """Return whether it has ended, asked after a command has that did not report its end, and whose connection
        seems open."""

    def close(self) -> None:
        """End it, with all its sandboxes."""


class NoTemplates:
    """Of a client without a launcher."""

    def stand(self, _plan: StandingPlan, _door: int) -> StandingSandbox:
        raise Unsupported("a sandbox that stands between commands", "a launcher", "a client without one")

    def end_idle(self) -> None:
        """Do nothing: there are none."""

    def forgo_native(self) -> None:
        """Do nothing: no init is native."""


NO_TEMPLATES = NoTemplates()
