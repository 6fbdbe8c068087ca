"""The host's end of the launcher: start it once, then send it plans.

``Client.start()`` costs an interpreter start, which goes on in the background; ``Client.run`` a few hundred
microseconds of its own. Safe to use from several threads: a run reports over its own pipe.
"""

from __future__ import annotations

import _socket
import _thread
import itertools
import marshal
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from mudroom.core.confinement.plan import NAMESPACES, Plan, Step, describe
from mudroom.core.tree.path import show
from mudroom.errors import CommandNotStarted, MudroomError
from mudroom.sandbox.client.connection import Connection, wait_readable, with_report
from mudroom.sandbox.client.report import ReportError, read_record, read_report
from mudroom.sandbox.launcher.wire import CMSG_CLOEXEC

if TYPE_CHECKING:
    from mudroom.sandbox.limits.cgroup import Leaf
    from mudroom.sandbox.limits.gauge import Gauge

_ROOT = os.path.abspath(__file__).rsplit(os.sep, 4)[0]
# Imported and not run as a script, so that its byte code is cached: compiling it would double its start.
_START = f"import sys; sys.path.insert(0, {_ROOT!r}); from mudroom.sandbox.launcher.launcher import main; main()"

TERMINAL_SIGNALS = (2, 3, 20)
"""INT, QUIT and TSTP: what a terminal sends to a whole group."""
ENOENT, E2BIG, ENOTDIR, ELOOP = 2, 7, 20, 40
_MOST_LISTENERS = 253
"""SCM_MAX_FD of unix(7)."""
TEMPLATES = 8
"""So many prepared roots are kept: each is a small process, and another one that waits for the next command."""


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
    """As ``sandbox/host/denials.py`` reads it: metadata changes outside the sandbox's own directories, as "chmod
    /path", and
    system calls, as "call RULE COUNT"."""


KILLED = Exit(9, 0.0, 0.0, 0)
"""Of a sandbox that has ended without a report."""


class Running:
    """One command in its sandbox. ``fileno()`` becomes readable when it is over.

    What it holds open is closed by ``gone``, by ``close``, or as soon as nobody refers to it.
    """

    def __init__(
        self,
        connection: Connection,
        identity: int,
        report: int,
        steps: Sequence[Step],
        program: bytes,
        view: _socket.socket | None = None,
        channel: _socket.socket | None = None,
        gate: _socket.socket | None = None,
        door: _socket.socket | None = None,
    ) -> None:
        self._connection = connection
        self._id = identity
        self._report = report
        self._steps = steps
        self._program = program
        self._view = [] if view is None else [view]  # a list: whoever pops it, in whichever thread, closes it
        self._channel = channel
        self.gate = gate
        """Readable when the gate's listeners have come; see ``listeners``."""
        self.door = door
        """Where a sandbox without a command of its own is asked for some (``held.py``)."""
        connection.active.add(identity)

    def fileno(self) -> int:
        return self._report

    @property
    def is_over(self) -> bool:
        """Whether ``wait`` has returned, or the command was given up."""
        return self._id not in self._connection.active

    def ends(self) -> bool:
        """Whether the report has come, so that ``wait`` would not block."""
        return bool(wait_readable([self._report], time.monotonic()))

    def signal(self, number: int) -> None:
        """Send a signal to the sandbox's init. It forwards TERM, HUP, USR1 and USR2 to the command, INT and QUIT to
        the command's process group; CONT goes on with a command that its terminal has stopped; KILL ends everything
        at once."""
        self._connection.send({"op": "signal", "id": self._id, "signal": int(number)}, ())

    def pause(self) -> None:
        """Stop every process of the sandbox. When this returns none of them can write, until ``resume``; what was
        opened through ``view`` is not theirs and still can. Of signals KILL works at once, the others after that.

        Not counted: one ``resume`` undoes any number of pauses. Harmless when the command has ended. Raises
        MudroomError if some process does not come to rest within a few seconds; all go on then.
        """
        self._hold("pause")

    def resume(self) -> None:
        """Let those go on that ``pause`` stopped; a process that its own job control had stopped stays so."""
        self._hold("resume")

    def _hold(self, op: str) -> None:
        answer = with_report(self._connection, {"op": op, "id": self._id}, ())
        try:
            data = os.read(answer, 65536)
        finally:
            os.close(answer)
        if not data:
            raise MudroomError("the sandbox launcher died", "run the command again; nothing was applied")
        record = _heard(data, read_report)
        if record[0] == "failed":
            raise MudroomError(f"the command cannot be paused: {record[1]}", "wait for its end, or end it")

    def view(self) -> int:
        """The directory in which the command works, as the command has it: a descriptor (O_PATH) of its very mount,
        for openat2(2) and the like below it. Blocks until it is mounted, which is before the command starts.

        To be asked for with ``want_view`` and taken once; the caller closes it, before the fork is mounted again: it
        keeps the mount alive. Any thread may wait here while another is in ``wait``. What the command put there (links,
        FIFOs) is the command's: resolve beneath, follow nothing. Raises MudroomError if the sandbox never came so far;
        ``wait`` says why.
        """
        try:
            channel = self._view.pop()
        except IndexError:
            raise MudroomError("the view of this command was not asked for, or has been taken") from None
        try:
            _data, ancillary, _flags, _address = channel.recvmsg(1, _socket.CMSG_SPACE(4), CMSG_CLOEXEC)
        finally:
            channel.close()
        if not ancillary:
            raise MudroomError("the sandbox ended before it had a view")
        return _received(ancillary[0][2])

    def terminal(self) -> tuple[int, _socket.socket] | None:
        """The master of the command's pseudo-terminal, and a socket: the command waits until ``b"g"`` is sent there,
        and ``b"s"`` arrives whenever it has been stopped. None if the sandbox never came so far.

        To be asked for with ``terminal`` and taken once; both are the caller's to close. Blocks as ``view`` does.
        """
        channel, self._channel = self._channel, None
        if channel is None:
            return None
        _data, ancillary, _flags, _address = channel.recvmsg(1, _socket.CMSG_SPACE(4), CMSG_CLOEXEC)
        if not ancillary:
            channel.close()
            return None
        return _received(ancillary[0][2]), channel

    def listeners(self) -> list[tuple[str, int]]:
        """The gate's listeners in the sandbox's network namespace, as (kind, descriptor), and its namespaces ``user``
        and ``net``; the caller closes them. To be taken once, when ``gate`` is readable. None if the sandbox never came
        so far."""
        channel, self.gate = self.gate, None
        if channel is None:
            return []
        room = _socket.CMSG_SPACE(4 * _MOST_LISTENERS)
        try:
            kinds, ancillary, _flags, _address = channel.recvmsg(4096, room, CMSG_CLOEXEC)
        finally:
            channel.close()
        rights = b"".join(data for _level, _kind, data in ancillary)
        descriptors = [int.from_bytes(rights[at : at + 4], "little") for at in range(0, len(rights), 4)]
        return list(zip(kinds.decode().split(), descriptors, strict=True))

    def ready(self) -> None:
        """Block until a held sandbox can be asked for commands. Raises StepFailed, or MudroomError if it died."""
        data = os.read(self._report, 65536)
        record = _heard(data) if data else None
        if record is None:
            raise MudroomError("the sandbox launcher died", "run the command again; nothing was applied")
        if record[0] != "ready":
            raise _failure(record, self._steps, self._program)

    def wait(self) -> Exit:
        """Block until every process of the command is gone. Raises StepFailed or CommandNotStarted if the command
        never ran, MudroomError if the launcher died.

        The sandbox's init may live on for a moment, and its mounts with it: before the same fork is mounted again,
        call ``gone``.
        """
        try:
            data = os.read(self._report, 65536)  # at most PIPE_BUF were written, at once
            record = _heard(data) if data else None
            if record is None or (record[0] == "exited" and not record[-1]):
                self.gone()  # processes are left: they end with init, and the pipe with it
        finally:
            self._connection.active.discard(self._id)
        if record is None:
            return self._ended_without_report()
        if record[0] == "exited":
            return Exit(*record[1:-1])
        raise self._failed(record)

    def _failed(self, record: tuple[Any, ...]) -> MudroomError:
        return _failure(record, self._steps, self._program)

    def gone(self) -> None:
        """After ``wait``: block until init is gone, too, and every mount of the sandbox.

        The end of the report pipe says so: init closes it as it ends, the launcher when it has reaped init, and a
        process is reaped only after it has given up its mount namespace (exit_task_namespaces and exit_task_work in
        kernel/exit.c come before exit_notify). Most often that has long happened when somebody asks.
        """
        self._drop_view()
        while self._report >= 0 and os.read(self._report, 65536):
            pass
        self.close()

    def close(self) -> None:
        """Give up what is open, without waiting for anything. Harmless when repeated."""
        report, self._report = self._report, -1
        if report >= 0:
            os.close(report)
        self._drop_view()
        self._connection.active.discard(self._id)

    def _drop_view(self) -> None:
        """Whoever did not take it does not want it; on its way it keeps the mount alive as well. The same of the
        terminal."""
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()
        for name in ("gate", "door"):
            one = getattr(self, name)
            if one is not None:
                one.close()
                setattr(self, name, None)
        try:
            self._view.pop().close()
        except IndexError:
            pass  # there was none, or it has been taken

    def __del__(self) -> None:
        self.close()

    def _ended_without_report(self) -> Exit:
        if self._connection.is_open():
            return KILLED  # init itself was, which takes all with it
        raise MudroomError("the sandbox launcher died", "run the command again; nothing was applied")


def _received(rights: bytes) -> int:
    descriptor = int.from_bytes(rights[:4], "little")
    os.set_inheritable(descriptor, False)
    return descriptor


def _heard(data: bytes, read: Callable[[bytes], tuple[Any, ...]] = read_record) -> tuple[Any, ...]:
    """A launcher may be next to commands, in a container: what it says is read as a stranger's."""
    try:
        return read(data)
    except ReportError as error:
        raise MudroomError(
            f"the sandbox launcher says what no launcher says: {error}", "do not trust what this fork holds: discard it"
        ) from error


def _failure(record: tuple[Any, ...], steps: Sequence[Step], program: bytes) -> MudroomError:
    _failed, index, op, number, detail = record
    if op == "exec":
        return _not_started(program, number)
    if op == "beneath" and number == ELOOP:
        place = show(b"/" + steps[index][1])
        message = f"cannot set up the sandbox: the image has a symbolic link on the way to {place}"
        return StepFailed(op, number, message)
    what = describe(steps[index]) if index >= 0 else op
    return StepFailed(op, number, f"cannot set up the sandbox: {what}: {os.strerror(number)} {detail}".rstrip())


def _not_started(program: bytes, number: int) -> CommandNotStarted:
    name = os.fsdecode(program)
    if number in (ENOENT, ENOTDIR):
        return CommandNotStarted(f"{name}: command not found", 127, "the sandbox sees the PATH of this shell")
    hint = "is it an executable file?"
    if number == E2BIG:  # execve(2), MAX_ARG_STRLEN
        hint = "one argument has at most 128 KiB, all together a quarter of the stack's limit: put it into a file"
    return CommandNotStarted(f"{name}: {os.strerror(number).lower()}", 126, hint)


class Client:
    most_templates = TEMPLATES
    gauge: Gauge | None = None
    """What the limits of a container have done, if the launcher is in one."""
    peer = 0
    """The pid of a launcher that descends from somebody else; 0: it is our child, or not to be seen."""

    def __init__(self, *, apart: bool = False) -> None:
        """``apart``: the launcher has none of our standard descriptors, for whose end somebody may wait, and is in no
        process group or session that somebody may end."""
        self._apart = apart
        self._actions = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3 if apart else 0)]
        self._launcher: Connection | None = None
        self._pid = 0
        self._place = 0
        self._ids = itertools.count(1)
        self._templates: dict[tuple[Any, ...], Connection | None] = {}
        self._choosing = _thread.allocate_lock()

    def start(self) -> None:
        """Start the launcher and return at once; the first run waits for it if need be."""
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
        os.set_inheritable(theirs.fileno(), True)
        try:
            self._pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", "-c", _START, str(theirs.fileno())],
                {"PATH": os.defpath, "LC_ALL": "C"},
                file_actions=self._actions,
                setsid=self._apart,
                setsigmask=TERMINAL_SIGNALS,  # what comes before it can ignore them waits, and is nothing then
            )
        finally:
            theirs.close()
        self._launcher = Connection(ours)

    def run(
        self,
        plan: Plan,
        argv: Sequence[bytes],
        env: Mapping[bytes, bytes],
        stdio: tuple[int, int, int],
        *,
        want_view: bool = False,
        want_gate: bool = False,
        leaf: Leaf | None = None,
        terminal: Sequence[int] = (),
        held: bool = False,
    ) -> Running:
        """Start a command. ``stdio`` stay the caller's to close. PATH is searched inside the sandbox. ``want_view``:
        somebody is going to call ``Running.view``. ``want_gate``: the plan has listeners to hand over
        (``Running.listeners``). ``leaf``: the control group for all of it; the caller's to close.
        ``terminal``: which of the command's standard descriptors are a pseudo-terminal of its own instead; somebody is
        going to call ``Running.terminal``, or it never starts. ``held``: the sandbox gets no command yet, and lives
        until the door is closed (``held.py``); ``argv``, ``env`` and ``terminal`` mean nothing then.

        The steps that commands share are performed once, from the second command that has them on.
        """
        identity = next(self._ids)
        with self._choosing:
            connection, namespaces, steps, sent = self._where(plan)
            connection.active.add(identity)  # no other thread ends that template to make room
        search = [entry for entry in env.get(b"PATH", os.fsencode(os.defpath)).split(b":") if entry]
        wishes = (("view", want_view), ("channel", terminal), ("gate", want_gate), ("door", held))
        sockets = [name for name, wanted in wishes if wanted]
        request = {
            "op": "run",
            "id": identity,
            "namespaces": namespaces,
            "maps": plan.maps,
            "plan": sent,
            "first": 0,
            "mediation": plan.mediation,
            "argv": list(argv),
            "env": dict(env),
            "search": search,
            "into": leaf is not None and leaf.is_cloned_into,
            "join": 0 if leaf is None or leaf.is_cloned_into else len(leaf.descriptors),
            "terminal": tuple(terminal),
            "sockets": sockets,
            "held": held,
        }
        groups = leaf.descriptors if leaf is not None else ()
        pairs = {name: _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM) for name in sockets}
        try:
            given = [theirs.fileno() for _ours, theirs in pairs.values()]
            report = with_report(connection, request, (*stdio, *given, *groups))
        except BaseException:
            for ours, _theirs in pairs.values():
                ours.close()
            raise
        finally:
            for _ours, theirs in pairs.values():
                theirs.close()
        view, channel, gate, door = (pairs[name][0] if name in pairs else None for name, _wanted in wishes)
        return Running(connection, identity, report, steps, argv[0], view, channel, gate, door)

    def _where(self, plan: Plan) -> tuple[Connection, int, tuple[Step, ...], tuple[Step, ...]]:
        """Which process performs a plan, and what is left to do there: namespaces, steps, and those of them that it
        does not know yet. Hold ``_choosing``."""
        if self._launcher is None:
            raise MudroomError("the sandbox launcher is not running")
        own, last = plan.shared + plan.ahead, len(plan.steps) - plan.last
        key = (self._place, plan.namespaces, plan.maps, plan.steps[:own], plan.steps[last:])
        if plan.shared and key not in self._templates:
            self._make_room()
            self._templates[key] = None  # seen once
        elif plan.shared:
            template = self._templates.pop(key)
            if template is None or not template.is_open():
                template = self._prepare(self._launcher, plan)
            self._templates[key] = template  # the most recently used is the last
            rest = (("enter",), *plan.steps[plan.shared :])
            return template, plan.namespaces & ~NAMESPACES["user"], rest, plan.steps[own:last]
        return self._launcher, plan.namespaces, plan.steps, plan.steps

    @property
    def is_shut(self) -> bool:
        """Whether it was closed, or never started."""
        return self._launcher is None

    def lost(self, _ended: Exit) -> bool:
        """Whether a command has ended so because the launcher has."""
        return False

    def settle(self) -> int:
        """The pid of the launcher, which is about to be put into another control group: what was prepared before that
        stays in the old one, and is not used for commands any more."""
        self._place += 1
        return self._pid

    def _make_room(self) -> None:
        """End the templates that have not been used for longest, but none with a command in it."""
        idle = [key for key, template in self._templates.items() if template is None or not template.active]
        for key in idle[: max(0, len(self._templates) - self.most_templates + 1)]:
            template = self._templates.pop(key)
            if template is not None:
                template.close()

    def _prepare(self, launcher: Connection, plan: Plan) -> Connection:
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
        steps = plan.steps[: plan.shared]
        request = {
            "op": "prepare",
            "id": next(self._ids),
            "namespaces": NAMESPACES["user"] | NAMESPACES["mount"],
            "maps": plan.maps,
            "plan": steps,
            "ahead": (("enter",), *plan.steps[plan.shared : plan.shared + plan.ahead]),
            "last": plan.steps[len(plan.steps) - plan.last :],
            "each": plan.namespaces & ~NAMESPACES["user"],
        }
        try:
            report = with_report(launcher, request, (theirs.fileno(),))
        finally:
            theirs.close()
        try:
            record = _heard(os.read(report, 65536) or marshal.dumps(("failed", -1, "init", 0, "it died")))
        finally:
            os.close(report)
        if record[0] != "prepared":
            ours.close()
            raise _failure(record, steps, b"")
        return Connection(ours)

    def close(self) -> None:
        """End the launcher and every sandbox of it."""
        for connection in (*self._templates.values(), self._launcher):
            if connection is not None:
                connection.close()
        self._templates.clear()
        self._launcher = None
        if self._pid:
            os.waitpid(self._pid, 0)
            self._pid = 0
