"""A command's connections to servers in other forks, as both forks consent.

The gate asks for each connection (``ForkDial``). The whole decision is made here, in the host process, because the gate
process has read untrusted data (``ext/agents/core/fork_consent.py``). Grants are read for each connection, so a new or
revoked grant takes effect at once.

Rules of this file:
1. The socket is made in the network namespace of the other fork's command and connected from here. A server that does
   not accept delays only its own clients.
2. A fork on another machine is reached by a dial through the link to that machine. A command on another machine reaches
   a fork here by ``dial_from_worker`` (``ext/fleet/origin/connection_proxy.py``). The decision is the same, and made
   here.
"""

from __future__ import annotations

import _thread
import errno
import os
import select
import socket
import time
from collections.abc import Callable, Hashable, Sequence

from mudroom.core.network.fork_host import CATALOGUE, ENDPOINT_PORT, SUFFIX, AgentLink, fork_of, label_of
from mudroom.core.network.fork_rule import ForkIdentity, ForkRule
from mudroom.core.settings import Settings
from mudroom.errors import MudroomError, UsageError
from mudroom.ext.agents.core.fork_consent import Consent, ConsentSide, consent
from mudroom.ext.agents.links.agent_list import answer
from mudroom.ext.agents.links.fork_connection import Standing, connect_inside
from mudroom.ext.agents.links.fork_grants import edit_grants, fork_labelled, side_of
from mudroom.session.confinement.dialler import DialledFork, ForkRefused, InnerSockets, PendingConnection
from mudroom.session.confinement.namespace_listener import namespaces_at
from mudroom.session.confinement.socket_maker import SocketMaker
from mudroom.stage.file_cache import FileCache
from mudroom.stage.reader import ANEW, FileReader
from mudroom.vault.store.fork import Fork
from mudroom.vault.store.store import Vault

PATIENCE = 1.0
"""Seconds in which the host process of the other fork's command hands out its namespaces, and the new process enters
them."""
PAUSE = 5.0
"""Seconds until a host process that did not answer is asked again."""
MOST = 64
"""Most namespaces that have a process at the same time."""


class SocketPool:
    """Sockets in running commands' network namespaces: one process for each namespace makes all its sockets.

    The process (``SocketMaker``) is started at the first connection, and ends with the command whose namespace it is
    in. A namespace is bound to the fork that had it when it was entered. A host process that does not answer is not
    asked again for a while, because the caller attends to a command.

    ``_makers`` and ``_silent`` are guarded by ``_lock``: several commands in a session connect.
    """

    def __init__(self) -> None:
        self._lock = _thread.allocate_lock()
        self._makers: dict[bytes, tuple[Hashable, SocketMaker]] = {}
        """By the path of the command's namespace listener: the fork that it is for, and the process."""
        self._silent: dict[bytes, float] = {}
        """By the same path: the time until which it is not asked again."""

    def make(self, listener: bytes, wanted: Hashable, identity: Callable[[], Hashable], family: bytes) -> socket.socket:
        """Return a non-blocking socket in the network namespace of the command behind a listener. ``wanted``: the fork
        that is meant; ``identity`` returns which fork has that path now. Raise OSError if no command is running there,
        MudroomError if another fork has taken the path meanwhile."""
        with self._lock:
            held = self._makers.get(listener)
            if held is not None and (held[0] != wanted or held[1].is_over):
                self._drop(listener)
                held = None
            if held is None:
                held = self._makers[listener] = wanted, self._enter(listener)
                if identity() != wanted:
                    self._drop(listener)
                    raise MudroomError("the fork was replaced meanwhile")
            try:
                return held[1].make(family)
            except OSError as error:
                if error.errno not in (errno.EAFNOSUPPORT, errno.EMFILE, errno.ENFILE, errno.ENOBUFS):
                    self._drop(listener)  # the process has ended
                raise

    def _enter(self, listener: bytes) -> SocketMaker:
        if self._silent.get(listener, 0.0) > time.monotonic():
            raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        for path in list(self._makers):
            if len(self._makers) >= MOST or self._makers[path][1].is_over:
                self._drop(path)
        try:
            gone, namespaces = namespaces_at(listener, PATIENCE)
            try:
                return SocketMaker(gone, namespaces, PATIENCE)
            finally:
                for descriptor in (gone, *namespaces):
                    os.close(descriptor)
        except TimeoutError:
            self._silent = {path: until for path, until in self._silent.items() if until > time.monotonic()}
            self._silent[listener] = time.monotonic() + PAUSE
            raise

    def _drop(self, listener: bytes) -> None:
        self._makers.pop(listener)[1].close()

    def close(self) -> None:
        with self._lock:
            for listener in list(self._makers):
                self._drop(listener)


RemoteDial = Callable[[str, str, int], PendingConnection | None]
"""Return a pending connection from a fork, by its label, to a label and port on another machine; None: no link leads
there. Raise MudroomError, or ForkRefused."""


def nowhere(_caller: str, _label: str, _port: int) -> PendingConnection | None:
    return None


def decide_dial(
    vault: Vault,
    fork: Fork,
    label: str,
    port: int,
    rules: Sequence[ForkRule],
    links: Sequence[AgentLink],
    reading: FileReader = ANEW,
) -> tuple[Fork, ConsentSide, Consent]:
    """Return the label's fork, its side, and both forks' consent to a connection from ``fork``. Raise UsageError if no
    fork, or several, have that label."""
    far = fork_labelled(vault, label, reading)
    far_side = side_of(far, reading)
    return far, far_side, consent(rules, links, side_of(fork, reading), far_side, port)


def look_at_dial(vault: Vault, fork: Fork, settings: Settings, label: str, port: int) -> tuple[bool, str]:
    """Return whether a command in ``fork`` may reach another fork's port, and why."""
    if label == CATALOGUE:
        return port == ENDPOINT_PORT, "the list of the agents that it may reach, at port 80"
    try:
        _far, _side, given = decide_dial(vault, fork, label, port, settings.fork_rules, settings.agent_links)
    except UsageError as error:
        return False, error.message
    return given.is_given, given.reason


def dial_from_worker(
    vault: Vault, pool: InnerSockets, caller: ForkIdentity, host: str, port: int, settings: Settings
) -> PendingConnection:
    """Return a connection to a fork on this machine for a command on another machine. ``caller``: that command's fork,
    as this machine knows it, not as the other machine says. Only the policy speaks for it: it is no fork here that
    could have a grant. Raise ForkRefused or MudroomError, as ``ForkDialler.begin`` does."""
    if not caller.label:
        raise ForkRefused("the calling fork is not known here")
    try:
        far = fork_labelled(vault, fork_of(host))
    except UsageError as error:
        raise ForkRefused(error.message) from None
    side, near = side_of(far), ConsentSide(caller, name=caller.label)
    given = consent(settings.fork_rules, settings.agent_links, near, side, port)
    return _connect(pool, far, side, given)


def _connect(pool: InnerSockets, far: Fork, side: ConsentSide, given: Consent) -> PendingConnection:
    """Connect if both forks consent. Raise ForkRefused or MudroomError."""
    if not given.is_given:
        raise ForkRefused(given.reason)
    if not given.has_server:
        raise MudroomError(f"no agent in the fork {far.name} has registered an endpoint")
    place = f"{side.fork.label}:{given.port}"
    return connect_inside(pool, far, side.fork, given.port, place, DialledFork(-1, given.rule, given.http))


class ForkDialler:
    """One command's dialler. Owner: the thread that attends to the command."""

    all_hosts = False

    def __init__(
        self,
        vault: Vault,
        fork: Fork,
        pool: InnerSockets,
        rules: Sequence[ForkRule],
        links: Sequence[AgentLink],
        remote: RemoteDial = nowhere,
    ) -> None:
        """``rules``, ``links``: the policy's."""
        self._vault, self._fork, self._pool = vault, fork, pool
        self._rules, self._links, self._remote = rules, links, remote
        self._reading = FileCache()
        self._replies: list[socket.socket] = []
        """Our ends of the connections for agent lists that the gate may not have read yet."""

    def begin(self, host: str, port: int, path: str) -> PendingConnection:
        """Return a pending or established connection. Raise ForkRefused if a side does not consent, MudroomError with
        the reason if no connection is possible."""
        label = fork_of(host)
        if label == CATALOGUE:
            return self._catalogue(port, path)
        try:
            far, far_side, given = decide_dial(
                self._vault, self._fork, label, port, self._rules, self._links, self._reading
            )
        except UsageError as error:
            connection = self._remote(label_of(self._fork.name), label, port)
            if connection is None:
                raise ForkRefused(error.message) from None
            return connection
        connection = _connect(self._pool, far, far_side, given)
        if not given.is_met:
            self._note(far_side)
        return connection

    def _note(self, far: ConsentSide) -> None:
        """Note the fork that a name in the policy stands for, from this fork's view."""
        met = [far.fork]
        edit_grants(
            self._vault,
            self._fork,
            lambda grants: (
                grants
                if any(fork.label == far.fork.label for fork in grants.met)
                else grants._replace(met=(*grants.met, *met))
            ),
        )

    def _catalogue(self, port: int, path: str) -> PendingConnection:
        if port != ENDPOINT_PORT:
            raise ForkRefused(f"{CATALOGUE}{SUFFIX} is at port 80")
        reply = answer(self._vault, side_of(self._fork), self._rules, self._links, path)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.setblocking(False)
        if ours.send(reply) < len(reply):
            ours.close()
            theirs.close()
            raise MudroomError("the list of agents is too long")
        ours.shutdown(socket.SHUT_WR)
        self._forget_read()
        self._replies.append(ours)  # open until it is read: the gate still sends its request
        return Standing(DialledFork(theirs.detach(), "network.forks", True))

    def _forget_read(self) -> None:
        poller = select.poll()
        for reply in self._replies:
            poller.register(reply, 0)
        over = {descriptor for descriptor, _event in poller.poll(0)}
        for reply in [reply for reply in self._replies if reply.fileno() in over]:
            reply.close()
            self._replies.remove(reply)

    def close(self) -> None:
        while self._replies:
            self._replies.pop().close()


def dialler(vault: Vault, fork: Fork, pool: InnerSockets, settings: Settings) -> ForkDialler:
    """Return the dialler that connects a command in the fork with other forks."""
    return ForkDialler(vault, fork, pool, settings.fork_rules, settings.agent_links)


def inner_sockets() -> InnerSockets:
    return SocketPool()
