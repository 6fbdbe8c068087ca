"""The ways to confine both commands, and the relations that their forks can have."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from mudroom.core.agent.card import AgentCard, Requirements
from mudroom.core.settings import Settings, ViewChoice
from mudroom.sandbox.client.client import Client
from mudroom.session import Session

from .known import LANDS
from .outside import Accomplice, Ground
from .pair import PATIENCE
from .side import ForkSide, Side, ThreadSide, command_line
from .way import GIVER, WAYS

STORE = "~/.oddtool"


class Backend(NamedTuple):
    level: int
    view: ViewChoice = "auto"
    namespaces: bool = True
    store: bool = False
    """A directory of credentials is open to both."""
    standing: bool = False
    """The forks have run commands before, and keep their overlays mounted."""
    engine: dict[str, str] = {}  # noqa: RUF012 - never changed
    """Variables by which an engine of level 2 is found."""


BACKENDS: dict[str, Backend] = {
    "1, overlay": Backend(1, "overlay"),
    "1, copy": Backend(1, "copy"),
    "1, no namespaces": Backend(1, namespaces=False),
    "0, overlay": Backend(0, "overlay"),
    "0, copy": Backend(0, "copy"),
    "0, no namespaces": Backend(0, namespaces=False),
    "1, an open store": Backend(1, "overlay", store=True),
    "0, an open store": Backend(0, "overlay", store=True),
}
"""By the name in the document: the level, and how the project is staged."""
STANDING = Backend(1, "overlay", standing=True)
"""What passes is what passes with ``1, overlay``."""
_BEFORE = 3
"""Commands after which a sandbox stands."""
RELATIONS = ("threads", "checkpoint", "sessions", "processes", "projects")
"""Beside two forks of one session: two threads, a fork of the giver's own checkpoint, two sessions, a command of
another process, and two projects of one user."""


def opened(ground: Ground, backend: Backend, client: Client | None = None, project: int = 0) -> Session:
    """Return a session in which commands are confined so."""
    card = AgentCard("pair", backend.level, Requirements(keychain=(STORE,))) if backend.store else None
    environ = {**os.environb, **{os.fsencode(key): os.fsencode(value) for key, value in backend.engine.items()}}
    session = Session.open(
        os.fsencode(ground.projects[project]),
        state=os.fsencode(ground.state),
        home=os.fsencode(ground.home),
        environ={**environ, b"HOME": os.fsencode(ground.home), b"LC_ALL": b"C"},
        settings=Settings(view=backend.view),
        client=client,
        level=backend.level,
        card=card,
    )
    if not backend.namespaces:
        session.machine.confinement.mode = "landlock"
    return session


def stand(session: Session, backend: Backend, *forks: str) -> None:
    """Let sandboxes stand for the forks, if the backend says so."""
    for fork in forks if backend.standing else ():
        for _command in range(_BEFORE):
            session.run([b"true"], fork=fork)
        assert os.path.lexists(session.vault.fork(fork).path + b"/standing")


def landed(ground: Ground, backend: Backend, way: str, client: Client | None = None) -> dict[str, str]:
    """Return what an accomplice changed on one way to the project, by attempt."""
    if any(BACKENDS[name] == backend for name, _way in LANDS):
        ground.handing = PATIENCE
    with opened(ground, backend, client) as session:
        giver = os.fsdecode(session.vault.path) + f"/forks/{GIVER}"
        stand(session, backend, GIVER)
        accomplice = Accomplice(ground, ForkSide(session, "b"), giver)
        try:
            return WAYS[way](ground, session, accomplice)
        finally:
            accomplice.end()


@contextmanager
def sides(
    ground: Ground, backend: Backend, relation: str = "forks", client: Client | None = None
) -> Iterator[tuple[Side, Side]]:
    """Yield the giver's side and the taker's."""
    with ExitStack() as stack:
        session = stack.enter_context(opened(ground, backend, client))
        stand(session, backend, GIVER, "b")
        giver: Side = ForkSide(session, GIVER)
        taker: Side = ForkSide(session, "b")
        if relation == "threads":
            giver = ThreadSide(session, GIVER)
        elif relation == "checkpoint":
            session.run([b"touch", b"made"], fork="a")
            session.forks.checkpoint("a", "sealed")
            session.forks.new("b", parent="a", at="sealed")
        elif relation == "sessions":
            taker = ForkSide(stack.enter_context(opened(ground, backend, client)), "b")
        elif relation == "processes":
            words = ["exec", "--fork", "a", "--level", str(backend.level), "--view", backend.view]
            giver = command_line(ground.project, ground.home, ground.state, words)
        elif relation == "projects":
            taker = ForkSide(stack.enter_context(opened(ground, backend, client, project=1)), "b")
        yield giver, taker
