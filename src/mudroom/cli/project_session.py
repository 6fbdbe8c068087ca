"""Open a session for a command line: which project, which state directory, which settings."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from mudroom.cli.project_place import project_of as project_of
from mudroom.cli.project_place import working_directory as working_directory
from mudroom.cli.terminal.approver import Ask, set_command_approver, set_host_approver
from mudroom.cli.terminal.context import Context
from mudroom.core.registry import part
from mudroom.core.settings import Settings
from mudroom.core.tree.path import relpath, show
from mudroom.errors import FULL, MudroomError, RunUnwritten, UsageError
from mudroom.policy.config import project_settings
from mudroom.sandbox.platform import BY_RECORD, system_name
from mudroom.session import Session
from mudroom.session.project_session import open_project
from mudroom.stage import disk
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mudroom.core.agent.card import AgentCard
    from mudroom.core.network.host_rules import HostRule
    from mudroom.session import Client


def open_session(
    context: Context,
    *,
    client: Client | None = None,
    adjust: Callable[[Settings], Settings] = lambda settings: settings,
    level: int | None = None,
    card: AgentCard | None = None,
    agent: str | None = None,
    ask: Ask | None = None,
    also: Sequence[HostRule] = (),
    reads_policy: bool = True,
    needs_policy: bool = True,
) -> Session:
    """Return a session on the command line's project (``session/project_session.py:open_project``).

    ``adjust`` applies command-line options to the settings from the policy files; ``level`` is the requested isolation
    level. ``agent`` names the agent whose commands will run; None stands for the user's own commands. ``ask`` says how
    to ask about approvals and hosts. ``also`` are host rules for this session, in addition to the project's.
    ``reads_policy=False`` is for verbs that neither run nor change anything and have to work with a broken policy file.
    ``needs_policy=False`` tolerates a broken policy file, too, but prints a note: for verbs that show, take back or
    throw away.
    """
    if sys.platform in BY_RECORD:
        part("certify", "cli", f"mudroom on {system_name(sys.platform)}").certify_first(context)
    session = open_project(
        project_of(context),
        context.environ,
        note=context.terminal.note,
        client=client,
        progress=context.terminal.progress,
        waiting=context.terminal.tell_waiting,
        adjust=adjust,
        later=context.later,
        level=level,
        card=card,
        agent=agent,
        also=also,
        reads_policy=reads_policy,
        needs_policy=needs_policy,
    )
    set_host_approver(ask, context, session)
    if session.actor.agent is not None:
        set_command_approver(ask, context, session)
    return session


def settings_of(context: Context, project: bytes) -> Settings:
    """Return the settings from all policy files, the project's as far as it is trusted. Print a note about the rest."""
    return project_settings(project, context.environ, context.terminal.note)


UNDONE = "its changes were applied as {apply} and undone: mudroom redo {apply}"
_MOST_NAMED = 5
"""Most forks that a message names, newest first."""


@contextmanager
def full_disk_hint(session: Session, fork: str | None = None) -> Iterator[None]:
    """If the disk fills up during a command, raise MudroomError with the fork to discard: ``fork``, or if that is None
    the newest fork that the command may have been run in."""
    before = os.listdir(session.vault.path + b"/forks") if fork is None else ()
    try:
        yield
    except OSError as error:
        new = [other.name for other in session.vault.forks() if os.path.basename(other.path) not in before]
        if error.errno not in FULL or (fork is None and not new):
            raise
        name = fork or new[-1]
        raise MudroomError(
            f"{error.strerror}: {show(session.vault.path)} has no room for what the command did in {name}",
            f"mudroom discard {name} gives back what it holds; the project is as it was",
        ) from error


@contextmanager
def no_leftover(session: Session, fork: str | None = None, *, is_wanted: bool = True) -> Iterator[None]:
    """If a command raises RunUnwritten, discard the fork that was made for it if it has no changes or unwanted ones,
    and raise the error again. A fork that the user named (``fork``) always stays."""
    try:
        yield
    except RunUnwritten as error:
        if fork is not None or (error.has_changes and is_wanted):
            raise
        if not error.has_changes:
            if session.vault.find(error.fork) is not None:
                session.forks.discard_unchanged(error.fork)
            raise
        session.forks.discard(error.fork)
        raise error.without_fork() from error


def settle_first(session: Session, context: Context, command: str) -> None:
    """Recover applies that a crash cut off, and remove expired data, if either is due."""
    from mudroom.vault.retention.schedule import is_due

    if session.vault.has_unfinished() or is_due(session.vault):
        with exclusive(session, context, command, is_short=True):
            pass


@contextmanager
def exclusive(session: Session, context: Context, command: str, *forks: str, is_short: bool = False) -> Iterator[None]:
    """Hold the vault's lock. If it is taken, wait with a message. Then recover applies that a crash cut off.
    ``forks``: as for ``Session.alone``. ``is_short``: do not tell that agents are stopped."""
    started = time.strftime("%H:%M:%S")
    holder = f"`{command}` (process {os.getpid()}, since {started})"
    print_line = context.terminal.say
    with session.alone(
        holder,
        context.terminal.tell_waiting,
        lambda: None if is_short else print_line("stopping the agents that run in this project; they go on afterwards"),
        forks,
    ) as recovered:
        for recovery in recovered:
            print_recovered(context, recovery.name, recovery.fork, recovery.outcome)
        yield


def print_remarks(session: Session, context: Context) -> None:
    """Print the pending remarks: a mount that had ended, or could not be made again."""
    for remark in session.forks.unsaid():
        context.terminal.note(remark)


def end_mount(session: Session, fork: str) -> None:
    """Unmount a fork if it is mounted."""
    if fork in session.forks.mounts():
        session.forks.unmount(fork)


def print_recovered(context: Context, name: str, fork: str, outcome: str) -> None:
    from mudroom.core.merge.apply_summary import RECOVERY_WORDS

    after = {"deferred": f": mudroom apply {fork}", "finished": f" (mudroom undo {name} takes it back)"}
    context.terminal.note(f"apply {name} of {fork} {RECOVERY_WORDS[outcome]}{after.get(outcome, '')}")


def project_paths(words: list[str], session: Session) -> list[bytes]:
    """Return command-line paths, which are relative to the current directory, as project paths; none if one is the
    whole project."""
    here = disk.real_path(working_directory())
    inside = here[len(session.project) + 1 :] if here.startswith(session.project + b"/") else b""
    paths: list[bytes] = []
    for word in words:
        path = disk.given_path(os.fsencode(word))
        if path.startswith(session.project + b"/"):
            path = path[len(session.project) + 1 :]
        elif not path.startswith(b"/"):
            path = disk.given_path(os.path.normpath(os.path.join(inside, path)))
        if path in (b".", session.project):
            return []
        try:
            paths.append(relpath(path))
        except ValueError as error:
            raise UsageError(str(error)) from error
    return paths


def only_fork(session: Session, name: str | None, option: str = "") -> str:
    """Return the named fork, or the only one. Raise UsageError if there is none, or several and no name. ``option`` is
    the option that names a fork; empty if an argument does."""
    if name is not None:
        if session.vault.find(name) is None and (undone := session.changes.undone_as(name)):
            raise UsageError(f"there is no fork named {name} any more", UNDONE.format(apply=undone))
        return session.vault.fork(name).name
    forks = session.vault.forks()
    if len(forks) == 1:
        return forks[0].name
    if not forks:
        raise UsageError(f"{show(session.project)} has no forks", "mudroom run --keep -- COMMAND makes one")
    newest = [fork.name for fork in reversed(forks)][:_MOST_NAMED]
    more = "; mudroom ls shows all" if len(forks) > _MOST_NAMED else ""
    raise UsageError(
        f"there are {len(forks)} forks", f"name one {f'with {option}' if option else 'of'}: {', '.join(newest)}{more}"
    )
