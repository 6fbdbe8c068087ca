"""The launcher: a small resident process that performs plans.

It runs as its own process (``python -I -S``) and receives requests over a socket. For each request it clones a child
into new namespaces, performs the plan's steps there, drops every privilege and runs the command.

Rules for this file and its family, the other files in this folder:
1. They import each other and no other mudroom module, and from the standard library only the modules that the
   architecture test lists: every millisecond of start-up here is added to every cold ``mudroom run``. Code that a first
   command does not need is imported on demand, but never in an init after its ``pivot``: the files in sight are then
   the command's.
2. It decides nothing. A plan is a list of tuples ``(op, *arguments)``; ``STEPS`` maps each op to a function. An act
   that is not in the plan does not happen.
3. It is single-threaded and stays so: it clones without exec, which is only sound while no other thread exists.
4. Any failure before the exec ends the child and is reported with the step's index; the command has not run.

Processes: ``launcher`` (host namespaces) → ``init`` (pid 1 of the sandbox: performs the plan, then reaps) →
``command``. When its init ends, the kernel kills every process left in a pid namespace (pid_namespaces(7)).

From its second command on, a session has a ``template`` between launcher and init. A template is a launcher in its own
user and mount namespace, where the plan's first steps, which do not depend on the command, have been performed. Every
init is cloned from it with a copy of its mount namespace, and performs the rest. The template also knows the steps that
every command shares, at the start and at the end: a request to it carries only the command's own steps. The template
clones one init in advance, the ``spare``, so that the next command does not wait for its namespaces. Where there is a
native init, a program beside the template clones it (``nursery.py``), for requests that are ``plain``.

Wire format, in both directions little-endian: 4 bytes length, then that many bytes of ``marshal``. Descriptors travel
with the length (SCM_RIGHTS). Only the host process and this one ever hold the socket.

A command's request is a head, which contains the complete request as ``marshal`` bytes (``whole``): a template reads
the head, and passes on the bytes.

A run's descriptors are, in this order: its stdin, stdout and stderr; the sockets that its host asks for (the request's
``sockets`` names them); those for its control groups (``into``: a directory to clone init into; ``join``: the number of
files by which init moves itself); the report pipe. Over the socket ``view`` init sends the view's descriptor
(``step_view``), over ``gate`` the gate's listeners (``step_hand_over``), over ``channel`` the pseudo-terminal's master
(``step_terminal``). On ``channel`` it then waits for a byte before it starts the command, and sends a byte whenever the
command has been stopped.

A run that is ``held`` has no command: init writes ``("ready",)`` to the report pipe and receives commands over the
socket ``door`` (``holder.py``).

A template with ``mounts`` is a standing one, with its door as the second descriptor. ``refresh`` in a run is for a
standing template (``template.py``).

``clear`` names overlay work directories (``clearing.py``). It is not answered.

``pause`` and ``resume`` carry a pipe for the answer, ``("done",)`` or ``("failed", why)``.

A run's report pipe carries one marshalled tuple, ``("failed", step index, op, errno, detail)`` or ``("exited", wait
status, user s, system s, max RSS KiB, refused calls, start, empty)``. ``start`` is the CLOCK_MONOTONIC_COARSE time when
the command started, or 0 if the request's ``after`` is 0. ``empty`` says that init is the only process left in the
sandbox. End of file on the pipe means that init has ended, too.
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
    begin_child,
    end_children,
    fork_with_signals_blocked,
    run_init,
    run_role,
    unblock_signals,
)
from mudroom.sandbox.launcher.kernel import (
    CLONE_NEWNS,
    CLONE_NEWUSER,
    PR_SET_CHILD_SUBREAPER,
    clone,
    clone_into,
    look_up_functions,
    prctl,
)
from mudroom.sandbox.launcher.program import require_protected
from mudroom.sandbox.launcher.wire import opened, receive, tell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mudroom.sandbox.launcher.template import Spare
    from mudroom.sandbox.launcher.wire import Request


def write_file(path: bytes, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, content)
    finally:
        os.close(descriptor)


def map_ids(pid: int, uid_map: bytes, gid_map: bytes, deny_setgroups: bool) -> None:
    """Write identity maps for a child's user namespace. An ordinary user may map only itself (user_namespaces(7))."""
    if deny_setgroups:
        write_file(b"/proc/%d/setgroups" % pid, b"deny")
    write_file(b"/proc/%d/uid_map" % pid, uid_map)
    write_file(b"/proc/%d/gid_map" % pid, gid_map)


def start(request: Request, descriptors: list[int]) -> Run | None:
    """Clone a sandbox's init, or a template. If that fails, report it and return None. Closes all ``descriptors``; the
    last is the report pipe."""
    report = descriptors[-1]
    if request["op"] == "prepare":
        # Here, not in each template: modules loaded in this process are shared with all templates and their spares.
        import mudroom.sandbox.launcher.template  # noqa: F401 - as said

        look_up_functions()
    ready_read, ready_write = os.pipe2(os.O_CLOEXEC)
    into = descriptors[-2] if request.get("into") else -1
    try:
        flags = request["namespaces"]
        pid = fork_with_signals_blocked(lambda: clone(flags) if into < 0 else clone_into(flags, into))
    except OSError as error:
        tell(report, ("failed", -1, "clone" if into < 0 else "cgroup", error.errno or 0, ""))
        for descriptor in (*descriptors, ready_read, ready_write):
            os.close(descriptor)
        return None
    if pid == 0:
        os.close(ready_write)
        run_role(lambda: run_child(request, descriptors[:-1], report, ready_read), report)
    os.close(ready_read)
    for descriptor in descriptors[:-1]:
        os.close(descriptor)
    go, op = b"g", "program"
    try:
        # After the clone: where no namespace can be made, that is the failure to report, and another mode is tried.
        # Without a mount namespace the program is in sight by its path as well.
        if request["namespaces"] & CLONE_NEWNS:
            require_protected()
        op = "map_ids"
        if request["namespaces"] & CLONE_NEWUSER:
            map_ids(pid, *request["maps"])
    except OSError as error:
        tell(report, ("failed", -1, op, error.errno or 0, str(error.filename)))
        go = b"n"
    os.write(ready_write, go)
    os.close(ready_write)
    return Run(request["id"], pid, os.pidfd_open(pid), report, request["namespaces"])


def run_child(request: Request, descriptors: list[int], report: int, ready: int) -> None:
    """Run a cloned child: a template, a held sandbox's init or an init with a command."""
    begin_child(ready)
    if request["op"] == "prepare":
        from mudroom.sandbox.launcher.template import prepare

        unblock_signals()
        serve(*prepare(request, descriptors, report))
    elif request["held"]:
        from mudroom.sandbox.launcher.holder import hold

        hold(request, descriptors, report)
    else:
        run_init(request, descriptors, report)


IGNORED_SIGNALS = (*TERMINAL_SIGNALS, _signal.SIGHUP, _signal.SIGTERM)
"""The launcher ends with its host. A service manager signals every process in a control group (systemd.kill(5)),
including the launcher, which must not die before the host has collected a command's changes."""


QUIET, NATIVE_QUIET = 4, 50
"""Milliseconds without an event after which a template clones the next spare while the command that took the last one
still runs: when it starts, that command needs the processors. A native spare is made just as fast on request, and its
fifty mounts would slow path look-ups in a short command (mount_lock in fs/namespace.c)."""


class Loop:
    """Serves requests until the other end of ``control`` is closed; then kills the remaining children."""

    def __init__(self, control: _socket.socket, spare: Spare | None) -> None:
        self._control, self._spare = control, spare
        self._runs: dict[int, Run] = {}
        self._poller = select.poll()
        self._poller.register(control.fileno(), select.POLLIN)
        self._door = spare.door.fileno() if spare is not None and spare.door is not None else -1
        self._rests = False
        """Whether a standing template has no spare until its next command."""
        if self._door >= 0:
            self._poller.register(self._door, select.POLLIN)

    def run(self) -> None:
        self._refill()
        while True:
            ready = self._poller.poll(self._patience())
            if not ready:
                self._refill() if self._wants_spare() else self._rest()
            for descriptor, _events in ready:
                if descriptor in self._runs:
                    self._finish(descriptor)
                elif descriptor == self._door and self._spare is not None:
                    self._end()
                    self._control.close()  # before the answer: a request would be lost
                    self._spare.dissolve()
                    return
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

    def _wants_spare(self) -> bool:
        return self._spare is not None and self._spare.init is None and not self._spare.failed and not self._rests

    def _patience(self) -> int | None:
        """Return the milliseconds without an event after which there is work to do, or None if there is none."""
        if self._spare is not None and self._wants_spare():
            return QUIET if self._spare.nursery is None else NATIVE_QUIET
        is_idle = self._spare is not None and self._spare.init is not None and len(self._runs) == 1
        return self._spare.rest if self._spare is not None and self._door >= 0 and is_idle else None

    def _rest(self) -> None:
        assert self._spare is not None
        self._rests = True
        self._spare.let_go()

    def _refill(self) -> None:
        if self._spare is not None and not self._rests:
            self._watch(self._spare.refill())

    def _handle(self, request: Request, descriptors: list[int]) -> None:
        if request["op"] == "signal":
            for run in self._runs.values():
                if run.identity == request["id"]:
                    os.kill(run.pid, request["signal"])
        elif request["op"] in ("pause", "resume"):
            self._pause_or_resume(request, descriptors[0])
        elif request["op"] == "clear":
            from mudroom.sandbox.launcher.clearing import clear

            clear(request["works"])
        elif self._spare is None:
            self._watch(start(opened(request), descriptors))
        else:
            self._start_in_template(self._spare, request, descriptors)

    def _start_in_template(self, spare: Spare, request: Request, descriptors: list[int]) -> None:
        self._rests = False
        if request["refresh"]:
            try:
                spare.refresh()
            except OSError as error:
                tell(descriptors[-1], ("failed", -1, "refresh", error.errno or 0, ""))
                for descriptor in descriptors:
                    os.close(descriptor)
                return
        if spare.nursery is not None and request["plain"]:
            self._refill()  # if there is none: even a late native spare is faster than cloning this process
        if not spare.take(request, descriptors):
            self._watch(start(spare.complete(request), descriptors))

    def _pause_or_resume(self, request: Request, answer: int) -> None:
        """Pause or resume a sandbox, and report when that is done. A sandbox that has ended counts as stopped."""
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
        if self._spare is not None and self._spare.init is run:
            self._spare.init = None
            self._spare.failed = not self._spare.give_nursery_up()
        if run.leaves_orphans:
            end_children([other.pid for other in self._runs.values()])
        os.close(pidfd)
        if run.report >= 0:
            os.close(run.report)
        self._refill()

    def _end(self) -> None:
        for run in self._runs.values():
            os.kill(run.pid, _signal.SIGKILL)
        for run in self._runs.values():
            os.waitpid(run.pid, 0)
        end_children(())


def serve(control: _socket.socket, spare: Spare | None = None) -> None:
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    for number in (*IGNORED_SIGNALS, _signal.SIGPIPE):
        _signal.signal(number, _signal.SIG_IGN)
    # The host had them blocked while the launcher started.
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, IGNORED_SIGNALS)
    Loop(control, spare).run()


def main() -> None:
    """Serve the host, and end without tearing down the interpreter: the host waits for this process."""
    serve(_socket.socket(fileno=int(sys.argv[-1])))
    os._exit(0)
