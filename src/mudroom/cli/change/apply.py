"""``mudroom apply``: bring a fork's changes into the project."""

from __future__ import annotations

import argparse
import fnmatch
from collections.abc import Collection, Mapping, Sequence

from mudroom.cli.change.part_paths import NamedPart, named_parts
from mudroom.cli.change.preview import (
    credentials_line,
    held_lines,
    left_out,
    name_some,
    preview,
    preview_notes,
)
from mudroom.cli.parser import Rare
from mudroom.cli.project_session import (
    UNDONE,
    exclusive,
    only_fork,
    open_session,
    print_remarks,
)
from mudroom.cli.terminal.context import Context
from mudroom.cli.terminal.fold import fold_row
from mudroom.core.merge.apply_summary import apply_words
from mudroom.core.network.push import EFFECTS, push_to_json, pushes_left
from mudroom.core.registry import part
from mudroom.core.result import conflicts_to_json, path_fields, text
from mudroom.core.tree.change import Change, Changeset, counted_changes
from mudroom.core.tree.dependent_rows import needs, requirement_text, row_of, unmet_requirements
from mudroom.core.tree.flag import git_directory
from mudroom.core.tree.path import ancestors, is_below, show, show_path
from mudroom.core.tree.quote import show_words
from mudroom.errors import Interrupted, UsageError
from mudroom.typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mudroom.session import LandingResult, Session, Verification

EXAMPLES = """\
examples:
  mudroom apply run-7f3a                 show the changes, ask, apply
  mudroom apply run-7f3a --yes src docs  only these, without asking; '*.py' names files by pattern
  mudroom apply run-7f3a -p              choose hunk by hunk; the rest stays in the fork
  mudroom apply run-7f3a --bak           keep replaced files as NAME.bak
  mudroom apply run-7f3a --git           its commits, branches and tags, too; they are left out else
  mudroom apply run-7f3a .git/config     hooks and settings are applied only when they are named
  mudroom apply run-7f3a --commit -m 'fix parser'  the files, and one commit of them on your branch, in your name
  mudroom apply run-7f3a push:1          only this one of its held effects; --no-effects: none
  mudroom apply run-7f3a --commits       only the commits that were made in the fork, as a branch mudroom/run-7f3a

A file that changed in the project meanwhile is merged. Where that cannot be, it is a conflict (exit code 3): the
project keeps its version and the fork keeps its own; mudroom resolve decides it. Exit code 4: the fork has changed
since it was reviewed. Exit code 5: the verify command of the policy failed on the result, and nothing was applied."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask")
    parser.add_argument("--patch", "-p", action="store_true", help="choose hunk by hunk")
    parser.add_argument("--git", action="store_true", help="also its commits: branches, tags, stashes")
    parser.add_argument("--markers", action="store_true", help=Rare("write conflict markers into files that conflict"))
    parser.add_argument("--bak", action="store_true", help=Rare("keep replaced and removed files as NAME.bak"))
    parser.add_argument("--reviewed", metavar="ID", help=Rare("only if this is the fork's fingerprint in diff --json"))
    parser.add_argument("--no-effects", action="store_true", help="leave its held effects in the fork")
    parser.add_argument("--commits", action="store_true", help="bring the fork's commits as a branch; no files")
    parser.add_argument("--commit", action="store_true", help="commit what has been applied; no hook is run")
    parser.add_argument("--trace", action="store_true", help="with --commit: what was observed, as its git note")
    parser.add_argument("--message", "-m", metavar="TEXT", help="the message of that commit")
    parser.add_argument("--branch", metavar="NAME", help=Rare("the name of that branch (default: mudroom/FORK)"))
    parser.add_argument("fork", nargs="?", help="the fork; may be left out if there is only one")
    parser.add_argument("paths", nargs="*", metavar="PATH", help="only paths at and below these, or matching them")


def execute(args: argparse.Namespace, context: Context) -> int:
    if args.branch and not args.commits:
        raise UsageError("--branch is for --commits", "mudroom apply FORK --commits --branch NAME")
    _require_commit_options(args)
    if args.commits or args.commit:
        _commits(f"mudroom apply --commit{'s' if args.commits else ''}")  # before anything is asked
    with open_session(context) as session:
        name = only_fork(session, args.fork)
        with exclusive(session, context, f"mudroom apply {name}", name):
            if args.commits:
                code: int = _commits().bring_commits(session, name, args, context)
                return code
            landed = _apply(session, name, args, context)
        print_remarks(session, context)
    if landed is None:
        return 0
    if context.as_json:
        report = {"schema": "mudroom.applied/1", "fork": name} | landed_to_json(landed)
        if args.commit:
            report |= _commits().one_commit_to_json(landed)
        context.terminal.json(report)
    else:
        print_landed(landed, name, context, git=args.git)
        if args.commit:
            _commits().print_one_commit(landed, context)
    return exit_code(landed) or (1 if landed.commit_problem else 0)


def _require_commit_options(args: argparse.Namespace) -> None:
    if args.trace and not args.commit:
        raise UsageError("--trace is for --commit", "mudroom apply FORK --commit --trace -m TEXT")
    if args.message is not None and not args.commit:
        raise UsageError("-m is for --commit", "mudroom apply FORK --commit -m TEXT")
    others = {"--git": args.git, "--commits": args.commits, "--bak": args.bak, "--markers": args.markers}
    for option, is_given in others.items():
        if args.commit and is_given:
            raise UsageError(
                f"--commit makes one commit of the applied files, and does not go with {option}",
                "leave one of them out",
            )


def _commits(what: str = "a report of commits") -> Any:
    return part("commits", "cli", what)


def _apply(session: Session, name: str, args: argparse.Namespace, context: Context) -> LandingResult | None:
    """Return the outcome, or None if the user chose to apply no change."""
    there = session.changes.parts(name)
    if args.patch and there:
        raise UsageError(f"-p does not show the changes in {there[0][0].label()}", f"mudroom apply {name} PATH")
    if args.patch:
        _require_terminal(context, "-p asks about each hunk")
    look = session.changes.review(name, at_rest=True) if args.patch or not args.yes else session.changes.look(name)
    changes = look.changeset.changes
    words = [word for word in args.paths if not word.startswith(EFFECTS)]
    named = [word for word in args.paths if word.startswith(EFFECTS)]
    chosen = named_parts(session, name, words)
    roots = {part.root: _matching(part) for part in chosen if part.root} if words else None
    own = next((part for part in chosen if not part.root), None)
    paths: Sequence[bytes] = matching_paths(changes, own.paths) if own is not None else ()
    if roots and own is not None and not paths:
        paths = [change.path for change in changes]
    reviewed = args.reviewed
    if not args.yes or args.patch:
        reviewed = reviewed or session.changes.whole_fingerprint(name, look.fingerprint)
    options: dict[str, Any] = {"git": args.git, "markers": args.markers, "backups": args.bak, "reviewed": reviewed}
    options["roots"] = roots
    if args.patch:
        from mudroom.cli.change.patch import choose

        for line in credentials_line(session, name):
            context.terminal.note(line)
        hunks = choose(session, name, paths, context)
        if hunks is None:
            return None
        return _land(session, name, hunks.paths, args, context, options | {"parts": hunks.parts, "exact": True})
    if named and not words:
        options["exact"] = True  # and no path: no file
    waiting = {row.name: row.bound for row in session.changes.pushes(name)}
    if not named and not words and not args.no_effects:
        named = list(waiting)
    options["pushes"] = named = [waiting.get(word, word) for word in named]
    if not changes and not named and not there:
        undone = session.changes.undone_as(name)
        hint = UNDONE.format(apply=undone) if undone else f"mudroom discard {name} removes it"
        raise UsageError(f"the fork {name} holds no changes", hint)
    _require_directories(changes, paths, name)
    if not args.yes:
        _require_terminal(context, "add --yes")
        changeset = look.changeset if own is not None else Changeset()
        if not _confirm(session, name, changeset, paths, named, context, roots):
            return None
    return _land(session, name, paths, args, context, options)


def apply_chosen(
    session: Session, name: str, words: list[str], context: Context, *, patch: bool
) -> LandingResult | None:
    """Apply a part of a fork without asking, or hunk by hunk (``patch``). Return None if no change was chosen."""
    defaults = argparse.Namespace(patch=patch, yes=True, git=False, markers=False, bak=False, reviewed=None)
    defaults.trace = False
    defaults.commit, defaults.paths, defaults.no_effects = False, words, False
    return _apply(session, name, defaults, context)


def _land(
    session: Session,
    name: str,
    paths: Sequence[bytes],
    args: argparse.Namespace,
    context: Context,
    options: dict[str, Any],
) -> LandingResult:
    if not args.commit:
        return session.changes.apply(name, paths, **options)
    message = args.message
    if message is None:
        _require_terminal(context, "-m MESSAGE gives the message of the commit")
        message = context.terminal.ask("message of the commit: ")
    landed: LandingResult = _commits().apply_as_commit(
        session, name, message, paths, context, options, trace=args.trace
    )
    return landed


def _require_directories(changes: Sequence[Change], paths: Sequence[bytes], name: str) -> None:
    """Raise UsageError if a chosen path lies in a directory that is no directory in the project, and that directory is
    not chosen."""
    if not paths:
        return
    wanted = {change.path for change in changes if any(is_below(change.path, path) for path in paths)}
    for path, missing in unmet_requirements(wanted, needs(row_of(change) for change in counted_changes(changes))):
        above = set(missing).intersection(ancestors(path))
        if above:
            raise UsageError(requirement_text(path, above), f"mudroom apply {name} {show_path(min(above))}")


def _matching(part: NamedPart) -> list[bytes]:
    return matching_paths(part.session.forks.changeset(part.name).changes, part.paths)


def matching_paths(changes: Sequence[Change], paths: Sequence[bytes]) -> list[bytes]:
    """Return the paths, with each pattern (*, ? or [) replaced by the changed paths that match it. A word that is a
    changed path itself is no pattern. Raise UsageError if a pattern matches none."""
    matched: list[bytes] = []
    for path in paths:
        if not set(path) & set(b"*?[") or any(is_below(change.path, path) for change in changes):
            matched.append(path)
            continue
        matches = [change.path for change in changes if _matches(change.path, path)]
        if not matches:
            raise UsageError(f"nothing in the fork matches {show_path(path)}", "mudroom diff shows what it has")
        matched += matches
    return matched


def _matches(path: bytes, pattern: bytes) -> bool:
    """Match like a shell. A pattern without a slash is compared with the last path component."""
    return fnmatch.fnmatchcase(path if b"/" in pattern else path.rpartition(b"/")[2], pattern)


def _require_terminal(context: Context, hint: str) -> None:
    if context.as_json or not context.terminal.interactive:
        raise UsageError("there is no terminal to ask on", hint)


def _confirm(
    session: Session,
    name: str,
    changeset: Changeset,
    paths: Sequence[bytes],
    pushes: Collection[str],
    context: Context,
    roots: Mapping[bytes, Sequence[bytes]] | None,
) -> bool:
    if paths:
        chosen = [change for change in changeset.changes if any(is_below(change.path, path) for path in paths)]
        changeset = changeset._replace(changes=tuple(chosen))
    notes = preview_notes(session, name, changeset.changes)
    for line in preview("apply would change", changeset, context.terminal, notes):
        context.terminal.say(line)
    for tied, there in session.changes.parts(name):
        if roots is None or tied.path in roots:
            changed, below = there.forks.changeset(tied.name), (roots or {}).get(tied.path, ())
            kept = [c for c in changed.changes if not below or any(is_below(c.path, path) for path in below)]
            title = f"apply would change in {tied.label()}:"
            for line in preview(title, changed._replace(changes=tuple(kept)), context.terminal):
                context.terminal.say(line)
    for line in held_lines(session, name, pushes):
        context.terminal.say(f"  {line}")
    for line in credentials_line(session, name):
        context.terminal.say(f"  {context.terminal.style('!', 'yellow')} {line}")
    undecided = [path for path, decided in session.changes.conflict_paths(name, paths).items() if not decided]
    if undecided:
        warning = context.terminal.style("!", "red")
        context.terminal.say(f"  {warning} conflicts with the project, and stays in the fork: {name_some(undecided)}")
    try:
        reply = context.terminal.ask("[a]pply  [c]ancel: ")
    except KeyboardInterrupt:
        context.terminal.say()
        raise Interrupted(f"interrupted: nothing was applied; {name} is as it was") from None
    if reply.strip().lower() in ("a", "apply", "y", "yes"):
        return True
    context.terminal.say(f"nothing was applied; {name} is as it was")
    return False


def exit_code(landed: LandingResult) -> int:
    if landed.verified is not None and not landed.verified.passed:
        return 5
    conflicts = landed.conflicts or any(root.landed.conflicts for root in landed.roots)
    return 3 if conflicts or pushes_left(landed.applied.pushes) else 0


def landed_to_json(landed: LandingResult) -> dict[str, Any]:
    applied, verified = landed.applied, landed.verified
    failed = verified is not None and not verified.passed
    return {
        "state": "unverified" if failed else "conflicts" if applied.conflicts else "applied",
        "written": applied.written,
        "removed": applied.removed,
        "conflicts": conflicts_to_json(applied.conflicts),
        "merged": [text(path) for path in landed.merged],
        "kept": [text(path) for path in landed.kept],
        "verified": _verified(verified) if verified is not None else None,
        "withheld": [text(path) for path in landed.withheld],
        "remarks": [{"path": text(remark.path), "text": remark.text} for remark in applied.remarks],
        "repositories": _commits().transfers_to_json(landed.repositories) if landed.repositories else [],
        "undo": applied.name or None,
        "pushes": [push_to_json(row) for row in applied.pushes],
        "roots": [path_fields(root.tied.path) | landed_to_json(root.landed) for root in landed.roots],
    }


def _verified(verified: Verification) -> dict[str, Any]:
    return {
        "command": [text(word) for word in verified.command],
        "exit_code": verified.exit_code,
        "timed_out": verified.timed_out,
        "output": verified.output.decode("utf-8", "replace"),
    }


def _print_unverified(verified: Verification, fork: str, context: Context) -> None:
    terminal = context.terminal
    for line in verified.output.decode("utf-8", "replace").splitlines()[-60:]:
        terminal.say("  | " + show(line.encode()))
    outcome = "took too long" if verified.timed_out else f"exited with {verified.exit_code}"
    terminal.say(terminal.style(f"nothing was applied: {show_words(verified.command)} {outcome}", "red"))
    terminal.say(f"  the project is as it was; all stays in {fork}: mudroom diff {fork}, mudroom discard {fork}")


def print_landed(landed: LandingResult, fork: str, context: Context, *, git: bool = False) -> None:
    applied, terminal = landed.applied, context.terminal
    if landed.verified is not None and not landed.verified.passed:
        _print_unverified(landed.verified, fork, context)
        return
    words = apply_words(applied.written, applied.removed, len(landed.kept), landed.refs_moved)
    cells = [terminal.style("applied: ", "green") + words]
    cells += [f"mudroom undo takes it back ({applied.name})"] if applied.name else []
    terminal.say(fold_row("   ".join(cells), cells, terminal.columns(2)))
    for conflict in applied.conflicts[:20]:
        terminal.say(terminal.conflict_line("conflict", conflict))
    if len(applied.conflicts) > 20:
        terminal.say(f"  … and {len(applied.conflicts) - 20:,} more conflicts")
    if landed.merged:
        terminal.say(f"  merged with what the project had changed: {name_some(landed.merged)}")
    if landed.kept:
        terminal.say(f"  the project's was kept: {name_some(landed.kept)}")
    if landed.repositories:
        _commits().print_transfers(landed.repositories, {conflict.path for conflict in applied.conflicts}, context)
    if any(git_directory(conflict.path) is None for conflict in applied.conflicts):
        terminal.say(f"  mudroom resolve {fork} decides them, mudroom diff {fork} --conflicts shows them")
    for remark in applied.remarks:
        terminal.say(f"  {show_path(remark.path)} {remark.text}")
    for line in left_out(landed.untold, asks_git=git):
        terminal.say(f"  {line}")
    if landed.remaining:
        terminal.say(
            f"  the rest stays in {fork}: mudroom diff {fork}, mudroom apply {fork} PATH, mudroom discard {fork}"
        )
    for root in landed.roots:
        done = root.landed
        words = apply_words(done.applied.written, done.applied.removed, len(done.kept), done.refs_moved)
        terminal.say(f"  in {root.tied.label()}: {words}")
        for conflict in done.conflicts[:20]:
            terminal.say(terminal.conflict_line("conflict", conflict))
        for line in left_out(done.untold):
            terminal.say(f"    {line}")
