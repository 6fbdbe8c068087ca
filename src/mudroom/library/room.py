"""``mudroom.open``: a project whose commands and edits are staged until ``apply``.

    with mudroom.open("proj") as room:
        result = room.run("make test", fork="a", timeout=60)
        print(result.stdout, result.changes)
        room.apply("a", verify="pytest -q")

docs/LIBRARY.md shows how to do common tasks, decisions/0050 lists the promises.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence

from mudroom.core.registry import part
from mudroom.core.system.closing import Closing
from mudroom.errors import ForkExists, UsageError
from mudroom.library import landing
from mudroom.library.argument import name_of
from mudroom.library.command import requested, run, start, stream
from mudroom.library.life import Life
from mudroom.library.mounted_block import MountedBlocks
from mudroom.library.value import Applied, ChangeList, ForkInfo, JournalEvent, RunResult, fork_info, journal_event
from mudroom.typing import TYPE_CHECKING, Any, Unpack

if TYPE_CHECKING:
    from mudroom.core.network.push import PushRow
    from mudroom.library.argument import CommandLine, Effects, StrPath, Word
    from mudroom.library.background_handle import BackgroundHandle
    from mudroom.library.fork_handle import ForkHandle
    from mudroom.library.life import CancellableApprover
    from mudroom.library.output import OnOutput, OutputStream
    from mudroom.library.satellite import (
        ArchivePlace,
        ArrivedFork,
        AttemptOptions,
        AttemptStream,
        ForkArchive,
        NamedArchive,
        ToolFormat,
        ToolSet,
    )
    from mudroom.session import Session


class Room(Closing):
    """An open project. Thread-safe. ``close`` it, or use it as a context manager.

    Without ``fork`` a command runs in a new fork. Commands in different forks run side by side, those in one fork one
    after the other. Only ``apply``, ``undo`` and ``redo`` change the project.
    """

    def __init__(self, session: Session, notes: Sequence[str], approver: CancellableApprover) -> None:
        """Use ``mudroom.open`` to create a room."""
        self._life, self._mounted = Life(session, approver), MountedBlocks()
        self.project = os.fsdecode(session.project)
        self.notes = tuple(notes)
        """Problems when the room was opened: untrusted parts of a policy, commands that a killed mudroom has left."""

    def __repr__(self) -> str:
        return f"<mudroom room on {self.project}{' (closed)' if self.is_closed else ''}>"

    def close(self) -> None:
        """End everything that runs, write files from memory to disk, and release all resources. Harmless when
        repeated."""
        self._life.close()

    @property
    def is_closed(self) -> bool:
        return self._life.is_closed

    # --- commands ---

    def run(
        self,
        command: CommandLine,
        *,
        fork: str | None = None,
        cwd: StrPath | None = None,
        timeout: float | None = None,
        input: str | bytes | None = None,  # noqa: A002
        env: Mapping[str, str] | None = None,
        on_output: OnOutput | None = None,
        check: bool = False,
    ) -> RunResult:
        """Run a command and return its result with the fork's changes. Ctrl-C ends the command.

        ``command``: a list, or a line for ``sh``. ``fork``: created if it does not exist; None: a new one. ``cwd``:
        relative to the project. ``timeout``: seconds, then SIGTERM and SIGKILL. ``input``: for its stdin, otherwise
        empty. ``env``: more variables. ``on_output``: called with each ``OutputChunk`` as it comes. ``check``: raise
        CommandFailed unless it exits with 0. Raise CommandNotStarted if the program does not exist, Unsupported if it
        cannot be confined here.
        """
        request = requested(self._life, command, fork, cwd, timeout, input, env)
        return run(self._life, request, on_output, check=check)

    def stream(
        self,
        command: CommandLine,
        *,
        fork: str | None = None,
        cwd: StrPath | None = None,
        timeout: float | None = None,
        input: str | bytes | None = None,  # noqa: A002
        env: Mapping[str, str] | None = None,
    ) -> OutputStream:
        """Start a command and return an iterator over its output; ``stream.result`` then has the result. Leaving the
        iterator, or its ``with`` block, early ends the command."""
        return stream(self._life, requested(self._life, command, fork, cwd, timeout, input, env))

    def start(
        self,
        command: CommandLine,
        *,
        fork: str | None = None,
        cwd: StrPath | None = None,
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
    ) -> BackgroundHandle:
        """Start a background command in a fork and return a handle. Other commands in this fork run beside it. It ends
        with the room. Raise Refused if the policy refuses it."""
        return start(self._life, requested(self._life, command, fork, cwd, timeout, None, env))

    def attempts(
        self, command: CommandLine | None = None, n: int = 4, **options: Unpack[AttemptOptions]
    ) -> AttemptStream:
        """Run a task ``n`` times side by side, each attempt in its own fork. Return an iterator over the attempts as
        they end; its ``result`` names the best. The project is not changed.

        ``command``: with ``{i}`` for the number, which is also in MUDROOM_ATTEMPT; or ``commands``: one per attempt.
        ``judge``: a command, run in a fork of the attempt, whose success makes the attempt pass; None: the command's
        own success does. ``score``: "exit" (the judge's exit code), "json" (the number in its last line, or under
        "score" in it) or "-lines" (fewest changed lines). ``jobs``: attempts at a time. ``until``: end the others when
        this number has passed. ``budget``: seconds for all attempts, ``timeout`` for one command. ``parent`` and
        ``at``: start from that fork. ``combine``: also judge unions of attempts that merge without a conflict. ``cwd``,
        ``env``: as for ``run``.
        """
        stream: AttemptStream = _satellite("attempts").attempts(self._life, command, n, options)
        return stream

    def background(self, id: str) -> BackgroundHandle:  # noqa: A002
        """Return the background command with this id, from any room or process. Raise UsageError if there is none."""
        from mudroom.library.background_handle import BackgroundHandle

        with self._life.call() as session:
            return BackgroundHandle(self._life, session.background(id))

    # --- forks ---

    def fork(
        self, name: str | None = None, *, parent: str | None = None, at: str | None = None, snapshot: bool = False
    ) -> ForkHandle:
        """Return the fork with this name, created if it does not exist. None: a new fork.

        ``parent``: fork that fork as it is now, or at its checkpoint ``at``; raise ForkExists if the name is taken.
        ``snapshot``: a new fork on a frozen copy of the project.
        """
        from mudroom.library.fork_handle import ForkHandle

        if at is not None and parent is None:
            raise UsageError("at is for a fork of a fork", "name the fork of the checkpoint: parent=…")
        with self._life.call() as session:
            chosen = name_of(name) or f"run-{session.forks.new_id()}"
            wants_new = parent is not None or snapshot
            if wants_new or session.vault.find(chosen) is None:
                try:
                    session.forks.new(chosen, parent=name_of(parent), at=at, snapshot=snapshot, named=name is not None)
                except ForkExists:
                    if wants_new:
                        raise  # otherwise another thread has made it meanwhile
        return ForkHandle(self._life, chosen, self._mounted)

    def forks(self) -> list[ForkInfo]:
        """Return all the project's forks, oldest first, from every process."""
        from mudroom.vault.forks.fork_summary import ForkSummaries

        with self._life.call() as session:
            return [fork_info(summary) for summary in ForkSummaries().all(session.vault)]

    def changes(self, fork: str) -> ChangeList:
        """Return the files that a fork has changed."""
        return landing.changes(self._life, fork)

    def diff(self, fork: str, paths: Word | Sequence[Word] = ()) -> str:
        """Return a fork's changes as a unified diff: all files, or those at and below ``paths``."""
        return landing.diff(self._life, fork, paths)

    def effects(self, fork: str) -> list[PushRow]:
        """Return a fork's held effects, oldest first: pushes, publishes, mail and other requests that wait for an
        apply. They are compared with what their servers have now; a server that does not answer is a flag."""
        return landing.effects(self._life, fork)

    def discard(self, fork: str, effects: Effects | None = None) -> None:
        """Discard a fork, or drop only these of its held effects."""
        landing.discard(self._life, fork, effects)

    def export(self, fork: str, target: ArchivePlace, *, base: bytes = b"", packed: bool = True) -> ForkArchive:
        """Write a fork as an archive, to a new file or to a byte stream that need not seek, such as a pipe.

        ``base``: the id (32 bytes) of the fork's base, which is named instead of included. ``packed``: with gzip. Raise
        UsageError if the file exists, or a commit in the fork holds a masked file.
        """
        archive: ForkArchive = _satellite("archives", "export").export_of_room(
            self._life, fork, target, base, packed=packed
        )
        return archive

    def arrive(self, archives: Sequence[NamedArchive], *, bases: Collection[bytes] = ()) -> list[ArrivedFork]:
        """Create forks from archives, and return the outcome of each. An archive is a path, a byte stream, or a tuple
        (name, path or stream). A fork gets the next free name if its own is taken.

        ``bases``: ids of bases that equal this project. Commands go on meanwhile. Each fork arrives whole or not at
        all; a damaged or hostile archive is refused, and does not affect the others.
        """
        outcomes: list[ArrivedFork] = _satellite("archives", "arrive").arrive_in_room(self._life, archives, bases)
        return outcomes

    def tools(
        self,
        format: ToolFormat,  # noqa: A002
        *,
        fork: str | None = None,
        only: Sequence[str] | None = None,
    ) -> ToolSet:
        """Return a fork's tools for a model: ``definitions`` for its API, ``call`` and ``reply`` for its calls.

        ``format``: "openai" (chat completions), "openai-responses", "anthropic" or "mcp". ``fork``: None: a new one.
        ``only``: these tools. Their commands run as the room's agent, or else as an agent named ``agent``: the policy
        judges them.
        """
        tools: ToolSet = _satellite("tools").tools(self._life, format, fork, only)
        return tools

    # --- the project ---

    def apply(
        self,
        fork: str,
        paths: Word | Sequence[Word] = (),
        *,
        verify: CommandLine | None = None,
        reviewed: str | None = None,
        effects: Effects = (),
        git: bool = False,
    ) -> Applied:
        """Merge a fork's changes into the project, with what has changed there since.

        ``paths``: only these, and files below them. ``verify``: a command, instead of the policy's, that must succeed
        on the result before it is written. ``reviewed``: the fingerprint of the reviewed changes; raise ForkMoved if
        they differ now. ``git``: also apply commits from the fork's repositories. ``effects``: send these held effects
        after the files have landed: rows of ``effects``, which are sent only as they were shown, or names. With them
        and without ``paths`` no file is applied; ``paths="."`` is all files. Conflicts, a failed verification and
        effects that were not sent are in the result; ``Applied.check`` raises. Commands in other rooms and processes
        are paused meanwhile.
        """
        return landing.apply(self._life, fork, paths, verify, reviewed, effects, git=git)

    def undo(self, name: str | None = None) -> Applied:
        """Undo an apply: the last, or by ``Applied.name``."""
        return landing.undo(self._life, name)

    def redo(self, name: str | None = None) -> Applied:
        """Redo an undone apply: the last, or by ``Applied.name``."""
        return landing.redo(self._life, name)

    def journal(self, last: int = 100, *, kinds: Sequence[str] = (), forks: Sequence[str] = ()) -> list[JournalEvent]:
        """Return the project's newest events, oldest first."""
        from mudroom.core.journal.event_filter import EventFilter

        with self._life.call() as session:
            where = EventFilter(kinds=tuple(kinds), forks=tuple(forks))
            return [journal_event(event) for event in session.vault.journal.events(last=last, where=where)]


def _satellite(row: str, call: str = "") -> Any:
    """Return the module that implements a call. Raise NotInstalled if its satellite is absent."""
    return part("call", row, f"Room.{call or row}")
