"""The launcher: the small resident program that performs plans.

It runs as a process of its own (``python -I -S``), receives requests over a socket, and for each one
clones a child into new namespaces, performs the plan's steps there, drops every privilege and runs the command.

Rules of this file:
1. It imports nothing of mudroom, and of the library only what the architecture test lists: every millisecond of
   start-up here is a millisecond of every cold ``mudroom run``.
2. It decides nothing. A plan is a list of tuples ``(op, *arguments)``; ``STEPS`` says what each op does. What is
   not in the plan does not happen.
3. It is single-threaded and stays so: it clones without exec, which is only sound while no other thread exists.
4. Any failure before the exec ends the child and is reported with the index of the step; the command has not run.

Processes: ``launcher`` (host namespaces) → ``init`` (pid 1 of the sandbox: performs the plan, then reaps) →
``command``. The kernel kills all that is left in a pid namespace when its init ends (pid_namespaces(7)).

From its second command on, a session has a ``template`` between launcher and init: a launcher of its own inside a
user and mount namespace in which the first steps of the plan, which do not depend on the command, have been
performed. Every init is cloned from it with a copy of that mount namespace, and performs the rest. The template
clones one init ahead of time, the ``spare``, so that the next command does not wait for its namespaces to be made.

Wire format, both ways little-endian: 4 bytes length, then that many bytes of ``marshal``. Descriptors travel with
the length (SCM_RIGHTS). Only the host process and this one ever hold the socket.

The report pipe of a run carries one marshalled tuple, ``("failed", step index, op, errno, detail)`` or
``("exited", wait status, user s, system s, max RSS KiB, refused metadata changes, empty)``; ``empty`` says that no
process but init is left in the sandbox. The pipe's end of file means that init is gone, too.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import marshal
import os
import resource  # noqa: F401 - os.wait4 imports it, and must not do so where a command could have put one
import select
import sys

from mudroom.sandbox.kernel import (
    CLONE_NEWPID,
    CLONE_NEWUSER,
    ENOENT,
    ENOEXEC,
    ENOTDIR,
    PR_SET_CHILD_SUBREAPER,
    PR_SET_DUMPABLE,
    PR_SET_PDEATHSIG,
    SYS_clone,
    SYS_close_range,
    prctl,
    syscall,
)
from mudroom.sandbox.step import STEPS, Context

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    Options = Sequence[tuple[bytes, bytes | None]]
    Request = dict[str, Any]
    Plan = tuple[tuple[Any, ...], ...]


def clone(flags: int) -> int:
    """fork with namespaces: clone(2) with a null stack behaves as fork does."""
    return syscall(SYS_clone, flags | _signal.SIGCHLD, 0, 0, 0, 0)


def write_file(path: bytes, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, content)
    finally:
        os.close(descriptor)


def map_ids(pid: int, uid_map: bytes, gid_map: bytes, deny_setgroups: bool) -> None:
    """Identity maps for a child's user namespace; an ordinary user may map only itself (user_namespaces(7))."""
    if deny_setgroups:
        write_file(b"/proc/%d/setgroups" % pid, b"deny")
    write_file(b"/proc/%d/uid_map" % pid, uid_map)
    write_file(b"/proc/%d/gid_map" % pid, gid_map)


class ReportedError(Exception):
    """The failure has been written to the report pipe; nothing is left to do but to end."""


def tell(report: int, record: tuple[Any, ...]) -> None:
    os.write(report, marshal.dumps(record))


def perform(plan: Plan, report: int, context: Context, first: int = 0) -> Context:
    """Perform steps; the first of them is number ``first`` of what the host knows as the plan."""
    for index, step in enumerate(plan, first):
        try:
            STEPS[step[0]](context, *step[1:])
        except OSError as error:
            detail = str(error.filename or "")
            tell(report, ("failed", index, step[0], error.errno or 0, detail or error.strerror or ""))
            raise ReportedError from None
    return context


def start_program(
    start: Callable[[bytes, list[bytes]], int | None], argv: list[bytes], search: list[bytes]
) -> int | None:
    """Call ``start(path, argv)``, looking through the directories of ``search`` as execvp(3) does, which also runs a
    file without a known format with the shell."""
    program = argv[0]
    candidates = [program] if b"/" in program else [d + b"/" + program for d in search]
    failure = OSError(ENOENT, "not found")
    for candidate in candidates:
        try:
            return start(candidate, argv)
        except OSError as error:
            if error.errno == ENOEXEC:
                return start(b"/bin/sh", [b"sh", candidate, *argv[1:]])
            if error.errno not in (ENOENT, ENOTDIR):
                failure = error
    raise failure


# The terminal sends these to the whole foreground group. They are meant for the command, so init lives through them.
TERMINAL_SIGNALS = (_signal.SIGINT, _signal.SIGQUIT, _signal.SIGTSTP, _signal.SIGTTIN, _signal.SIGTTOU)
FORWARDED_SIGNALS = (_signal.SIGTERM, _signal.SIGHUP, _signal.SIGUSR1, _signal.SIGUSR2)
# The interpreter ignores these at start; a command must not inherit that.
RESET_SIGNALS = (*TERMINAL_SIGNALS, *FORWARDED_SIGNALS, _signal.SIGPIPE, _signal.SIGXFSZ)


def hand_over_listener(channel: _socket.socket, program: bytes) -> None:
    """In the command's process: route metadata calls to init, which is waiting for the listener."""
    from mudroom.sandbox.mediator import install

    listener = install(program)
    channel.sendmsg([b"l"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, listener.to_bytes(4, "little"))])
    channel.close()
    os.close(listener)


def mediate(channel: _socket.socket, request: Request, command: int) -> list[bytes]:
    """In init: answer the command's metadata calls until it ends. Returns what was refused, the first few."""
    from mudroom.sandbox.mediator import Mediator

    _data, ancillary, _flags, _address = channel.recvmsg(1, _socket.CMSG_SPACE(4))
    channel.close()
    if not ancillary:
        return []  # the command ended before it could be started, and has said why
    listener = int.from_bytes(ancillary[0][2][:4], "little")
    os.set_inheritable(listener, False)
    _program, rows, roots = request["mediation"]
    mediator = Mediator(listener, rows, roots)
    mediator.attend(os.pidfd_open(command))
    return list(mediator.refused)


def spawn(request: Request) -> int:
    """Start the command, as cheaply as can be: posix_spawn(3) shares our memory until the exec, fork would copy it."""
    env, new_session = request["env"], request["new_session"]

    def start(path: bytes, argv: list[bytes]) -> int:
        return os.posix_spawn(path, argv, env, setsigdef=RESET_SIGNALS, setsid=new_session)

    command = start_program(start, request["argv"], request["search"])
    assert command is not None
    return command


def fork_mediated(request: Request, report: int, channel: _socket.socket) -> int:
    """Start the command with a filter of its own, which only the process that becomes it may install."""
    command = os.fork()
    if command:
        return command
    try:
        for number in RESET_SIGNALS:
            _signal.signal(number, _signal.SIG_DFL)
        if request["new_session"]:
            os.setsid()
        hand_over_listener(channel, request["mediation"][0])
        start_program(lambda path, argv: os.execve(path, argv, request["env"]), request["argv"], request["search"])
    except OSError as error:
        tell(report, ("failed", -1, "exec", error.errno or 0, ""))
    finally:
        os._exit(127)


def reap(command: int, own_pid_namespace: bool) -> tuple[int, Any, bool]:
    """Wait for the command, reaping every orphan meanwhile. Returns its wait status, its resource use, and whether
    nobody is left: init inherits every orphan, so without children it is alone."""
    while True:
        pid, status, usage = os.wait4(-1, 0)
        if pid == command:
            break
    if not own_pid_namespace:
        end_children(())
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return status, usage, True
    return status, usage, False


def end_children(spared: Sequence[int]) -> None:
    """Kill and reap all children but ``spared``; as a subreaper we inherit their children in turn."""
    while True:
        with_children = b"/proc/self/task/%d/children" % os.getpid()
        descriptor = os.open(with_children, os.O_RDONLY | os.O_CLOEXEC)
        children = [int(word) for word in os.read(descriptor, 65536).split()]
        os.close(descriptor)
        targets = [pid for pid in children if pid not in spared]
        if not targets:
            return
        for pid in targets:
            os.kill(pid, _signal.SIGKILL)
            os.waitpid(pid, 0)


def enter(ready: int | None) -> None:
    """The first instructions of a cloned child: die with the launcher, wait for our id maps, be nobody's to trace."""
    prctl(PR_SET_PDEATHSIG, _signal.SIGKILL)
    for number in TERMINAL_SIGNALS:
        _signal.signal(number, _signal.SIG_IGN)
    if ready is not None and os.read(ready, 1) != b"g":
        os._exit(125)  # the launcher is gone, or could not write our id maps and has said so
    prctl(PR_SET_DUMPABLE, 0)  # not earlier: it makes our /proc files root's, the id maps included


def run_init(request: Request, descriptors: list[int], report: int, context: Context | None = None) -> None:
    """Pid 1 of a sandbox: perform the plan, start the command, reap, report."""
    own_pid_namespace = bool(request["namespaces"] & CLONE_NEWPID)
    if not own_pid_namespace:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
    for target, descriptor in enumerate(descriptors):
        os.dup2(descriptor, target)
    if request["mediation"]:
        import mudroom.sandbox.mediator  # noqa: F401 - now: under Landlock its file may be out of reach
    if context is None:
        context = Context(request["namespaces"])
        report = keep_only([report], 3)
    else:
        report = keep_only([report, context.root], 3)
        context.root = report + 1
    perform(request["plan"], report, context, request["first"])
    refused: list[bytes] = []
    if request["mediation"]:
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
        command = fork_mediated(request, report, theirs)
        theirs.close()
    else:
        try:
            command = spawn(request)
        except OSError as error:
            tell(report, ("failed", -1, "exec", error.errno or 0, ""))
            return
    forward_signals(command)
    for descriptor in (0, 1, 2):
        os.close(descriptor)  # a pipe of the command must end when the command does
    if request["mediation"]:
        refused = mediate(ours, request, command)
    status, usage, empty = reap(command, own_pid_namespace)
    tell(report, ("exited", status, usage.ru_utime, usage.ru_stime, usage.ru_maxrss, tuple(refused), empty))


def forward_signals(command: int) -> None:
    def forward(received: int, _frame: object) -> None:
        try:
            os.kill(command, received)
        except ProcessLookupError:
            pass  # it has just ended

    for number in FORWARDED_SIGNALS:
        _signal.signal(number, forward)


def run_template(request: Request, descriptors: list[int], report: int) -> None:
    """Perform the steps that all commands of a session share, then be their launcher."""
    report = keep_only([report, *descriptors], 3)
    context = perform(request["plan"], report, Context(request["namespaces"]))
    os.fchdir(context.root)  # a clone finds the copy of this mount in its own namespace as its working directory
    os.close(context.root)
    tell(report, ("prepared",))
    os.close(report)
    serve(_socket.socket(fileno=4), Ahead(request["ahead"], request["each"]))


def run_spare(channel: _socket.socket, ahead: Plan, namespaces: int) -> None:
    """An init without a command yet: perform what needs none, then wait for it."""
    try:
        enter(None)
        channel = _socket.socket(fileno=keep_only([channel.detach()], 3))
        context = perform(ahead, -1, Context(namespaces))
        request, descriptors = receive(channel)
        channel.close()
        if request is not None:
            become(request, descriptors[:-1], descriptors[-1], None, context)
    except OSError:
        pass  # the template sees that we ended, and starts the next command without us: it will find the error again
    finally:
        os._exit(125)


ROLES = {"run": run_init, "prepare": run_template}


def become(
    request: Request, descriptors: list[int], report: int, ready: int | None, context: Context | None = None
) -> None:
    """A cloned child, from its first instruction (or, of a spare, from its command on) to its end. Never returns."""
    code = 125
    try:
        if context is None:
            enter(ready)
            ROLES[request["op"]](request, descriptors, report)
        else:
            run_init(request, descriptors, report, context)
        code = 0
    except ReportedError:
        pass
    except BaseException as error:  # noqa: BLE001 - whatever it is, the host must hear of it and nothing may run on
        record = ("failed", -1, "init", getattr(error, "errno", 0) or 0, repr(error))
        try:
            tell(report, record)
        except OSError:
            tell(3, record)  # it has been moved there
    finally:
        os._exit(code)


def keep_only(descriptors: list[int], first: int) -> int:
    """Move ``descriptors`` to numbers from ``first`` on (close-on-exec) and close all above: no other one gets in."""
    if descriptors != [first]:
        free = max(*descriptors, first + len(descriptors)) + 1  # by way of these: they may be in each other's way
        high = [os.dup2(descriptor, free + index, inheritable=False) for index, descriptor in enumerate(descriptors)]
        for index, descriptor in enumerate(high):
            os.dup2(descriptor, first + index, inheritable=False)
    syscall(SYS_close_range, first + len(descriptors), 0xFFFFFFFF, 0)
    return first


class Ahead:
    """What a template prepares ahead of a command: the steps, and the namespaces of each command."""

    def __init__(self, steps: Plan, namespaces: int) -> None:
        self.steps, self.namespaces = steps, namespaces
        self.spare: Run | None = None
        self.channel: _socket.socket | None = None

    def refill(self) -> Run | None:
        """Clone a spare if there is none. Returns it if it is new."""
        if self.spare is not None:
            return None
        self.channel, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            pid = clone(self.namespaces)
        except OSError:
            return None  # the next command is cloned when it comes, and says what is wrong
        if pid == 0:
            run_spare(theirs, self.steps, self.namespaces)
        theirs.close()
        self.spare = Run(0, pid, os.pidfd_open(pid), -1)
        return self.spare

    def take(self, request: Request, descriptors: list[int]) -> bool:
        """Hand a command to the spare. False if there is none."""
        spare, channel = self.spare, self.channel
        if spare is None or channel is None:
            return False
        own = {**request, "plan": request["plan"][len(self.steps) :], "first": len(self.steps)}
        try:
            send(channel, own, descriptors)
        except OSError:
            return False  # it ended; its pidfd says so to the loop
        channel.close()
        spare.identity, spare.report = request["id"], descriptors[-1]
        for descriptor in descriptors[:-1]:
            os.close(descriptor)
        self.spare = self.channel = None
        return True


class Run:
    def __init__(self, identity: int, pid: int, pidfd: int, report: int) -> None:
        self.identity, self.pid, self.pidfd, self.report = identity, pid, pidfd, report


def start(request: Request, descriptors: list[int]) -> Run | None:
    """Clone a sandbox's init, or a template. ``descriptors`` are all ours to close; the last is the report pipe."""
    report = descriptors[-1]
    ready_read, ready_write = os.pipe2(os.O_CLOEXEC)
    try:
        pid = clone(request["namespaces"])
    except OSError as error:
        tell(report, ("failed", -1, "clone", error.errno or 0, ""))
        for descriptor in (*descriptors, ready_read, ready_write):
            os.close(descriptor)
        return None
    if pid == 0:
        os.close(ready_write)
        become(request, descriptors[:-1], report, ready_read)
    os.close(ready_read)
    for descriptor in descriptors[:-1]:
        os.close(descriptor)
    go = b"g"
    if request["namespaces"] & CLONE_NEWUSER:
        try:
            map_ids(pid, *request["maps"])
        except OSError as error:
            tell(report, ("failed", -1, "map_ids", error.errno or 0, str(error.filename)))
            go = b"n"
    os.write(ready_write, go)
    os.close(ready_write)
    return Run(request["id"], pid, os.pidfd_open(pid), report)


# --- the loop -----------------------------------------------------------------------------------------------------


def send(channel: _socket.socket, message: Request, descriptors: list[int]) -> None:
    data = marshal.dumps(message)
    rights = b"".join(descriptor.to_bytes(4, "little") for descriptor in descriptors)
    channel.sendmsg([len(data).to_bytes(4, "little")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
    channel.sendall(data)


def receive(control: _socket.socket) -> tuple[Request | None, list[int]]:
    """One request and its descriptors, or None at the end."""
    head, ancillary, _flags, _address = control.recvmsg(4, _socket.CMSG_SPACE(64))
    if not head:
        return None, []
    descriptors: list[int] = []
    for _level, _kind, data in ancillary:
        descriptors += [int.from_bytes(data[i : i + 4], "little") for i in range(0, len(data) - 3, 4)]
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    length = int.from_bytes(head, "little")
    parts: list[bytes] = []
    while length:
        part = control.recv(min(length, 1 << 20))
        if not part:
            return None, []
        parts.append(part)
        length -= len(part)
    return marshal.loads(b"".join(parts)), descriptors


class Loop:
    """Serves requests until the other end of ``control`` is closed; then kills what is left."""

    def __init__(self, control: _socket.socket, ahead: Ahead | None) -> None:
        self._control, self._ahead = control, ahead
        self._runs: dict[int, Run] = {}
        self._poller = select.poll()
        self._poller.register(control.fileno(), select.POLLIN)

    def run(self) -> None:
        while True:
            self._refill()
            for descriptor, _events in self._poller.poll():
                if descriptor in self._runs:
                    self._finish(descriptor)
                elif descriptor == self._control.fileno():
                    request, descriptors = receive(self._control)
                    if request is None:
                        self._end()
                        return
                    self._handle(request, descriptors)

    def _watch(self, run: Run | None) -> None:
        if run is not None:
            self._runs[run.pidfd] = run
            self._poller.register(run.pidfd, select.POLLIN)

    def _refill(self) -> None:
        if self._ahead is not None:
            self._watch(self._ahead.refill())

    def _handle(self, request: Request, descriptors: list[int]) -> None:
        if request["op"] == "signal":
            for run in self._runs.values():
                if run.identity == request["id"]:
                    os.kill(run.pid, request["signal"])
        elif self._ahead is None or not self._ahead.take(request, descriptors):
            self._watch(start(request, descriptors))

    def _finish(self, pidfd: int) -> None:
        run = self._runs.pop(pidfd)
        self._poller.unregister(pidfd)
        os.waitpid(run.pid, 0)
        if self._ahead is not None and self._ahead.spare is run:
            self._ahead.spare = None
            self._ahead = None  # it could not be prepared: do not try for every command again
        end_children([other.pid for other in self._runs.values()])  # orphans of a sandbox without a pid namespace
        os.close(pidfd)
        if run.report >= 0:
            os.close(run.report)

    def _end(self) -> None:
        for run in self._runs.values():
            os.kill(run.pid, _signal.SIGKILL)
        for run in self._runs.values():
            os.waitpid(run.pid, 0)
        end_children(())


def serve(control: _socket.socket, ahead: Ahead | None = None) -> None:
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    for number in (*TERMINAL_SIGNALS, _signal.SIGHUP, _signal.SIGPIPE):
        _signal.signal(number, _signal.SIG_IGN)
    _signal.signal(_signal.SIGTSTP, _signal.SIG_DFL)  # Ctrl-Z stops the launcher with the rest of the group
    Loop(control, ahead).run()


def main() -> None:
    serve(_socket.socket(fileno=int(sys.argv[-1])))
