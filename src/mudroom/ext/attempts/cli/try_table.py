"""A try as text: a line for each attempt as it ends, and the final table, best first."""

from __future__ import annotations

from mudroom.core.system.shell import CMD, shell_words
from mudroom.core.text.plural import counted
from mudroom.core.tree.path import show
from mudroom.core.tree.quote import show_words
from mudroom.ext.attempts.value import AttemptRecord, TryRecord, distinct, ranked, tied

_ENDS = {
    "until": "enough attempts have passed, the others were ended",
    "budget": "the budget was used up",
    "interrupted": "it was interrupted",
    "judge": "the judge cannot be run",
}
_LONGEST = 60
MOST_ROWS = 40
"""Rows in a table. Attempts with equal results share a row."""
MOST_NUMBERS = 12


def ended_line(attempt: AttemptRecord) -> str:
    judged = f", judge {attempt.judged}" if attempt.judged is not None else ""
    score = f", score {attempt.score:g}" if attempt.score is not None else ""
    note = f": {show(attempt.note.encode('utf-8', 'surrogateescape'))}" if attempt.note else ""
    union = f" (union of {', '.join(map(str, attempt.of))})" if attempt.of else ""
    return f"{attempt.number}{union}: {attempt.state}{judged}{score}, {changes(attempt)}, {attempt.seconds:.1f} s{note}"


def changes(attempt: AttemptRecord) -> str:
    if not attempt.files:
        return "no changes"
    return f"{counted(attempt.files, 'file')}, {counted(attempt.lines, 'line')}"


def table(record: TryRecord, *, is_running: bool = False) -> list[str]:
    """Return a try's lines: heading, a row for each attempt, remarks, and the next commands."""
    lines = [_heading(record, is_running=is_running)]
    lines += _columns(record)
    return [*lines, *_remarks(record, is_running=is_running), *_next(record, is_running=is_running)]


def _heading(record: TryRecord, *, is_running: bool) -> str:
    passed = sum(attempt.state == "passed" for attempt in record.attempts)
    judge = f" judged by {_words(record.judge)}" if record.judge else ""
    origin = f" from {record.base_fork}" if record.base_fork else ""
    counts = f"{counted(len(record.attempts), 'attempt')}, {passed:,} passed, {distinct(record.attempts):,} different"
    state = ", running" if is_running else ""
    return f"{record.name}: {_words(record.command)}{origin}{judge}: {counts}{state}"


_SHELLS = (shell_words(platform="linux"), CMD)
"""Words that precede a shell's line; they are not shown."""


def _words(words: tuple[bytes, ...]) -> str:
    shells = (shell for shell in _SHELLS if words[: len(shell)] == shell)
    shown = show_words(words[len(next(shells, ())) :])
    return shown if len(shown) <= _LONGEST else shown[: _LONGEST - 1] + "…"


def _columns(record: TryRecord) -> list[str]:
    has_score = any(attempt.score is not None for attempt in record.attempts)
    rows = [("", "#", "state", "judge", "score", "changes", "time", "fork", "")]
    hidden = _equals(record)
    shown = [attempt for attempt in ranked(record.attempts, record.score) if attempt.number not in hidden]
    for attempt in shown[:MOST_ROWS]:
        same = sorted(number for number, first in hidden.items() if first == attempt.number)
        rows.append(
            (
                "*" if attempt.number == record.best else "",
                str(attempt.number),
                attempt.state,
                "-" if attempt.judged is None else str(attempt.judged),
                "-" if attempt.score is None else f"{attempt.score:g}",
                changes(attempt) if attempt.fingerprint else "-",
                f"{attempt.seconds:.1f} s" if attempt.seconds else "-",
                attempt.fork or "-",
                _about(attempt, same),
            )
        )
    cells = [row if has_score else (*row[:4], *row[5:]) for row in rows]
    widths = [max(len(row[at]) for row in cells) for at in range(len(cells[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    more = len(shown) - MOST_ROWS
    return [*lines, f"{more:,} more: mudroom try show --json {record.name}"] if more > 0 else lines


def _equals(record: TryRecord) -> dict[int, int]:
    """Return the attempts that need no row, each with the first attempt that has the same result, state and score."""
    found, by_number = {}, {attempt.number: attempt for attempt in record.attempts}
    for attempt in record.attempts:
        first = by_number.get(attempt.same_as)
        if first is not None and attempt.number != record.best and _told(attempt) == _told(first):
            found[attempt.number] = first.number
    return found


def _numbers(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:MOST_NUMBERS])) + (", …" if len(numbers) > MOST_NUMBERS else "")


def _told(attempt: AttemptRecord) -> tuple[object, ...]:
    return attempt.state, attempt.judged, attempt.score, attempt.note


def _about(attempt: AttemptRecord, same: list[int]) -> str:
    parts = (
        f"same result: {_numbers(same)}" if same else "",
        f"same result as {attempt.same_as}" if attempt.same_as else "",
        f"union of {', '.join(map(str, attempt.of))}" if attempt.of else "",
        show(attempt.note.encode("utf-8", "surrogateescape")),
    )
    return "; ".join(filter(None, parts))


def _remarks(record: TryRecord, *, is_running: bool) -> list[str]:
    lines = []
    equals = tied(record.attempts, record.score)
    if equals:
        numbers = _numbers([attempt.number for attempt in equals])
        lines.append(f"a tie: {numbers} with another result, as good as {record.best} by judge, score and lines")
    best = record.attempt(record.best)
    if best is not None and not best.files:
        lines.append(f"{best.number} has changed nothing: the task is done already, or the judge does not test it")
    if not record.ended and not is_running:
        lines.append("mudroom was killed while it ran")
    elif record.end:
        lines.append(_ENDS[record.end])
    if record.note:
        lines.append(show(record.note.encode("utf-8", "surrogateescape")))
    if {attempt.judged for attempt in record.attempts} - {None} == {127} and record.end != "judge":
        lines.append("the judge ended with 127 each time: a command in it does not exist")
    if not record.best and not is_running:
        lines.append("no attempt has passed")
    return lines


def _next(record: TryRecord, *, is_running: bool) -> list[str]:
    best = record.attempt(record.best)
    if is_running:
        return []
    if best is None:
        named = next((row for row in ranked(record.attempts, record.score) if row.fork), None)
        if named is None:
            return []
        return [f"mudroom try show {record.name} {named.number}, mudroom try discard {record.name}"]
    if not best.fork:
        return [f"mudroom try show {record.name} {best.number}, mudroom try discard {record.name}"]
    look = f"mudroom diff {best.fork}, mudroom try show {record.name}"
    return [f"{look}, mudroom apply {best.fork}, then mudroom try discard {record.name}"]


def attempt_lines(attempt: AttemptRecord) -> list[str]:
    """Return the lines about an attempt: its command, its row, and the end of its judge's output."""
    output = "the judge's output" if attempt.judged is not None else "the output"
    lines = [_words(attempt.command), ended_line(attempt)] if attempt.command else [ended_line(attempt)]
    report = attempt.report.decode("utf-8", "replace").splitlines()
    if report:
        lines.append(f"the end of {output}:")
        lines += [f"  {show(line.encode())}" for line in report]
    if attempt.fork:
        lines.append(f"mudroom diff {attempt.fork}, mudroom apply {attempt.fork}")
    return lines
