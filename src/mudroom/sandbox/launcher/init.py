"""Pid 1 of a sandbox: it performs a plan, starts the command, reaps orphans and reports the end.

Launcher code: the rules in ``launcher.py`` hold here. All code here runs in a clone of the launcher, in the sandbox's
namespaces.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import os
import resource  # noqa: F401 - os.wait4 imports it, and must not do so where a command could have put one
import time

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
from mudroom.sandbox.launcher.link import require_no_magic_link
from mudroom.sandbox.launcher.refusal import Refusals, reap_and_answer
from mudroom.sandbox.launcher.step import STEPS
from mudroom.sandbox.launcher.step_context import StepContext
from mudroom.sandbox.launcher.wire import tell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, NoReturn

    from mudroom.sandbox.launcher.wire import Request

    Plan = tuple[tuple[Any, ...], ...]


class Run:
    """An init or a template, as known to the launcher that cloned it."""

    def __init__(self, identity: int, pid: int, pidfd: int, report: int, namespaces: int) -> None:
        self.identity, self.pid, self.pidfd, self.report = identity, pid, pidfd, report
        self.leaves_orphans = not namespaces & CLONE_NEWPID
        self.stopped: list[int] = []
        """Pids in the sandbox that a pause has stopped."""


class ReportedError(Exception):
    """A failure was already written to the report pipe: the process only has to exit."""


def perform(plan: Plan, report: int, context: StepContext, first: int = 0) -> StepContext:
    """Perform the steps in ``plan``. ``first``: the index of its first step in the plan that the host knows. Raise
    ReportedError after a failed step was reported."""
    for index, step in enumerate(plan, first):
        try:
            STEPS[step[0]](context, *step[1:])
        except OSError as error:
            detail = str(error.filename or "")
            tell(report, ("failed", index, step[0], error.errno or 0, detail or error.strerror or ""))
            raise ReportedError from None
    return context


def is_missing(directory: bytes, program: bytes) -> bool:
    """Return whether execve(2) of the program would fail with ENOENT or ENOTDIR."""
    try:
        os.stat(directory + b"/" + program)
    except OSError as error:
        return error.errno in (ENOENT, ENOTDIR)
    return False


def start_program(
    start: Callable[[bytes, list[bytes]], int | None], argv: list[bytes], search: list[bytes]
) -> int | None:
    """Call ``start(path, argv)`` for ``argv[0]``, looked up in the directories ``search`` as execvp(3) does. A file
    without a known executable format is run by the shell. Raise OSError if the program cannot be started.

    Missing files are found by stat(2): a process that fails to execute one costs a hundred times as much. An empty name
    is not tried: the interpreter would raise another error for it.
    """
    program = argv[0]
    candidates = [program] if b"/" in program else [d + b"/" + program for d in search if not is_missing(d, program)]
    failure = OSError(ENOENT, "not found")
    for candidate in candidates if program else ():
        try:
            require_no_magic_link(candidate)
            return start(candidate, argv)
        except OSError as error:
            if error.errno == ENOEXEC:
                require_no_magic_link(b"/bin/sh")
                return start(b"/bin/sh", [b"sh", candidate, *argv[1:]])
            if error.errno not in (ENOENT, ENOTDIR):
                failure = error
    raise failure


# A terminal sends these to its whole foreground process group, which includes the launcher. They are meant for the
# command: the host receives them and decides which to pass on.
TERMINAL_SIGNALS = (_signal.SIGINT, _signal.SIGQUIT, _signal.SIGTSTP, _signal.SIGTTIN, _signal.SIGTTOU)
FORWARDED_SIGNALS = (_signal.SIGTERM, _signal.SIGHUP, _signal.SIGUSR1, _signal.SIGUSR2)
GROUP_SIGNALS = (_signal.SIGINT, _signal.SIGQUIT)
"""Terminal signals that are forwarded to a whole process group: the command leads its own."""
NULL_DEVICE = os.makedev(1, 3)
"""/dev/null: Documentation/admin-guide/devices.txt."""
SI_USER = 0
"""si_code of a signal sent by a process (sigaction(2)); the kernel sends a terminal's signals."""
CLOCK_MONOTONIC_COARSE = 6
"""linux/time.h. It ticks together with the clock that stamps files, and cannot be set."""
TICKS = 20_000_000
"""Nanoseconds: two ticks on the slowest kernel (CONFIG_HZ)."""
LOOK = 0.0002
"""Seconds between two looks at that clock."""
BLOCKED_SIGNALS = (*FORWARDED_SIGNALS, *GROUP_SIGNALS)
"""Blocked, and so pending, until the command has started: no setup step is interrupted."""
# The interpreter ignores some of these at start; a command must not inherit that.
RESET_SIGNALS = (*TERMINAL_SIGNALS, *FORWARDED_SIGNALS, _signal.SIGPIPE, _signal.SIGXFSZ)


def hand_over_listener(channel: _socket.socket, program: bytes) -> None:
    """In the command's process: install the filter for metadata calls, and send its listener to init, which waits for
    it."""
    from mudroom.sandbox.launcher.mediator import install

    listener = install(program)
    channel.sendmsg([b"l"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, listener.to_bytes(4, "little"))])
    channel.close()
    os.close(listener)


def mediate(channel: _socket.socket, request: Request, command: int, wake: int) -> list[bytes]:
    """In init: answer the command's metadata calls until the command ends. Return the first few refused calls."""
    from mudroom.sandbox.launcher.mediator import Mediator

    _data, ancillary, _flags, _address = channel.recvmsg(1, _socket.CMSG_SPACE(4))
    channel.close()
    if not ancillary:
        return []  # the command ended before its exec and has reported why
    listener = int.from_bytes(ancillary[0][2][:4], "little")
    os.set_inheritable(listener, False)
    _program, rows, roots = request["mediation"]
    mediator = Mediator(listener, rows, roots)
    mediator.attend(os.pidfd_open(command), wake)
    return list(mediator.refused)


def await_tick(after: int) -> int:
    """Wait until ``CLOCK_MONOTONIC_COARSE`` is later than ``after``, but not if ``after`` is more than ``TICKS`` ahead.
    Return its time in nanoseconds; 0, without a wait, if ``after`` is 0: the host has waited."""
    if not after:
        return 0
    while (now := time.clock_gettime_ns(CLOCK_MONOTONIC_COARSE)) <= after <= now + TICKS:
        time.sleep(LOOK)
    return now


def spawn(request: Request) -> int:
    """Start the command by posix_spawn(3), which shares memory until the exec (fork would copy it). Return its pid."""
    env = request["env"]

    def start(path: bytes, argv: list[bytes]) -> int:
        return os.posix_spawn(path, argv, env, setsigdef=RESET_SIGNALS, setsigmask=(), setsid=True)

    command = start_program(start, request["argv"], request["search"])
    assert command is not None
    return command


def fork_command(request: Request, report: int, terminal: int, channel: _socket.socket | None) -> int:
    """Fork the command. Used where the child must act before its exec: take its terminal's foreground, or install its
    own filter, whose listener it sends over ``channel``. Return its pid."""
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
        unblock_signals()
        if channel is not None:
            hand_over_listener(channel, request["mediation"][0])
        start_program(lambda path, argv: os.execve(path, argv, request["env"]), request["argv"], request["search"])
    except OSError as error:
        tell(report, ("failed", -1, "exec", error.errno or 0, ""))
    finally:
        os._exit(127)


def fork_with_signals_blocked(start: Callable[[], int]) -> int:
    """Call ``start``, which forks or clones, and return its result. The child has ``BLOCKED_SIGNALS`` blocked from its
    first instruction on. A signal that it cannot handle yet would end it or be lost: pid 1 receives only signals for
    which it has a handler (pid_namespaces(7))."""
    child = -1
    _signal.pthread_sigmask(_signal.SIG_BLOCK, BLOCKED_SIGNALS)
    try:
        child = start()
        return child
    finally:
        if child:
            unblock_signals()


def unblock_signals() -> None:
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, BLOCKED_SIGNALS)


def discard_terminal_signals() -> None:
    """In a child that has just left its process group: discard pending terminal signals, which were meant for the old
    group. A signal sent by a process is kept."""
    for number in GROUP_SIGNALS:
        info = _signal.sigtimedwait((number,), 0)
        if info is not None and info.si_code == SI_USER:
            os.kill(os.getpid(), number)


def open_signal_pipe() -> tuple[int, int]:
    return os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)


def watch_signals(pipe: tuple[int, int]) -> int:
    """Return the pipe's end that becomes readable with every signal that has a handler.

    A Python handler runs only when the interpreter does: a signal that arrives just before a wait would otherwise be
    handled only after the next one (signal(7), pselect).
    """
    wake, write_end = pipe
    _signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    _signal.signal(_signal.SIGCHLD, lambda _number, _frame: None)
    return wake


def reap(command: int, own_pid_namespace: bool, wake: int, refusals: Refusals | None = None) -> tuple[int, Any, bool]:
    """Wait for the command, and reap every orphan meanwhile. Return the command's wait status, its resource use, and
    whether the sandbox is empty: init inherits every orphan, so without children it is alone."""
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
    """Kill and reap all children but ``spared``. As a subreaper this process inherits their children, which are killed
    in turn."""
    while True:
        path = b"/proc/self/task/%d/children" % os.getpid()
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        children = [int(word) for word in os.read(descriptor, 65536).split()]
        os.close(descriptor)
        targets = [pid for pid in children if pid not in spared]
        if not targets:
            return
        for pid in targets:
            os.kill(pid, _signal.SIGKILL)
            os.waitpid(pid, 0)


def begin_child(ready: int | None) -> None:
    """A cloned child's first instructions: arrange to die with the launcher, leave the terminal's session, wait for the
    id maps, and forbid tracing."""
    prctl(PR_SET_PDEATHSIG, _signal.SIGKILL)
    os.setsid()
    discard_terminal_signals()
    if ready is not None and os.read(ready, 1) != b"g":
        os._exit(125)  # the launcher is gone, or could not write the id maps and has reported that
    prctl(PR_SET_DUMPABLE, 0)  # not earlier: it gives root this process's /proc files, including the id maps


def join_cgroups(request: Request, descriptors: list[int], report: int) -> list[int]:
    """Enter the command's control groups before any other step, and make them a cgroup namespace's root, so that the
    groups above stay invisible. Return the remaining descriptors."""
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


def run_role(role: Callable[[], None], report: int) -> NoReturn:
    """Run ``role`` in a cloned child and exit. Any exception is reported to the host, and no code runs after it."""
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
            tell(3, record)  # ``keep_only`` has moved it there
    finally:
        os._exit(code)


def set_up(
    request: Request, descriptors: list[int], report: int, context: StepContext | None = None
) -> tuple[StepContext, int]:
    """Become pid 1 of a sandbox: perform the whole plan. Return the steps' context and the report pipe's new number."""
    if not request["namespaces"] & CLONE_NEWPID:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
    descriptors = join_cgroups(request, descriptors, report)
    for target, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, target)
    if request["mediation"]:
        import mudroom.sandbox.launcher.mediator  # noqa: F401 - now: under Landlock its file may be out of reach
    sockets = descriptors[3:]
    if context is None:
        context = StepContext(request["namespaces"])
        report = keep_only([report, *sockets], 3)
        sockets = [*range(report + 1, report + 1 + len(sockets))]
    else:
        listeners = [descriptor for _kind, descriptor in context.listeners]
        made_ahead = [number for number in (context.root, context.listener, *listeners) if number >= 0]
        # 3 was the template's channel.
        report = os.dup2(report, 3, inheritable=False)
        close_others([report, *made_ahead, *sockets])
    for name, number in zip(request["sockets"], sockets, strict=True):
        setattr(context, name, number)
    return perform(request["plan"], report, context, request["first"]), report


def run_init(request: Request, descriptors: list[int], report: int, context: StepContext | None = None) -> None:
    """Run pid 1 of a sandbox: perform the plan, start the command, reap orphans, report the end."""
    context, report = set_up(request, descriptors, report, context)
    renew_null()
    channel = take_terminal(context, request["terminal"]) if request["terminal"] else None
    refused: list[bytes] = []
    started = await_tick(request["after"])
    signals = open_signal_pipe()  # before the command: from then on another process may set init's limits (prlimit(2))
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
    wake = watch_signals(signals)
    forward_signals(command)
    unblock_signals()
    if channel is not None:
        report_stops(command, channel)
    for descriptor in (0, 1, 2):
        os.close(descriptor)  # a command's pipe must end when the command does
    if request["mediation"]:
        refused = mediate(ours, request, command, wake)
    refusals = Refusals(context.listener, context.rows) if context.listener >= 0 else None
    own_pid_namespace = bool(request["namespaces"] & CLONE_NEWPID)
    status, usage, empty = reap(command, own_pid_namespace, wake, refusals)
    refused += refusals.records() if refusals is not None else ()
    tell(report, ("exited", status, usage.ru_utime, usage.ru_stime, usage.ru_maxrss, tuple(refused), started, empty))


def forward_signals(command: int) -> None:
    def forward(received: int, _frame: object) -> None:
        try:
            os.kill(command, received)
        except ProcessLookupError:
            pass  # the command has just ended

    def forward_to_group(received: int, _frame: object) -> None:
        try:
            os.killpg(command, received)
        except ProcessLookupError:
            forward(received, None)  # the command does not lead a group yet (``fork_command``)

    for number in FORWARDED_SIGNALS:
        _signal.signal(number, forward)
    for number in GROUP_SIGNALS:
        _signal.signal(number, forward_to_group)


def renew_null() -> None:
    """Reopen /dev/null for the standard descriptors that lead to it. The device's mount is read-only here, so a command
    that is root cannot change its mode or owner, which are the host's, by fchmod(2)."""
    for number in (0, 1, 2):
        status = os.fstat(number)
        if status.st_rdev == NULL_DEVICE and status.st_mode & 0o170000 == 0o020000:
            descriptor = os.open(b"/dev/null", os.O_RDWR)
            os.dup2(descriptor, number)
            os.close(descriptor)


def take_terminal(context: StepContext, numbers: tuple[int, ...]) -> _socket.socket:
    """Make the pseudo-terminal this process's controlling terminal, and the command's standard descriptors ``numbers``.
    Then wait until the host has copied the user's terminal settings. Return the socket to the host.

    A command that led the session itself could not be stopped: its process group would be orphaned, and a terminal's
    stop signals do not affect an orphaned group (setpgid(2)). This process keeps its copy open, so the master reaches
    its end of file when the last process has gone, not when the command closes its descriptors.
    """
    check(libc.ioctl(context.terminal, c_ulong(TIOCSCTTY), 0))
    for number in numbers:
        os.dup2(context.terminal, number)
    channel = _socket.socket(fileno=context.channel)
    if channel.recv(1) != b"g":
        raise OSError(EIO, "the host has closed the terminal")
    return channel


def report_stops(command: int, channel: _socket.socket) -> None:
    """Tell the host whenever the command is stopped (waitid(2)), and continue the command when the host asks for it."""

    stops: list[bool] = []

    def report(_number: int = 0, _frame: object = None) -> None:
        try:
            if os.waitid(os.P_PID, command, os.WSTOPPED | os.WNOHANG) is not None:
                stops.append(True)
                channel.send(b"s")
        except (ChildProcessError, BrokenPipeError):
            pass  # the command has ended and been reaped, or the host has closed its end

    def go_on(_number: int, _frame: object) -> None:
        if not stops:
            return  # a pause has ended: it continues only the processes that it has stopped
        stops.clear()
        try:
            os.killpg(command, _signal.SIGCONT)
        except ProcessLookupError:
            pass

    _signal.signal(_signal.SIGCONT, go_on)
    _signal.signal(_signal.SIGCHLD, report)
    report()


def keep_only(descriptors: list[int], first: int) -> int:
    """Move ``descriptors`` to consecutive numbers from ``first`` on (close-on-exec) and close all higher ones, so that
    no other descriptor gets into the sandbox. Return ``first``."""
    if descriptors != [first]:
        free = max(*descriptors, first + len(descriptors)) + 1  # via free numbers: old and new may overlap
        high = [os.dup2(descriptor, free + index, inheritable=False) for index, descriptor in enumerate(descriptors)]
        for index, descriptor in enumerate(high):
            os.dup2(descriptor, first + index, inheritable=False)
    close_others([*range(first, first + len(descriptors))])
    return first


def close_others(kept: list[int]) -> None:
    """Close all descriptors above the standard ones except ``kept``, which is not empty."""
    first = 3
    for descriptor in sorted(kept):
        if first < descriptor:
            syscall(SYS_close_range, first, descriptor - 1, 0)
        first = descriptor + 1
    syscall(SYS_close_range, first, 0xFFFFFFFF, 0)
