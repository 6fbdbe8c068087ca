"""``mudroom apply -p``: choose file by file and hunk by hunk, with the same keys as ``git add -p``. A chosen row whose
required rows (core/tree/dependent_rows.py) are not chosen is named, and stays in the fork."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from mudroom.cli.terminal.context import Context
from mudroom.cli.terminal.pager import coloured
from mudroom.core.merge.pick import Pick, chosen_part, is_whole
from mudroom.core.text.hunk import Hunk, hunks, split_hunk
from mudroom.core.tree.change import Change, counted_changes
from mudroom.core.tree.dependent_rows import complete_selection, needs, requirement_text, row_of
from mudroom.core.tree.path import show_path
from mudroom.errors import Interrupted
from mudroom.typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mudroom.core.merge.merge import PartialChoice
    from mudroom.session import Session

HELP = """\
y - apply this hunk                     n - leave it in the fork
a - this one and the rest of the file   d - not this one nor the rest of the file
s - split it into smaller ones          q - stop asking: what was chosen so far is applied
? - this help                           Ctrl-C - apply nothing"""

_MOST_NAMED = 20
"""Most paths that are named."""


class PatchSelection(NamedTuple):
    paths: tuple[bytes, ...]
    parts: dict[bytes, PartialChoice]
    """The partly chosen paths."""


class _Questions:
    """The questions about one fork. After q, or at the end of input, no more are asked and the answers given so far
    hold. ``is_over`` tells that: an exception would lose the answers about the file that is being asked about.

    Owner: ``choose``.
    """

    def __init__(self, context: Context) -> None:
        self._terminal = context.terminal
        self.is_over = False

    def key(self, question: str) -> str:
        """Return one key; "q" at the end of input, too."""
        reply = self._terminal.ask(self._terminal.style(question, "blue"))
        if not reply:
            self._terminal.say()
        answer = reply.strip().lower()[:1] if reply else "q"
        self.is_over = answer == "q"
        if answer not in tuple("ynadsq"):
            self._terminal.say(HELP)
        return answer

    def wants(self, question: str) -> bool:
        """Ask about a change without hunks, or about a mode. Return whether it is chosen."""
        while True:
            answer = self.key(f"{question} [y,n,q,?]? ")
            if answer in tuple("yandq"):
                return answer in ("y", "a")


def choose(session: Session, fork: str, paths: Sequence[bytes], context: Context) -> PatchSelection | None:
    """Ask about each change at and below ``paths`` (empty: all changes). Return None if no change was chosen."""
    chosen: list[Change] = []
    parts: dict[bytes, PartialChoice] = {}
    questions = _Questions(context)
    try:
        for change, base, staged in session.changes.texts(fork, paths):
            if questions.is_over:
                break
            if base is None or staged is None:
                if _wants_whole(change, questions):
                    chosen.append(change)
                continue
            part = _ask_file(change, base, staged, questions, context)
            if part is not None:
                chosen.append(change)
                if not is_whole(part, change, staged):
                    parts[change.path] = part
    except KeyboardInterrupt:
        context.terminal.say()
        raise Interrupted(f"interrupted: nothing was applied; {fork} is as it was") from None
    kept = _complete(session, fork, chosen, context)
    if not kept:
        context.terminal.say("nothing was chosen; all stays in the fork")
        return None
    pairs = ([change.path, *([change.source] if change.source else [])] for change in kept)
    return PatchSelection(
        tuple(path for pair in pairs for path in pair),
        {change.path: parts[change.path] for change in kept if change.path in parts},
    )


def _complete(session: Session, fork: str, chosen: Sequence[Change], context: Context) -> list[Change]:
    """Return the chosen changes whose required rows are chosen, too. Print the others."""
    needed = needs(row_of(change) for change in counted_changes(session.changes.of(fork).changes))
    picked = {change.path for change in chosen}
    kept = complete_selection(picked, needed)
    dropped = [change.path for change in chosen if change.path not in kept]
    for path in dropped[:_MOST_NAMED]:
        context.terminal.say(
            f"{requirement_text(path, needed[path] - picked or needed[path] - kept)}: it stays in the fork"
        )
    if dropped[_MOST_NAMED:]:
        context.terminal.say(f"so do {len(dropped) - _MOST_NAMED:,} more")
    return [change for change in chosen if change.path in kept]


def _wants_whole(change: Change, questions: _Questions) -> bool:
    """Ask about a change without hunks: a binary file, a link, a directory, an added or deleted file."""
    verb = {"added": "add", "deleted": "remove", "renamed": "rename", "modified": "change"}[change.verb]
    kind = "" if change.entry.kind == "file" else f" ({change.entry.kind})"
    if change.base is not None and change.staged is not None and change.base.kind != change.staged.kind:
        kind = f" ({change.base.kind} becomes {change.staged.kind})"
    source = f"{show_path(change.source)} to " if change.source else ""
    return questions.wants(f"{verb} {source}{show_path(change.path)}{kind}")


def _ask_file(
    change: Change, base: bytes, staged: bytes, questions: _Questions, context: Context
) -> PartialChoice | None:
    """Return the chosen part of a file, or None if no part is chosen."""
    context.terminal.say(context.terminal.style(show_path(change.path), "bold"))
    modes = change.modes
    mode = modes is None or questions.wants(f"mode {modes[0]:04o} -> {modes[1]:04o}")
    wanted = _ask_hunks(base, staged, questions, context) if not questions.is_over else set()
    return chosen_part(change, base, staged, Pick(frozenset(wanted), mode))


def _ask_hunks(base: bytes, staged: bytes, questions: _Questions, context: Context) -> set[int]:
    """Return the chosen block numbers."""
    wanted: set[int] = set()
    pending = list(hunks(base, staged))
    total, number = len(pending), 0
    while pending:
        hunk = pending.pop(0)
        smaller = split_hunk(base, staged, hunk)
        number += 1
        _show(hunk, context)
        keys = "y,n,a,d,q," + ("s,?" if len(smaller) > 1 else "?")
        answer = questions.key(f"({number}/{total}) apply this hunk [{keys}]? ")
        if answer == "s" and len(smaller) > 1:
            pending[:0] = smaller
            total += len(smaller) - 1
            number -= 1
        elif answer == "y":
            wanted.update(hunk.blocks)
        elif answer == "a":
            return wanted.union(hunk.blocks, *(later.blocks for later in pending))
        elif answer in ("d", "q"):
            return wanted
        elif answer != "n":
            pending.insert(0, hunk)
            number -= 1
    return wanted


def _show(hunk: Hunk, context: Context) -> None:
    for line in (hunk.header, *hunk.lines):
        sys.stderr.buffer.write(coloured(line, context, 2))
    sys.stderr.flush()
