"""A fork's commits on the command line: ``apply --commits``, ``--commit`` and ``--git``, ``diff --commits``, and a
preview's line."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from mudroom.cli.change.preview import name_some
from mudroom.cli.project_session import project_paths
from mudroom.cli.terminal.context import Context
from mudroom.cli.terminal.pager import page
from mudroom.cli.terminal.terminal import cut
from mudroom.core.git.outcome import Commit, RefOutcome, TransferResult
from mudroom.core.result import path_fields, text
from mudroom.core.tree.path import show_path
from mudroom.errors import MudroomError, UsageError
from mudroom.ext.commits import session as commits_of
from mudroom.ext.commits.core.ref_plan import HEAD, outcome_rows
from mudroom.ext.commits.git.user_settings import UserSettings, user_git_files
from mudroom.typing import TYPE_CHECKING, Any
from mudroom.vault.git.place import find_repository

if TYPE_CHECKING:
    import argparse

    from mudroom.ext.commits.git.commit_diff import CommitDiff, CommitFile
    from mudroom.ext.commits.git.log import CommitIdentity, CommitLog
    from mudroom.session import LandingResult, Session

_MOST_SHOWN = 20
_SUBJECTS, _SUBJECT_WIDTH, _MOST_REPOSITORIES = 3, 50, 4


# --- apply --commits and --git ---


def bring_commits(session: Session, name: str, args: argparse.Namespace, context: Context) -> int:
    if args.paths or args.patch or args.git or args.bak or args.markers:
        raise UsageError("--commits brings commits, and no files", f"mudroom apply {name} --git brings both")
    commits = commits_of.bring_commits(session, name, branch=args.branch)
    if context.as_json:
        report = {
            "schema": "mudroom.commits/1",
            "fork": name,
            "branch": commits.branch,
            "head": commits.head,
            "before": commits.before or None,
            "commits": [commit._asdict() for commit in commits.commits],
            "objects": commits.objects,
            "signed": commits.result.signed,
            "refs": refs_to_json(commits.result.refs),
            "undo": commits.name or None,
        }
        context.terminal.json(report)
        return 0
    print_line, style = context.terminal.say, context.terminal.style
    branch = commits.branch.removeprefix("refs/heads/")
    count = len(commits.commits)
    undo = f"   mudroom undo takes it back ({commits.name})" if commits.name else ""
    words = f"{count:,} commit{'' if count == 1 else 's'}, {commits.objects:,} objects{undo}"
    if not commits.name:
        words = "the repository has all commits of the fork already"
    print_line(style(f"{branch}: ", "green") + words)
    print_commits(commits.commits, context)
    for subject, words in outcome_rows(b".git", (outcome for outcome in commits.result.refs if outcome.ref != HEAD)):
        print_line(f"  {subject} {words}")
    print_signed(commits.result, context)
    print_line(f"  look: git log {branch}   take: git merge {branch}")
    if count and _lacks_signature(session, b".git"):
        print_line(f"  not signed, as commit.gpgSign wants: git rebase -f -r HEAD {branch} signs")
    return 0


def _lacks_signature(session: Session, repository: bytes) -> bool:
    """Return whether commits land unsigned although the user's git signs. No key is in a sandbox."""
    if session.signing is not None:
        return False
    files = user_git_files(session.machine.confinement.variables)
    place = find_repository(session.vault.source, repository)
    return UserSettings(files, place).flag(b"commit", b"gpgsign", default=False)


def print_transfers(repositories: Iterable[TransferResult], conflicts: Collection[bytes], context: Context) -> None:
    """Print an apply's effect on refs. ``conflicts``: paths of conflicts that are already printed."""
    for result in repositories:
        for subject, words in outcome_rows(result.label, result.refs, conflicts):
            context.terminal.say(f"  {subject} {words}")
        print_commits(result.commits, context)
        print_signed(result, context)


def print_signed(result: TransferResult, context: Context) -> None:
    if result.signed is not None and result.commits:
        rest = len(result.commits) - result.signed
        others = f", {rest:,} not: of another committer, or fetched" if rest else ""
        context.terminal.say(f"  {result.signed:,} signed with your key{others}")


def print_commits(commits: tuple[Commit, ...], context: Context) -> None:
    style = context.terminal.style
    for commit in commits[-_MOST_SHOWN:]:
        context.terminal.say(f"  {style(commit.id[:10], 'yellow')} {commit.subject}  {style(commit.author, 'dim')}")
    if len(commits) > _MOST_SHOWN:
        context.terminal.say(f"  and {len(commits) - _MOST_SHOWN:,} before them")


def refs_to_json(outcomes: Iterable[RefOutcome]) -> list[dict[str, Any]]:
    return [
        {
            "ref": text(outcome.ref),
            "result": outcome.result,
            "target": text(outcome.target) or None,
            "reason": outcome.reason or None,
        }
        for outcome in outcomes
    ]


def transfers_to_json(repositories: Iterable[TransferResult]) -> list[dict[str, Any]]:
    return [
        {
            "repository": text(result.label),
            "refs": refs_to_json(result.refs),
            "commits": [commit._asdict() for commit in result.commits],
            "objects": result.objects,
            "signed": result.signed,
        }
        for result in repositories
    ]


# --- apply --commit ---


def apply_as_commit(
    session: Session,
    name: str,
    message: str,
    paths: Sequence[bytes],
    context: Context,
    options: Mapping[str, Any],
    *,
    trace: bool,
) -> LandingResult:
    request = commits_of.CommitRequest(message, user_git_files(context.environ), trace)
    return commits_of.apply_as_commit(session, name, request, paths, **options)


def one_commit_to_json(landed: LandingResult) -> dict[str, Any]:
    commit = landed.commit
    if commit is None:
        return {"commit": None, "commit_problem": landed.commit_problem}
    return {
        "commit": {
            "id": commit.id,
            "branch": commit.branch or None,
            "files": commit.files,
            "with_changes": [text(path) for path in commit.with_changes],
            "left_out": [text(path) for path in commit.left_out],
        }
    }


def print_one_commit(landed: LandingResult, context: Context) -> None:
    terminal, commit = context.terminal, landed.commit
    if commit is None:
        terminal.say(f"{terminal.style('not committed: ', 'red')}{landed.commit_problem}")
        return
    place = f" on {commit.branch}" if commit.branch else " on a detached HEAD"
    files = f"{commit.files:,} file{'' if commit.files == 1 else 's'}"
    terminal.say(f"{terminal.style('committed: ', 'green')}{commit.id[:10]}{place}, {files}")
    if commit.with_changes:
        terminal.say(f"  with changes of yours that were not committed: {name_some(commit.with_changes)}")
    if landed.commit_problem:
        terminal.say(f"  {landed.commit_problem}")
    if commit.left_out:
        terminal.say(f"  not in the commit (ignored by git, or of another repository): {name_some(commit.left_out)}")


# --- diff --commits ---


def show_commits(session: Session, name: str, words: list[str], args: argparse.Namespace, context: Context) -> int:
    """Show commits; empty ``words``: all. Named commits are shown with their differences."""
    repository = repository_of(args.repository, session)
    log = commits_of.list_commits(session, name, repository)
    diffs = commits_of.commit_diffs(session, name, words, repository) if words or log.commits else iter(())
    patch = args.patch or bool(words)
    if context.as_json:
        _print_json(name, log, diffs, context, patch=patch)
        return 0
    if not log.commits:
        context.terminal.note(f"{name} has no commits that the project's repository does not have")
        return 0
    if not words and log.total > len(log.commits):
        context.terminal.note(f"only the last {len(log.commits):,} of {log.total:,} commits are shown")
    page(_lines(diffs, patch=patch), context)
    return 0


def repository_of(directory: str | None, session: Session) -> bytes:
    """Return the ``.git`` for a project directory, which may be given with or without ``.git``."""
    if directory is None:
        return b".git"
    path = b"".join(project_paths([directory], session))
    return path if path == b".git" or path.endswith(b"/.git") else (path + b"/.git").lstrip(b"/")


def _lines(diffs: Iterable[CommitDiff], *, patch: bool) -> Iterator[bytes]:
    for number, diff in enumerate(diffs):
        commit = diff.commit
        labels = f" ({', '.join(commit.labels)})" if commit.labels else ""
        lines = [""] if number else []
        lines += [f"commit {commit.id}{labels}"]
        if len(commit.parents) > 1:
            lines.append("Merge:  " + " ".join(parent[:10] for parent in commit.parents))
        lines += [f"Author: {commit.author.name}", f"Date:   {commit.author.date}"]
        if commit.committer.name != commit.author.name:
            lines.append(f"Commit: {commit.committer.name}")
        lines += ["", *("    " + line if line else "" for line in commit.message.split("\n"))]
        lines += ["", " " + counts(diff)]
        for line in lines:
            yield line.encode("utf-8", "replace") + b"\n"
        if patch:
            yield b"\n"
            for file in diff.files:
                yield from file.lines()


def counts(diff: CommitDiff) -> str:
    """Return a commit's size in words: ``2 files changed, +10 -3``."""
    files = f"{len(diff.files):,}{' and more' if diff.more else ''} file{'' if len(diff.files) == 1 else 's'} changed"
    added = f"+{diff.lines_added:,}" if diff.lines_added else ""
    removed = f"-{diff.lines_removed:,}" if diff.lines_removed else ""
    lines = " ".join(part for part in (added, removed) if part)
    return files + (f", {lines}" if lines else "")


def _print_json(name: str, log: CommitLog, diffs: Iterable[CommitDiff], context: Context, *, patch: bool) -> None:
    report = {
        "schema": "mudroom.commit-list/1",
        "fork": name,
        "repository": text(log.repository),
        "branch": log.branch or None,
        "total": log.total,
        "commits": [_commit(diff, patch=patch) for diff in diffs],
    }
    context.terminal.json(report)


def _commit(diff: CommitDiff, *, patch: bool) -> dict[str, Any]:
    commit = diff.commit
    row: dict[str, Any] = {
        "id": commit.id,
        "subject": commit.subject,
        "message": commit.message,
        "author": _identity(commit.author),
        "committer": _identity(commit.committer),
        "parents": list(commit.parents),
        "refs": list(commit.refs),
        "lines_added": diff.lines_added,
        "lines_removed": diff.lines_removed,
        "files": [_file(file) for file in diff.files],
        "more_files": diff.more,
    }
    if patch:
        row["patch"] = text(b"".join(line for file in diff.files for line in file.lines()))
    return row


def _identity(identity: CommitIdentity) -> dict[str, Any]:
    return {"name": identity.name, "date": identity.date, "time": identity.time}


def _file(file: CommitFile) -> dict[str, Any]:
    change = file.change
    source = path_fields(change.source, "from") if change.source else {}
    counted = {"lines_added": change.lines_added, "lines_removed": change.lines_removed}
    return {**path_fields(change.path), **source, "change": change.verb, "kind": file.kind, **counted}


# --- a preview ---


def commit_lines(session: Session, fork: str, units: Iterable[bytes]) -> dict[bytes, str]:
    """Return a line about each repository's new commits. A repository is left out if its commits cannot be read, or not
    cheaply: a preview must not fail for that."""
    lines: dict[bytes, str] = {}
    for unit in units:
        if len(lines) < _MOST_REPOSITORIES:
            try:
                log = commits_of.list_commits(session, fork, unit, cheaply=True)
                if log.commits:
                    lines[unit] = _commit_line(unit, log, fork, unsigned=_lacks_signature(session, unit))
            except (MudroomError, OSError):
                continue
    return lines


def _commit_line(unit: bytes, log: CommitLog, fork: str, *, unsigned: bool) -> str:
    names = [ref.removeprefix("refs/heads/") for commit in log.commits for ref in commit.refs if "/heads/" in ref]
    branches = list(dict.fromkeys(names))
    place = f" on {', '.join(branches[:3])}{' …' if len(branches) > 3 else ''}" if branches else ""
    place += f" in {show_path(unit[:-5])}" if unit != b".git" else ""
    hint = "apply --git brings them with the files"
    hint += f", --commits as branch mudroom/{fork}" if unit == b".git" else ""
    commits = [commit for commit in log.commits if commit.refs != ("refs/stash",)]
    total = log.total - len(log.commits) + len(commits)
    subjects = [cut(commit.subject, _SUBJECT_WIDTH) or "(no message)" for commit in commits]
    more = f" and {total - _SUBJECTS:,} more" if total > _SUBJECTS else ""
    if not commits:
        return "a stash   (apply --git brings it)"
    count = f"{total:,} commit{'' if total == 1 else 's'}{', not signed,' if unsigned else ''}"
    return f"{count}{place}: {', '.join(subjects[:_SUBJECTS])}{more}   ({hint})"
