"""A client whose commands are started by a launcher: start it once, then send it plans.

``LauncherClient.start()`` costs a millisecond, ``LauncherClient.run`` a few hundred microseconds. Thread-safe: each run
reports over its own pipe.

A client has three parts, and each attribute has one owner:
1. the launcher as a process (``client.LauncherProcess``): this process's child (``SpawnedLauncher``), or a
   container's first process. It owns the connection;
2. the templates (``LauncherTemplates``), which choose the process that performs a plan;
3. the work directories that are to be removed.
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
from contextlib import closing, suppress

from mudroom.core.confinement.plan import Plan, StandingPlan, Step, TemplatePlan, of_each, template_plan
from mudroom.core.system import rights
from mudroom.core.system.closing import ClosedOnError, Descriptor
from mudroom.core.system.launcher import LAUNCHER, PROTOCOL
from mudroom.core.tree.path import show
from mudroom.errors import LauncherDied, MudroomError, Unsupported
from mudroom.sandbox.client.connection import AGAIN, Connection, command_request, wait_readable, with_report
from mudroom.sandbox.client.invocation import KILLED, NO_OPTIONS, ClientTraits, Exit, Invocation, RunOptions
from mudroom.sandbox.client.report import parse_report, read_report
from mudroom.typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from mudroom.sandbox.client.client import LauncherProcess
    from mudroom.sandbox.client.template import StandingSandbox


_GROUP_SIGNALS = (1, 2, 3, 15, 20)
"""HUP, INT, QUIT, TERM and TSTP: the signals that terminals, timeout(1) and CI send to a whole process group."""
_MOST_LISTENERS = 253
"""SCM_MAX_FD, unix(7)."""
FIRST_TO_GO = 500
"""oom_score_adj: as if it also used half the machine's memory."""
_MOST_WORKS = 256
TEMPLATES = 8
"""Templates that are kept. Each is a small process, with another one that waits for the next command."""


class Fate(NamedTuple):
    """How to interpret a command's end. This differs by the process that started the command."""

    failed: Callable[[tuple[Any, ...]], MudroomError]
    """Return the error for a report that the command never ran."""
    vanished: Callable[[], Exit]
    """Return the end of a command that sent no report, or raise MudroomError."""
    is_moot: Callable[[str], bool] = lambda _op: False
    """Return whether a failed request ("signal", "pause" or "resume") is no error."""
    exited: Callable[[], object] = lambda: None
    """Called when the command has run and ended."""


class LaunchedCommand:
    """A command whose end is reported over a pipe: ``client.Running``.

    The report's owner: the thread that waits for the command. Sockets are taken by single dict operations; the thread
    that takes one closes it.
    """

    notes: tuple[str, ...] = ()

    def __init__(
        self, connection: Connection, identity: int, report: int, fate: Fate, sockets: dict[str, _socket.socket]
    ) -> None:
        """``sockets``: this end of the sandbox's sockets, by their names in ``OWN_SOCKETS``."""
        self._connection, self._id, self._report, self._fate = connection, identity, report, fate
        self._sockets = sockets
        self._left: tuple[list[int], list[int]] = [], []
        connection.active.add(identity)

    def fileno(self) -> int:
        return self._report

    @property
    def over(self) -> int:
        return self._report

    @property
    def gate(self) -> _socket.socket | None:
        return self._sockets.get("gate")

    def open_gate(self, _target: tuple[str, int], _key: bytes, /) -> Callable[[], Sequence[str]]:
        raise Unsupported("a bridge to the gate", "a container without the host's loopback", sys.platform)

    def has_report(self) -> bool:
        return bool(wait_readable([self._report], time.monotonic()))

    def signal(self, number: int) -> None:
        """Send a signal to the sandbox's init. It forwards TERM, HUP, USR1 and USR2 to the command, and INT and QUIT to
        the command's process group. CONT continues a command that its terminal has stopped. KILL ends every process at
        once."""
        try:
            self._connection.send({"op": "signal", "id": self._id, "signal": int(number)}, ())
        except MudroomError:
            if not self._fate.is_moot("signal"):
                raise

    def pause(self) -> None:
        self._pause_or_resume("pause")

    def resume(self) -> None:
        self._pause_or_resume("resume")

    def _pause_or_resume(self, op: str) -> None:
        try:
            with Descriptor(with_report(self._connection, {"op": op, "id": self._id}, ())) as answer:
                data = os.read(answer, 65536)
            if not data:
                raise _died()
            record = parse_report(data, read_report)
            if record[0] == "failed":
                raise MudroomError(f"the command cannot be paused: {record[1]}", "try again, or end it")
        except MudroomError:
            if not self._fate.is_moot(op):
                raise

    def view(self) -> int:
        channel = self._sockets.pop("view", None)
        if channel is None:
            hint = "request it by RunOptions.view, and take it once"
            raise MudroomError("the view of this command was not requested, or has been taken", hint)
        with closing(channel):
            _data, descriptors, _is_cut = rights.receive(channel, 1, 1)
        if not descriptors:
            raise MudroomError("the sandbox ended before it had a view", AGAIN)
        return descriptors[0]

    def own_directories(self) -> tuple[list[int], list[int]]:
        found, self._left = self._left, ([], [])
        return found if found[0] else self._take_left()

    def _close_left(self) -> None:
        for descriptor in self.own_directories()[0]:
            os.close(descriptor)

    def _take_left(self) -> tuple[list[int], list[int]]:
        channel = self._sockets.pop("left", None)
        if channel is None:
            return [], []
        with closing(channel):
            data, descriptors, _is_cut = rights.receive(channel, 1024, 8)
        return descriptors, [int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data), 8)]

    def terminal(self) -> tuple[int, _socket.socket] | None:
        channel = self._sockets.pop("channel", None)
        if channel is None:
            return None
        with ClosedOnError(channel):
            _data, descriptors, _is_cut = rights.receive(channel, 1, 1)
        if not descriptors:
            channel.close()
            return None
        return descriptors[0], channel

    def listeners(self) -> list[tuple[str, int]]:
        channel = self._sockets.pop("gate", None)
        if channel is None:
            return []
        with closing(channel):
            kinds, descriptors, _is_cut = rights.receive(channel, 4096, _MOST_LISTENERS)
        names = kinds.decode().split()
        if len(descriptors) < len(names):  # MSG_CTRUNC: more than RLIMIT_NOFILE permits (unix(7))
            for descriptor in descriptors:
                os.close(descriptor)
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return list(zip(names, descriptors, strict=True))

    def door(self) -> _socket.socket:
        data = os.read(self._report, 65536)
        record = parse_report(data) if data else None
        if record is None:
            raise _died()
        if record[0] != "ready":
            raise self._fate.failed(record)
        return self._sockets.pop("door")

    def wait(self) -> Exit:
        left = self._left
        try:
            data = os.read(self._report, 65536)  # written at once: at most PIPE_BUF
            record = parse_report(data) if data else None
            left = self._take_left()  # now: what is not taken is closed
            if record is None or (record[0] == "exited" and not record[-1]):
                self.wait_gone()  # processes are left: they end with init, and the pipe with it
        finally:
            self._left = left
            self._connection.active.discard(self._id)
        if record is not None and record[0] != "exited":
            self._close_left()  # nobody asks what a command has left that did not start
            raise self._fate.failed(record)
        ended = self._fate.vanished() if record is None else Exit(*record[1:-1])
        self._fate.exited()
        return ended

    def wait_gone(self) -> None:
        """After ``wait``: block until the sandbox's init and all its mounts are gone, too.

        The end of file on the report pipe proves it. Init closes the pipe as it ends, the launcher when it has reaped
        init, and a process is reaped only after it has given up its mount namespace (exit_task_namespaces and
        exit_task_work in kernel/exit.c come before exit_notify). Usually this has long happened when this is called.
        """
        self._close_untaken()
        while self._report >= 0 and os.read(self._report, 65536):
            pass
        self.close()

    def close(self) -> None:
        report, self._report = self._report, -1
        if report >= 0:
            os.close(report)
        self._close_untaken()
        self._close_left()
        self._connection.active.discard(self._id)

    def _close_untaken(self) -> None:
        """Close the sockets that were not taken. A view in transit would keep its mount alive."""
        for name in list(self._sockets):
            sock = self._sockets.pop(name, None)
            if sock is not None:
                sock.close()

    def __del__(self) -> None:
        self.close()


def _died() -> LauncherDied:
    return LauncherDied("the sandbox launcher died", "run the command again; nothing was applied")


_MFD_EXEC = 0x10
"""memfd_create(2): Linux 6.3, which else makes a file without the right to execute it where vm.memfd_noexec is set."""
_F_ADD_SEALS, _SEALS, _F_SEAL_EXEC = 1033, 0xF, 0x20
"""fcntl(2): against another seal, another size, a write; and against another right to execute it."""
_MORE = {
    errno.EAGAIN: "permit more processes: ulimit -u",
    errno.ENOMEM: "permit more memory: ulimit -v",
    errno.EMFILE: "permit more open files: ulimit -n 1024",
}
"""Hints for a user's limit that is too small, by errno."""
_program: list[bytes] = []
"""The launcher's content, once it was read: a process starts launchers of its own version."""


def sealed_program() -> int:
    """Return a descriptor of the launcher in memory, sealed; the caller closes it. Until its exec each process in a
    sandbox is a clone of the launcher, so that program is in a command's reach by /proc/self/exe: a file could be
    changed by it (compare CVE-2019-5736). Each launcher has its own copy: a command takes its mode away by an access
    control list, which no seal prevents, and the next launcher could not start from it.

    Raise MudroomError if there is no launcher, or no such copy."""
    try:
        if not _program:
            with open(LAUNCHER, "rb", buffering=0) as stream:
                _program.append(stream.read())
        return _sealed(_program[0])
    except FileNotFoundError as error:
        hint = "install mudroom again; in a checkout: dev/native"
        raise MudroomError(f"the sandbox launcher is missing: {show(LAUNCHER)}", hint) from error
    except OSError as error:
        why = f"a copy of its program in memory is refused: {error.strerror}"
        hint = _MORE.get(error.errno or 0, "sysctl vm.memfd_noexec=0")
        raise MudroomError(f"the sandbox launcher cannot be started: {why}", hint) from error


def _sealed(content: bytes) -> int:
    """Return a descriptor of a copy of which nobody can change the content, nor, since Linux 6.3, whether it may be
    executed."""
    import fcntl  # not on Windows, where doctor loads this module

    flags, seals = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING, _SEALS | _F_SEAL_EXEC
    try:
        descriptor = os.memfd_create("mudroom-launcher", flags | _MFD_EXEC)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        descriptor, seals = os.memfd_create("mudroom-launcher", flags), _SEALS
    with ClosedOnError(descriptor):
        if os.write(descriptor, content) != len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fcntl.fcntl(descriptor, _F_ADD_SEALS, seals)
    return descriptor


def _spawn(actions: Sequence[tuple[Any, ...]]) -> tuple[_socket.socket, int]:
    """Start a launcher. Return the socket to it, and its pid. ``actions``: for posix_spawn(3).

    It has its own session: signals to this process's group and a terminal's hang-up do not reach it.
    """
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
    os.set_inheritable(theirs.fileno(), True)
    words = (PROTOCOL, str(theirs.fileno()))
    # The signals are blocked until the launcher ignores them; pending ones are then dropped.
    how: Any = {"file_actions": actions, "setsid": True, "setsigmask": _GROUP_SIGNALS}
    try:
        with open(sealed_program(), "rb", buffering=0) as program:
            pid = os.posix_spawn(f"/proc/self/fd/{program.fileno()}", words, {}, **how)
    except OSError as error:
        ours.close()
        why = f"{show(LAUNCHER)}: {error.strerror}"
        hint = _MORE.get(error.errno or 0, "install mudroom again")
        raise MudroomError(f"the sandbox launcher cannot be started: {why}", hint) from error
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    _offer_to_the_oom_killer(pid)
    return ours, pid


def _offer_to_the_oom_killer(pid: int) -> None:
    """Make a process and its clones the kernel's first choice when the machine has no memory left: better a command
    than the user's desktop. If mudroom runs as root, a command cannot take that back (proc_pid_oom_score_adj(5))."""
    with (  # not mounted, or forbidden: the kernel then chooses by size alone
        suppress(OSError),
        open(f"/proc/{pid}/oom_score_adj", "r+b", buffering=0) as stream,
    ):
        if int(stream.read()) < FIRST_TO_GO:
            stream.write(b"%d" % FIRST_TO_GO)


class SpawnedLauncher:
    """A launcher that is this process's child. Owner: its client's owner."""

    most_templates, is_local = TEMPLATES, True
    traits = ClientTraits(awaits_tick=True)

    def __init__(self, *, apart: bool = False) -> None:
        """``apart``: it does not get this process's standard descriptors, for whose end a caller may wait."""
        self._actions = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3 if apart else 0)]
        self.connection: Connection | None = None
        self.pid = 0

    def start(self) -> None:
        """Start it, unless it runs. It ends when this process does."""
        if self.connection is not None and self.connection.is_open():
            return  # it was started ahead
        self.close()  # it was killed
        ours, self.pid = _spawn(self._actions)
        self.connection = Connection(ours)

    def require_pid(self) -> int:
        return self.pid

    def template_ahead(self, _shared: TemplatePlan | None) -> None:
        return None

    def has_ended(self) -> bool:
        return False

    def close(self) -> None:
        pid = self.let_go()
        if pid:
            os.waitpid(pid, 0)

    def let_go(self) -> int:
        """End it without waiting. Return its pid for waitpid(2), or 0 if there is none."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()
        pid, self.pid = self.pid, 0
        return pid


class LauncherTemplates:
    """``client.Templates``. ``_choosing`` guards the templates and the choice. ``_place`` is for the holder of the
    limits' lock."""

    def __init__(self, launcher: LauncherProcess) -> None:
        self._launcher = launcher
        self._place = 0
        self._templates: dict[tuple[Any, ...], Connection | None] = {}
        self._choosing = _thread.allocate_lock()

    def connections(self) -> list[Connection]:
        with self._choosing:
            return [template for template in self._templates.values() if template is not None]

    def choose(
        self, plan: Plan, standing: StandingSandbox | None, identity: int
    ) -> tuple[Connection, int, tuple[Step, ...], tuple[Step, ...]]:
        """Return the process that performs a plan, its namespaces, its steps, and the steps that it does not know yet.
        Steps that commands share are performed once, from the second command with the same steps on."""
        with self._choosing:
            chosen = self._choose(plan) if standing is None else standing.parts(plan)
            chosen[0].active.add(identity)  # keeps other threads from ending that template to make room
        return chosen

    def _choose(self, plan: Plan) -> tuple[Connection, int, tuple[Step, ...], tuple[Step, ...]]:
        shared = template_plan(plan) if plan.shared else None
        ahead = self._launcher.template_ahead(shared)
        launcher = self._require_launcher()
        if shared is None:
            return launcher, plan.namespaces, plan.steps, plan.steps
        key = (self._place, shared)
        if ahead is not None:
            self._templates[key] = ahead
        if key not in self._templates:
            self._make_room()
            self._templates[key] = None  # seen once
            return launcher, plan.namespaces, plan.steps, plan.steps
        template = self._templates.pop(key)
        if template is not None and not template.is_open():
            template.close()
            template = None
        if template is None:
            from mudroom.sandbox.client.template import prepare

            template, report = prepare(launcher, shared)
            os.close(report)
        self._templates[key] = template  # the most recently used is the last
        own = plan.steps[plan.shared + plan.ahead : len(plan.steps) - plan.last]
        steps = (*shared.ahead, *own, *shared.last)
        return template, of_each(plan.namespaces), steps, own

    def _require_launcher(self) -> Connection:
        launcher = self._launcher.connection
        if launcher is not None and not launcher.is_open():
            self._launcher.start()  # the kernel has killed it, where memory is short
            launcher = self._launcher.connection
        if launcher is None:
            raise MudroomError("the sandbox launcher is not running", AGAIN)
        return launcher

    def _make_room(self) -> None:
        """End the templates that have been unused for longest, but none that runs a command."""
        self._end(max(0, len(self._templates) - self._launcher.most_templates + 1))

    def _end(self, most: int) -> None:
        idle = [key for key, template in self._templates.items() if template is None or not template.active]
        for key in idle[:most]:
            template = self._templates.pop(key)
            if template is not None:
                template.close()

    def end_idle(self) -> None:
        with self._choosing:
            self._end(len(self._templates))

    def stand(self, plan: StandingPlan, door: int) -> StandingSandbox:
        launcher = self._require_launcher()
        from mudroom.sandbox.client.template import StandingSandbox, prepare

        place = self._place
        shared = TemplatePlan(plan.namespaces, plan.maps, plan.template, plan.ahead, ())
        made = prepare(launcher, shared, plan.mounts, (door,))
        return StandingSandbox(*made, plan, lambda: self._place == place)

    def leave_place(self) -> None:
        """Use the existing templates for no new command: the launcher is moved into another control group."""
        self._place += 1

    def close(self) -> None:
        for template in self._templates.values():
            if template is not None:
                template.close()
        self._templates.clear()


OWN_SOCKETS = ("view", "left", "channel", "gate", "door")
"""A sandbox's sockets, in the order in which they are passed."""


class LauncherClient:
    """``client.Client`` for a launcher. ``_clearing`` guards ``_works``."""

    def __init__(self, launcher: LauncherProcess) -> None:
        self.launcher, self.templates, self.traits = launcher, LauncherTemplates(launcher), launcher.traits
        self._ids = itertools.count(1)
        self._works: list[tuple[bytes, bytes]] = []
        """Work directories of ended commands that the launcher is to remove."""
        self._clearing = _thread.allocate_lock()

    def start(self) -> None:
        self.launcher.start()

    def run(self, plan: Plan, invocation: Invocation, options: RunOptions = NO_OPTIONS) -> LaunchedCommand:
        leaf, standing = options.leaf, options.standing
        assert standing is None or leaf is None, "its init has no privilege left to enter a group"
        identity = next(self._ids)
        place = None if standing is None else standing.sandbox
        connection, namespaces, steps, sent = self.templates.choose(plan, place, identity)
        wanted = (options.view, options.left, invocation.terminal, options.gate, options.held)
        sockets = [name for name, is_wanted in zip(OWN_SOCKETS, wanted, strict=True) if is_wanted]
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
                launcher = self.launcher.connection
                if standing is not None or launcher is None or connection is launcher:
                    raise
                # The template was killed since it was chosen, and has not received the whole request.
                connection.active.discard(identity)
                connection, steps = launcher, plan.steps
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
        fate = _fate_of(self.launcher, connection, steps, invocation.argv[0])
        return LaunchedCommand(connection, identity, report, fate, {name: pair[0] for name, pair in pairs.items()})

    def clear(self, works: Sequence[tuple[bytes, bytes]]) -> bool:
        """Have the launcher remove overlay work directories, given as (parent, name), and return at once. It does so
        when no command runs, or when ``_MOST_WORKS`` have gathered. Return False if it cannot: then nothing is done."""
        launcher = self.launcher.connection
        if launcher is None or not self.launcher.is_local:
            return False
        connections = (*self.templates.connections(), launcher)
        with self._clearing:
            self._works += works
            if len(self._works) < _MOST_WORKS and any(connection.active for connection in connections):
                return True  # the command that ends last has them removed
            due, self._works = self._works, []
        return _ask_to_clear(launcher, due)

    def prepare_move(self) -> int:
        """Return the launcher's pid. Existing templates stay in the old group and are not used for new commands."""
        pid = self.launcher.require_pid()
        self.templates.leave_place()
        return pid

    def close(self) -> None:
        if self._works and self.launcher.connection is not None:
            _ask_to_clear(self.launcher.connection, self._works)
            self._works = []
        self.templates.close()
        self.launcher.close()


def _fate_of(launcher: LauncherProcess, connection: Connection, steps: Sequence[Step], program: bytes) -> Fate:
    """Return the fate of a command that performs these steps in its own sandbox."""

    def failed(record: tuple[Any, ...]) -> MudroomError:
        from mudroom.sandbox.client.failure import failure_of

        return failure_of(record, steps, program)

    def vanished() -> Exit:
        if not connection.is_open() or launcher.has_ended():
            raise _died()
        return KILLED  # init itself was killed, and with it the whole sandbox

    return Fate(failed, vanished)


def _ask_to_clear(launcher: Connection, works: Sequence[tuple[bytes, bytes]]) -> bool:
    try:
        launcher.send({"op": "clear", "works": tuple(works)}, ())
    except MudroomError:
        return False  # the launcher is gone: each fork's next session removes the rest
    return True
