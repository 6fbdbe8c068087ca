"""Review actions that need the fork: apply, discard, undo, conflicts, checkpoints and journal.

An action that writes asks first, and works in a dialog. Then the fork is read again.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from mudroom.core.network.push import back_lines, push_lines, pushes_left
from mudroom.core.registry import part
from mudroom.core.text.escaping import escape_line
from mudroom.core.tree.path import show, show_path
from mudroom.errors import ForkMoved, MudroomError
from mudroom.ext.review.roots import whole_landing, whole_turn
from mudroom.ext.tui import summary
from mudroom.ext.tui.choice import Choice
from mudroom.ext.tui.conflict import ConflictScreen
from mudroom.ext.tui.dialog import (
    ApplyOutcomeDialog,
    Choose,
    ChooseEffects,
    Confirm,
    ConfirmApply,
    TextDialog,
    TextInput,
    plain,
)
from mudroom.ext.tui.fork_reader import ReviewParts
from mudroom.ext.tui.pane import Pieces

if TYPE_CHECKING:
    from mudroom.core.network.push import PushRow
    from mudroom.ext.commits.git.commit_diff import CommitDiff
    from mudroom.ext.commits.git.log import LoggedCommit
    from mudroom.ext.commits.session import CommitRequest
    from mudroom.session import LandingResult

EVENTS = 200
"""Journal events shown."""

# --- applying ---


async def apply(parts: ReviewParts) -> None:
    app, model, selection = parts.screen.app, parts.screen.model, parts.screen.selection
    seen, choice = selection.seen, selection.choice()
    sent = selection.sent
    if sent:
        choice = choice or Choice((), {}, ())
    if seen is None or choice is None:
        app.notify("nothing is chosen; space chooses, A chooses all")
        return
    if parts.reader.moved:
        app.code = 4
        app.notify("the fork has changed since you looked at it: R looks again", severity="warning")
        return
    question = summary.before_apply(seen, choice, sent, parts.screen.files.flags, app.hooks.verifies)
    can_commit = app.hooks.git_files is not None and not choice.git and bool(choice.items) and model.can_commit()
    can_leave = bool(sent and choice.items)
    dialog = ConfirmApply(f"Apply to {show_path(model.project)}?", question, can_commit=can_commit, can_leave=can_leave)
    answer = await app.push_screen_wait(dialog)
    pushes = () if answer == "files" else tuple(push.bound for push in sent)
    commit = await _ask_message(parts) if answer == "commit" else None
    if answer is None or (answer == "commit" and commit is None):
        return
    work = partial(model.ask, model.apply, seen, choice, app.verifying, commit, pushes)
    done = await parts.reader.change("applying", work)
    if isinstance(done, MudroomError):
        _tell_error(parts, done)
    else:
        await _show_landed(parts, done, choice)


async def _ask_message(parts: ReviewParts) -> CommitRequest | None:
    """Ask for the commit message. None: do not apply."""
    app = parts.screen.app
    message = await app.push_screen_wait(TextInput("Message of the commit", "", enter="apply and commit"))
    if message is None or app.hooks.git_files is None:
        return None
    if not message.strip():
        app.notify("nothing was applied: the commit needs a message", severity="warning")
        return None
    request: CommitRequest = part("commits", "session", "a commit of an apply").CommitRequest(
        message, app.hooks.git_files()
    )
    return request


async def _show_landed(parts: ReviewParts, landed: LandingResult, choice: Choice) -> None:
    """Show an apply's outcome, and undo the apply on request."""
    app = parts.screen.app
    failed = landed.verified is not None and not landed.verified.passed
    left = whole_landing(landed).conflicts or pushes_left(landed.applied.pushes)
    app.code = 5 if failed else 3 if left else 1 if landed.commit_problem else 0
    app.applied = app.applied or not failed
    await parts.reader.look()
    title = "Nothing was applied" if failed else "Applied"
    rows, name = [*summary.landed(landed, choice), *summary.committed(landed)], landed.applied.name
    if not name or failed:
        await app.push_screen_wait(TextDialog(title, rows))
    elif await app.push_screen_wait(ApplyOutcomeDialog(title, rows)):
        await undo(parts, name)


async def show_effects(parts: ReviewParts) -> None:
    """Show the held effects: choose those that an apply sends, look at one, drop one."""
    app, selection, cursor = parts.screen.app, parts.screen.selection, 0
    while selection.seen is not None and selection.seen.pushes:
        effects = selection.seen.pushes
        rows = [summary.effect(effect, is_sent=effect in selection.sent) for effect in effects]
        answer = await app.push_screen_wait(ChooseEffects("Held effects: an apply sends", rows, cursor))
        if answer is None:
            return
        action, cursor = answer
        if action == "flip":
            selection.flip_effect(effects[cursor])
        elif action == "look":
            await _show_effect(parts, effects[cursor])
        else:
            await _drop_effect(parts, effects[cursor])
    app.notify("the fork holds no effects")


async def _show_effect(parts: ReviewParts, effect: PushRow) -> None:
    """Show an effect; a push with the differences of its commits where the fork's repository has them."""
    app, model = parts.screen.app, parts.screen.model
    rows = plain(*(show(line.encode()) for line in push_lines(effect)))
    for commit, _subject in (commit for ref in effect.refs if ref.lines is not None for commit in ref.commits):
        rows += [*plain(""), *commit_rows(await model.ask(model.commit, commit))]
    await app.push_screen_wait(TextDialog(effect.name, rows))


async def _drop_effect(parts: ReviewParts, effect: PushRow) -> None:
    app, model, seen = parts.screen.app, parts.screen.model, parts.screen.selection.seen
    after = [row.name for row in seen.pushes if effect.name in row.needs] if seen is not None else []
    rows = plain(*(show(line.encode()) for line in push_lines(effect)), "", "It is thrown away unsent; the fork stays.")
    rows += plain(f"The server may refuse what was made after it: {', '.join(after)}", style="warn") if after else []
    if not await app.push_screen_wait(Confirm(f"Drop {effect.name}?", rows, "drop")):
        return
    done = await parts.reader.change("dropping", lambda: model.ask(model.drop_effect, effect))
    if isinstance(done, MudroomError):
        _tell_error(parts, done)
    await parts.reader.look()


async def discard(parts: ReviewParts) -> None:
    app, model, seen = parts.screen.app, parts.screen.model, parts.screen.selection.seen
    if seen is None:
        return
    rows = plain(f"{len(seen.items):,} changed files are thrown away with it; the project stays as it is.")
    rows += plain("This cannot be taken back.", style="warn")
    if not await app.push_screen_wait(Confirm(f"Discard the fork {model.fork}?", rows, "discard")):
        return
    done = await parts.reader.change("discarding", lambda: model.ask(model.discard, seen))
    if isinstance(done, MudroomError):
        _tell_error(parts, done)
    else:
        app.leave(f"discarded: {model.fork}")


async def undo(parts: ReviewParts, name: str = "") -> None:
    """Undo an apply. Empty ``name``: the last one."""
    app, model = parts.screen.app, parts.screen.model
    name = name or await model.ask(model.last_apply)
    if not name:
        app.notify("there is no apply to take back")
        return
    rows = plain("The project gets back what it held before. mudroom redo applies it again.")
    back = back_lines(await model.ask(model.session.changes.ways_back, name))
    rows += [*plain("What it has sent:", style="warn"), *plain(*back)] if back else []
    if not await app.push_screen_wait(Confirm(f"Take the last apply back ({name})?", rows, "undo")):
        return
    undone = await parts.reader.change("undoing", lambda: model.ask(model.undo, name))
    if isinstance(undone, MudroomError):
        app.tell_error(undone)
        return
    app.code = 3 if whole_turn(undone).conflicts or pushes_left(undone.pushes) else 0
    await parts.reader.look()
    await app.push_screen_wait(TextDialog("Undone", summary.undone(undone)))


def _tell_error(parts: ReviewParts, error: MudroomError) -> None:
    """Show why an action was refused. If the fork has changed, the message stays on the screen."""
    if isinstance(error, ForkMoved):
        parts.reader.tell_moved(error)
    else:
        parts.screen.app.tell_error(error)


# --- conflicts, checkpoints and the journal ---


async def show_conflicts(parts: ReviewParts) -> None:
    screen, seen = parts.screen, parts.screen.selection.seen
    if seen is None or not seen.conflicts:
        screen.app.notify("nothing conflicts with the project as it is now")
        return
    row = screen.files.current
    at = row.item.path if row is not None and row.item is not None else b""
    if await screen.app.push_screen_wait(ConflictScreen(screen.model, seen.conflicts, at)):
        await parts.reader.look()


async def show_commits(parts: ReviewParts) -> None:
    """Show the fork's commits, and the chosen commit's differences."""
    app, model = parts.screen.app, parts.screen.model
    log = await model.ask(model.commits)
    if not log.commits:
        app.notify("the fork has no commits that the project's repository does not have")
        return
    title, cursor = f"Commits of {model.fork}, oldest first", 0
    rows = [commit_row(commit) for commit in log.commits]
    while True:
        number = await app.push_screen_wait(Choose(title, rows, keys="Enter what it changes   Esc back", cursor=cursor))
        if number is None:
            return
        cursor = number
        diff = await model.ask(model.commit, log.commits[number].id)
        await app.push_screen_wait(TextDialog(diff.commit.subject, commit_rows(diff)))


async def show_timeline(parts: ReviewParts) -> None:
    """Show the fork's checkpoints, and roll the fork back to a chosen one."""
    app, model = parts.screen.app, parts.screen.model
    if parts.screen.selection.seen is None:
        return
    points = (await model.ask(model.checkpoints))[::-1]
    if not points:
        app.notify(f"{model.fork} has no checkpoints: mudroom checkpoint NAME makes one")
        return
    rows = [summary.checkpoint(point) for point in points]
    title = f"Checkpoints of {model.fork}, newest first"
    number = await app.push_screen_wait(Choose(title, rows, keys="Enter what going back would drop   Esc back"))
    if number is not None:
        await _roll_back(parts, points[number].name)


async def _roll_back(parts: ReviewParts, point: str) -> None:
    app, model = parts.screen.app, parts.screen.model
    dropped = await model.ask(model.dropped, point)
    question = Confirm(f"Roll {model.fork} back to {point}?", summary.rollback(dropped.rows), "roll back")
    if not await app.push_screen_wait(question):
        return
    kept = await parts.reader.change("rolling back", lambda: model.ask(model.roll_back, point, dropped))
    if isinstance(kept, MudroomError):
        app.tell_error(kept)
        return
    app.notify(f"rolled back to {point}" + (f"; {kept} has what was dropped" if kept else ""), markup=False)
    await parts.reader.look()


async def show_journal(parts: ReviewParts) -> None:
    app, model = parts.screen.app, parts.screen.model
    events = await model.ask(model.events, EVENTS)
    rows = plain(*(show(app.hooks.tell(event).encode()) for event in events)) or plain("nothing yet")
    await app.push_screen_wait(TextDialog("Journal, newest first (mudroom log shows all)", rows))


# --- a fork's commits as rows ---


LINES = 5_000
"""Lines shown from a commit's differences."""
_TAB = "    "
_STYLES = {b"+": "added", b"-": "removed", b"@": "head"}


def commit_row(commit: LoggedCommit) -> Pieces:
    labels = f"  ({', '.join(commit.labels)})" if commit.labels else ""
    subject = commit.subject or "(no message)"
    return [(commit.id[:8] + "  ", "dim"), (subject, ""), (labels, "good"), (f"  {commit.author.name}", "dim")]


def commit_rows(diff: CommitDiff) -> list[Pieces]:
    commit = diff.commit
    labels = f" ({', '.join(commit.labels)})" if commit.labels else ""
    rows: list[Pieces] = [[(f"commit {commit.id}", "head"), (labels, "good")]]
    if len(commit.parents) > 1:
        rows.append([("Merge:  " + " ".join(parent[:10] for parent in commit.parents), "dim")])
    rows += [[("Author: " + commit.author.name, "dim")], [("Date:   " + commit.author.date, "dim")]]
    if commit.committer.name != commit.author.name:
        rows.append([("Commit: " + commit.committer.name, "dim")])
    message = ["    " + line.replace("\t", _TAB) for line in commit.message.split("\n")]
    rows += [[(line, "")] for line in ("", *message, "")]
    left = LINES
    for file in diff.files:
        for line in file.lines():
            rows.append(line_row(line))
            left -= 1
            if left <= 0:
                return [
                    *rows,
                    [(f"only the first {LINES:,} lines are shown: mudroom diff --commits shows all", "warn")],
                ]
    if diff.more:
        rows.append([("and more files", "warn")])
    return rows


def line_row(line: bytes) -> Pieces:
    """Return a line of a unified diff."""
    style = _STYLES.get(line[:1], "")
    if line.startswith((b"diff ", b"+++ ", b"--- ")):
        style = "head"
    return [(escape_line(line.rstrip(b"\n")).text.replace("\t", _TAB), style)]
