"""Pid 1 of a sandbox: performs a plan, starts the command, reaps, reports.

Part of the launcher's process: the rules at the top of ``launcher.py`` hold here. Everything here runs in a clone of
it, in the sandbox's namespaces.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import os
import resource  # noqa: F401 - os.wait4 imports it, and must not do so where a command could have put one

from mudroom.sandbox.launcher.kernel import (
    CLONE_NEWCGROUP,
    CLONE_NEWPID,
    EIO,
    ENOENT,
    ENOEXEC,
    ENOTDIR,
    PR_SET_CHILD_SUBREAPER,
    PR_SET_DUMPABLE,
    PR_SET_PDEATHSIG,
    TIOCSCTTY,
    SYS_close_range,
    c_ulong,
    check,
    libc,
    prctl,
    syscall,
    unshare,
)
from mudroom.sandbox.launcher.refusal import Refusals, reap_and_answer
from mudroom.sandbox.launcher.step import STEPS, StepContext
from mudroom.sandbox.launcher.wire import tell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, NoReturn

    from mudroom.sandbox.launcher.wire import Request

    Plan = tuple[tuple[Any, ...], ...]


class Run:
    """An init, or a template, as the launcher that cloned it knows it."""

    def __init__(self, identity: int, pid: int, pidfd: int, report: int) -> None:
        self.identity, self.pid, self.pidfd, self.report = identity, pid, pidfd, report
        self.stopped: list[int] = []
        """Its processes that a pause has stopped."""


class ReportedError(Exception):
    """The failure has been written to the report pipe; nothing is left to do but to end."""


def perform(plan: Plan, report: int, context: StepContext, first: int = 0) -> StepContext:
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


# A terminal sends these to its whole foreground group, the launcher in it. They are meant for the command: its host
# hears of them and decides what it is to be told.
TERMINAL_SIGNALS = (_signal.SIGINT, _signal.SIGQUIT, _signal.SIGTSTP, _signal.SIGTTIN, _signal.SIGTTOU)
FORWARDED_SIGNALS = (_signal.SIGTERM, _signal.SIGHUP, _signal.SIGUSR1, _signal.SIGUSR2)
GROUP_SIGNALS = (_signal.SIGINT, _signal.SIGQUIT)
"""What a terminal tells a group is forwarded to one: the command leads its own."""
SI_USER = 0
"""Of a signal that a process has sent (sigaction(2)); the kernel sends those of a terminal."""
HELD_SIGNALS = (*FORWARDED_SIGNALS, *GROUP_SIGNALS)
"""What is sent before there is a command waits for it, blocked: nothing that is done until then is interrupted."""
# The interpreter ignores these at start; a command must not inherit that.
RESET_SIGNALS = (*TERMINAL_SIGNALS, *FORWARDED_SIGNALS, _signal.SIGPIPE, _signal.SIGXFSZ)


def hand_over_listener(channel: _socket.socket, program: bytes) -> None:
    """In the command's process: route metadata calls to init, which is waiting for the listener."""
    from mudroom.sandbox.launcher.mediator import install

    listener = install(program)
    channel.sendmsg([b"l"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, listener.to_bytes(4, "little"))])
    channel.close()
    os.close(listener)


def mediate(channel: _socket.socket, request: Request, command: int, wake: int) -> list[bytes]:
    """In init: answer the command's metadata calls until it ends. Returns what was refused, the first few."""
    from mudroom.sandbox.launcher.mediator import Mediator

    _data, ancillary, _flags, _address = channel.recvmsg(1, _socket.CMSG_SPACE(4))
    channel.close()
    if not ancillary:
        return []  # the command ended before it could be started, and has said why
    listener = int.from_bytes(ancillary[0][2][:4], "little")
    os.set_inheritable(listener, False)
    _program, rows, roots = request["mediation"]
    mediator = Mediator(listener, rows, roots)
    mediator.attend(os.pidfd_open(command), wake)
    return list(mediator.refused)


def spawn(request: Request) -> int:
    """Start the command, as cheaply as can be: posix_spawn(3) shares our memory until the exec, fork would copy it."""
    env = request["env"]

    def start(path: bytes, argv: list[bytes]) -> int:
        return os.posix_spawn(path, argv, env, setsigdef=RESET_SIGNALS, setsigmask=(), setsid=True)

    command = start_program(start, request["argv"], request["search"])
    assert command is not None
    return command


def fork_command(request: Request, report: int, terminal: int, channel: _socket.socket | None) -> int:
    """Start the command where it has something to do first that only the process that becomes it can do: take the
    foreground of its terminal, or install a filter of its own, whose listener goes over ``channel``."""
    command = os.fork()
    if command:
        return command
    try:
        if terminal >= 0:
            os.setpgid(0, 0)
            os.tcsetpgrp(terminal, os.getpid())
        else:
            os.setsid()
        for number in RESET_SIGNALS:
            _signal.signal(number, _signal.SIG_DFL)
        let_signals_come()
        if channel is not None:
            hand_over_listener(channel, request["mediation"][0])
        start_program(lambda path, argv: os.execve(path, argv, request["env"]), request["argv"], request["search"])
    except OSError as error:
        tell(report, ("failed", -1, "exec", error.errno or 0, ""))
    finally:
        os._exit(127)


def holding_signals(start: Callable[[], int]) -> int:
    """Fork, or clone, a child that has ``HELD_SIGNALS`` blocked from its first instruction on: a signal of which it
    cannot hear yet would end it, or be lost (pid 1 hears only what it has a handler for: pid_namespaces(7))."""
    child = -1
    _signal.pthread_sigmask(_signal.SIG_BLOCK, HELD_SIGNALS)
    try:
        child = start()
        return child
    finally:
        if child:
            let_signals_come()


def let_signals_come() -> None:
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, HELD_SIGNALS)


def forget_typed() -> None:
    """In a child that has just left its group: what a terminal has told that is not for it."""
    for number in GROUP_SIGNALS:
        told = _signal.sigtimedwait((number,), 0)
        if told is not None and told.si_code == SI_USER:
            os.kill(os.getpid(), number)


def hear_signals() -> int:
    """A descriptor that becomes readable with every signal that has a handler. Without it one that comes just before
    we wait would be heeded only after the next: a handler runs when the interpreter does (signal(7), pselect)."""
    wake, word = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    _signal.set_wakeup_fd(word, warn_on_full_buffer=False)
    _signal.signal(_signal.SIGCHLD, lambda _number, _frame: None)
    return wake


def reap(command: int, own_pid_namespace: bool, wake: int, refusals: Refusals | None = None) -> tuple[int, Any, bool]:
    """Wait for the command, reaping every orphan meanwhile. Returns its wait status, its resource use, and whether
    nobody is left: init inherits every orphan, so without children it is alone."""
    status, usage = reap_and_answer(command, wake, refusals)
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
    """The first instructions of a cloned child: die with the launcher, belong to no terminal, wait for our id maps, be
    nobody's to trace."""
    prctl(PR_SET_PDEATHSIG, _signal.SIGKILL)
    os.setsid()
    forget_typed()
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


def settle(
    request: Request, descriptors: list[int], report: int, context: StepContext | None = None
) -> tuple[StepContext, int]:
    """Become pid 1 of a sandbox: perform the plan, to the last step. Returns where the report pipe is now."""
    if not request["namespaces"] & CLONE_NEWPID:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
    descriptors = join(request, descriptors, report)
    for target, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, target)
    if request["mediation"]:
        import mudroom.sandbox.launcher.mediator  # noqa: F401 - now: under Landlock its file may be out of reach
    sockets = descriptors[3:]
    if context is None:
        context = StepContext(request["namespaces"])
        report = keep_only([report, *sockets], 3)
    else:
        listeners = [descriptor for _kind, descriptor in context.listeners]
        report = keep_only([report, context.root, *listeners, *sockets], 3)
        context.root = report + 1
        context.listeners = [(kind, report + 2 + index) for index, (kind, _old) in enumerate(context.listeners)]
    for number, name in enumerate(request["sockets"], report + 1 + (context.root >= 0) + len(context.listeners)):
        setattr(context, name, number)
    return perform(request["plan"], report, context, request["first"]), report


def run_init(request: Request, descriptors: list[int], report: int, context: StepContext | None = None) -> None:
    """Pid 1 of a sandbox: perform the plan, start the command, reap, report."""
    context, report = settle(request, descriptors, report, context)
    channel = take_terminal(context, request["terminal"]) if request["terminal"] else None
    refused: list[bytes] = []
    if request["mediation"]:
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
        command = fork_command(request, report, context.terminal, theirs)
        theirs.close()
    elif channel is not None:
        command = fork_command(request, report, context.terminal, None)
    else:
        try:
            command = spawn(request)
        except OSError as error:
            tell(report, ("failed", -1, "exec", error.errno or 0, ""))
            return
    wake = hear_signals()
    forward_signals(command)
    let_signals_come()
    if channel is not None:
        tell_stops(command, channel)
    for descriptor in (0, 1, 2):
        os.close(descriptor)  # a pipe of the command must end when the command does
    if request["mediation"]:
        refused = mediate(ours, request, command, wake)
    refusals = Refusals(context.listener, context.rows) if context.listener >= 0 else None
    own_pid_namespace = bool(request["namespaces"] & CLONE_NEWPID)
    status, usage, empty = reap(command, own_pid_namespace, wake, refusals)
    refused += refusals.told() if refusals is not None else ()
    tell(report, ("exited", status, usage.ru_utime, usage.ru_stime, usage.ru_maxrss, tuple(refused), empty))


def forward_signals(command: int) -> None:
    def forward(received: int, _frame: object) -> None:
        try:
            os.kill(command, received)
        except ProcessLookupError:
            pass  # it has just ended

    def forward_to_group(received: int, _frame: object) -> None:
        try:
            os.killpg(command, received)
        except ProcessLookupError:
            forward(received, None)  # it leads no group yet (``fork_command``)

    for number in FORWARDED_SIGNALS:
        _signal.signal(number, forward)
    for number in GROUP_SIGNALS:
        _signal.signal(number, forward_to_group)


def take_terminal(context: StepContext, numbers: tuple[int, ...]) -> _socket.socket:
    """Make the pseudo-terminal ours and the command's standard descriptors ``numbers``, then wait until the host has
    made it like the user's.

    Ours, because a command that led the session itself could not be stopped: its process group would be orphaned, and
    the stop signals of a terminal do nothing to such a one (setpgid(2)). Our own copy stays open: the master is at its
    end when nobody is left, not when the command has closed its descriptors.
    """
    check(libc.ioctl(context.terminal, c_ulong(TIOCSCTTY), 0))
    for number in numbers:
        os.dup2(context.terminal, number)
    channel = _socket.socket(fileno=context.channel)
    if channel.recv(1) != b"g":
        raise OSError(EIO, "nobody is at the terminal")
    return channel


def tell_stops(command: int, channel: _socket.socket) -> None:
    """Tell the host whenever the command has been stopped (waitid(2)), and let it go on when we are told to."""

    stopped: list[bool] = []

    def look(_number: int = 0, _frame: object = None) -> None:
        try:
            if os.waitid(os.P_PID, command, os.WSTOPPED | os.WNOHANG) is not None:
                stopped.append(True)
                channel.send(b"s")
        except (ChildProcessError, BrokenPipeError):
            pass  # it has ended and been reaped; the host has let go of it

    def go_on(_number: int, _frame: object) -> None:
        if not stopped:
            return  # a pause is over; that lets go on what it has stopped, and nothing else
        stopped.clear()
        try:
            os.killpg(command, _signal.SIGCONT)
        except ProcessLookupError:
            pass

    _signal.signal(_signal.SIGCONT, go_on)
    _signal.signal(_signal.SIGCHLD, look)
    look()


def keep_only(descriptors: list[int], first: int) -> int:
    """Move ``descriptors`` to numbers from ``first`` on (close-on-exec) and close all above: no other one gets in."""
    if descriptors != [first]:
        free = max(*descriptors, first + len(descriptors)) + 1  # by way of these: they may be in each other's way
        high = [os.dup2(descriptor, free + index, inheritable=False) for index, descriptor in enumerate(descriptors)]
        for index, descriptor in enumerate(high):
            os.dup2(descriptor, first + index, inheritable=False)
    syscall(SYS_close_range, first + len(descriptors), 0xFFFFFFFF, 0)
    return first
