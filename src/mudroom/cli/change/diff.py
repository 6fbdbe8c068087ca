"""``mudroom diff``: show a fork's changes."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

from mudroom.cli.change.agent_settings import changed_settings, section
from mudroom.cli.change.part_paths import NamedPart, named_parts
from mudroom.cli.change.preview import (
    credentials_line,
    held_lines,
    ignored_row,
    look_line,
    look_to_json,
    remark_lines,
)
from mudroom.cli.project_session import UNDONE, only_fork, open_session, project_paths
from mudroom.cli.terminal.context import Context
from mudroom.cli.terminal.pager import page
from mudroom.core.network.push import EFFECTS, push_lines, push_to_json
from mudroom.core.registry import part, part_or_none
from mudroom.core.result import RootResult, changes_to_json
from mudroom.core.text.linediff import unified_diff
from mudroom.core.text.plural import counted
from mudroom.core.tree.change import Change, Changeset, counted_changes, summarise
from mudroom.core.tree.flag import git_directory, is_protected, repositories
from mudroom.core.tree.path import is_below, show, show_path
from mudroom.core.tree.quote import show_words
from mudroom.errors import ForkMoved, ForkReplaced, UsageError
from mudroom.session import Session
from mudroom.typing import Any

_NAMES = 60
"""Most columns for names in ``--stat``. A longer name is not cut."""

EXAMPLES = """\
examples:
  mudroom diff                       of the only fork there is
  mudroom diff run-7f3a src          of that one, only below src
  mudroom diff try@green try         the changes of a fork since a checkpoint
  mudroom diff try-1 try-2           from one fork to another
  mudroom diff try now               from a fork to the project as it is; base: the state it was made from
  mudroom diff run-7f3a push:1       one of its held effects: a push with its commits, a package with its files
  mudroom diff run-7f3a --conflicts  the conflicts with the project, with markers
  mudroom diff run-7f3a --commits    the commits that were made in the fork; -p: with their differences
  mudroom diff run-7f3a --commits 1a2b3c4  one of them
  mudroom diff run-7f3a --stat       the files and the numbers of their lines
  mudroom diff run-7f3a --order risk  hunks by the cost of a mistake in them, with reasons; --json: as data
  mudroom diff run-7f3a --why a.py:9  the commands and turns observed at that line; --trace: as Agent Trace
  mudroom diff run-7f3a uv.lock --view  packages, cells, keys, tables and members instead of lines
  mudroom diff --json                counts per file instead of the text"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("fork", nargs="?", help="the fork, or FORK@CHECKPOINT, base, now")
    parser.add_argument("paths", nargs="*", metavar="PATH", help="the state to compare with, then paths")
    parser.add_argument("--conflicts", action="store_true", help="only where it conflicts with the project as it is")
    parser.add_argument(
        "--commits", action="store_true", help="the commits that the project's repository does not have"
    )
    parser.add_argument("--patch", "-p", action="store_true", help="with --commits: with their differences")
    parser.add_argument("--stat", action="store_true", help="the files and the numbers of changed lines, no text")
    parser.add_argument(
        "--order", choices=("path", "risk"), default="path", help="risk: what runs later and weakened tests come first"
    )
    parser.add_argument("--why", action="store_true", help="the commands and turns observed at each hunk (PATH:LINE)")
    parser.add_argument("--trace", action="store_true", help="with --why: as an Agent Trace record")
    parser.add_argument(
        "--view", action="store_true", help="packages, cells, keys, tables, members: where lines say less"
    )
    parser.add_argument("--repository", metavar="DIR", help="with --commits: the directory of a nested repository")
    parser.add_argument("--fork", dest="named", metavar="FORK", help="the same, by name of the option")


def execute(args: argparse.Namespace, context: Context) -> int:
    _refuse(args)
    words = [word for word in (args.named, args.fork, *args.paths) if word is not None]
    with open_session(context, needs_policy=False) as session:
        name = words.pop(0) if words else only_fork(session, None)
        _require_fork(session, name, context)
        if args.commits:
            commits = part("commits", "cli", "mudroom diff --commits")
            code: int = commits.show_commits(session, only_fork(session, name), words, args, context)
            return code
        old, new = ("base", name) if not words or not _is_side(session, words[0]) else (name, words.pop(0))
        if args.conflicts:
            return _conflicts(session, only_fork(session, new), words, context)
        if "@" in new or old != "base" or new == "now":
            if args.order == "risk" or args.why or args.view:
                option = "--why" if args.why else "--view" if args.view else "--order risk"
                raise UsageError(f"{option} is for the changes of a fork", f"mudroom diff {name} {option}")
            return _compare(session, old, new, words, context, stat=args.stat)
        name = only_fork(session, new)
        if args.why:
            part("reasons", "cli", "mudroom diff --why").show_reasons(session, name, words, context, trace=args.trace)
            return 0
        if context.as_json:
            return _review_as_json(session, name, words, args, context)
        if words and all(word.startswith(EFFECTS) for word in words):
            return _effects(session, name, words, args, context)
        return _review(session, name, words, args, context)


def _effects(session: Session, name: str, words: list[str], args: argparse.Namespace, context: Context) -> int:
    """Show these held effects; a push with the differences of its commits, where the fork's repository has them."""
    rows = {row.name: row for row in session.held_effects(name)}
    for word in words:
        if word not in rows:
            raise UsageError(f"{name} has no {show(os.fsencode(word))}", f"mudroom diff {name} shows its held effects")
        for line in push_lines(rows[word]):
            context.terminal.out(show(line.encode()))
        refs = (ref for ref in rows[word].refs if ref.lines is not None)
        if commits := [commit for ref in refs for commit, _subject in ref.commits]:
            part("commits", "cli", "the commits of a push").show_commits(session, name, commits, args, context)
    return 0


def _refuse(args: argparse.Namespace) -> None:
    """Raise UsageError if options exclude each other."""
    if (args.patch or args.repository is not None) and not args.commits:
        raise UsageError(
            "--patch and --repository are for --commits", "mudroom diff FORK prints the differences of files"
        )
    if args.stat and (args.commits or args.conflicts):
        raise UsageError("--stat is not for --commits and --conflicts", "mudroom diff FORK --stat")
    if args.order == "risk" and (args.stat or args.commits or args.conflicts):
        raise UsageError("--order risk is not for --stat, --commits and --conflicts", "mudroom diff FORK --order risk")
    if args.trace and not args.why:
        raise UsageError("--trace is for --why", "mudroom diff FORK --why --trace")
    if args.why and (args.stat or args.commits or args.conflicts or args.view or args.order == "risk"):
        raise UsageError("--why goes with no other list", "mudroom diff FORK --why")
    if args.view and (args.stat or args.commits or args.conflicts or args.order == "risk"):
        raise UsageError(
            "--view is not for --stat, --commits, --conflicts and --order risk", "mudroom diff FORK --view"
        )
    if args.commits and args.conflicts:
        raise UsageError("--commits and --conflicts are two different lists", "one of them at a time")


def _order() -> Any:
    return part("order", "cli", "mudroom diff --order risk")


def _views() -> Any:
    return part("views", "cli", "mudroom diff --view")


def _review_as_json(session: Session, name: str, words: list[str], args: argparse.Namespace, context: Context) -> int:
    look = session.changes.review(name)
    listed = changes_to_json(look.changeset, session.changes.moves(name))
    report = {"schema": "mudroom.diff/1", "fork": name, "changes": listed, **look_to_json(look)}
    report["reviewed"] = session.changes.whole_fingerprint(name, look.fingerprint)
    report["roots"] = [
        RootResult(tied.path, tied.label(), tied.is_home, there.forks.changeset(tied.name)).as_json()
        for tied, there in session.changes.parts(name)
    ]
    report["pushes"] = [push_to_json(row) for row in session.held_effects(name)]
    if args.order == "risk":
        report["order"] = _order().order_to_json(session, name)
    if args.view:
        report["views"] = _views().views_to_json(session, name, words)
    context.terminal.json(report | {"credentials": list(session.vault.fork(name).credentials)})
    return 0


def _review(session: Session, name: str, words: list[str], args: argparse.Namespace, context: Context) -> int:
    """Show a fork's changes. Without paths this counts as a review, and git's own files are left out."""
    parts = named_parts(session, name, words)
    own = next((part for part in parts if not part.root), None)
    if own is not None and not own.paths and len(parts) == 1:
        words = []
    look = session.changes.look(name) if words else session.changes.review(name)
    for line in (*look_line(name, look), *credentials_line(session, name), *session.forks.unsaid()):
        context.terminal.note(line)
    changeset = look.changeset
    if not changeset.changes and (undone := session.changes.undone_as(name)):
        context.terminal.note(UNDONE.format(apply=undone))
    within = _own_files(changeset.changes) if not words else set()
    for one in parts:
        there = changeset if one is own else one.session.forks.changeset(one.name)
        for path in one.paths:
            if not _chosen(there, [path]):
                context.terminal.say(f"no change at {one.shown(path)}")

    def is_own(change: Change) -> bool:
        return change.path in within

    if args.stat:
        page(_whole_stat(parts, changeset, is_own), context)
    else:
        reviewed = None if look.in_use else changeset.changes
        try:
            if args.order == "risk":
                page(_by_risk(parts, is_own), context)
            elif args.view:
                page(_views().view_diff(parts, is_own), context)
            elif words:
                page(_chosen_diff(parts, reviewed, is_own), context)
            else:
                page(session.changes.whole_diff(name, reviewed, without=is_own), context)
        except ForkMoved as error:
            from mudroom.vault.forks.review import remember

            if not words and not isinstance(error, ForkReplaced):
                remember(session.vault.fork(name), look._replace(in_use="has changed"))  # the next apply is refused
            raise
    if within:
        files = [change for change in counted_changes(changeset.changes) if is_own(change)]
        shown = f"mudroom diff {name} --commits shows the commits, mudroom diff {name} .git the files"
        context.terminal.note(f"{counted(len(files), 'file')} inside .git not shown ({shown})")
    kinds = part_or_none("views", "kind") if not words and not args.view else None
    if kinds is not None and (hint := kinds.hint(name, changeset.changes)):
        context.terminal.note(hint)
    for line in remark_lines(changeset) if not words else ():
        context.terminal.note(line)
    for line in (*held_lines(session, name), *_settings(session, name)) if not words else ():
        context.terminal.say(line)
    return 0


def _own_files(changes: Sequence[Change]) -> set[bytes]:
    """Return the paths of git's own files in the project's repositories, without hooks and settings. An apply leaves
    them out: ``--git`` brings the commits."""
    units = repositories(changes)
    return {
        change.path
        for change in changes
        if not is_protected(change.path) and git_directory(change.path) in units - {change.path}
    }


def _settings(session: Session, name: str) -> list[str]:
    """Return the section about changes to the agent's settings."""
    return section(name, changed_settings(session, name))


def _require_fork(session: Session, name: str, context: Context) -> None:
    """Raise UsageError if the first word names a project file and no fork."""
    forks = session.vault.forks()
    word = os.fsencode(name)
    if not forks or _is_side(session, name) or not os.path.lexists(os.path.join(context.project or b"", word)):
        return

    fork = forks[0].name if len(forks) == 1 else "FORK"
    raise UsageError(f"there is no fork named {show(word)}", f"mudroom diff {fork} {show_words([word])}")


def _is_side(session: Session, word: str) -> bool:
    """Return whether a word names a state to compare with (a fork, base, now) and not a path."""
    return word in ("base", "now") or word.partition("@")[0] in {fork.name for fork in session.vault.forks()}


def _conflicts(session: Session, name: str, words: list[str], context: Context) -> int:
    """Print the conflicts, texts with markers. Return 3 if there are any, else 0."""
    from mudroom.cli.change.resolve import conflict_to_json, conflicts_in
    from mudroom.core.merge.marker import Labels, with_markers

    conflicts = conflicts_in(named_parts(session, name, words))
    if context.as_json:
        rows = [conflict_to_json(*row) for row in conflicts]
        context.terminal.json({"schema": "mudroom.conflicts/1", "fork": name, "conflicts": rows})
        return 3 if conflicts else 0

    def lines() -> Iterator[bytes]:
        for one, conflict in conflicts:
            shown = one.shown(conflict.path)
            yield f"conflict {shown}: {conflict.reason}\n".encode()
            if one.session.forks.secrets.hides_conflict(conflict):
                yield b"a secret: it is not shown\n"
            elif (merged := conflict.merged) is not None:
                if (rule := conflict.by_rule) is not None:
                    yield b"merged by rule: %s (mudroom resolve %s %s --rule)\n" % (
                        rule.words.encode(),
                        name.encode(),
                        show_words([one.named(conflict.path)]).encode(),
                    )
                    text = rule.content
                else:
                    if conflict.remade_by:
                        told = show_words([one.named(conflict.path)])
                        yield f"made again by {conflict.remade_by}: mudroom resolve {name} {told} --rule\n".encode()
                    text = with_markers(merged, Labels(b"project", b"original", name.encode()))
                yield from unified_diff(conflict.ours.content or b"", text, old_label=b"project", new_label=b"merged")

    page(lines(), context)
    return 3 if conflicts else 0


def _chosen(changeset: Changeset, paths: Sequence[bytes]) -> list[Change]:
    return [c for c in changeset.changes if not paths or any(is_below(c.path, path) for path in paths)]


def _stat(changes: Sequence[Change], ignored: frozenset[bytes]) -> Iterator[bytes]:
    """Yield a line for each file, one for all that git ignores, and the totals, like ``git diff --stat`` without its
    graph."""
    counted_rows = counted_changes([change for change in changes if change.path not in ignored])
    rows = [(show_path(change.path), change) for change in counted_rows]
    width = min(max((len(name) for name, _change in rows), default=0), _NAMES)
    for name, change in rows:
        count = "binary" if change.binary else f"+{change.lines_added} -{change.lines_removed}"
        if change.staged is not None and count == "+0 -0" and change.base is None and change.staged.size:
            count = counted(change.staged.size, "byte")  # lines are not counted if there are so many files
        verb = "" if change.verb == "modified" else f"  {change.verb}"
        yield f" {name:<{width}} | {count}{verb}\n".encode()
    yield from (f" {row}\n".encode() for row in ignored_row(changes, ignored))
    total = summarise(changes)
    yield f" {counted(total.files, 'file')} changed, +{total.lines_added} -{total.lines_removed}\n".encode()


def _whole_stat(parts: Sequence[NamedPart], own: Changeset, is_own: Callable[[Change], bool]) -> Iterator[bytes]:
    for one in parts:
        if one.root:
            yield f" in {one.label}:\n".encode()
        there = one.session.forks.changeset(one.name) if one.root else own
        chosen = [change for change in _chosen(there, one.paths) if one.root or not is_own(change)]
        yield from _stat(chosen, one.session.changes.ignored(chosen))


def _chosen_diff(
    parts: Sequence[NamedPart], reviewed: Sequence[Change] | None, is_own: Callable[[Change], bool]
) -> Iterator[bytes]:
    for one in parts:
        if one.root:
            yield b"# in %s:\n" % one.label.encode()
            yield from one.session.changes.diff(one.name, one.paths)
        else:
            yield from one.session.changes.diff(one.name, one.paths, without=is_own, reviewed=reviewed)


def _by_risk(parts: Sequence[NamedPart], is_own: Callable[[Change], bool]) -> Iterator[bytes]:
    for one in parts:
        if one.root:
            yield b"# in %s:\n" % one.label.encode()
        without = is_own if not one.root else lambda _change: False
        yield from _order().ordered_diff(one.session, one.name, one.paths, without)


def _compare(session: Session, old: str, new: str, words: list[str], context: Context, *, stat: bool = False) -> int:
    with ExitStack() as opened:
        rows = []
        for one, *sides in _compared_parts(session, old, new, words):
            comparison = opened.enter_context(one.session.forks.compare(*sides))
            rows.append((one, comparison, _chosen(comparison.changeset, one.paths)))
        if context.as_json:
            told = [
                RootResult(one.root, one.label, one.session.is_home, compared.changeset._replace(changes=tuple(chosen)))
                for one, compared, chosen in rows
            ]
            own = next((part.changeset for part in told if not part.path), Changeset())
            report: dict[str, Any] = {"schema": "mudroom.diff/1", "old": old, "new": new}
            report |= {"changes": changes_to_json(own), "roots": [part.as_json() for part in told if part.path]}
            context.terminal.json(report)
            return 0

        def lines() -> Iterator[bytes]:
            for one, comparison, chosen in rows:
                if one.root and chosen:
                    yield b" in %s:\n" % one.label.encode() if stat else b"# in %s:\n" % one.label.encode()
                if stat and (chosen or not one.root):
                    yield from _stat(chosen, one.session.changes.ignored(chosen))
                elif not stat:
                    yield from comparison.lines(chosen)

        page(lines(), context)
    return 0


def _compared_parts(session: Session, old: str, new: str, words: list[str]) -> list[tuple[NamedPart, str, str]]:
    """Return the parts of two states, with the states as they are named there. A fork without a part in a project has
    changed nothing there."""
    forks = [side.partition("@")[0] for side in dict.fromkeys((old, new)) if side not in ("base", "now")]
    found: dict[bytes, NamedPart] = {}
    names: dict[tuple[str, bytes], str] = {}
    for fork in forks:
        names |= {(fork, one.root): one.name for one in named_parts(session, fork, [])}
        found = {one.root: one for one in named_parts(session, fork, words)} | found

    def side(state: str, root: bytes) -> str:
        fork, at, point = state.partition("@")
        own = names.get((fork, root), "")
        return f"{own}{at}{point}" if own else state if state == "now" else "base"

    parts = found.values() or [NamedPart(session, "", project_paths(words, session))]
    return [(one, side(old, one.root), side(new, one.root)) for one in parts]
