"""The init in a held sandbox, which several commands share: it starts them one after the other or side by side.

Launcher code: the rules in ``launcher.py`` hold here. Like every module that an init needs, this one is imported before
the confinement: afterwards its file may be the command's.

Rules:
1. A command joins by being forked from init, after init has given up all privileges. It has init's namespaces, root,
   control group, limits, system call filter, Landlock domain and empty capability sets, because no process can shed
   them after inheriting them (seccomp(2), landlock(7), capabilities(7), PR_SET_NO_NEW_PRIVS). No process enters from
   outside (setns(2)), so there is no privilege to drop again and none to forget.
2. Init receives requests over the socket ``door``, from its host alone. At the socket's end of file init ends, and with
   it every process in the sandbox.
3. Between init and each command is a ``warden``, the leader of the command's session. It inherits the command's orphans
   (PR_SET_CHILD_SUBREAPER), kills them when the command has ended, and reports that. No process may trace it
   (PR_SET_DUMPABLE is inherited over fork). Other processes in the sandbox can kill it: its orphans then become init's
   children, and init kills them.

Before the first request, init sends one byte over the door; if the view is an overlay, with a descriptor that
reconfigures it. A request is ``{"op": "command", "id", "argv", "env", "search", "cwd", "terminal"}`` or ``{"op":
"signal", "id", "signal"}``. A command's descriptors are stdin, stdout and stderr, a socket if ``terminal`` is not empty
(as ``channel`` in ``launcher.py``), and the report pipe, which carries the records that ``launcher.py`` describes.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import marshal
import os
import select

import mudroom.sandbox.launcher.refresher  # noqa: F401 - the step ``view`` needs it
from mudroom.sandbox.launcher.init import (
    ReportedError,
    end_children,
    fork_command,
    fork_with_signals_blocked,
    forward_signals,
    keep_only,
    mediate,
    open_signal_pipe,
    reap,
    renew_null,
    report_stops,
    run_role,
    set_up,
    spawn,
    take_terminal,
    unblock_signals,
    watch_signals,
)
from mudroom.sandbox.launcher.kernel import CLONE_NEWPID, PR_SET_CHILD_SUBREAPER, prctl
from mudroom.sandbox.launcher.refusal import Refusals
from mudroom.sandbox.launcher.step import step_terminal
from mudroom.sandbox.launcher.step_context import StepContext
from mudroom.sandbox.launcher.wire import receive, tell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mudroom.sandbox.launcher.wire import Request

PTMX = b"dev/pts/ptmx"


class HeldCommand:
    """A running command, as init knows it. Init keeps these by the warden's pid."""

    def __init__(self, identity: int, report: int, result: int, before: dict[int, int]) -> None:
        self.identity, self.report, self.result = identity, report, result
        self.before = before
        """How many calls each filter rule had refused in the sandbox before this command began."""


def hold(request: Request, descriptors: list[int], report: int, context: StepContext | None = None) -> None:
    """Run pid 1 of a held sandbox: perform the plan, then serve commands until the door's other end is closed."""
    context, report = set_up(request, descriptors, report, context)
    unblock_signals()
    holder = Holder(_socket.socket(fileno=context.door), context, request["mediation"])
    tell(report, ("ready",))
    holder.run()
    if not request["namespaces"] & CLONE_NEWPID:  # in a pid namespace the kernel kills them
        end_children(())


class Holder:
    def __init__(self, door: _socket.socket, context: StepContext, mediation: Any) -> None:
        self._door, self._mediation = door, mediation
        self._refusals = Refusals(context.listener, context.rows) if context.listener >= 0 else None
        self._commands: dict[int, HeldCommand] = {}
        self._wake = watch_signals(open_signal_pipe())
        self._poller = select.poll()
        self._poller.register(self._wake, select.POLLIN)
        self._poller.register(door.fileno(), select.POLLIN)
        if self._refusals is not None:
            self._poller.register(self._refusals.listener, select.POLLIN)

    def run(self) -> None:
        while True:
            self._reap()
            for descriptor, events in self._poller.poll():
                if descriptor == self._wake:
                    os.read(self._wake, 4096)
                elif descriptor == self._door.fileno():
                    request, descriptors = receive(self._door)
                    if request is None:
                        return
                    self._handle(request, descriptors)
                elif self._refusals is not None and events & select.POLLIN:
                    self._refusals.answer()
                else:
                    self._poller.unregister(descriptor)

    def _handle(self, request: Request, descriptors: list[int]) -> None:
        if request["op"] == "command":
            self._start(request, descriptors)
            return
        for descriptor in descriptors:
            os.close(descriptor)
        for warden, command in self._commands.items():
            if command.identity == request["id"]:
                # The warden forwards the signal; SIGKILL ends the warden, and init kills its orphans.
                os.kill(warden, request["signal"])

    def _start(self, request: Request, descriptors: list[int]) -> None:
        report = descriptors.pop()
        result_read, result_write = os.pipe2(os.O_CLOEXEC)
        request["mediation"] = self._mediation
        try:
            warden = fork_with_signals_blocked(os.fork)
        except OSError as error:
            tell(report, ("failed", -1, "clone", error.errno or 0, ""))
            for descriptor in (*descriptors, report, result_read, result_write):
                os.close(descriptor)
            return
        if warden == 0:
            _signal.set_wakeup_fd(-1)
            run_role(lambda: run_warden(request, descriptors, result_write), result_write)
        for descriptor in (*descriptors, result_write):
            os.close(descriptor)
        before = dict(self._refusals.counts) if self._refusals is not None else {}
        self._commands[warden] = HeldCommand(request["id"], report, result_read, before)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if pid in self._commands:
                self._finish(self._commands.pop(pid), status)
            end_children(list(self._commands))  # orphans of a killed warden

    def _finish(self, command: HeldCommand, status: int) -> None:
        end_children(list(self._commands))
        data = os.read(command.result, 65536)
        os.close(command.result)
        record = marshal.loads(data) if data else ("exited", status, 0.0, 0.0, 0, (), 0, True)
        if record[0] == "exited" and self._refusals is not None:
            while self._answer_waiting_call():
                pass
            counts = {rule: count - command.before.get(rule, 0) for rule, count in self._refusals.counts.items()}
            refused = tuple(b"call %d %d" % (rule, count) for rule, count in counts.items() if count)
            record = (*record[:5], (*record[5], *refused), 0, True)
        try:
            tell(command.report, record)
        except BrokenPipeError:
            pass  # the caller has gone
        os.close(command.report)

    def _answer_waiting_call(self) -> bool:
        assert self._refusals is not None
        poller = select.poll()
        poller.register(self._refusals.listener, select.POLLIN)
        ready = any(events & select.POLLIN for _descriptor, events in poller.poll(0))
        if ready:
            self._refusals.answer()
        return ready


def run_warden(request: Request, descriptors: list[int], result_pipe: int) -> None:
    """Run a command in its warden: start it, wait for it, kill its orphans, and report to init."""
    os.setsid()
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    for target, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, target)
    result_pipe = keep_only([result_pipe, *descriptors[3:]], 3)
    renew_null()
    _run_or_report("cwd", result_pipe, lambda: os.chdir(request["cwd"]))
    context = StepContext(0)
    if request["terminal"]:
        context.channel = result_pipe + 1
        _run_or_report("terminal", result_pipe, lambda: _open_terminal(context))
    channel = take_terminal(context, request["terminal"]) if request["terminal"] else None
    ours = theirs = None
    try:
        if request["mediation"]:
            ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
        if theirs is not None or channel is not None:
            command = fork_command(request, result_pipe, context.terminal, theirs)
        else:
            command = spawn(request)
    except OSError as error:
        tell(result_pipe, ("failed", -1, "exec", error.errno or 0, ""))
        return
    wake = watch_signals(open_signal_pipe())
    forward_signals(command)
    unblock_signals()
    if channel is not None:
        report_stops(command, channel)
    for descriptor in (0, 1, 2):
        os.close(descriptor)  # a command's pipe must end when the command does
    refused: list[bytes] = []
    if ours is not None and theirs is not None:
        theirs.close()
        refused = mediate(ours, request, command, wake)
    status, usage, _empty = reap(command, False, wake)
    tell(result_pipe, ("exited", status, usage.ru_utime, usage.ru_stime, usage.ru_maxrss, tuple(refused), 0, True))


def _open_terminal(context: StepContext) -> None:
    """Open a pseudo-terminal in the sandbox's own devpts. The command cannot have replaced it: no process in the
    sandbox can change its mounts."""
    context.root = os.open(b"/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    step_terminal(context, PTMX)
    os.close(context.root)


def _run_or_report(op: str, result_pipe: int, step: Any) -> None:
    try:
        step()
    except OSError as error:
        tell(result_pipe, ("failed", -1, op, error.errno or 0, ""))
        raise ReportedError from None
