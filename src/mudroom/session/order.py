"""One command's values: its order, its state while it runs, and its end.

A command's state is kept only here, so commands in several threads cannot mix.
"""

from __future__ import annotations

from collections.abc import Callable

from mudroom.core.clock import CommandStart
from mudroom.core.command.verdict import Verdict
from mudroom.session.actor import Actor
from mudroom.session.confinement.grant import PLAIN, Grant
from mudroom.typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from mudroom.core.approval.approval import CommandAnswer, CommandApprover, CommandQuestion
    from mudroom.core.confinement.fallback import Mode
    from mudroom.core.confinement.limit import LimitReached, Reading
    from mudroom.core.network.flow import Flow
    from mudroom.core.result import LeftFile
    from mudroom.errors import MudroomError
    from mudroom.sandbox.client.cancellation import Cancellation
    from mudroom.sandbox.client.capture import CapturedOutput
    from mudroom.sandbox.client.client import Running
    from mudroom.sandbox.client.invocation import Exit
    from mudroom.sandbox.client.terminal_sign import SignKind
    from mudroom.vault.forks.ties import Tie
    from mudroom.vault.store.mount_note import MountNote


class Stdio(NamedTuple):
    """A command's descriptors. None: captured (stdin: empty)."""

    stdin: int | None = None
    stdout: int | None = None
    stderr: int | None = None
    terminal: bool = False
    """Terminals stay with the caller: the command gets its own pseudo-terminal or pipes, which are relayed
    (``sandbox/client/terminal.py``). Only in the main thread, because signals are handled meanwhile."""
    signs: tuple[SignKind, ...] = ()
    """Ways to tell the user about questions that wait elsewhere, while the command's program has the terminal."""
    is_dumb: bool = False
    """The terminal shows escape sequences instead of acting on them."""
    on_output: Callable[[str, bytes], None] | None = None
    """Called with ``stdout`` or ``stderr`` and the new bytes of each captured stream, in the thread that runs the
    command. Bytes beyond the capture limit are passed on, too."""


CAPTURED = Stdio()


class Pipes(NamedTuple):
    """A background command's descriptors: pipe ends that mudroom made for it, never the user's file or terminal. Two
    may be the same."""

    stdin: int
    stdout: int
    stderr: int


class Case(NamedTuple):
    """A command's verdict, the question that was asked about it, and the answer."""

    verdict: Verdict
    question: CommandQuestion | None = None
    answer: CommandAnswer | None = None
    relies: bool = False
    """Whether the sandbox's protections made the verdict milder. If a protection is lost, the verdict is void."""

    @property
    def allowed(self) -> bool:
        if self.verdict.action == "require_approval":
            return self.answer is not None and self.answer.allow
        return self.verdict.action != "deny"

    @property
    def wants_checkpoint(self) -> bool:
        return self.verdict.action != "allow"

    @property
    def final(self) -> Verdict:
        """The verdict, with the answer in its reason."""
        if self.answer is None:
            return self.verdict
        from mudroom.core.text.answer_place import answered_by

        answer = ("approved" if self.answer.allow else "refused") + answered_by(self.answer.by)
        more = f" ({self.answer.reason})" if self.answer.reason else ""
        return self.verdict._replace(reason=f"{self.verdict.reason}; {answer}{more}")

    def changed(self) -> Case:
        """Return the case as refused: the command has changed since the answer."""
        assert self.answer is not None
        return self._replace(answer=self.answer._replace(allow=False, keep=False, reason=CHANGED))


class ProtectionLost(Exception):
    """A command's sandbox lacks a protection that the verdict relies on. The command has not run."""


CHANGED = "what it would run has changed since it was approved: run it again to be asked about that"
OWN = Case(Verdict())
"""The case for the user's own commands."""


class Order(NamedTuple):
    """A request to run one command."""

    argv: tuple[bytes, ...]
    cwd: bytes
    actor: Actor = Actor()
    grant: Grant = PLAIN
    fork: str | None = None
    """None: a new fork."""
    stdio: Stdio = CAPTURED
    timeout: float | None = None
    """Seconds; None: no limit."""
    alone: bool = False
    """Whether the running thread has the vault alone (``exclusive.py``)."""
    quiet: float | None = None
    """Seconds for which agents pause for it, from its start (``vault/turn.py``). None: it is not the user's own command
    that they pause for."""
    stays: bool = False
    """Whether it runs in the background."""
    pipes: Pipes | None = None
    """A background command's descriptors; None: its output is kept in the vault."""
    companion: int = 0
    """A background command's: as in ``BackgroundStart``."""
    called: int = 0
    """Time of the caller's request, by ``time.time_ns``."""
    roots: tuple[tuple[Tie, Any], ...] = ()
    """Other projects that are staged with the fork's, which is new, and sessions on them."""
    approver: CommandApprover | None = None
    """Asked about this command; None: the session's approver."""
    cancellation: Cancellation | None = None
    """None: the caller cannot cancel it."""


class CommandEnd(NamedTuple):
    """A command's end: exit, output, reached limits, resource use, flows."""

    exit: Exit
    timed_out: bool
    output: CapturedOutput
    reached: tuple[LimitReached, ...] = ()
    use: Reading | None = None
    flows: tuple[Flow, ...] = ()
    left: tuple[LeftFile, ...] = ()


class Outcome:
    """One command's state while it runs. Written only by the thread that runs it."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.checkpoint: str | None = None
        """The checkpoint made before the command."""
        self.mode: Mode | None = None
        self.started = CommandStart(0)
        self.has_fork = False
        """Whether the command holds its fork, which cannot be discarded then."""
        self.mounted: MountNote | None = None
        """The fork's mount in which the command works. It does not change while the fork's lock is held."""
        self.flows: tuple[Flow, ...] = ()
        self.running: Running | None = None
        self.relies = False
        """Whether the verdict relies on the command's own namespaces."""
        self.merged: str | None = None
        """A layer merged from the fork's lowest layers while the command ran; the fork uses it afterwards."""
        self.is_networked = False
        """Whether the command was judged to use the network."""
        self.uncollected = ""
        """Why an earlier command's changes in the fork could not be collected."""
        self.unwritten: MudroomError | None = None
        """The error of journalling its flows or passing on its output, raised once its changes are collected."""

        self.cancellation: Cancellation | None = None
        self.roots: Any = None
        """The ``StagedRoots`` of a fork with parts in other projects, while it is held; else None."""

    def note(self, *notes: str) -> None:
        """Add the notes that are new."""
        self.notes += [note for note in notes if note not in self.notes]
