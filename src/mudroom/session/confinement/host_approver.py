"""Who is asked about a host while a command runs: types of approvers, and the terminal of the command."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from mudroom.typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from mudroom.core.network.flow import FlowAnswer, FlowQuestion
    from mudroom.core.network.host_rules import HostRule
    from mudroom.session.confinement.dialler import Dialler
    from mudroom.vault.store.fork import Fork

    Approver = Callable[[FlowQuestion, int], FlowAnswer]
    """The descriptor is readable as soon as the answer is not needed any more, because the command has ended."""


class HostAnswers(NamedTuple):
    """The answers about hosts that a session's gate works with."""

    rules: Callable[[], Sequence[HostRule]] = tuple
    """Called when a command first uses the network. It returns the same object while the rules are unchanged."""
    remember: Callable[[HostRule], None] = lambda _rule: None
    """Keeps a lasting answer."""
    approver: Approver | None = None
    """Asked about a host that no rule names; None: refused."""
    loopback_rules: Callable[[], Sequence[HostRule]] | None = None
    """Called before every command at the gate: the rules if one of them may name this machine's loopback, otherwise no
    rule. None: ``rules``."""
    dialler: Callable[[Fork, Any], Dialler | None] = lambda _fork, _order: None
    """Returns what makes the connections of an order to other forks; None: the machine's own."""


NO_ANSWERS = HostAnswers()


class PendingQuestion(Protocol):
    """A question that is answered elsewhere. No method raises or blocks."""

    def fileno(self) -> int:
        """Return a descriptor that is readable when there may be an answer; -1: call ``look`` periodically."""

    def look(self) -> FlowAnswer | None:
        """Return the answer; None: not yet. The question has a timeout of its own."""

    def close(self) -> None:
        """Withdraw the question: the answer is not needed any more."""


class RemoteApprover(Protocol):
    """An approver that does not block. An approver with ``begin`` is asked by that method."""

    def __call__(self, question: FlowQuestion, over: int) -> FlowAnswer: ...
    def begin(self, question: FlowQuestion) -> PendingQuestion: ...


class TerminalApprover(Protocol):
    """An approver on the user's terminal."""

    elsewhere: RemoteApprover
    """Asked while a program of the command has the terminal."""

    def __call__(self, question: FlowQuestion, over: int) -> FlowAnswer: ...
    def ask(self, question: FlowQuestion, over: int, is_taken: Callable[[], bool]) -> FlowAnswer | None:
        """Return the answer, or None if a program has taken the terminal meanwhile."""


class CommandScreen(Protocol):
    """The user's terminal while a command runs (``sandbox/client/terminal.py:Relay``)."""

    def suspended(self) -> AbstractContextManager[None]:
        """Keep the command's output off the terminal while a question is shown there."""

    def is_taken(self) -> bool:
        """Return whether a program of the command reads keys by itself."""

    def sign(self, text: str) -> None:
        """Show a sign with this text; empty: remove it."""


class NoScreen:
    """A command without a terminal."""

    def suspended(self) -> AbstractContextManager[None]:
        return nullcontext()

    def is_taken(self) -> bool:
        return False

    def sign(self, text: str) -> None:
        """There is no terminal to show it on."""
