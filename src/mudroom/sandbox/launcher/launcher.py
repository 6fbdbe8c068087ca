"""The launcher: the small resident program that performs plans.

It runs as a process of its own (``python -I -S``), receives requests over a socket, and for each one
clones a child into new namespaces, performs the plan's steps there, drops every privilege and runs the command.

Rules of this file, and of its family: ``init``, ``holder``, ``template``, ``step``, ``listening``, ``netlink``,
``wire``, ``kernel``, ``mediator``, ``pause``, ``refusal``:
1. They import each other and nothing else of mudroom, and of the library only what the architecture test lists: every
   millisecond of start-up here is a millisecond of every cold ``mudroom run``. What a first command does not need is
   imported when it is needed, but never in an init after its ``pivot``: its files are then the command's.
2. It decides nothing. A plan is a list of tuples ``(op, *arguments)``; ``STEPS`` says what each op does. What is
   not in the plan does not happen.
3. It is single-threaded and stays so: it clones without exec, which is only sound while no other thread exists.
4. Any failure before the exec ends the child and is reported with the index of the step; the command has not run.

Processes: ``launcher`` (host namespaces) → ``init`` (pid 1 of the sandbox: performs the plan, then reaps) →
``command``. The kernel kills all that is left in a pid namespace when its init ends (pid_namespaces(7)).

From its second command on, a session has a ``template`` between launcher and init: a launcher of its own inside a
user and mount namespace in which the first steps of the plan, which do not depend on the command, have been
performed. Every init is cloned from it with a copy of that mount namespace, and performs the rest. What every command
has, first or last, the template knows already: a request to it carries only the steps that are the command's own. The
template clones one init ahead of time, the ``spare``, so that the next command does not wait for its namespaces to be
made.

Wire format, both ways little-endian: 4 bytes length, then that many bytes of ``marshal``. Descriptors travel with
the length (SCM_RIGHTS). Only the host process and this one ever hold the socket.

The descriptors of a run are its stdin, stdout and stderr, then the sockets that its host wants (``sockets`` of the
request names them), then those of its control groups (``into`` of the request: a directory to clone init into;
``join``: so many files by which init moves itself), then the report pipe. Over the socket called ``view`` init sends a
descriptor of the view (``step_view``), over ``gate`` the gate's listeners (``step_hand_over``), over ``channel`` the
master of a pseudo-terminal (``step_terminal``); there it then waits for a byte before it starts the command, and sends
one whenever the command has been stopped.

A run that is ``held`` has no command: init says ``("ready",)`` on the report pipe and is asked for commands over the
socket called ``door`` (``holder.py``).

``pause`` and ``resume`` carry a pipe on which ``("done",)`` or ``("failed", why)`` is answered.

The report pipe of a run carries one marshalled tuple, ``("failed", step index, op, errno, detail)`` or
``("exited", wait status, user s, system s, max RSS KiB, what was refused, empty)``; ``empty`` says that no
process but init is left in the sandbox. The pipe's end of file means that init is gone, too.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import os
import select
import sys

from mudroom.sandbox.launcher.init import (
    TERMINAL_SIGNALS,
    Run,
    become,
    end_children,
    enter,
    holding_signals,
    let_signals_come,
    run_init,
)
from mudroom.sandbox.launcher.kernel import CLONE_NEWUSER, PR_SET_CHILD_SUBREAPER, clone, clone_into, prctl
from mudroom.sandbox.launcher.wire import receive, tell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mudroom.sandbox.launcher.template import Ahead
    from mudroom.sandbox.launcher.wire import Request


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


def start(request: Request, descriptors: list[int]) -> Run | None:
    """Clone a sandbox's init, or a template. ``descriptors`` are all ours to close; the last is the report pipe."""
    report = descriptors[-1]
    ready_read, ready_write = os.pipe2(os.O_CLOEXEC)
    into = descriptors[-2] if request.get("into") else -1
    try:
        flags = request["namespaces"]
        pid = holding_signals(lambda: clone(flags) if into < 0 else clone_into(flags, into))
    except OSError as error:
        tell(report, ("failed", -1, "clone" if into < 0 else "cgroup", error.errno or 0, ""))
        for descriptor in (*descriptors, ready_read, ready_write):
            os.close(descriptor)
        return None
    if pid == 0:
        os.close(ready_write)
        become(lambda: play(request, descriptors[:-1], report, ready_read), report)
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


def play(request: Request, descriptors: list[int], report: int, ready: int) -> None:
    """What a cloned child is for."""
    enter(ready)
    if request["op"] == "prepare":
        from mudroom.sandbox.launcher.template import prepare

        let_signals_come()
        serve(*prepare(request, descriptors, report))
    elif request["held"]:
        from mudroom.sandbox.launcher.holder import hold

        hold(request, descriptors, report)
    else:
        run_init(request, descriptors, report)


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
        elif request["op"] in ("pause", "resume"):
            self._hold(request, descriptors[0])
        elif self._ahead is None:
            self._watch(start(request, descriptors))
        elif not self._ahead.take(request, descriptors):
            self._watch(start(self._ahead.complete(request), descriptors))

    def _hold(self, request: Request, answer: int) -> None:
        """Stop a sandbox, or let it go on, and say when that is done. One that has ended is as good as stopped."""
        from mudroom.sandbox.launcher.pause import pause, resume

        record: tuple[object, ...] = ("done",)
        try:
            for run in self._runs.values():
                if run.identity == request["id"]:
                    (pause if request["op"] == "pause" else resume)(run.pid, run.stopped)
        except OSError as error:
            record = ("failed", error.strerror or "")
        try:
            tell(answer, record)
        except BrokenPipeError:
            pass  # the caller was interrupted
        os.close(answer)

    def _finish(self, pidfd: int) -> None:
        run = self._runs.pop(pidfd)
        self._poller.unregister(pidfd)
        os.waitpid(run.pid, 0)
        if self._ahead is not None and self._ahead.spare is run:
            self._ahead.spare, self._ahead.fails = None, True
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
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, TERMINAL_SIGNALS)  # our host had them blocked while we came up
    Loop(control, ahead).run()


def main() -> None:
    serve(_socket.socket(fileno=int(sys.argv[-1])))
