"""A try's candidates as terminal text, and as JSON. Names and notes are escaped: an agent may have chosen them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from mudroom.core.result import text
from mudroom.core.text.plural import counted
from mudroom.core.tree.path import show, show_path
from mudroom.ext.attempts.candidate import Candidate, ComparedPath, ResultGroup, TryReview
from mudroom.ext.attempts.value import AttemptRecord
from mudroom.typing import Any

LISTED = 50
"""Paths listed for each extent."""
SIGNS = {"added": "+", "modified": "~", "deleted": "-", "renamed": ">"}
STANDINGS = {
    "ready": "as it was judged",
    "changed": "changed since it was judged",
    "running": "a command runs in it",
    "gone": "its fork is gone: applied or discarded",
    "damaged": "damaged",
    "none": "has no fork",
}
_HEADS = ("", "attempts", "fork", "judge", "score", "files", "lines", "seconds", "")
_RIGHT = (4, 6, 7)
"""Columns that hold numbers."""
_EXTENTS = (
    ("different", "{} where the candidates differ:"),
    ("some", "{} that only some change:"),
    ("unknown", "{} with contents that were not compared (the kind, mode and size are equal):"),
)


def table(review: TryReview) -> list[str]:
    """Return the candidates as lines, best first."""
    rows = [_HEADS, *(_cells(candidate) for candidate in review.candidates)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADS))]
    return ["  ".join(_aligned(row, widths)).rstrip() for row in rows]


def _aligned(row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    for column, (cell, width) in enumerate(zip(row, widths, strict=True)):
        yield cell.rjust(width) if column in _RIGHT else cell.ljust(width)


def _cells(candidate: Candidate) -> tuple[str, ...]:
    attempt = candidate.attempt
    return (
        "*" if candidate.best else " ",
        numbers(candidate.numbers),
        candidate.fork or "-",
        verdict(attempt),
        score(attempt),
        f"+{candidate.added:,} ~{candidate.modified:,} -{candidate.deleted:,}",
        f"{candidate.lines:,}",
        f"{attempt.seconds:,.1f}",
        note(candidate),
    )


def numbers(members: Sequence[int]) -> str:
    """Return attempt numbers as text, at most eight."""
    listed = ", ".join(map(str, members[:8]))
    return listed if len(members) <= 8 else f"{listed} and {len(members) - 8} more"


def verdict(attempt: AttemptRecord) -> str:
    """Return an attempt's state, with the exit code that decided it unless that is 0."""
    code = attempt.judged if attempt.judged is not None else attempt.exit_code
    return f"failed ({code})" if attempt.state == "failed" and code else attempt.state


def score(attempt: AttemptRecord) -> str:
    return f"{attempt.score:g}" if attempt.score is not None else ""


def note(candidate: Candidate) -> str:
    """Return further remarks about a candidate, or an empty string."""
    attempt, parts = candidate.attempt, []
    if candidate.standing != "ready":
        parts.append(standing(candidate))
    if attempt.of:
        parts.append(f"union of {numbers(attempt.of)}")
    if attempt.note:
        parts.append(show(_bytes(attempt.note)))
    return "; ".join(parts)


def standing(candidate: Candidate) -> str:
    if candidate.standing == "none" and candidate.attempt.fingerprint:
        return "changed nothing"
    if candidate.standing == "changed" and not candidate.added + candidate.modified + candidate.deleted:
        return "nothing is left in it: applied, or taken back"
    problem = f": {show(_bytes(candidate.problem))}" if candidate.problem else ""
    return STANDINGS[candidate.standing] + problem


def _bytes(words: str) -> bytes:
    return words.encode("utf-8", "surrogateescape")


def differences(review: TryReview, listed: int = LISTED) -> list[str]:
    """Return lines about the paths where candidates differ, at most ``listed`` for each extent."""
    if not review.compared:
        readable = any(candidate.fork for candidate in review.candidates)
        return ["no candidate has changes" if readable else "no candidate can be read: their forks are gone or damaged"]
    if len(review.compared) == 1:
        return ["there is one candidate to read, and nothing to compare it with"]
    lines: list[str] = []
    for extent, title in _EXTENTS:
        paths = [path for path in review.paths if path.extent == extent]
        if paths:
            lines += ["", title.format(counted(len(paths), "path"))]
            lines += _paths(review, paths[:listed])
            if len(paths) > listed:
                lines.append(f"  and {len(paths) - listed:,} more")
    same = review.counts()["same"]
    lines += ["", f"{counted(same, 'path')} changed alike by all of them"] if same else []
    if review.paths_left:
        lines.append(f"{counted(review.paths_left, 'more path')} not compared")
    if review.candidates_left:
        lines.append(f"{counted(review.candidates_left, 'more candidate')} not compared: only the best are")
    return lines[1:] if lines[:1] == [""] else lines


def _paths(review: TryReview, paths: Iterable[ComparedPath]) -> Iterator[str]:
    rows = [(show_path(path.path), groups_text(review, path)) for path in paths]
    width = min(60, max(len(name) for name, _groups in rows))
    for name, groups in rows:
        yield f"  {name.ljust(width)}  {groups}"


def groups_text(review: TryReview, path: ComparedPath) -> str:
    """Return a path's groups, naming each candidate by its first attempt: ``~1 2 (+3 -1) | -4 | not 5``."""
    parts = [group_text(review, group) for group in path.groups]
    if path.unchanged:
        parts.append(f"not {_firsts(review, path.unchanged)}")
    return " | ".join(parts) + ("" if path.compared else "  (contents not compared)")


def group_text(review: TryReview, group: ResultGroup) -> str:
    counts = [f"+{group.lines_added:,}"] if group.lines_added else []
    counts += [f"-{group.lines_removed:,}"] if group.lines_removed else []
    tail = f" ({' '.join(counts)})" if counts else ""
    return f"{SIGNS[group.verb]}{_firsts(review, group.candidates)}{tail}"


def _firsts(review: TryReview, places: Sequence[int]) -> str:
    return " ".join(str(review.candidates[place].attempt.number) for place in places)


def next_steps(review: TryReview) -> list[str]:
    """Return commands that work when pasted."""
    forks = [review.candidates[place].fork for place in review.compared]
    lines = [f"side by side: mudroom review {review.record.name}"] if forks else []
    if len(forks) > 1:
        lines.append(f"from one to another: mudroom diff {forks[0]} {forks[1]}")
    return lines


def comparison(review: TryReview, listed: int = LISTED) -> list[str]:
    """Return the lines below a try's table: forks that have changed since they were judged, differences between
    candidates, and the next commands."""
    parts = [standings(review), differences(review, listed), next_steps(review)]
    return [line for part in parts if part for line in ("", *part)]


def standings(review: TryReview) -> list[str]:
    """Return a line for each fork that has changed since it was judged. The table already names running attempts."""
    lines = []
    for candidate in review.candidates:
        is_told = candidate.standing == "ready" or candidate.attempt.state == "running"
        if candidate.attempt.fork and not is_told:
            lines.append(f"{candidate.attempt.fork}: {standing(candidate)}")
        same = f"; {candidate.fork} has the same result" if candidate.standing == "ready" else ""
        lines += [f"{fork}: {STANDINGS[lost]}{same}" for fork, lost in candidate.lost]
    return lines


# --- JSON ---


def comparison_to_json(review: TryReview) -> dict[str, Any]:
    """Return the candidates, best first, and all compared paths. Paths refer to candidates by index."""
    return {
        "candidates": [_candidate_to_json(candidate) for candidate in review.candidates],
        "paths": [_path_to_json(path) for path in review.paths],
        "counts": dict(review.counts()),
        "paths_left": review.paths_left,
        "candidates_left": review.candidates_left,
    }


def _candidate_to_json(candidate: Candidate) -> dict[str, Any]:
    attempt = candidate.attempt
    return {
        "attempts": list(candidate.numbers),
        "fork": candidate.fork,
        "standing": candidate.standing,
        "best": candidate.best,
        "state": attempt.state,
        "exit_code": attempt.exit_code,
        "judged": attempt.judged,
        "score": attempt.score,
        "added": candidate.added,
        "modified": candidate.modified,
        "deleted": candidate.deleted,
        "lines": candidate.lines,
        "seconds": attempt.seconds,
        "note": note(candidate),
    }


def _path_to_json(path: ComparedPath) -> dict[str, Any]:
    return {
        "path": text(path.path),
        "extent": path.extent,
        "groups": [
            {"candidates": list(group.candidates), "change": group.verb, "added": group.lines_added,
             "removed": group.lines_removed}
            for group in path.groups
        ],
        "unchanged": list(path.unchanged),
        "compared": path.compared,
    }  # fmt: skip
