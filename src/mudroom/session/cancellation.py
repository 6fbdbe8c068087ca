"""The request to end one command, from another thread or a signal handler.

A session's ``interrupt`` means all commands of a fork; this means one. A command that waits for its fork does not start
once its end is requested; one that runs gets the signal, and its changes are collected as after any other end.
"""

from __future__ import annotations

from mudroom.errors import Cancelled
from mudroom.sandbox.client.capture import SIGTERM
from mudroom.typing import Protocol


class Signalled(Protocol):
    """A command that runs."""

    told: list[int]

    def signal(self, number: int) -> None: ...


class Cancellation:
    """No lock, only single operations of lists: a signal handler uses it."""

    def __init__(self) -> None:
        self._told: list[int] = []
        self._commands: list[Signalled] = []
        """The command, from its start on. Never removed: a signal to a command that has ended does nothing."""

    @property
    def is_requested(self) -> bool:
        return bool(self._told)

    @property
    def has_started(self) -> bool:
        """Whether the command has been started, or is being started."""
        return bool(self._commands)

    def request(self, number: int = SIGTERM) -> None:
        """Send a signal to the command (SIGKILL: end all its processes). Before its start: do not start it."""
        self._told.append(number)
        for command in self._commands:
            command.signal(number)

    def attach(self, command: Signalled) -> None:
        """Mean this command from now on. A request of the past is sent to it."""
        self._commands.append(command)
        for number in self._told:
            if number not in command.told:
                command.signal(number)

    def require_wanted(self) -> None:
        """Raise Cancelled if the command has not started and its end is requested."""
        if self._told and not self._commands:
            raise Cancelled
