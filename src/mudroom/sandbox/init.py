"""Pid 1 of a sandbox: performs a plan, starts the command, reaps, reports.

Part of the launcher's process: the rules at the top of ``launcher.py`` hold here. Everything here runs in a clone of
it, in the sandbox's namespaces.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import os
import resource  # noqa: F401 - os.wait4 imports it, and must not do so where a command could have put one

from mudroom.sandbox.kernel import (
    CLONE_NEWCGROUP,
    CLONE_NEWPID,
    ENOENT,
    ENOEXEC,
    ENOTDIR,
    PR_SET_CHILD_SUBREAPER,
    PR_SET_DUMPABLE,
    PR_SET_PDEATHSIG,
    SYS_close_range,
    prctl,
    syscall,
    unshare,
)
from mudroom.sandbox.refusal import Refusals, reap_and_answer
from mudroom.sandbox.step import STEPS, Context
from mudroom.sandbox.wire import tell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, NoReturn

    from mudroom.sandbox.wire import Request

    Plan = tuple[tuple[Any, ...], ...]


class Run:
    """An init, or a template, as the launcher that cloned it knows it."""

    def __init__(self, identity: int, pid: int, pidfd: int, report: int) -> None:
        self.identity, self.pid, self.pidfd, self.report = identity, pid, pidfd, report
        self.stopped: list[int] = []
        """Its processes that a pause has stopped."""


class ReportedError(Exception):
    """The failure has been written to the report pipe; nothing is left to do but to end."""


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


def reap(
    command: int, own_pid_namespace: bool, refusals: Refusals | None = None, listener: int = -1
) -> tuple[int, Any, bool]:
    """Wait for the command, reaping every orphan meanwhile. Returns its wait status, its resource use, and whether
    nobody is left: init inherits every orphan, so without children it is alone."""
    if refusals is not None:
        status, usage = reap_and_answer(command, refusals, listener)
    else:
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


def join(request: Request, descriptors: list[int], report: int) -> list[int]:
    """Be in the command's control groups, before anything else, and have them as the root of a namespace: what is above
    them is not to be seen. Returns the other descriptors."""
    first = len(descriptors) - request["into"] - request["join"]
    if first == len(descriptors):
        return descriptors
    try:
        for descriptor in descriptors[first + request["into"] :]:
            os.write(descriptor, b"0")
        if request["namespaces"] & CLONE_NEWCGROUP:
            unshare(CLONE_NEWCGROUP)
    except OSError as error:
        tell(report, ("failed", -1, "cgroup", error.errno or 0, ""))
        raise ReportedError from None
    return descriptors[:first]


def become(role: Callable[[], None], report: int) -> NoReturn:
    """Play the part of a cloned child, to its end. Whatever goes wrong, the host hears of it, and nothing runs on."""
    code = 125
    try:
        role()
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


def run_init(request: Request, descriptors: list[int], report: int, context: Context | None = None) -> None:
    """Pid 1 of a sandbox: perform the plan, start the command, reap, report."""
    own_pid_namespace = bool(request["namespaces"] & CLONE_NEWPID)
    if not own_pid_namespace:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
    descriptors = join(request, descriptors, report)
    for target, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, target)
    if request["mediation"]:
        import mudroom.sandbox.mediator  # noqa: F401 - now: under Landlock its file may be out of reach
    view = descriptors[3:]  # where to send it: none, or one
    if context is None:
        context = Context(request["namespaces"])
        report = keep_only([report, *view], 3)
    else:
        report = keep_only([report, context.root, *view], 3)
        context.root = report + 1
    if view:
        context.view = report + 1 + (context.root >= 0)
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
    refusals = Refusals(context.listener, context.rows) if context.listener >= 0 else None
    status, usage, empty = reap(command, own_pid_namespace, refusals, context.listener)
    refused += refusals.told() if refusals is not None else ()
    tell(report, ("exited", status, usage.ru_utime, usage.ru_stime, usage.ru_maxrss, tuple(refused), empty))


def forward_signals(command: int) -> None:
    def forward(received: int, _frame: object) -> None:
        try:
            os.kill(command, received)
        except ProcessLookupError:
            pass  # it has just ended

    for number in FORWARDED_SIGNALS:
        _signal.signal(number, forward)


def keep_only(descriptors: list[int], first: int) -> int:
    """Move ``descriptors`` to numbers from ``first`` on (close-on-exec) and close all above: no other one gets in."""
    if descriptors != [first]:
        free = max(*descriptors, first + len(descriptors)) + 1  # by way of these: they may be in each other's way
        high = [os.dup2(descriptor, free + index, inheritable=False) for index, descriptor in enumerate(descriptors)]
        for index, descriptor in enumerate(high):
            os.dup2(descriptor, first + index, inheritable=False)
    syscall(SYS_close_range, first + len(descriptors), 0xFFFFFFFF, 0)
    return first
