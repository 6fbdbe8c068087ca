"""Approvers for hosts while a command runs, and the command's terminal: types only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from mudroom.typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from mudroom.core.network.flow import FlowAnswer, FlowQuestion
    from mudroom.core.network.host_rules import HostRule
    from mudroom.session.confinement.dialler import Dialler
    from mudroom.vault.store.fork import Fork

    BlockingApprover = Callable[[FlowQuestion, int], FlowAnswer]
    """The second argument is a descriptor that becomes readable when the command has ended and needs no answer any
    more."""
    Approver: TypeAlias = "BlockingApprover | RemoteApprover | TerminalApprover"


class HostAnswers(NamedTuple):
    """How questions about hosts are answered for a session's gate."""

    rules: Callable[[], Sequence[HostRule]] = tuple
    """Called when a command first uses the network. Returns the same object while the rules are unchanged."""
    remember: Callable[[HostRule], None] = lambda _rule: None
    """Stores a lasting answer."""
    approver: Approver | None = None
    """Asked about a host that no rule names; None: the host is refused."""
    loopback_rules: Callable[[], Sequence[HostRule]] | None = None
    """Called before every command at the gate. Returns the rules if any may name this machine's loopback, otherwise no
    rules. None: ``rules``."""
    for_agent: Callable[[Sequence[HostRule]], Sequence[HostRule]] = lambda rules: rules
    """Returns the rules for an agent's command at level 1 or 2."""
    dialler: Callable[[Fork, Any], Dialler | None] = lambda _fork, _order: None
    """Returns the dialler that connects an order's command to other forks; None: the machine's own dialler."""


NO_ANSWERS = HostAnswers()


class PendingQuestion(Protocol):
    """A question that is answered elsewhere. No method raises or blocks."""

    def fileno(self) -> int:
        """Return a descriptor that is readable when there may be an answer; -1: call ``look`` periodically."""

    def look(self) -> FlowAnswer | None:
        """Return the answer; None: not yet. The question has its own timeout."""

    def close(self) -> None:
        """Withdraw the question, whose answer is not needed any more."""


class RemoteApprover(Protocol):
    """An approver that does not block."""

    def begin(self, question: FlowQuestion) -> PendingQuestion: ...


class TerminalApprover(Protocol):
    """An approver on the user's terminal."""

    @property
    def elsewhere(self) -> RemoteApprover:
        """The approver that is asked while the command's program has the terminal."""

    def ask(self, question: FlowQuestion, over: int, is_taken: Callable[[], bool]) -> FlowAnswer | None:
        """Return the answer, or None if a program has taken the terminal meanwhile."""


class CommandScreen(Protocol):
    """The user's terminal while a command runs (``sandbox/client/terminal.py:Relay``)."""

    def suspended(self) -> AbstractContextManager[None]:
        """Keep the command's output off the terminal while a question is shown there."""

    def is_taken(self) -> bool:
        """Return whether the command's program reads keys by itself."""

    def sign(self, text: str) -> None:
        """Show a sign with this text; empty: remove it."""


class NoScreen:
    """A command without a terminal."""

    def suspended(self) -> AbstractContextManager[None]:
        return nullcontext()

    def is_taken(self) -> bool:
        return False

    def sign(self, text: str) -> None:
        """Do nothing: there is no terminal."""
