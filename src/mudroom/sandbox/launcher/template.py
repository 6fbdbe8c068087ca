"""The template has performed, once, the setup that a session's commands share. Its spare is an init made ahead of its
command.

Launcher code: the rules in ``launcher.py`` hold here.

A *standing* template belongs to one fork. It has also mounted the fork's overlays, each over a host directory, and its
spare is ready for the command: it has its root, no capabilities, and its filter. Its rules:
1. It never runs a command itself, and its mounts are moved nowhere: a spare moves the copies that it is cloned with.
2. Without a command for a while, it ends its spare, which holds half of the memory. The next command is cloned when it
   comes.
3. A request with ``refresh`` makes it drop the kernel's caches of an overlay's files, so that the command sees the
   project as it is now.
4. It has a socket in the fork's directory, the ``door``. At the first connection it ends every process that it has
   cloned, and its mounts, answers one byte, and ends. The holder of the fork's lock connects; no command runs then.
"""

from __future__ import annotations

import _socket
import os

from mudroom.sandbox.launcher.init import (
    Run,
    begin_child,
    fork_with_signals_blocked,
    keep_only,
    perform,
    run_init,
    run_role,
)
from mudroom.sandbox.launcher.kernel import (
    AT_FDCWD,
    FSCONFIG_CMD_RECONFIGURE,
    FSPICK_CLOEXEC,
    SYS_fsconfig,
    SYS_fspick,
    check,
    clone,
    libc,
    syscall,
)
from mudroom.sandbox.launcher.nursery import (
    ask_for_init,
    is_able,
    keep_capabilities,
    lose_capabilities_at_exec,
    start_nursery,
)
from mudroom.sandbox.launcher.step_context import StepContext
from mudroom.sandbox.launcher.wire import opened, receive, send, tell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mudroom.sandbox.launcher.init import Plan
    from mudroom.sandbox.launcher.wire import Request


def prepare(request: Request, descriptors: list[int], report: int) -> tuple[_socket.socket, Spare]:
    """Become a template: perform the steps that a session's commands share. Return the arguments for ``serve``: the
    socket for requests and the spare."""
    report = keep_only([report, *descriptors], 3)
    native = is_able(request["native"], request["each"], (*request["ahead"], *request["last"]))
    if native:
        keep_capabilities()
    context = perform(request["plan"], report, StepContext(request["namespaces"]))
    os.fchdir(context.root)  # a clone's working directory is its copy of this mount, in its own namespace
    os.close(context.root)
    tell(report, ("prepared",))
    os.close(report)
    spare = Spare(request["ahead"], request["last"], request["each"])
    if native:
        spare.nursery = start_nursery(request["native"], request["each"], request["ahead"], request["last"])
        lose_capabilities_at_exec()
    if request["mounts"]:
        spare.mounts, spare.door, spare.rest = request["mounts"], _socket.socket(fileno=5), request["rest"]
    return _socket.socket(fileno=4), spare


def run_spare(channel: _socket.socket, ahead: Plan, last: Plan, namespaces: int) -> None:
    """Run an init that has no command yet: perform the steps that need none, then wait for the command."""
    try:
        begin_child(None)
        channel = _socket.socket(fileno=keep_only([channel.detach()], 3))
        context = perform(ahead, -1, StepContext(namespaces))
        request, descriptors = receive(channel)
        channel.close()
        if request is not None:
            request["first"], request["plan"] = len(ahead), (*request["plan"], *last)
            report = descriptors[-1]
            if request["held"]:
                from mudroom.sandbox.launcher.holder import hold

                run_role(lambda: hold(request, descriptors[:-1], report, context), report)
            run_role(lambda: run_init(request, descriptors[:-1], report, context), report)
    except OSError:
        pass  # the template sees this end and starts the next command without a spare; that command reports the error
    finally:
        os._exit(125)


class Spare:
    """A template's spare init, with the plan parts that all commands share. ``steps`` come before the command's own
    steps and are performed by the spare before it has a command; ``last`` come after them. ``namespaces``: each init's
    clone flags."""

    def __init__(self, steps: Plan, last: Plan, namespaces: int) -> None:
        self.steps, self.last, self.namespaces = steps, last, namespaces
        self.failed = False
        """A spare could not be made; it is not tried again for every command."""
        self.init: Run | None = None
        self.channel: _socket.socket | None = None
        self.mounts: tuple[bytes, ...] = ()
        """Host directories over which a standing template has mounted its overlays."""
        self.door: _socket.socket | None = None
        """A standing template's door."""
        self.nursery: _socket.socket | None = None
        """The program that clones inits. None: this process does."""
        self.rest: int | None = None
        """Milliseconds without a command after which a standing template lets its spare go."""

    def refresh(self) -> None:
        """Drop the kernel's caches of the overlays' files: reconfigure_super in fs/super.c begins with
        shrink_dcache_sb. Raise OSError if that is not possible."""
        for mount in self.mounts:
            picked = syscall(SYS_fspick, AT_FDCWD, mount, FSPICK_CLOEXEC)
            try:
                syscall(SYS_fsconfig, picked, FSCONFIG_CMD_RECONFIGURE, None, None, 0)
            finally:
                os.close(picked)

    def dissolve(self) -> None:
        """End the mounts, after the last process that has copies of them, and answer.

        A process is reaped after it has given up its mount namespace, and an unmount is done when the call returns
        (cleanup_mnt in fs/namespace.c runs before the return to user mode).
        """
        assert self.door is not None
        listening: Any = self.door  # the type stub lacks ``_accept``
        peer = _socket.socket(fileno=listening._accept()[0])
        for mount in self.mounts:
            check(libc.umount2(mount, 0), os.fsdecode(mount))
        try:
            peer.send(b"g")
        except BrokenPipeError:
            pass  # the peer has not waited
        peer.close()

    def refill(self) -> Run | None:
        """Clone a spare if there is none. Return it if it is new, else None."""
        if self.init is not None or self.failed:
            return None
        self.channel, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            pid = self._clone(theirs)
        except OSError:
            return None  # the next command is cloned when it comes, and reports the error
        theirs.close()
        self.init = Run(0, pid, os.pidfd_open(pid), -1, self.namespaces)
        return self.init

    def _clone(self, theirs: _socket.socket) -> int:
        """Return a new spare's pid; it has the channel's end ``theirs``. Raise OSError if it cannot be made."""
        if self.nursery is not None:
            try:
                return ask_for_init(self.nursery, theirs.fileno())
            except EOFError:
                self.give_nursery_up()
        pid = fork_with_signals_blocked(lambda: clone(self.namespaces))
        if pid == 0:
            run_spare(theirs, self.steps, self.last, self.namespaces)
        return pid

    def give_nursery_up(self) -> bool:
        """Stop using the native init from now on. Return whether it was in use."""
        nursery, self.nursery = self.nursery, None
        if nursery is not None:
            nursery.close()
        return nursery is not None

    def let_go(self) -> None:
        """End the spare. The loop waits for it as for any other run."""
        if self.channel is not None:
            self.channel.close()
        self.init = self.channel = None

    def complete(self, request: Request) -> Request:
        """Return a command's request with the whole plan, for an init that is no spare."""
        whole = opened(request)
        return {**whole, "plan": (*self.steps, *whole["plan"], *self.last)}

    def take(self, request: Request, descriptors: list[int]) -> bool:
        """Hand a command to the spare. Return False if there is no spare, if it is native and does not serve the
        command, or if the command's init has to be cloned into a control group: a spare could only be moved, which
        costs more than it saves."""
        spare, channel = self.init, self.channel
        if spare is None or channel is None or request["into"] or (self.nursery is not None and not request["plain"]):
            return False
        try:
            send(channel, request["whole"], descriptors)
        except OSError:
            return False  # the spare has ended; its pidfd tells the loop
        channel.close()
        spare.identity, spare.report = request["id"], descriptors[-1]
        for descriptor in descriptors[:-1]:
            os.close(descriptor)
        self.init = self.channel = None
        return True
