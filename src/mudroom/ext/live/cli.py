"""``mudroom fork start``, ``mudroom fork new --live``: a process of its own holds the commands, as for ``exec
--background``."""

from __future__ import annotations

from collections.abc import Iterator

from mudroom.cli.command.background import Keeper, hold, print_started
from mudroom.cli.command.run import OpenedProgram
from mudroom.cli.project_session import open_session, print_remarks
from mudroom.cli.terminal.context import Context
from mudroom.core.registry import part_or_none
from mudroom.ext.live.fork import fork_live
from mudroom.ext.live.start import start_commands
from mudroom.session import Session
from mudroom.typing import Any
from mudroom.vault.store.fork import Fork


def fork_new(name: str, parent: str, point: str, snapshot: bool, context: Context) -> None:
    """Make a fork, of ``parent`` as it is now or at the checkpoint ``point`` (empty: none), and start the policy's
    commands in it."""
    with _open(context) as session:
        if parent and not point:
            fork = fork_live(session, name, parent, context.terminal.tell_waiting)
        else:
            fork = session.forks.new(name, parent=parent or None, at=point or None, snapshot=snapshot)
        if not context.as_json:
            context.terminal.say(f"made {name}: mudroom exec --fork {name} -- COMMAND")
        print_remarks(session, context)
        for note in _conversations(fork):
            context.terminal.note(note)
        report, starts = _report(fork), bool(session.actor.policy.start)
    _tell(report, _start(name, context) if starts else [], context)


def fork_start(name: str, context: Context) -> None:
    """Start the policy's commands in a fork."""
    with _open(context) as session:
        report = _report(session.vault.fork(name))
    _tell(report, _start(name, context), context)


def _open(context: Context) -> Session:
    """Return a session that is closed at once. SQLite's connections do not survive fork(2), by which the process is
    made that holds the commands (https://www.sqlite.org/howtocorrupt.html, section 2.6)."""
    return open_session(context._replace(later=None))


def _conversations(fork: Fork) -> Iterator[str]:
    """Yield how each agent whose store the fork has goes on with its conversation."""
    agents = part_or_none("agents", "catalog") if fork.has_home else None
    if agents is None:
        return
    for profile in agents.Catalog().of_homes(fork.path):
        if profile.continued:
            words = " ".join((profile.programs[0], *profile.continued))
            yield f"{profile.name} goes on with its conversation: mudroom agent run --fork {fork.name} -- {words}"


def _report(fork: Fork) -> dict[str, Any]:
    return {"schema": "mudroom.fork/1", "fork": fork.name, "base": fork.state.base, "parent": fork.state.parent}


def _start(fork: str, context: Context) -> list[dict[str, Any]]:
    keeper = Keeper(
        lambda client: OpenedProgram(open_session(context, client=client), []),
        lambda opened: start_commands(opened.session, fork),
        lambda _result: 125,  # never: the user's own commands are not judged
    )
    started = hold(keeper)
    assert not isinstance(started, int)
    return started


def _tell(report: dict[str, Any], started: list[dict[str, Any]], context: Context) -> None:
    if context.as_json:
        context.terminal.json(report | {"started": started})
        return
    for row in started:
        print_started(row, context)
