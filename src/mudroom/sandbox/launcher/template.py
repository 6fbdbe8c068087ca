"""The template: what a session's commands have in common, prepared once, and the spare, prepared ahead of a command.

Part of the launcher's process: the rules at the top of ``launcher.py`` hold here.
"""

from __future__ import annotations

import _socket
import os

from mudroom.sandbox.launcher.init import Run, become, enter, holding_signals, keep_only, perform, run_init
from mudroom.sandbox.launcher.kernel import clone
from mudroom.sandbox.launcher.step import StepContext
from mudroom.sandbox.launcher.wire import receive, send, tell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mudroom.sandbox.launcher.init import Plan
    from mudroom.sandbox.launcher.wire import Request


def prepare(request: Request, descriptors: list[int], report: int) -> tuple[_socket.socket, Ahead]:
    """Become a template: perform the steps that all commands of a session share. Returns what it is to serve."""
    report = keep_only([report, *descriptors], 3)
    context = perform(request["plan"], report, StepContext(request["namespaces"]))
    os.fchdir(context.root)  # a clone finds the copy of this mount in its own namespace as its working directory
    os.close(context.root)
    tell(report, ("prepared",))
    os.close(report)
    return _socket.socket(fileno=4), Ahead(request["ahead"], request["last"], request["each"])


def run_spare(channel: _socket.socket, ahead: Plan, last: Plan, namespaces: int) -> None:
    """An init without a command yet: perform what needs none, then wait for it."""
    try:
        enter(None)
        channel = _socket.socket(fileno=keep_only([channel.detach()], 3))
        context = perform(ahead, -1, StepContext(namespaces))
        request, descriptors = receive(channel)
        channel.close()
        if request is not None:
            request["first"], request["plan"] = len(ahead), (*request["plan"], *last)
            report = descriptors[-1]
            if request["held"]:
                from mudroom.sandbox.launcher.holder import hold

                become(lambda: hold(request, descriptors[:-1], report, context), report)
            become(lambda: run_init(request, descriptors[:-1], report, context), report)
    except OSError:
        pass  # the template sees that we ended, and starts the next command without us: it will find the error again
    finally:
        os._exit(125)


class Ahead:
    """What a template knows ahead of a command: the steps before the command's own and those after, and the namespaces
    of each. ``steps`` are performed for the spare, before there is a command."""

    def __init__(self, steps: Plan, last: Plan, namespaces: int) -> None:
        self.steps, self.last, self.namespaces = steps, last, namespaces
        self.fails = False
        """A spare could not be made: that is not tried for every command again."""
        self.spare: Run | None = None
        self.channel: _socket.socket | None = None

    def refill(self) -> Run | None:
        """Clone a spare if there is none. Returns it if it is new."""
        if self.spare is not None or self.fails:
            return None
        self.channel, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            pid = holding_signals(lambda: clone(self.namespaces))
        except OSError:
            return None  # the next command is cloned when it comes, and says what is wrong
        if pid == 0:
            run_spare(theirs, self.steps, self.last, self.namespaces)
        theirs.close()
        self.spare = Run(0, pid, os.pidfd_open(pid), -1)
        return self.spare

    def complete(self, request: Request) -> Request:
        """The request of a command, as somebody without a spare needs it."""
        return {**request, "plan": (*self.steps, *request["plan"], *self.last)}

    def take(self, request: Request, descriptors: list[int]) -> bool:
        """Hand a command to the spare. False if there is none, or if the command's init has to be cloned into a control
        group: a spare could only be moved, which costs more than it saves."""
        spare, channel = self.spare, self.channel
        if spare is None or channel is None or request["into"]:
            return False
        try:
            send(channel, request, descriptors)
        except OSError:
            return False  # it ended; its pidfd says so to the loop
        channel.close()
        spare.identity, spare.report = request["id"], descriptors[-1]
        for descriptor in descriptors[:-1]:
            os.close(descriptor)
        self.spare = self.channel = None
        return True
