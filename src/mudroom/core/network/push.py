"""A git push, the publish of a package, a mail, or another request that waits for an apply: its row in a review, and
what has become of it (``ext/effects``)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from mudroom.core.text.plural import counted
from mudroom.core.tree.change import Remark
from mudroom.core.tree.path import show
from mudroom.typing import Any, Literal, NamedTuple

PushState = Literal["held", "sending", "sent", "refused", "unknown", "undone"]

EffectKind = Literal["push", "publish", "request", "mail"]
DONE: dict[EffectKind, str] = {"push": "pushed", "publish": "published", "request": "sent", "mail": "sent"}

EFFECTS = "push:", "publish:", "request:", "mail:"
"""The beginnings of held effects' names among the paths of a command line."""

Verb = Literal["new", "moved", "deleted"]


class PushedRef(NamedTuple):
    ref: str
    """Of a publish: package and version; of a request: method and path; of a mail: subject and recipients."""
    old: str
    new: str
    verb: Verb
    commits: tuple[tuple[str, str], ...] = ()
    """(id, subject), newest first."""
    lines: tuple[int, int] | None = None
    """Lines added and removed; None: the project's repository in the fork does not have these commits."""
    flags: tuple[str, ...] = ()


class PushRow(NamedTuple):
    """An effect in a fork, or one that an apply or undo has dealt with."""

    name: str
    remote: str
    state: PushState
    refs: tuple[PushedRef, ...]
    why: str = ""
    said: tuple[str, ...] = ()
    """The server's lines."""
    kind: EffectKind = "push"
    files: tuple[tuple[str, str], ...] = ()
    """Of a publish: (sign, path). The sign is "+", "~" or "-" against the last published version, empty for a file that
    is the same, or that could not be compared; with "!" behind it, and first, if no file of the fork has its content.
    Of a request or mail: its lines, each without a sign."""
    digest: str = ""
    """SHA-256 of the request."""
    needs: tuple[str, ...] = ()
    """Names of effects that wait and were held before it, to the same repository or path: they are sent first."""

    @property
    def bound(self) -> str:
        """The name for an apply that sends this content alone: a dropped push's name may be given to another."""
        return f"{self.name}@{self.digest}"

    def __str__(self) -> str:
        return "\n".join(show(line.encode()) for line in push_lines(self))


def unmet_effects(rows: Sequence[PushRow], wanted: Collection[str]) -> list[str]:
    """Return the names of the effects that the ``wanted`` ones need, and that are not among these. ``wanted``: names,
    or as ``PushRow.bound``."""
    names = {word.partition("@")[0] for word in wanted}
    needed = {name for row in rows if row.name in names for name in row.needs}
    return [row.name for row in rows if row.name in needed - names]


def pushes_left(rows: Sequence[PushRow]) -> bool:
    """Return whether a push, or a part of it, is not where an apply, undo or redo was to bring it."""
    return any(row.why for row in rows)


def push_lines(row: PushRow) -> list[str]:
    """Return a row as lines of text: one for each ref, then its commits; or one for another effect, then its files."""
    lines = []
    for ref in row.refs:
        what = {"push": f"push {row.remote} {ref.ref}", "publish": f"publish {ref.ref} to {row.remote}"}
        lines.append(f"{row.name}  {what.get(row.kind, f'{ref.ref} to {row.remote}')}: {', '.join(_words(row, ref))}")
        lines += [f"    {commit[:10]} {subject}" for commit, subject in ref.commits[:20]]
        lines += [f"    and {len(ref.commits) - 20:,} before them"] if len(ref.commits) > 20 else []
    is_compared = any(sign.strip("!") for sign, _path in row.files)
    changed = [file for file in row.files if file[0]] if is_compared else row.files
    lines += [f"    {sign or ' '} {path}" for sign, path in changed[:100]]
    lines += [f"    and {len(changed) - 100:,} more"] if changed[100:] else []
    lines += [f"    after {', '.join(row.needs)}"] if row.needs else []
    if row.state != "held":
        lines.append(f"    {row.state}: {row.why}" if row.why else f"    {row.state}")
    return lines


def _words(row: PushRow, ref: PushedRef) -> list[str]:
    if row.kind in ("request", "mail") or ref.verb == "deleted":
        return [*(["deleted"] if row.kind == "push" else []), *ref.flags]
    if row.kind == "publish":
        return [counted(sum(sign != "-" for sign, _path in row.files), "file"), *ref.flags]
    lines = [f"+{ref.lines[0]} -{ref.lines[1]}"] if ref.lines is not None else []
    return [*(["new"] if ref.verb == "new" else []), counted(len(ref.commits), "commit"), *lines, *ref.flags]


def back_lines(rows: Sequence[PushRow]) -> list[str]:
    """Return what an undo can do about each effect that an apply has sent, as lines of text."""
    return [
        show(f"{row.name} {', '.join(ref.ref for ref in row.refs)} to {row.remote}: {row.why}".encode()) for row in rows
    ]


def push_remarks(rows: Sequence[PushRow]) -> tuple[Remark, ...]:
    """Return what has become of effects in an apply, an undo or a redo, as remarks: all front doors show these."""
    remarks = []
    for row in rows:
        done = DONE[row.kind]
        words = {"sent": done, "undone": "taken back", "held": f"not {done}"}.get(row.state, row.state)
        line = f"{words}: {', '.join(ref.ref for ref in row.refs)} to {row.remote}" + (
            f": {row.why}" if row.why else ""
        )
        lines = (line, *(f"remote: {said}" for said in row.said))
        remarks += [Remark(row.name.encode(), show(line.encode())) for line in lines]
    return tuple(remarks)


def push_to_json(row: PushRow) -> dict[str, Any]:
    refs = [
        {
            "ref": ref.ref,
            "old": ref.old,
            "new": ref.new,
            "verb": ref.verb,
            "commits": [{"id": commit, "subject": subject} for commit, subject in ref.commits],
            "lines": list(ref.lines) if ref.lines is not None else None,
            "flags": list(ref.flags),
        }
        for ref in row.refs
    ]
    lists = {
        "refs": refs,
        "said": list(row.said),
        "files": [list(file) for file in row.files],
        "needs": list(row.needs),
    }
    return row._asdict() | lists
