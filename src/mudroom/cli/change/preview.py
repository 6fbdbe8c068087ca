"""A fork's changes as a few lines of text."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from mudroom.cli.terminal.terminal import Terminal
from mudroom.core.network.push import push_lines
from mudroom.core.registry import part_or_none
from mudroom.core.text.plural import amount, counted
from mudroom.core.tree.change import Change, Changeset, summarise
from mudroom.core.tree.flag import git_directory, is_left_out, is_protected, repositories
from mudroom.core.tree.landing_form import LEADS_OUT, OWNER, REDUCED, unusual_mode
from mudroom.core.tree.path import ancestors, name, show, show_path
from mudroom.core.tree.rollup import Roll, roll_up
from mudroom.core.tree.runs_later import LaterGroup, group_later
from mudroom.typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from mudroom.session import Session
    from mudroom.vault.forks.review import ForkLook

LINES = 20
"""Approximate number of rows in a preview. Files are rolled up into directories until it fits."""
_SOURCES = 3
"""Most paths that a row about several files names."""
_MOST_TIMES = 6
_LINKS = 4
"""Most lines about files that run later; another line names the rest."""


class PreviewNotes(NamedTuple):
    """What a preview says beside the changes."""

    commits: Mapping[bytes, str]
    """A line about each repository's commits, by its ``.git`` (``commit_lines``)."""
    ignored: frozenset[bytes]
    """Paths that git ignores: one row at the end."""


def preview_notes(session: Session, fork: str, changes: Sequence[Change]) -> PreviewNotes:
    return PreviewNotes(commit_lines(session, fork, changes), session.changes.ignored(changes))


def preview(
    title: str,
    changeset: Changeset,
    terminal: Terminal,
    notes: PreviewNotes | None = None,
) -> list[str]:
    commits, ignored = notes or PreviewNotes({}, frozenset())
    count = summarise(changeset.changes).files or len(changeset.changes)
    lines = [f"{title} {count:,} file{'' if count == 1 else 's'}"]
    rows, rolls = roll_up([change for change in changeset.changes if change.path not in ignored], LINES)
    cells = sorted(
        [(show_path(c.path) or ".", _describe_change(c)) for c in rows]
        + [(show_path(r.path) + "/", _describe_roll(r)) for r in rolls]
    )
    hidden = len(cells) - 2 * LINES
    width = max((len(shown) for shown, _what in cells[: 2 * LINES]), default=0)
    for shown, description in cells[: 2 * LINES]:
        lines.append(f"  {shown:<{min(width, 60)}}  {_coloured(description, terminal)}")
    if hidden > 0:
        lines.append(f"  … and {hidden:,} more")
    lines += [f"  {text}" for text in ignored_row(changeset.changes, ignored)]
    lines += [f"  {terminal.style('!', 'yellow')} {text}" for text in _warnings(changeset, commits)]
    return lines


def ignored_row(changes: Sequence[Change], ignored: frozenset[bytes]) -> list[str]:
    """Return the row about the changes that git ignores, or []."""
    inside = [change for change in changes if change.path in ignored]
    total = summarise(inside)
    if not total.files:
        return []
    rows, rolls = roll_up(inside, _SOURCES)
    names = sorted([*(change.path for change in rows), *(roll.path + b"/" for roll in rolls)])
    size = f", {amount(total.size)}" if total.size else ""
    return [f"ignored by git: {counted(total.files, 'file')}{size} ({name_some(names)})"]


def commit_lines(session: Session, fork: str, changes: Sequence[Change]) -> dict[bytes, str]:
    """Return a line for each repository whose refs the fork changed, by its ``.git``: the new commits, as far as they
    can be read cheaply, or that they stay in the fork."""
    units = repositories(change for change in changes if _is_of_refs(change.path))
    if not units:
        return {}
    commits = part_or_none("commits", "cli")
    if commits is None:
        from mudroom.core.git.outcome import STAYING

        return {unit: f"{show_path(unit)} {STAYING}" for unit in units}
    lines: dict[bytes, str] = commits.commit_lines(session, fork, units)
    return lines


def _is_of_refs(path: bytes) -> bool:
    if b".git/" not in path:
        return False
    within = path.rpartition(b".git/")[2]
    return within in (b"HEAD", b"packed-refs") or within.startswith(b"refs/")


def look_line(fork: str, look: ForkLook) -> list[str]:
    """Return a line that says why the look is not a review, or [] if it is."""
    from mudroom.vault.forks.review import not_reviewed

    return [f"{not_reviewed(fork, look.in_use)}; no apply takes it for one"] if look.in_use else []


def look_to_json(look: ForkLook) -> dict[str, Any]:
    """Return a look's fields: its fingerprint, and why it is not a review (null if it is)."""
    return {"reviewed": look.fingerprint, "in_use": look.in_use or None}


def credentials_line(session: Session, fork: str) -> list[str]:
    """Return a line for the reviewer if the fork's commands could read credentials, or []."""
    names = session.vault.fork(fork).credentials
    return [f"your credentials were open to commands of {fork}: {', '.join(names)}"] if names else []


def held_lines(session: Session, fork: str, names: Collection[str] | None = None) -> list[str]:
    """Return lines about a fork's held pushes, or about the named ones."""
    rows = (row for row in session.held_effects(fork) if names is None or row.bound in names)
    return [show(line.encode()) for row in rows for line in push_lines(row)]


def _describe_change(change: Change) -> str:
    parts = []
    if change.verb == "deleted":
        parts.append("deleted")
    elif change.verb == "renamed":
        parts.append(f"renamed from {show_path(change.source)}")
    elif change.verb == "added":
        parts.append("new" if change.entry.kind == "file" else f"new {change.entry.kind}")
    if change.binary and change.staged is not None:
        parts.append(f"binary, {amount(change.staged.size)}")
    elif change.lines_added or change.lines_removed:
        counts = (
            f"+{change.lines_added}" if change.lines_added else "",
            f"-{change.lines_removed}" if change.lines_removed else "",
        )
        parts.append(" ".join(count for count in counts if count))
    if change.base is not None and change.staged is not None:
        if change.base.kind != change.staged.kind:
            parts.append(f"{change.base.kind} becomes {change.staged.kind}")
        elif change.modes:
            parts.append(f"mode {change.modes[0]:03o} → {change.modes[1]:03o}")
    parts += _describe_form(change)
    return ", ".join(parts) or "changed"


def _describe_form(change: Change) -> list[str]:
    """Return a link's target, and a new entry's mode and the owner if they are unusual."""
    staged = change.staged
    if staged is None:
        return []
    words = [f"→ {show_path(staged.target)}"] if staged.kind == "symlink" else []
    if change.base is None or change.base.kind != staged.kind:
        words += [mode] if (mode := unusual_mode(staged)) else []
    return [*words, f"owner {staged.uid}:{staged.gid}"] if OWNER in change.flags else words


def _describe_roll(roll: Roll) -> str:
    words = []
    for count, sign in ((roll.added, "+"), (roll.modified, "~"), (roll.deleted, "-"), (roll.renamed, "→")):
        if count:
            words.append(f"{sign}{count:,}")
    total = roll.added + roll.modified + roll.deleted + roll.renamed
    text = " ".join(words) + (" file" if total == 1 else " files")
    text += f", {amount(roll.size)}" if roll.size else ""
    return text + (f", renamed from {name_some(roll.sources, _SOURCES)}" if roll.sources else "")


def _coloured(text: str, terminal: Terminal) -> str:
    words = []
    for word in text.split(" "):
        style = "green" if word.startswith("+") else "red" if word.startswith("-") or word == "deleted" else ""
        words.append(terminal.style(word, style) if style else word)
    return " ".join(words)


def _warnings(changeset: Changeset, commits: Mapping[bytes, str]) -> list[str]:
    lines = _later_lines(changeset.changes)
    for flag, text in (
        ("secret", "may hold secrets"),
        ("protected", "is left out of apply unless you name it"),
    ):
        flagged = [change for change in changeset.changes if flag in change.flags and not is_left_out(change)]
        paths = [change.path for change in flagged if _is_worth_a_line(change)]
        if paths:
            lines.append(f"{text}: {name_some(paths)}")
    links = [change for change in changeset.changes if LEADS_OUT in change.flags]
    if links:
        lines.append(f"leads out of the project: {_name_links(links)}")
    reduced = [change.path for change in changeset.changes if REDUCED in change.flags]
    if reduced:
        lines.append(f"lands with fewer permissions than the fork has (set-ID, sticky, others): {name_some(reduced)}")
    units = repositories(changeset.changes)
    lines += [commits[unit] for unit in sorted(units & commits.keys())]
    units -= commits.keys()
    if units:
        lines.append(f"is left out of apply unless you ask for it (--git): {name_some(sorted(units))}")
    unknown = [change.path for change in changeset.changes if not change.original_known]
    if unknown:
        lines.append(f"edited by somebody else meanwhile, will conflict: {name_some(unknown)}")
    return lines + remark_lines(changeset)


def remark_lines(changeset: Changeset) -> list[str]:
    """Return a line for each entry that cannot be applied, or not as it is; one line if the same is said of many."""
    paths: dict[str, list[bytes]] = {}
    for remark in changeset.remarks:
        paths.setdefault(remark.text, []).append(remark.path)
    lines = []
    for text, found in paths.items():
        whole = len(found) > _LINKS
        lines += [f"{name_some(found)}: {text}"] if whole else [f"{show_path(path)} {text}" for path in found]
    return lines


def _later_lines(changes: Sequence[Change]) -> list[str]:
    """Return a line for each occasion on which changed files run by themselves; the last line names the rest."""
    flagged = [change for change in changes if change.verb != "deleted" and not is_left_out(change)]
    groups = group_later(flagged)
    lines = [f"runs by itself later: {_group_words(group)}" for group in groups[:_MOST_TIMES]]
    rest = [path for group in groups[_MOST_TIMES:] for path in group.paths]
    return [*lines, f"runs by itself later: {name_some(rest)}"] if rest else lines


def _group_words(group: LaterGroup) -> str:
    has_files = group.files and any(path.endswith(b"/") for path in group.paths)
    files = f"{counted(group.files, 'file')}, " if has_files else ""
    return f"{name_some(group.paths)} ({files}{group.when})"


def _name_links(links: Sequence[Change]) -> str:
    shown = [f"{show_path(link.path)} → {show_path(link.entry.target)}" for link in links[:_LINKS]]
    return ", ".join(shown) + (f" and {len(links) - _LINKS:,} more" if len(links) > _LINKS else "")


def _is_worth_a_line(change: Change) -> bool:
    """Return whether a flagged change is worth a warning: not if it is deleted, or part of an installed package."""
    return change.verb != "deleted" and b"node_modules/" not in change.path and b"site-packages/" not in change.path


_NO_COMMIT = "left out, the index is yours and only commits come over (git add stages here)"


def left_out(withheld: Sequence[bytes], *, asks_git: bool = False) -> list[str]:
    """Return a line for each reason why apply left paths out, with the way to apply them. ``asks_git``: commits were
    asked for, so that what is left is none, such as an index."""
    units = {git for path in withheld if (git := git_directory(path)) not in (None, path) and not is_protected(path)}
    others = [path for path in withheld if is_protected(path) or git_directory(path) not in units]
    above = {directory for path in withheld for directory in ancestors(path)}
    named = [path for path in others if path not in above]
    staying = [path for path in others if path in above and not is_protected(path) and name(path) != b"hooks"]
    about_git = _NO_COMMIT if asks_git else "left out, --git brings its commits"
    reasons = (
        (about_git, sorted(unit for unit in units if unit is not None)),
        ("left out, to be named if wanted", named),
        ("stays because of what is in it", staying),
    )
    return [f"{reason}: {name_some(paths)}" for reason, paths in reasons if paths]


def name_some(paths: Sequence[bytes], limit: int = 4) -> str:
    shown = ", ".join(show_path(path) for path in paths[:limit])
    return shown + (f" and {len(paths) - limit:,} more" if len(paths) > limit else "")
