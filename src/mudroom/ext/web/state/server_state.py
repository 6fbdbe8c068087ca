"""State shared by requests: the state directory's vaults, jobs, locks and listeners.

A session is opened for a request and closed with it. Between requests only parsed files are cached, while their stat
stamps are unchanged (``stage/file_cache.py``). So a page never shows stale state.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from mudroom.core.tree.path import show_path
from mudroom.ext.attempts.candidate import ComparisonCache
from mudroom.ext.attempts.session.matrix import MatrixCache
from mudroom.ext.decisions.queue import decisions, whole_forks
from mudroom.ext.review.rows import stamp_of
from mudroom.ext.web.cli.new_project import Outlook
from mudroom.ext.web.push.desk import NotificationDesk, WaitingRow
from mudroom.ext.web.push.device import DeviceStore
from mudroom.ext.web.server.fork_address import hosts, project_label
from mudroom.ext.web.state.hub import Hub, Look
from mudroom.ext.web.state.job import Jobs
from mudroom.ext.web.state.refusal import Refusal, refusing_missing
from mudroom.sandbox.client.cancellation import Cancellation
from mudroom.session import Session
from mudroom.session.upkeep import FileCache, ForkSummaries, Vault, is_unused, vault_named, vaults_of, why_unusable
from mudroom.stage import disk
from mudroom.vault.approvals.bell import Bell

if TYPE_CHECKING:
    from mudroom.ext.commits.git.user_settings import UserFiles


class ServerEnvironment(NamedTuple):
    """Functions that the command line passes to the server: all access to the environment, policy files and other
    programs."""

    state: bytes
    """The state directory, whose vaults are served."""
    home: bytes
    roots: tuple[bytes, ...]
    """Real paths of directories; a project is chosen at or below one of them."""
    open: Callable[[bytes], tuple[Session, tuple[str, ...]]]
    """Open a session on a project with its policy files' settings; return it with notes. Raise MudroomError."""
    start: Callable[[bytes, str, Sequence[bytes], float | None], str]
    """Start a command in a fork's background, so that it outlives the server; return its id. Raise MudroomError."""
    version: str
    outlook: Callable[[bytes], Outlook]
    """Return the effects of staging a directory, by its policy files. Writes no files. Raise MudroomError."""
    git_files: Callable[[], UserFiles]
    """Return the user's git settings files."""
    send: Callable[[bytes, str, str, bool], dict[str, Any]] = lambda *_words: {}
    """Send a fork's remarks, those of the prompt with this id: to its agent, or (True) they wait for its look. Return
    the report. Raise MudroomError."""
    agent_words: Callable[[Session, str], Sequence[str]] = lambda *_words: ()
    """Return the command that the remarks would be sent to. Raise UsageError if there is none."""
    certified: Callable[[], Sequence[str]] = lambda: ()
    """Return the certified and closed parts of this machine's sandbox, in the words of
    ``ext/certify/cli/certificate.py``."""


Act = Literal["compare", "decide", "start"]
"""The action on a fork; different actions do not exclude each other."""


class _CountedLock:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        """Number of holders and waiters."""


class RequestLocks:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[tuple[Act, str, str], _CountedLock] = {}

    def __len__(self) -> int:
        return len(self._locks)

    @contextmanager
    def hold(self, act: Act, project: str, fork: str) -> Iterator[None]:
        """Hold the lock for an action on a fork; wait for other requests that hold it."""
        key = (act, project, fork)
        with self._lock:
            entry = self._locks.setdefault(key, _CountedLock())
            entry.users += 1
        try:
            with entry.lock:
                yield
        finally:
            with self._lock:
                entry.users -= 1
                if not entry.users:
                    del self._locks[key]


PATIENCE = 2.0
"""Seconds to wait for another process that reads a fork."""


class ServerState:
    def __init__(self, environment: ServerEnvironment) -> None:
        self.environment = environment
        self.hub = Hub(self.look)
        self.jobs = Jobs(self.hub)
        self.summaries = ForkSummaries()
        self.comparisons = ComparisonCache()
        self.matrices = MatrixCache()
        self.locks = RequestLocks()
        self.cancellation = Cancellation()
        """Ends the commands that verify forks, when the server ends."""
        self._reading = FileCache()
        self.push = NotificationDesk(DeviceStore(environment.state + b"/serve"), self.waiting)

    def waiting(self) -> Iterator[WaitingRow]:
        """Yield the decisions that wait in all projects."""
        for vault in self.vaults():
            with closing(vault):
                if not is_unused(vault, time.time_ns()) and not why_unusable(vault):
                    name, place = os.path.basename(vault.path).decode(), show_path(os.path.basename(vault.project))
                    for found in decisions(vault, whole_forks(vault, self.summaries)):
                        yield WaitingRow(name, place, found)

    def vaults(self) -> list[Vault]:
        """Return every vault, usable or not, whose project's files are at their own path: other vaults are a worker's.
        The caller closes them."""
        vaults = vaults_of(self.environment.state)
        return [self._with_cache(vault) for vault in vaults if not vault.is_elsewhere]

    def vault(self, project: str) -> Vault:
        """Return a project's vault, which the caller closes. Raise Refusal if there is none, or it is unusable."""
        opened = vault_named(self.environment.state, project.encode())
        if opened is None or opened.is_elsewhere:
            raise Refusal(404, "not-found", "there is no such project here", "it may have been removed meanwhile")
        problem = why_unusable(opened)
        if problem:
            raise Refusal(409, "failed", f"the vault {show_path(opened.path)} {problem}")
        return self._with_cache(opened)

    def _with_cache(self, vault: Vault) -> Vault:
        vault.reading = self._reading
        return vault

    def fork_hosts(self, vault: Vault, fork: str, ports: Sequence[int]) -> list[str]:
        """Return the hosts of a fork's servers, by port; without ports, its own. The page's port belongs to each."""
        vaults = self.vaults()
        try:
            return hosts(project_label(vaults, vault), vault.fork(fork), ports)
        finally:
            for opened in vaults:
                opened.close()

    @contextmanager
    def session(self, project: str) -> Iterator[Session]:
        """Open a session as the command line does. Raise Refusal."""
        with self.session_with_notes(project) as (session, _notes):
            yield session

    @contextmanager
    def session_with_notes(self, project: str) -> Iterator[tuple[Session, tuple[str, ...]]]:
        with closing(self.vault(project)) as vault:
            project_path = vault.project
        if not os.path.isdir(project_path):
            raise Refusal(409, "failed", f"{show_path(project_path)} is gone", "if it was moved, move it back")
        session, notes = self.environment.open(project_path)
        self._with_cache(session.vault)
        with session:
            yield session, notes

    @contextmanager
    def hold_vault(self, session: Session, what: str) -> Iterator[list[Any]]:
        """Hold the vault, as for an apply; yield the applies that were recovered first. Raise Refusal at once if
        another process holds it."""

        def waiting(other: str) -> None:
            raise Refusal(409, "busy", f"{other} is at work in this project", "try again when it has ended")

        with session.alone(f"{what} (the page, process {os.getpid()})", waiting) as recovered:
            yield recovered

    def look(self) -> Look:
        """Return the stamps and bells for the hub."""
        stamps: dict[str, Any] = {}
        bells: dict[str, Callable[[], Bell]] = {}
        for vault in self.vaults():
            name = os.path.basename(vault.path).decode()
            stamps[f"{name}/forks"] = _forks_stamp(vault.path)
            stamps[f"{name}/tries"] = _tries_stamp(vault.path)
            stamps[f"{name}/applies"] = stamp_of(vault.path + b"/applies")
            stamps[f"{name}/questions"] = _questions_stamp(vault.path)
            stamps[f"{name}/journal"] = stamp_of(vault.path + b"/journal.head")
            stamps[f"{name}/commands"], stamps[f"{name}/output"] = _background_stamps(vault.path)
            # no bell in another user's vault: opening it would create files there
            if not why_unusable(vault) and disk.stat_at(None, vault.path).st_uid == disk.user():
                bells[name] = functools.partial(vault.approvals.listen, "page")
        return Look(stamps, bells)


def require_fork(session: Session, name: str) -> str:
    """Return the fork's name. Raise Refusal (404) if there is none."""
    with refusing_missing():
        return session.vault.fork(name).name


def require_at_rest(session: Session, name: str) -> str:
    """Return the fork's name. Raise Refusal (404), or Refusal (409) if a command runs in it: reading it would wait for
    that command. Another reader is waited for, because a page sends several requests at once."""
    fork = session.vault.fork(require_fork(session, name))
    with fork.lock_if_free("the page", PATIENCE, standing=True) as free:
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
                for part in (b"", b"/record", b"/state", b"/running", b"/resolutions", b"/remarks")
            ),
        )
        for name in _names(vault + b"/forks")
    )


def _tries_stamp(vault: bytes) -> tuple[object, ...]:
    names = _names(vault + b"/attempts")
    return tuple((name, stamp_of(vault + b"/attempts/" + name + b"/record")) for name in names)


def _background_stamps(vault: bytes) -> tuple[tuple[object, ...], tuple[object, ...]]:
    """Return the stamps of background commands, and of their output. Only forks with such commands are read, and in
    detail only those where one is running."""
    commands: list[object] = []
    output: list[object] = []
    for name in _names(vault + b"/forks"):
        directory = vault + b"/forks/" + name + b"/background"
        if stamp_of(vault + b"/forks/" + name + b"/running") is not None:
            printed = vault + b"/forks/" + name + b"/printed"
            output += [stamp_of(printed + stream) for stream in (b"/stdout", b"/stderr")]
        directory_stamp = stamp_of(directory)
        if directory_stamp is None:
            continue
        commands.append((name, directory_stamp))
        if stamp_of(directory + b"/sandbox") is None:
            continue  # no command runs there, so none prints
        for command in _names(directory):
            if command.isalnum():
                commands.append(stamp_of(directory + b"/" + command + b"/command"))
                output += [stamp_of(directory + b"/" + command + stream) for stream in (b"/stdout", b"/stderr")]
    return tuple(commands), tuple(output)


def _questions_stamp(vault: bytes) -> tuple[object, ...]:
    return tuple((name, stamp_of(vault + b"/approvals/" + name)) for name in _names(vault + b"/approvals"))
