"""What all requests share: the vaults of the state directory, sessions on them, jobs and listeners.

A session is opened for a request and closed with it: nothing of a fork is kept between two but what was read of its
files, as long as they are the same files (``stage/file_cache.py``). So a page never shows what was, and a fork that is
gone is gone.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from mudroom.core.tree.path import show_path
from mudroom.errors import MudroomError, UsageError
from mudroom.review.rows import stamp_of
from mudroom.session import Session
from mudroom.session.upkeep import FileCache, ForkSummaries, Vault, vault_named, vaults_of, why_unusable
from mudroom.web.state.hub import ChangeBell, Hub, Look
from mudroom.web.state.job import Jobs
from mudroom.web.state.refusal import Refusal
from mudroom.web.state.request_lock import RequestLocks
from mudroom.web.state.server_environment import ServerEnvironment

PATIENCE = 2.0
"""Seconds that somebody else may look at a fork."""


class ServerState:
    def __init__(self, environment: ServerEnvironment) -> None:
        self.environment = environment
        self.hub = Hub(self.look)
        self.jobs = Jobs(self.hub)
        self.summaries = ForkSummaries()
        self.locks = RequestLocks()
        self._reading = FileCache()

    def vaults(self) -> list[Vault]:
        """Every vault there is, usable or not. Close them."""
        return [self._with_cache(vault) for vault in vaults_of(self.environment.state)]

    def vault(self, project: str) -> Vault:
        """To be closed. Raises Refusal if there is none, or it cannot be used."""
        found = vault_named(self.environment.state, project.encode())
        if found is None:
            raise Refusal(404, "not-found", "there is no such project here", "it may have been removed meanwhile")
        problem = why_unusable(found)
        if problem:
            raise Refusal(409, "failed", f"the vault {show_path(found.path)} {problem}")
        return self._with_cache(found)

    def _with_cache(self, vault: Vault) -> Vault:
        vault.reading = self._reading
        return vault

    @contextmanager
    def session(self, project: str) -> Iterator[Session]:
        """As the command line opens one. Raises Refusal."""
        with self.session_with_notes(project) as (session, _notes):
            yield session

    @contextmanager
    def session_with_notes(self, project: str) -> Iterator[tuple[Session, tuple[str, ...]]]:
        with closing(self.vault(project)) as vault:
            place = vault.project
        if not os.path.isdir(place):
            raise Refusal(409, "failed", f"{show_path(place)} is gone", "if it was moved, move it back")
        session, notes = self.environment.open(place)
        self._with_cache(session.vault)
        with session:
            yield session, notes

    @contextmanager
    def alone(self, session: Session, what: str) -> Iterator[list[Any]]:
        """Have the vault alone, as for an apply. Nobody is waited for: raises Refusal if somebody else has it. Gives
        what a crash had left unfinished, and was dealt with first."""

        def waiting(other: str) -> None:
            raise Refusal(409, "busy", f"{other} is at work in this project", "try again when it has ended")

        with session.alone(f"{what} (the page, process {os.getpid()})", waiting) as recovered:
            yield recovered

    def look(self) -> Look:
        """For the hub. In another user's vault nothing is made, so its questions are not heard of."""
        stamps: dict[str, Any] = {}
        bells: dict[str, Callable[[], ChangeBell]] = {}
        for vault in self.vaults():
            name = os.path.basename(vault.path).decode()
            stamps[f"{name}/forks"] = _forks_stamp(vault.path)
            stamps[f"{name}/applies"] = stamp_of(vault.path + b"/applies")
            stamps[f"{name}/questions"] = _questions_stamp(vault.path)
            stamps[f"{name}/journal"] = stamp_of(vault.path + b"/journal.head")
            stamps[f"{name}/commands"], stamps[f"{name}/output"] = _background_stamps(vault.path)
            if not why_unusable(vault) and os.stat(vault.path).st_uid == os.geteuid():
                bells[name] = functools.partial(vault.approvals.listen, "page")
        return Look(stamps, bells)


def require_fork(session: Session, name: str) -> str:
    """Raises Refusal (404) if there is none of that name."""
    try:
        return session.vault.fork(name).name
    except UsageError as error:
        raise Refusal(404, "not-found", error.message, error.hint) from None
    except MudroomError as error:
        raise Refusal(409, "failed", error.message, error.hint) from None


def require_at_rest(session: Session, name: str) -> str:
    """The same, and Refusal (409) if a command is at work in it: looking closer would wait for its end. Whoever else
    looks at it has done so in a moment; a page asks for several things at once."""
    fork = session.vault.fork(require_fork(session, name))
    with fork.lock_if_free("the page", PATIENCE) as free:
        if not free:
            raise Refusal(409, "busy", f"a command is running in {name}", "look again when it has ended")
    return name


def _names(path: bytes) -> list[bytes]:
    try:
        return sorted(os.listdir(path))
    except OSError:
        return []


def _forks_stamp(vault: bytes) -> tuple[object, ...]:
    return tuple(
        (
            name,
            *(
                stamp_of(vault + b"/forks/" + name + part)
                for part in (b"", b"/record", b"/state", b"/running", b"/resolutions")
            ),
        )
        for name in _names(vault + b"/forks")
    )


def _background_stamps(vault: bytes) -> tuple[tuple[object, ...], tuple[object, ...]]:
    """Of background commands, and of what they print. Only forks that have any are looked into, and only those in which
    something runs more closely."""
    commands: list[object] = []
    output: list[object] = []
    for name in _names(vault + b"/forks"):
        place = vault + b"/forks/" + name + b"/background"
        if stamp_of(vault + b"/forks/" + name + b"/running") is not None:
            printed = vault + b"/forks/" + name + b"/printed"
            output += [stamp_of(printed + stream) for stream in (b"/stdout", b"/stderr")]
        own = stamp_of(place)
        if own is None:
            continue
        commands.append((name, own))
        if stamp_of(place + b"/sandbox") is None:
            continue  # nobody runs there, so nobody prints
        for one in _names(place):
            if one.isalnum():
                commands.append(stamp_of(place + b"/" + one + b"/command"))
                output += [stamp_of(place + b"/" + one + stream) for stream in (b"/stdout", b"/stderr")]
    return tuple(commands), tuple(output)


def _questions_stamp(vault: bytes) -> tuple[object, ...]:
    return tuple((name, stamp_of(vault + b"/approvals/" + name)) for name in _names(vault + b"/approvals"))
