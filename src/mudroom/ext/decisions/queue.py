"""The decisions that wait in one project: questions of agents, and forks that need the user.

The list is asked for often, and must work even if a row is damaged: each fork is summarised from a few files
(``vault/forks/fork_summary.py``) without walking a tree. The page, the terminal, and notifications show the same rows.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice

from mudroom.core.approval.approval import CommandQuestion
from mudroom.core.approval_queue import QueueRow
from mudroom.core.journal.event import data_of, wall
from mudroom.core.journal.event_filter import EventFilter
from mudroom.core.text.plural import counted
from mudroom.core.tree.change import Summary
from mudroom.core.tree.path import show_text
from mudroom.core.tree.quote import show_words
from mudroom.errors import MudroomError
from mudroom.ext.remarks.store import RemarkStore
from mudroom.typing import Literal, NamedTuple
from mudroom.vault.apply.conflict import each_conflict
from mudroom.vault.apply.drift import find_drift
from mudroom.vault.forks.damage import reason_of
from mudroom.vault.forks.fork_summary import ForkSummaries, ForkSummary
from mudroom.vault.forks.ties import Tie, first_of, ties_of
from mudroom.vault.retention.usage import vault_named
from mudroom.vault.store.store import Vault

Kind = Literal["question", "damaged", "conflict", "unverified", "answered", "cut off", "finished", "running", "idle"]
RANKS: tuple[Kind, ...] = (
    "question", "damaged", "conflict", "unverified", "answered", "cut off", "finished", "running", "idle",
)  # fmt: skip
"""What stops somebody comes first. What runs, and ``idle`` forks without changes, wait for nobody."""
MOST = 12
"""Forks with a row, the newest; and questions."""
MOST_SHOWN = 200
"""Most characters of a command."""
MOST_COMPARED = 1000
"""Maximum changed files for which a fork is compared with the project: an lstat(2) each. Its row tells of more."""
_MS = 10**6
"""Nanoseconds."""


class Decision(NamedTuple):
    """One row. ``command``: a question's command or host; ``unverified``: the policy's; else the fork's last one."""

    kind: Kind
    fork: str
    agent: str = ""
    size: int = 0
    """Changed files; of a conflict, those in conflict; of ``answered``, remarks."""
    added: int = 0
    removed: int = 0
    """Changed lines."""
    level: int | None = None
    exit_code: int | None = None
    command: str = ""
    since: int = 0
    """Milliseconds since 1970; 0: not known."""
    question: str = ""
    """The question's name; empty: the row is about a fork."""
    has_waiter: bool = False
    """Whether a command waits for the answer."""
    problem: str = ""
    """Why a damaged fork cannot be read."""

    @property
    def words(self) -> str:
        """What has happened, in a few words. The command follows them."""
        failed = f" with exit code {self.exit_code}" if self.exit_code else ""
        match self.kind:
            case "question":
                return "waits for:" if self.has_waiter else "has asked for:"
            case "damaged":
                return "damaged: it cannot be read"
            case "conflict":
                return f"{counted(self.size, 'file')} in conflict with the project"
            case "unverified":
                return f"{counted(self.size, 'changed file')}; not applied, for this failed{failed}:"
            case "answered":
                return f"the agent is done with {counted(self.size, 'remark')}"
            case "cut off":
                return "its last command was interrupted"
            case "running":
                return "runs"
            case "idle":
                return "no changes"
        lines = f", +{self.added:,} -{self.removed:,}" if self.added or self.removed else ""
        ended = f", exit code {self.exit_code}" if self.exit_code else ""
        unknown = ", not compared with the project" if self.size > MOST_COMPARED else ""
        return f"{counted(self.size, 'changed file')}{lines}{ended}{', level 0' if self.level == 0 else ''}{unknown}"

    @property
    def action(self) -> str:
        """The name of what leads to the decision."""
        names = {"question": "Answer", "conflict": "Decide", "running": "Watch"}
        return names.get(self.kind, "Look" if self.kind in ("damaged", "unverified") else "Review")

    @property
    def order(self) -> tuple[int, int, int]:
        """Rows in this order: by kind, and in a kind what has waited longest."""
        return RANKS.index(self.kind), int(bool(self.question) and not self.has_waiter), self.since


def decisions(vault: Vault, forks: Sequence[ForkSummary], most: int = MOST, *, idle: bool = False) -> list[Decision]:
    """Return a project's rows, the most urgent first. ``forks``: of ``whole_forks``. ``idle``: those, too. Raise
    MudroomError, OSError."""
    waiting = [row for row in vault.approvals.rows() if row.state == "waiting"]
    rows = [_question(row) for row in waiting[:most]]
    rows_of_forks = (row for row in _of_forks(vault, reversed(forks)) if idle or row.kind != "idle")
    found = list(islice(rows_of_forks, most))
    return sorted([*rows, *_with_failed(vault, found)], key=lambda row: row.order)


def whole_forks(vault: Vault, summaries: ForkSummaries) -> list[ForkSummary]:
    """Return the summaries of a project's forks, oldest first, each with its parts in other projects. A fork that is a
    part itself is left out."""
    return [with_parts(vault, summaries, one) for one in summaries.all(vault) if part_of(vault, one) is None]


def parts_of(vault: Vault, summary: ForkSummary) -> tuple[Tie, ...]:
    fork = vault.find(summary.name) if summary.state != "damaged" else None
    return ties_of(fork) if fork is not None else ()


def part_of(vault: Vault, summary: ForkSummary) -> Tie | None:
    """Return the project whose fork this one is a part of, or None."""
    fork = vault.find(summary.name) if summary.state != "damaged" else None
    return first_of(fork) if fork is not None else None


def with_parts(vault: Vault, summaries: ForkSummaries, summary: ForkSummary) -> ForkSummary:
    """Return a fork's summary with the changes of its parts in other projects."""
    ties = parts_of(vault, summary)
    if summary.brief is None or not ties:
        return summary
    try:
        parts = [summaries.get(tied.fork(vault.fork(summary.name))) for tied in ties]
    except MudroomError as error:
        return summary._replace(state="damaged", problem=error.message)
    briefs = [summary.brief, *(part.brief for part in parts if part is not None and part.brief is not None)]
    total = Summary(*map(sum, zip(*(brief.summary for brief in briefs), strict=True)))
    mark = "+".join(brief.fingerprint for brief in briefs)
    return summary._replace(brief=summary.brief._replace(summary=total, fingerprint=mark))


# --- rows ---


def _question(row: QueueRow) -> Decision:
    question = row.asked.question
    if isinstance(question, CommandQuestion):
        what = show_words(question.command, MOST_SHOWN)
    else:
        what = f"{question.host}:{question.port}"
    return Decision(
        "question",
        show_text(question.fork),
        show_text(question.agent),
        command=show_text(what),
        since=row.asked.when.time // _MS,
        question=row.name,
        has_waiter=row.waiter != 0,
    )


def _of_forks(vault: Vault, forks: Iterable[ForkSummary]) -> Iterator[Decision]:
    """Yield a row for each fork."""
    for summary in forks:
        brief = summary.brief
        size = brief.summary.files if brief is not None else 0
        problem = summary.problem
        kind: Kind
        if summary.state in ("damaged", "cut off", "running"):
            kind = summary.state
        elif size and summary.state == "idle":
            try:
                kind, size = _of_changes(vault, summary, size)
            except (MudroomError, OSError) as error:
                if vault.find(summary.name) is None:
                    continue  # it was discarded meanwhile
                kind, problem = "damaged", reason_of(error)
        else:
            kind = "idle"
        level = brief.level if brief is not None and brief.command else None
        yield Decision(
            kind,
            summary.name,
            summary.agent,
            size,
            brief.summary.lines_added if brief is not None else 0,
            brief.summary.lines_removed if brief is not None else 0,
            level if summary.level is None else summary.level,
            brief.exit_code if brief is not None and brief.command else None,
            show_words(brief.command)[:MOST_SHOWN] if brief is not None else "",
            _recorded(vault, summary.name),
            problem=problem,
        )


def _of_changes(vault: Vault, summary: ForkSummary, files: int) -> tuple[Kind, int]:
    if files <= MOST_COMPARED and (undecided := _undecided(vault, summary)):
        return "conflict", undecided
    remarks = RemarkStore(vault.fork(summary.name)).read().remarks.values()
    told = sum(one.sent is not None and one.sent.state == "sent" and not one.settled for one in remarks)
    return ("answered", told) if told else ("finished", files)


def _with_failed(vault: Vault, rows: list[Decision]) -> list[Decision]:
    """Return the rows; a fork whose apply was last refused by the ``verify`` command, and in which no command has ended
    since, is ``unverified``."""
    at = {row.fork: number for number, row in enumerate(rows) if row.kind in ("finished", "answered") and row.since}
    if at:
        since = min(rows[number].since for number in at.values()) * _MS
        where = EventFilter(kinds=("verify",), forks=tuple(at), since=since)
        for page in vault.journal.search(where, archived=False):
            for event in page.events:
                number = at.pop(event.fork, None)
                code = data_of(event).get("exit_code")
                if number is not None and code != 0 and wall(event) >= rows[number].since * _MS:
                    words = show_words([os.fsencode(str(word)) for word in data_of(event).get("command") or []])
                    failed = code if type(code) is int else None
                    rows[number] = rows[number]._replace(
                        kind="unverified", exit_code=failed, command=words[:MOST_SHOWN]
                    )
            if not at:
                break
    return rows


def _undecided(vault: Vault, summary: ForkSummary) -> int:
    """Return how many of the fork's files conflict with a project and are not decided. Raise MudroomError, OSError."""
    count = _undecided_in(vault, summary.name)
    for tied in parts_of(vault, summary):
        there = vault_named(os.path.dirname(os.path.dirname(vault.path)), tied.vault)
        if there is not None:
            there.reading = vault.reading
            with closing(there):
                count += _undecided_in(there, tied.name)
    return count


def _undecided_in(vault: Vault, name: str) -> int:
    fork = vault.fork(name)
    if not find_drift(vault, fork):
        return 0  # costs less than to look for conflicts; files that the project has changed, too, may merge
    return each_conflict(vault, fork, lambda conflict: conflict.decided, contents=False).count(False)


def _recorded(vault: Vault, name: str) -> int:
    """Return when the fork's record was written, in milliseconds since 1970; 0 if it has none."""
    try:
        return os.lstat(vault.fork(name).path + b"/record").st_mtime_ns // _MS
    except (MudroomError, OSError):
        return 0
