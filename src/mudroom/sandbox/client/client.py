"""The host's end of the launcher: start it once, then send it plans.

``Client.start()`` costs an interpreter start, which goes on in the background; ``Client.run`` costs a few hundred
microseconds. Safe to use from several threads: each run reports over its own pipe.
"""

from __future__ import annotations

import _socket
import _thread
import errno
import itertools
import os
import sys
import time
from collections.abc import Callable, Sequence

from mudroom.core.confinement.plan import Plan, StandingPlan, Step, TemplatePlan, of_each, template_plan
from mudroom.errors import MudroomError, Unsupported
from mudroom.sandbox.client.connection import AGAIN, Connection, command_request, wait_readable, with_report
from mudroom.sandbox.client.invocation import NO_OPTIONS, Invocation, RunOptions
from mudroom.sandbox.client.report import parse_report, read_report
from mudroom.sandbox.launcher.wire import CMSG_CLOEXEC
from mudroom.typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from mudroom.sandbox.client.template import StandingSandbox
    from mudroom.sandbox.limits.gauge import Gauge


_ROOT = os.path.abspath(__file__).rsplit(os.sep, 4)[0]
# Imported instead of run as a script, to have its byte code cached: compiling would double the start-up time.
_START = f"import sys; sys.path.insert(0, {_ROOT!r}); from mudroom.sandbox.launcher.launcher import main; main()"

GROUP_SIGNALS = (1, 2, 3, 15, 20)
"""HUP, INT, QUIT, TERM and TSTP: the signals that terminals, timeout(1) and CI send to a whole process group."""
_MOST_LISTENERS = 253
"""SCM_MAX_FD of unix(7)."""
FIRST_TO_GO = 500
"""oom_score_adj: as if half of the machine's memory were used in addition."""
_MOST_WORKS = 256
TEMPLATES = 8
"""Number of templates that are kept. Each is a small process, with another one that waits for the next command."""


class Exit(NamedTuple):
    status: int
    """Wait status as in wait(2)."""
    user: float
    system: float
    """CPU seconds of the command and the children it waited for."""
    max_rss: int
    """KiB."""
    refused: tuple[bytes, ...] = ()
    """Refused calls, as ``sandbox/host/denials.py`` reads them: metadata changes outside the sandbox's own directories,
    as "chmod /path", and system calls, as "call RULE COUNT"."""
    started: int = 0
    """Time by CLOCK_MONOTONIC_COARSE when the command started, in nanoseconds; 0 if ``run`` got no ``after``."""


KILLED = Exit(9, 0.0, 0.0, 0)
"""The end of a sandbox that has ended without a report."""


class Running:
    """A command in its sandbox. ``fileno()`` becomes readable when it is over.

    Its open descriptors are closed by ``wait_gone``, by ``close``, or when the last reference to it goes. The
    thread that waits for the command calls these; other threads may signal and pause it.
    """

    notes: tuple[str, ...] = ()
    """What is different in this command's confinement, for its result."""

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
        self._view = [] if view is None else [view]  # a list: the thread that pops it closes it
        self._channel = channel
        self.gate = gate
        """Readable when the gate's listeners have arrived; see ``listeners``."""
        self.door = door
        """Socket over which a held sandbox, which has no command of its own, is asked for commands (``held.py``)."""
        connection.active.add(identity)

    def fileno(self) -> int:
        return self._report

    @property
    def over(self) -> int:
        """A descriptor that is readable when the command is over; -1 if the system has none."""
        return self.fileno()

    def open_gate(self, _target: tuple[str, int], _key: bytes, /) -> Callable[[], Sequence[str]]:
        """Let connections through the command's bridge to this address, each after the key. Return a function that
        returns what was refused. Raise Unsupported where a command has no bridge."""
        raise Unsupported("a bridge to the gate", "a container without the host's loopback", sys.platform)

    @property
    def is_over(self) -> bool:
        """Whether ``wait`` has returned, or the command was given up."""
        return self._id not in self._connection.active

    def has_report(self) -> bool:
        """Return whether the report has arrived, so that ``wait`` would not block."""
        return bool(wait_readable([self._report], time.monotonic()))

    def signal(self, number: int) -> None:
        """Send a signal to the sandbox's init. It forwards TERM, HUP, USR1 and USR2 to the command, and INT and QUIT to
        the command's process group. CONT continues a command that its terminal has stopped. KILL ends every process at
        once."""
        self._connection.send({"op": "signal", "id": self._id, "signal": int(number)}, ())

    def pause(self) -> None:
        """Stop every process of the sandbox. On return none of them can write, until ``resume``. Writes through
        ``view`` are not theirs and still possible. SIGKILL works at once, other signals after ``resume``.

        Pauses are not counted: one ``resume`` undoes any number of them. Harmless when the command has ended. Raise
        MudroomError if a process does not come to rest within a few seconds; all processes then continue.
        """
        self._pause_or_resume("pause")

    def resume(self) -> None:
        """Continue the processes that ``pause`` stopped. A process that its own job control had stopped stays
        stopped."""
        self._pause_or_resume("resume")

    def _pause_or_resume(self, op: str) -> None:
        answer = with_report(self._connection, {"op": op, "id": self._id}, ())
        try:
            data = os.read(answer, 65536)
        finally:
            os.close(answer)
        if not data:
            raise _died()
        record = parse_report(data, read_report)
        if record[0] == "failed":
            raise MudroomError(f"the command cannot be paused: {record[1]}", "wait for its end, or end it")

    def view(self) -> int:
        """Return a descriptor (O_PATH) of the mount in which the command works, for openat2(2) and similar calls below
        it. Block until it is mounted, which is before the command starts.

        Request it by ``RunOptions.view``; take it once. The caller closes it before the fork is mounted again: it keeps
        the mount alive. Any thread may wait here while another is in ``wait``. Links and FIFOs in it come from the
        command: resolve beneath it and follow no links. Raise MudroomError if the sandbox ended before that; ``wait``
        has the reason.
        """
        try:
            channel = self._view.pop()
        except IndexError:
            hint = "request it by RunOptions.view, and take it once"
            raise MudroomError("the view of this command was not requested, or has been taken", hint) from None
        try:
            _data, ancillary, _flags, _address = channel.recvmsg(1, _socket.CMSG_SPACE(4), CMSG_CLOEXEC)
        finally:
            channel.close()
        if not ancillary:
            raise MudroomError("the sandbox ended before it had a view", AGAIN)
        return _descriptor_of(ancillary[0][2])

    def terminal(self) -> tuple[int, _socket.socket] | None:
        """Return the master of the command's pseudo-terminal, and a socket. The command waits until ``b"g"`` is sent
        there, and ``b"s"`` arrives whenever it has been stopped. Return None if the sandbox ended before that.

        Request it with ``terminal`` and take it once; the caller closes both. Blocks as ``view`` does.
        """
        channel, self._channel = self._channel, None
        if channel is None:
            return None
        _data, ancillary, _flags, _address = channel.recvmsg(1, _socket.CMSG_SPACE(4), CMSG_CLOEXEC)
        if not ancillary:
            channel.close()
            return None
        return _descriptor_of(ancillary[0][2]), channel

    def listeners(self) -> list[tuple[str, int]]:
        """Return the gate's listeners in the sandbox's network namespace, as (kind, descriptor), with its namespaces
        ``user`` and ``net``; the caller closes them. Take them once, when ``gate`` is readable. Empty if they were not
        requested or were taken, or if the sandbox ended before that."""
        channel, self.gate = self.gate, None
        if channel is None:
            return []
        room = _socket.CMSG_SPACE(4 * _MOST_LISTENERS)
        try:
            kinds, ancillary, _flags, _address = channel.recvmsg(4096, room, CMSG_CLOEXEC)
        finally:
            channel.close()
        rights = b"".join(data for _level, _kind, data in ancillary)
        descriptors = [int.from_bytes(rights[offset : offset + 4], "little") for offset in range(0, len(rights), 4)]
        names = kinds.decode().split()
        if len(descriptors) < len(names):  # MSG_CTRUNC: more than RLIMIT_NOFILE permits (unix(7))
            for descriptor in descriptors:
                os.close(descriptor)
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return list(zip(names, descriptors, strict=True))

    def ready(self) -> None:
        """Block until a held sandbox accepts commands. Raise StepFailed, or MudroomError if the launcher died."""
        data = os.read(self._report, 65536)
        record = parse_report(data) if data else None
        if record is None:
            raise _died()
        if record[0] != "ready":
            raise self._failed(record)

    def wait(self) -> Exit:
        """Block until every process of the command is gone. Raise StepFailed or CommandNotStarted if the command never
        ran, MudroomError if the launcher died.

        The sandbox's init, and with it its mounts, may live on for a moment: call ``wait_gone`` before the same fork is
        mounted again.
        """
        try:
            data = os.read(self._report, 65536)  # at most PIPE_BUF were written, at once
            record = parse_report(data) if data else None
            if record is None or (record[0] == "exited" and not record[-1]):
                self.wait_gone()  # processes are left: they end with init, and the pipe with it
        finally:
            self._connection.active.discard(self._id)
        if record is None:
            return self._ended_without_report()
        if record[0] == "exited":
            return Exit(*record[1:-1])
        raise self._failed(record)

    def _failed(self, record: tuple[Any, ...]) -> MudroomError:
        from mudroom.sandbox.client.failure import failure_of

        return failure_of(record, self._steps, self._program)

    def wait_gone(self) -> None:
        """Block, after ``wait``, until init and every mount of the sandbox are gone, too.

        The end of file on the report pipe proves it. Init closes the pipe as it ends, the launcher when it has reaped
        init, and a process is reaped only after it has given up its mount namespace (exit_task_namespaces and
        exit_task_work in kernel/exit.c come before exit_notify). Most often this has long happened at the time of the
        call.
        """
        self._close_untaken()
        while self._report >= 0 and os.read(self._report, 65536):
            pass
        self.close()

    def close(self) -> None:
        """Close all descriptors without waiting. Harmless when repeated."""
        report, self._report = self._report, -1
        if report >= 0:
            os.close(report)
        self._close_untaken()
        self._connection.active.discard(self._id)

    def _close_untaken(self) -> None:
        """Close the sockets of the view, the terminal, the gate and the door that were not taken. A view in transit
        would keep its mount alive."""
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()
        for name in ("gate", "door"):
            sock = getattr(self, name)
            if sock is not None:
                sock.close()
                setattr(self, name, None)
        try:
            self._view.pop().close()
        except IndexError:
            pass  # not requested, or already taken

    def __del__(self) -> None:
        self.close()

    def _ended_without_report(self) -> Exit:
        if self._connection.is_open():
            return KILLED  # init itself was killed, and with it the whole sandbox
        raise _died()


def _died() -> MudroomError:
    return MudroomError("the sandbox launcher died", "run the command again; nothing was applied")


def _not_running() -> MudroomError:
    return MudroomError("the sandbox launcher is not running", AGAIN)


def _ask_to_clear(launcher: Connection, works: Sequence[tuple[bytes, bytes]]) -> bool:
    try:
        launcher.send({"op": "clear", "works": tuple(works)}, ())
    except MudroomError:
        return False  # the launcher is gone: each fork's next session removes what is left
    return True


def _descriptor_of(rights: bytes) -> int:
    descriptor = int.from_bytes(rights[:4], "little")
    os.set_inheritable(descriptor, False)
    return descriptor


def _offer_to_the_oom_killer(pid: int) -> None:
    """Make a process and all that it clones the kernel's first choice when the machine has no memory left: better a
    command than the user's desktop. As root a command cannot take that back (proc_pid_oom_score_adj(5))."""
    try:
        with open("/proc/self/oom_score_adj", "rb", buffering=0) as stream:
            if int(stream.read()) >= FIRST_TO_GO:
                return
        with open(f"/proc/{pid}/oom_score_adj", "wb", buffering=0) as stream:
            stream.write(b"%d" % FIRST_TO_GO)
    except OSError:
        pass  # not mounted, or forbidden: the kernel then chooses by size alone


class Client:
    """``_choosing`` guards the templates, the choice of a process and ``_works``. ``start`` and ``close`` are for the
    owner to call, and ``prepare_move`` for the holder of the lock of the limits."""

    most_templates = TEMPLATES
    gauge: Gauge | None = None
    """Effects of a container's limits, if the launcher runs in a container."""
    may_be_native = True
    """Whether inits may be native: its launcher sees the files of this machine, and MUDROOM_NATIVE is not 0. Owner: the
    machine of a session, before its commands."""
    awaits_tick = True
    """Whether its launcher waits for ``after`` of ``run``, and can be trusted with the time of the start."""
    peer = 0
    """The pid of a launcher that is not a child of this process; 0 for a child, or if the pid is not visible here."""

    def __init__(self, *, apart: bool = False) -> None:
        """With ``apart`` the launcher has none of this process's standard descriptors, for whose end a caller may
        wait."""
        self._actions = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3 if apart else 0)]
        self._launcher: Connection | None = None
        self._pid = 0
        self._place = 0
        self._ids = itertools.count(1)
        self._templates: dict[tuple[Any, ...], Connection | None] = {}
        self._works: list[tuple[bytes, bytes]] = []
        """Work directories of ended commands that the launcher is to remove."""
        self._choosing = _thread.allocate_lock()

    def start(self) -> None:
        """Start the launcher, unless it runs, and return at once; the first run waits for it if necessary.

        It is in a session of its own: signals to this process's group and the end of a terminal do not reach it. It
        ends when this process does."""
        if self._launcher is not None and self._launcher.is_open():
            return  # it was started ahead
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
        os.set_inheritable(theirs.fileno(), True)
        try:
            self._pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", "-c", _START, str(theirs.fileno())],
                {"PATH": os.defpath, "LC_ALL": "C"},
                file_actions=self._actions,
                setsid=True,
                setsigmask=GROUP_SIGNALS,  # blocked until the launcher ignores them; pending ones are then dropped
            )
        finally:
            theirs.close()
        _offer_to_the_oom_killer(self._pid)
        self._launcher = Connection(ours)

    def run(self, plan: Plan, invocation: Invocation, options: RunOptions = NO_OPTIONS) -> Running:
        """Start a command. The steps that commands share are performed once, from the second command with the same
        steps on."""
        leaf, standing = options.leaf, options.standing
        assert standing is None or leaf is None, "its init has no privilege left to enter a group"
        identity = next(self._ids)
        with self._choosing:
            if standing is None:
                connection, namespaces, steps, sent = self._choose_process(plan)
            else:
                connection, namespaces, steps, sent = standing.sandbox.parts(plan)
            connection.active.add(identity)  # keeps other threads from ending that template to make room
        optional = (
            ("view", options.view),
            ("channel", invocation.terminal),
            ("gate", options.gate),
            ("door", options.held),
        )
        sockets = [name for name, is_wanted in optional if is_wanted]
        head = {
            "op": "run",
            "id": identity,
            "into": leaf is not None and leaf.is_cloned_into,
            "refresh": standing is not None and standing.refresh,
        }
        rest = {
            "maps": plan.maps,
            "first": 0,
            "mediation": plan.mediation,
            **invocation.request(),
            "join": 0 if leaf is None or leaf.is_cloned_into else len(leaf.descriptors),
            "sockets": sockets,
            "held": options.held,
            "after": options.after,
        }
        groups = leaf.descriptors if leaf is not None else ()
        pairs = {name: _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM) for name in sockets}
        try:
            passed = (*invocation.stdio, *(theirs.fileno() for _ours, theirs in pairs.values()), *groups)
            try:
                report = with_report(connection, command_request(head, rest, namespaces, sent), passed)
            except MudroomError:
                if standing is not None or connection is self._launcher or self._launcher is None:
                    raise
                # The template was killed since it was chosen, and has not had the whole request.
                connection.active.discard(identity)
                connection, steps = self._launcher, plan.steps
                connection.active.add(identity)
                report = with_report(connection, command_request(head, rest, plan.namespaces, steps), passed)
        except BaseException:
            connection.active.discard(identity)
            for ours, _theirs in pairs.values():
                ours.close()
            raise
        finally:
            for _ours, theirs in pairs.values():
                theirs.close()
        view, channel, gate, door = (pairs[name][0] if name in pairs else None for name, _wanted in optional)
        return Running(connection, identity, report, steps, invocation.argv[0], view, channel, gate, door)

    def _choose_process(self, plan: Plan) -> tuple[Connection, int, tuple[Step, ...], tuple[Step, ...]]:
        """Return the process that performs a plan, its namespaces, its steps, and those of the steps that it does not
        know yet. The caller holds ``_choosing``."""
        if self._launcher is None:
            raise _not_running()
        if not plan.shared:
            return self._launcher, plan.namespaces, plan.steps, plan.steps
        shared = template_plan(plan)
        key = (self._place, shared)
        if key not in self._templates:
            self._make_room()
            self._templates[key] = None  # seen once
            return self._launcher, plan.namespaces, plan.steps, plan.steps
        template = self._templates.pop(key)
        if template is not None and not template.is_open():
            template.close()
            template = None
        if template is None:
            from mudroom.sandbox.client.template import prepare

            template, report = prepare(self._launcher, next(self._ids), shared, native=self.may_be_native)
            os.close(report)
        self._templates[key] = template  # the most recently used is the last
        own = plan.steps[plan.shared + plan.ahead : len(plan.steps) - plan.last]
        steps = (*shared.ahead, *own, *shared.last)
        return template, of_each(plan.namespaces), steps, own

    def clear(self, works: Sequence[tuple[bytes, bytes]]) -> bool:
        """Have the launcher remove work directories of overlays, as (parent, name), and return at once. It does so when
        no command runs, or for ``_MOST_WORKS`` at a time. Return False if it cannot: then nothing is done."""
        launcher = self._launcher
        if launcher is None:
            return False
        with self._choosing:
            self._works += works
            connections = [one for one in (*self._templates.values(), launcher) if one is not None]
            if len(self._works) < _MOST_WORKS and any(one.active for one in connections):
                return True  # the command that ends last asks for them
            due, self._works = self._works, []
        return _ask_to_clear(launcher, due)

    @property
    def is_shut(self) -> bool:
        """Whether it was closed, or never started."""
        return self._launcher is None

    def launcher_died(self, _ended: Exit) -> bool:
        """Return whether a command has ended because the launcher has."""
        return False

    def prepare_move(self) -> int:
        """Return the pid of the launcher, which is about to be moved into another control group. Templates that exist
        already stay in the old group and are not used for new commands."""
        self._place += 1
        return self._pid

    def end_templates(self) -> None:
        """End the templates that run no command: each has a copy of every mount of the host as it was then."""
        with self._choosing:
            for key in [key for key, template in self._templates.items() if template is None or not template.active]:
                template = self._templates.pop(key)
                if template is not None:
                    template.close()

    def _make_room(self) -> None:
        """End the templates that have been unused for longest, but none that runs a command."""
        idle = [key for key, template in self._templates.items() if template is None or not template.active]
        for key in idle[: max(0, len(self._templates) - self.most_templates + 1)]:
            template = self._templates.pop(key)
            if template is not None:
                template.close()

    def stand(self, plan: StandingPlan, door: int) -> StandingSandbox:
        """Make a standing sandbox: a template of one fork. ``door``: a listening socket, at which it is dissolved; the
        caller closes it. Raise StepFailed if a step fails."""
        if self._launcher is None:
            raise _not_running()
        from mudroom.sandbox.client.template import StandingSandbox, prepare

        place = self._place
        shared = TemplatePlan(plan.namespaces, plan.maps, plan.template, plan.ahead, ())
        made = prepare(self._launcher, next(self._ids), shared, plan.mounts, (door,), native=self.may_be_native)
        return StandingSandbox(*made, plan, lambda: self._place == place)

    def close(self) -> None:
        """End the launcher and all its sandboxes."""
        if self._works and self._launcher is not None:
            _ask_to_clear(self._launcher, self._works)
            self._works = []
        for connection in (*self._templates.values(), self._launcher):
            if connection is not None:
                connection.close()
        self._templates.clear()
        self._launcher = None
        if self._pid:
            os.waitpid(self._pid, 0)
            self._pid = 0
