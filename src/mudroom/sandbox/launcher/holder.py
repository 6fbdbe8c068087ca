"""The init of a sandbox that several commands share: it starts them one after the other, or side by side.

Part of the launcher's process: the rules at the top of ``launcher.py`` hold here. Imported before the confinement, as
all that an init needs: afterwards its files may be the command's.

Rules of this file:
1. A command joins by being forked from init, after init has given up everything: it has init's namespaces, root,
   control group, limits, system call filter, Landlock domain and empty capability sets because no process can shed
   what it inherits (seccomp(2), landlock(7), capabilities(7), PR_SET_NO_NEW_PRIVS). Nothing is entered from outside
   (setns(2)), so nothing has to be given up again, and nothing can be forgotten.
2. Init hears requests over the socket ``door`` of its host alone. At its end init ends, and with it all in the sandbox.
3. Between init and each command is a ``warden``: the leader of the command's session, who inherits the command's
   orphans (PR_SET_CHILD_SUBREAPER), ends them when the command has ended, and says so. It is nobody's to trace
   (PR_SET_DUMPABLE is inherited over fork). The others in the sandbox can kill it: whose warden has gone is nobody's
   child but init's, and is killed by init.

A request over the door is ``{"op": "command", "id", "argv", "env", "search", "cwd", "terminal"}``, with descriptors:
stdin, stdout and stderr, a socket if ``terminal`` names any of them (as ``channel`` of ``launcher.py``), and the report
pipe; or it is ``{"op": "signal", "id", "signal"}``. The report pipe carries what ``launcher.py`` says of a run.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import marshal
import os
import select

from mudroom.sandbox.launcher.init import (
    ReportedError,
    become,
    end_children,
    fork_command,
    forward_signals,
    hear_signals,
    holding_signals,
    keep_only,
    let_signals_come,
    mediate,
    reap,
    settle,
    spawn,
    take_terminal,
    tell_stops,
)
from mudroom.sandbox.launcher.kernel import CLONE_NEWPID, PR_SET_CHILD_SUBREAPER, prctl
from mudroom.sandbox.launcher.refusal import Refusals
from mudroom.sandbox.launcher.step import StepContext, step_terminal
from mudroom.sandbox.launcher.wire import receive, tell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mudroom.sandbox.launcher.wire import Request

PTMX = b"dev/pts/ptmx"


class HeldCommand:
    """A command, as init knows it: its warden's pid is the key."""

    def __init__(self, identity: int, report: int, told: int, before: dict[int, int]) -> None:
        self.identity, self.report, self.told = identity, report, told
        self.before = before
        """What had been refused in the sandbox before it began."""


def hold(request: Request, descriptors: list[int], report: int, context: StepContext | None = None) -> None:
    """Pid 1 of a sandbox: perform the plan, then serve until the other end of the door is closed."""
    context, report = settle(request, descriptors, report, context)
    let_signals_come()
    holder = Holder(_socket.socket(fileno=context.door), context, request["mediation"])
    tell(report, ("ready",))
    holder.run()
    if not request["namespaces"] & CLONE_NEWPID:  # else the kernel does it
        end_children(())


class Holder:
    def __init__(self, door: _socket.socket, context: StepContext, mediation: Any) -> None:
        self._door, self._mediation = door, mediation
        self._refusals = Refusals(context.listener, context.rows) if context.listener >= 0 else None
        self._commands: dict[int, HeldCommand] = {}
        self._wake = hear_signals()
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
                os.kill(warden, request["signal"])  # it passes the signal on; KILL ends it, and init what it leaves

    def _start(self, request: Request, descriptors: list[int]) -> None:
        report = descriptors.pop()
        result, told = os.pipe2(os.O_CLOEXEC)
        request["mediation"] = self._mediation
        try:
            warden = holding_signals(os.fork)
        except OSError as error:
            tell(report, ("failed", -1, "clone", error.errno or 0, ""))
            for descriptor in (*descriptors, report, result, told):
                os.close(descriptor)
            return
        if warden == 0:
            _signal.set_wakeup_fd(-1)
            become(lambda: attend(request, descriptors, told), told)
        for descriptor in (*descriptors, told):
            os.close(descriptor)
        before = dict(self._refusals.counts) if self._refusals is not None else {}
        self._commands[warden] = HeldCommand(request["id"], report, result, before)

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
            end_children(list(self._commands))  # of a warden that has been killed

    def _finish(self, command: HeldCommand, status: int) -> None:
        end_children(list(self._commands))
        data = os.read(command.told, 65536)
        os.close(command.told)
        record = marshal.loads(data) if data else ("exited", status, 0.0, 0.0, 0, (), True)
        if record[0] == "exited" and self._refusals is not None:
            while self._answer_one():
                pass
            counts = {rule: count - command.before.get(rule, 0) for rule, count in self._refusals.counts.items()}
            refused = tuple(b"call %d %d" % (rule, count) for rule, count in counts.items() if count)
            record = (*record[:5], (*record[5], *refused), True)
        try:
            tell(command.report, record)
        except BrokenPipeError:
            pass  # nobody waits for it any more
        os.close(command.report)

    def _answer_one(self) -> bool:
        assert self._refusals is not None
        poller = select.poll()
        poller.register(self._refusals.listener, select.POLLIN)
        ready = any(events & select.POLLIN for _descriptor, events in poller.poll(0))
        if ready:
            self._refusals.answer()
        return ready


def attend(request: Request, descriptors: list[int], told: int) -> None:
    """In the warden: start the command, wait for it, end what it has left, and tell init."""
    os.setsid()
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    for target, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, target)
    told = keep_only([told, *descriptors[3:]], 3)
    _failing("cwd", told, lambda: os.chdir(request["cwd"]))
    context = StepContext(0)
    if request["terminal"]:
        context.channel = told + 1
        _failing("terminal", told, lambda: _open_terminal(context))
    channel = take_terminal(context, request["terminal"]) if request["terminal"] else None
    ours = theirs = None
    try:
        if request["mediation"]:
            ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
        if theirs is not None or channel is not None:
            command = fork_command(request, told, context.terminal, theirs)
        else:
            command = spawn(request)
    except OSError as error:
        tell(told, ("failed", -1, "exec", error.errno or 0, ""))
        return
    wake = hear_signals()
    forward_signals(command)
    let_signals_come()
    if channel is not None:
        tell_stops(command, channel)
    for descriptor in (0, 1, 2):
        os.close(descriptor)  # a pipe of the command must end when the command does
    refused: list[bytes] = []
    if ours is not None and theirs is not None:
        theirs.close()
        refused = mediate(ours, request, command, wake)
    status, usage, _empty = reap(command, False, wake)
    tell(told, ("exited", status, usage.ru_utime, usage.ru_stime, usage.ru_maxrss, tuple(refused), True))


def _open_terminal(context: StepContext) -> None:
    """In the sandbox's own instance, which nothing in it can have replaced: the mounts of it are nobody's to change."""
    context.root = os.open(b"/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    step_terminal(context, PTMX)
    os.close(context.root)


def _failing(op: str, told: int, do: Any) -> None:
    try:
        do()
    except OSError as error:
        tell(told, ("failed", -1, op, error.errno or 0, ""))
        raise ReportedError from None
