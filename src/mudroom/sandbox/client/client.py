"""Protocols: a client for sandboxes, and a command that runs in one, as a session knows them.

Each platform has its own client, a plain class (``sandbox/platform.py``). Linux, containers and keepers start commands
through a launcher: ``launcher_client.py``. A command with a launcher, or with a warden beside it (macOS), is a
``LaunchedCommand`` there; on Windows a command is a process in its job.

Clients are thread-safe, except ``start`` and ``close``, which only the owner calls, and ``prepare_move``, for the
holder of the limits' lock.
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
    """Differences in this command's confinement, for its result."""

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when the command is over. Raise Unsupported if the system has
        none."""

    @property
    def over(self) -> int:
        """That descriptor; -1 if the system has none."""

    def has_report(self) -> bool:
        """Return whether the command's end is known, so that ``wait`` would not block."""

    def signal(self, number: int) -> None:
        """Send a signal to the command. INT and QUIT are for its process group. KILL ends every process in the sandbox
        at once."""

    def pause(self) -> None:
        """Stop every process in the sandbox. On return none of them can write, until ``resume``. Writes through
        ``view`` are not theirs and still possible. SIGKILL works at once, other signals after ``resume``.

        Pauses are not counted: one ``resume`` undoes any number of them. Harmless when the command has ended. Raise
        MudroomError if a process does not come to rest within a few seconds; all processes then continue.
        """

    def resume(self) -> None:
        """Continue the processes that ``pause`` stopped. A process stopped by its own job control stays stopped."""

    def view(self) -> int:
        """Return an O_PATH descriptor for the mount in which the command works, for openat2(2) and similar calls below
        it. Block until it is mounted, which is before the command starts.

        Request it by ``RunOptions.view``; take it once. The caller closes it before the fork is mounted again: it keeps
        the mount alive. Any thread may wait here while another is in ``wait``. Links and FIFOs in it come from the
        command: resolve beneath it and follow no links. Raise MudroomError if the sandbox ended before the mount;
        ``wait`` has the reason.
        """

    def own_directories(self) -> tuple[list[int], list[int]]:
        """Return O_PATH descriptors for the command's own directories, in the order of the plan's step ``left``, and
        their state before the command (``step_left``). The descriptors outlive the command, and the caller closes
        them. Both are empty if there are none.

        Request it by ``RunOptions.left``; take it once, before ``wait_gone``. Before ``wait`` it blocks until they are
        there, which is before the command starts.
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
        """Relay connections through the command's bridge to this address, sending the key first on each. Return a
        function that returns why connections were refused or cut. Raise Unsupported where a command has no bridge."""

    def door(self) -> _socket.socket:
        """Block until a held sandbox accepts commands, and return the socket for requests to it (``held.py``). The
        caller closes it; take it once. Raise StepFailed, or MudroomError if the launcher died."""

    def wait(self) -> Exit:
        """Block until all the command's processes are gone. Raise StepFailed or CommandNotStarted if the command never
        ran, MudroomError if the launcher died.

        The sandbox's init, and with it its mounts, may live on for a moment: call ``wait_gone`` before the same fork is
        mounted again.
        """

    def wait_gone(self) -> None:
        """After ``wait``: block until the sandbox's init and all its mounts are gone, too."""

    def close(self) -> None:
        """Close all descriptors without waiting. Harmless when repeated."""


class Templates(Protocol):
    """Processes that keep part of a sandbox for several commands."""

    def stand(self, plan: StandingPlan, door: int) -> StandingSandbox:
        """Make a standing sandbox: a template for one fork. ``door``: a listening socket, at which it is dissolved; the
        caller closes it. Raise StepFailed if a step fails."""

    def end_idle(self) -> None:
        """End the templates that run no command: each has a copy of every host mount as it was then."""


class Client(Protocol):
    """A client for sandboxes."""

    @property
    def traits(self) -> ClientTraits: ...

    @property
    def templates(self) -> Templates: ...

    def start(self) -> None:
        """Start the processes that commands need, unless they run, and return at once; the first run waits for them if
        necessary."""

    def run(self, plan: Plan, invocation: Invocation, options: RunOptions = NO_OPTIONS) -> Running:
        """Start a command. Raise Unsupported for options that the system does not have."""

    def clear(self, works: Sequence[tuple[bytes, bytes]]) -> bool:
        """Have overlay work directories removed, given as (parent, name), and return at once. Return False if that is
        not possible: then nothing is done."""

    def prepare_move(self) -> int:
        """Return the launcher's pid; the launcher is about to be moved into another control group. Raise Unsupported if
        the system has none."""

    def close(self) -> None:
        """End every command, and the processes that ``start`` started."""


class LauncherProcess(Protocol):
    """A launcher as its client holds it."""

    most_templates: int
    is_local: bool
    """Whether it sees this machine's files, and no command can have written those beside it."""

    @property
    def traits(self) -> ClientTraits: ...

    @property
    def connection(self) -> Connection | None:
        """None: not started, or closed."""

    def start(self) -> None:
        """Start it, unless it runs, and return at once."""

    def require_pid(self) -> int:
        """Return its pid; 0 if it was not started. Raise MudroomError if it has ended before its pid was known."""

    def template_ahead(self, shared: TemplatePlan | None) -> Connection | None:
        """Return a template that was made before a command with these shared steps, or None. The caller uses it from
        now on."""

    def has_ended(self) -> bool:
        """Return whether it has ended. Asked when a command has ended without a report, although its connection seems
        open."""

    def close(self) -> None:
        """End it, with all its sandboxes."""


class NoTemplates:
    """For a client without a launcher."""

    def stand(self, _plan: StandingPlan, _door: int) -> StandingSandbox:
        raise Unsupported("a sandbox that stands between commands", "a launcher", "a client without one")

    def end_idle(self) -> None:
        """Do nothing: there are none."""


NO_TEMPLATES = NoTemplates()
