"""Values that library calls return. They can be compared, copied and pickled.

Texts are ``str``. In decoded output, bytes that are not UTF-8 become U+FFFD; the raw bytes are in a field beside it. A
file name is decoded as Python does (PEP 383), so it can be passed to every call again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from mudroom.core.tree.change import Change, Verb, counted_changes
from mudroom.core.tree.path import show
from mudroom.errors import MudroomError
from mudroom.typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from mudroom.core.journal.event import Event
    from mudroom.core.network.push import PushRow
    from mudroom.core.result import Denial, Result
    from mudroom.core.tree.entry import Entry
    from mudroom.vault.apply.landing import LandingResult
    from mudroom.vault.apply.transaction import ApplyResult
    from mudroom.vault.forks.fork_summary import ForkSummary


class CommandFailed(MudroomError):
    """Raised by ``RunResult.check``."""

    def __init__(self, message: str, hint: str, result: RunResult) -> None:
        super().__init__(message, hint)
        self.result = result
        self.exit_code = result.exit_code


class NotApplied(MudroomError):
    """Raised by ``Applied.check``."""

    def __init__(self, message: str, hint: str, result: Applied) -> None:
        super().__init__(message, hint)
        self.result = result
        self.exit_code = 5 if result.state == "unverified" else 3


def _shown(text: str) -> str:
    """Return a text in one line, with control characters escaped for a terminal."""
    return show(os.fsencode(text))


class ChangedFile(NamedTuple):
    """A path that a fork has changed."""

    path: str
    kind: Verb
    """``added``, ``modified``, ``deleted`` or ``renamed``."""
    added: int = 0
    """Lines."""
    removed: int = 0
    size: int = 0
    """Bytes in the fork; 0 for a deleted path."""
    old_path: str = ""
    """The path before a rename."""
    is_binary: bool = False
    flags: tuple[str, ...] = ()
    """Marks for a reviewer: ``content``, ``mode``, ``executes-later`` (a file that will be run automatically later)
    …"""

    def __str__(self) -> str:
        """Return one line: kind, path, lines added and removed."""
        lines = "binary" if self.is_binary else f"+{self.added} -{self.removed}"
        old = f"{self.old_path} → " if self.old_path else ""
        special = [flag for flag in self.flags if flag != "content"]
        flags = f"  ({', '.join(special)})" if special else ""
        return f"{self.kind:<8}  {_shown(old + self.path)}  {lines}{flags}"


class ChangeList(tuple[ChangedFile, ...]):
    """Changed files by path. Its ``str`` has one line per file."""

    __slots__ = ()

    @property
    def paths(self) -> list[str]:
        return [change.path for change in self]

    def __str__(self) -> str:
        return "\n".join(map(str, self)) or "no changes"


class SandboxDenial(NamedTuple):
    """An operation that the sandbox or the network gate refused."""

    kind: str
    """``network``, ``metadata`` or ``system call``."""
    target: str
    """A host and port, a path, or a system call's name."""
    reason: str
    times: int = 1
    """Number of refusals."""

    def __str__(self) -> str:
        times = f" ({self.times} times)" if self.times > 1 else ""
        return f"{self.kind}: {_shown(self.target)}: {self.reason}{times}"


class RunResult(NamedTuple):
    """A command's result. A command that fails, or that the policy refuses, also gives a result; ``check`` raises."""

    fork: str
    command: tuple[str, ...]
    exit_code: int
    """The command's own, or 128 + the signal that ended it; 126 if it was refused."""
    signal: int | None
    timed_out: bool
    duration: float
    """Seconds."""
    stdout_bytes: bytes
    stderr_bytes: bytes
    truncated: bool
    """Whether the output was longer than the limit (``mudroom.open(output_limit=…)``); only its beginning is kept. A
    stream or ``on_output`` gets all output."""
    changes: ChangeList
    """All changes in the fork, not only this command's."""
    denials: tuple[SandboxDenial, ...]
    ran: bool
    """False if the policy or an approver has refused the command."""
    reason: str
    """Why it was refused, and what is allowed instead; otherwise empty."""
    checkpoint: str | None
    """The checkpoint made before the command, if the policy requires one."""
    level: int
    limits: tuple[str, ...]
    """Limits that the command has reached, one line each."""
    notes: tuple[str, ...]
    """Weaker protection than usual, other differences from the request, and what was written outside the project."""

    @property
    def stdout(self) -> str:
        return self.stdout_bytes.decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        return self.stderr_bytes.decode("utf-8", "replace")

    @property
    def ok(self) -> bool:
        """Whether the command has run and exited with 0."""
        return self.ran and self.exit_code == 0 and not self.timed_out

    def check(self) -> RunResult:
        """Return self. Raise CommandFailed if the command has not run or has failed."""
        if self.ok:
            return self
        raise CommandFailed(self._failure(), self.stderr.strip().rpartition("\n")[2][:200], self)

    def _failure(self) -> str:
        from mudroom.core.tree.quote import show_words

        words = show_words([os.fsencode(word) for word in self.command])
        shown = words if len(words) <= 80 else words[:79] + "…"
        if not self.ran:
            return f"`{shown}` was refused: {self.reason}"
        if self.timed_out:
            return f"`{shown}` ran out of time after {self.duration:.1f} s"
        end = f"was ended by signal {self.signal}" if self.signal else f"exited with {self.exit_code}"
        return f"`{shown}` {end}"


class OutputChunk(NamedTuple):
    """A piece of a command's output, as it came."""

    stream: Literal["stdout", "stderr"]
    text: str
    """A character that is split between two chunks is in the later one."""
    data: bytes


class Applied(NamedTuple):
    """Result of an apply, an undo or a redo. ``check`` raises unless everything was applied."""

    name: str
    """For ``undo``; empty if the project was not changed."""
    state: Literal["applied", "conflicts", "unverified"]
    """``conflicts``: the rest is applied. ``unverified``: the verification failed, and no change was applied."""
    written: int = 0
    """Files."""
    removed: int = 0
    conflicts: Mapping[str, str] = {}
    """Path → reason. The project keeps its version, the fork the other."""
    merged: tuple[str, ...] = ()
    """Paths that both sides had changed."""
    withheld: tuple[str, ...] = ()
    """Protected paths that stay in the fork because ``paths`` does not name them."""
    remaining: int = 0
    """Changes that are still in the fork."""
    output: str = ""
    """The verification's output."""
    exit_code: int | None = None
    """The verification's exit code, or None if there was none."""
    notes: tuple[str, ...] = ()
    effects: tuple[PushRow, ...] = ()
    """The held effects that were sent or taken back, or that were to be: ``state`` and ``why``."""

    @property
    def ok(self) -> bool:
        return self.state == "applied" and not any(effect.why for effect in self.effects)

    def check(self) -> Applied:
        """Return self. Raise NotApplied if something was not applied."""
        if self.ok:
            return self
        if self.state == "unverified":
            raise NotApplied(
                f"the verification exited with {self.exit_code}; nothing was applied",
                "its output is in result.output",
                self,
            )
        left = next((effect for effect in self.effects if effect.why), None)
        if left is not None and not self.conflicts:
            raise NotApplied(f"{left.name}: {left.why}", f"its state is {left.state}", self)
        path, reason = next(iter(self.conflicts.items()))
        more = f" and {len(self.conflicts) - 1} more" if len(self.conflicts) > 1 else ""
        raise NotApplied(f"{_shown(path)}{more} was not applied: {reason}", "mudroom resolve decides it", self)


class ForkInfo(NamedTuple):
    """A fork in a list."""

    name: str
    state: str
    """``idle``, ``running``, ``mounted``, ``cut off`` or ``damaged``."""
    changed: int
    """Changed files when the last command ended."""
    agent: str
    parent: str
    created: float
    """Seconds since 1970."""
    problem: str = ""
    """Why it cannot be read."""


class FileInfo(NamedTuple):
    """A directory entry."""

    name: str
    kind: str
    """``file``, ``directory``, ``symlink`` …"""
    size: int
    mode: int
    """Permission bits."""
    modified: float
    """Seconds since 1970."""


class JournalEvent(NamedTuple):
    number: int
    time: float
    """Seconds since 1970."""
    kind: str
    """``run``, ``apply``, ``undo``, ``checkpoint`` …"""
    fork: str
    data: Mapping[str, object]


class Question(NamedTuple):
    """A question to an approver (``mudroom.open(ask=…)``)."""

    kind: Literal["command", "host"]
    fork: str
    agent: str
    command: tuple[str, ...]
    """Empty for a host."""
    cwd: str
    host: str
    """Empty for a command."""
    port: int
    reason: str
    """Why the approver is asked."""

    def __str__(self) -> str:
        if self.kind == "host":
            return f"may {self.agent or 'the command'} reach {self.host}:{self.port}?"
        words = _shown(" ".join(self.command))
        return f"may {self.agent or 'the program'} run `{words}`? ({self.reason})"


# --- from values of the session ---


def run_result(result: Result) -> RunResult:
    verdict = result.verdict
    reason = "" if result.ran else "; ".join(filter(None, (verdict.reason, verdict.instead)))
    return RunResult(
        result.fork,
        tuple(map(os.fsdecode, result.command)),
        result.exit_code,
        result.signal,
        result.timed_out,
        result.duration,
        result.stdout,
        result.stderr,
        result.truncated,
        change_list(result.changeset.changes),
        tuple(map(_denial, result.denials)),
        result.ran,
        reason,
        result.checkpoint,
        result.level,
        tuple(map(str, result.reached)),
        result.notes,
    )


def change_list(changes: Iterable[Change]) -> ChangeList:
    return ChangeList(map(_changed_file, counted_changes(list(changes))))


def _changed_file(change: Change) -> ChangedFile:
    return ChangedFile(
        os.fsdecode(change.path),
        change.verb,
        change.lines_added,
        change.lines_removed,
        change.staged.size if change.staged is not None else 0,
        os.fsdecode(change.source),
        change.binary,
        change.flags,
    )


def _denial(denial: Denial) -> SandboxDenial:
    return SandboxDenial(denial.kind, os.fsdecode(denial.target), denial.reason, denial.times)


def landed(landing: LandingResult) -> Applied:
    verified = landing.verified
    more = applied(landing.applied)
    return more._replace(
        state="unverified" if verified is not None and not verified.passed else more.state,
        merged=tuple(map(os.fsdecode, landing.merged)),
        withheld=tuple(map(os.fsdecode, landing.withheld)),
        remaining=landing.remaining,
        output=verified.output.decode("utf-8", "replace") if verified is not None else "",
        exit_code=verified.exit_code if verified is not None else None,
    )


def applied(result: ApplyResult) -> Applied:
    return Applied(
        result.name,
        "conflicts" if result.conflicts else "applied",
        result.written,
        result.removed,
        {os.fsdecode(conflict.path): conflict.reason for conflict in result.conflicts},
        notes=tuple(f"{os.fsdecode(remark.path)} {remark.text}" for remark in result.remarks),
        effects=result.pushes,
    )


def fork_info(summary: ForkSummary) -> ForkInfo:
    changed = summary.brief.summary.files if summary.brief is not None else 0
    created = summary.created / 1e9
    return ForkInfo(summary.name, summary.state, changed, summary.agent, summary.parent, created, summary.problem)


def file_info(name: str, entry: Entry) -> FileInfo:
    return FileInfo(name, entry.kind, entry.size, entry.mode, entry.mtime / 1e9)


def journal_event(event: Event) -> JournalEvent:
    import json

    data: Mapping[str, object] = json.loads(event.data)
    return JournalEvent(event.number, event.time / 1e9, event.kind, event.fork, data)
