"""The template holds the setup that a session's commands share, performed once; the spare is an init made ahead of a
command.

Part of the launcher's process: the rules at the top of ``launcher.py`` hold here.
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
from mudroom.sandbox.launcher.kernel import clone
from mudroom.sandbox.launcher.step_context import StepContext
from mudroom.sandbox.launcher.wire import receive, send, tell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mudroom.sandbox.launcher.init import Plan
    from mudroom.sandbox.launcher.wire import Request


def prepare(request: Request, descriptors: list[int], report: int) -> tuple[_socket.socket, Spare]:
    """Become a template: perform the steps that all commands of a session share. Return the arguments of ``serve``: the
    socket for requests and the spare."""
    report = keep_only([report, *descriptors], 3)
    context = perform(request["plan"], report, StepContext(request["namespaces"]))
    os.fchdir(context.root)  # a clone finds the copy of this mount in its own namespace as its working directory
    os.close(context.root)
    tell(report, ("prepared",))
    os.close(report)
    return _socket.socket(fileno=4), Spare(request["ahead"], request["last"], request["each"])


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
    """The spare init of a template, with the parts of a plan that all commands share: ``steps`` come before the
    command's own steps and are performed by the spare ahead of a command, ``last`` come after them. ``namespaces`` are
    the clone flags of each init."""

    def __init__(self, steps: Plan, last: Plan, namespaces: int) -> None:
        self.steps, self.last, self.namespaces = steps, last, namespaces
        self.failed = False
        """A spare could not be made; it is not tried again for every command."""
        self.init: Run | None = None
        self.channel: _socket.socket | None = None

    def refill(self) -> Run | None:
        """Clone a spare if there is none. Return it if it is new, else None."""
        if self.init is not None or self.failed:
            return None
        self.channel, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            pid = fork_with_signals_blocked(lambda: clone(self.namespaces))
        except OSError:
            return None  # the next command is cloned when it comes, and reports the error
        if pid == 0:
            run_spare(theirs, self.steps, self.last, self.namespaces)
        theirs.close()
        self.init = Run(0, pid, os.pidfd_open(pid), -1)
        return self.init

    def complete(self, request: Request) -> Request:
        """Return the request of a command with the whole plan, for an init that is no spare."""
        return {**request, "plan": (*self.steps, *request["plan"], *self.last)}

    def take(self, request: Request, descriptors: list[int]) -> bool:
        """Hand a command to the spare. Return False if there is no spare, or if the command's init has to be cloned
        into a control group: a spare could only be moved, which costs more than it saves."""
        spare, channel = self.init, self.channel
        if spare is None or channel is None or request["into"]:
            return False
        try:
            send(channel, request, descriptors)
        except OSError:
            return False  # the spare has ended; its pidfd tells the loop
        channel.close()
        spare.identity, spare.report = request["id"], descriptors[-1]
        for descriptor in descriptors[:-1]:
            os.close(descriptor)
        self.init = self.channel = None
        return True
