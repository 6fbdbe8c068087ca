"""``mudroom review``: review a fork's changes in the terminal: choose, decide, apply."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from functools import partial

from mudroom.cli.change.preview import look_to_json
from mudroom.cli.project_session import only_fork, open_session
from mudroom.cli.terminal.context import Context
from mudroom.core.registry import part_or_none
from mudroom.core.result import changes_to_json, path_fields
from mudroom.core.text.hunk import hunks
from mudroom.core.tree.change import counted_changes
from mudroom.errors import MudroomError, UsageError
from mudroom.ext.review.recording_terminal import RecordingTerminal
from mudroom.typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse

    from mudroom.core.tree.change import Changeset
    from mudroom.session import ForkConflict, Session

EXAMPLES = """\
examples:
  mudroom review             the fork there is; of several, one is asked for
  mudroom review run-7f3a    that one
  mudroom review t1          the candidates of a try, side by side
  mudroom review --json      its data: files, flags, hunks, fingerprint; needs no terminal

Keyboard only: j and k move, space chooses a file or a hunk, a applies, u takes that back, q quits; ? shows all keys.
Needs Textual: pipx install 'mudroom[tui]'. Exit codes as of apply: 0 applied or nothing done, 1 applied without the
requested commit, 3 conflicts are left, 4 the fork has changed since it was looked at, 5 the verify command failed."""

NEEDED_PACKAGE = "textual"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("fork", nargs="?", help="the fork, or a try; of several, one is asked for")


def execute(args: argparse.Namespace, context: Context) -> int:
    if context.as_json:
        with open_session(context) as session:
            if args.fork is not None and _is_try(session, args.fork):
                raise UsageError(f"{args.fork} is a try, not a fork", f"mudroom try show {args.fork} --json")
            return _print_json(session, only_fork(session, args.fork), context)
    if not context.terminal.interactive:
        raise UsageError(
            "there is no terminal to review in",
            "mudroom diff shows it, mudroom apply -p asks, mudroom serve has a page",
        )
    if importlib.util.find_spec(NEEDED_PACKAGE) is None:
        raise UsageError(f"mudroom review needs {NEEDED_PACKAGE}", install_hint("tui"))
    recorder = RecordingTerminal(context.environ)
    with open_session(context._replace(terminal=recorder)) as session:
        forks = session.vault.forks()
        if args.fork is not None and _is_try(session, args.fork):
            return _review(session, None, recorder, context, tried=args.fork)
        name = args.fork if args.fork is not None or len(forks) > 1 else only_fork(session, None)
        if name is not None:
            name = session.vault.fork(name).name
        return _review(session, name, recorder, context)


def _is_try(session: Session, name: str) -> bool:
    """Return whether this is the name of a try but not of a fork."""
    from mudroom.ext.attempts.candidate import is_try

    return is_try(session, name) and session.vault.find(name) is None


def _print_json(session: Session, name: str, context: Context) -> int:
    """Print the review as JSON. An apply can be bound to its fingerprint, as to the one from ``diff --json``."""
    look = session.changes.review(name)
    changes = _changes_to_json(session, name, look.changeset)
    report = {"schema": "mudroom.review/1", "fork": name, "changes": changes, **look_to_json(look)}
    report["reviewed"] = session.changes.whole_fingerprint(name, look.fingerprint)
    report["roots"] = [
        path_fields(tied.path)
        | {"home": tied.is_home, "changes": _changes_to_json(there, tied.name, there.forks.changeset(tied.name))}
        for tied, there in session.changes.parts(name)
    ]
    context.terminal.json(report | {"credentials": list(session.vault.fork(name).credentials)})
    return 0


def _changes_to_json(session: Session, name: str, changeset: Changeset) -> dict[str, Any]:
    from mudroom.ext.review.rows import review_fork

    reviewed = review_fork(session, name)
    counts = {
        change.path: len(hunks(old, new))
        for change, old, new in session.changes.texts(name)
        if old is not None and new is not None
    }
    changes = changes_to_json(changeset)
    for change, row in zip(counted_changes(changeset.changes), changes["files"], strict=True):
        row |= {"tags": list(reviewed.tags[change.path]), "hunks": counts.get(change.path, 0)}
    return changes


def _review(
    session: Session, name: str | None, recorder: RecordingTerminal, context: Context, *, tried: str | None = None
) -> int:
    from mudroom.cli.change.resolution import decide_in_editor
    from mudroom.cli.vault.event_row import line
    from mudroom.ext.remarks.cli.process import send
    from mudroom.ext.remarks.cli.send import agent_words
    from mudroom.ext.tui.app import review
    from mudroom.ext.tui.base_app import ReviewHooks

    def edit(session: Session, fork: str, conflict: ForkConflict) -> None:
        try:
            decide_in_editor(session, fork, conflict, context)
        except MudroomError as error:
            context.terminal.say(str(error))  # stays on the screen after the review: it may say which file is kept
            raise

    settings = session.actor.policy
    commits = part_or_none("commits", "cli")
    git_files = partial(commits.user_git_files, context.environ) if commits is not None else None
    hooks = ReviewHooks(
        edit,
        line,
        tuple(recorder.messages),
        settings.verify,
        lambda fork, prompt, waits: send(context.environ, session.project, fork, prompt, waits=waits),
        lambda session, fork: agent_words(session, fork, context.environ),
        git_files,
    )
    end = review(session, name, hooks, tried=tried)
    if end.says:
        context.terminal.say(end.says)
    elif end.holds and not end.applied:
        context.terminal.say(f"nothing was applied; all stays in {end.fork}: mudroom review {end.fork}")
    elif end.holds:
        context.terminal.say(f"the rest stays in {end.fork}: mudroom review {end.fork}, mudroom discard {end.fork}")
    if end.signal and sys.platform == "win32":  # where a signal cannot end a process
        return 128 + end.signal
    if end.signal:
        signal.signal(end.signal, signal.SIG_DFL)
        os.kill(os.getpid(), end.signal)
    return end.code


# --- install hints, for the tool that installed mudroom ---


PACKAGES = {"inspect": "'cryptography>=45' 'h2>=4.3'", "keyring": "'keyring>=25'", "tui": "'textual>=6'"}
"""User-visible extras in pyproject.toml, with their packages."""


def install_hint(extra: str, prefix: str = sys.prefix) -> str:
    """Return the command that adds an extra to this installation. ``prefix``: its environment's directory."""
    if "/pipx/venvs/" in prefix:
        return f"pipx inject {prefix.rpartition('/')[2]} {PACKAGES[extra]}"
    if "/uv/tools/" in prefix:
        return f"uv pip install --python {prefix} {PACKAGES[extra]}"
    return f"pip install {PACKAGES[extra]}"  # not mudroom's name: before a version is published anybody could take it
