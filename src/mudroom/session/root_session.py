"""Sessions on the other projects that a command changes, too: which directories can be such, and under which policy."""

from __future__ import annotations

import os
from collections.abc import Sequence

from mudroom.core.tree.path import is_below, show
from mudroom.errors import Unsupported, UsageError
from mudroom.policy.config import project_settings
from mudroom.session.order import Order
from mudroom.session.roots import tie_to
from mudroom.session.session import Session, require_project
from mudroom.vault.forks.ties import Tie
from mudroom.vault.store.store import open_vault


def open_root(first: Session, path: bytes) -> Session:
    """Return a session on another project, under its own policy. Raise UsageError if it cannot be staged."""
    confinement, state = first.machine.confinement, os.path.dirname(os.path.dirname(first.vault.path))
    home, environ = confinement.own_home, confinement.variables
    if path == home:
        session = Session(open_vault(state, home), home=home, environ=environ, platform=confinement.platform)
        session.forks.secrets.is_home = True
        return session
    require_project(path, state, home, confinement.platform)
    settings = project_settings(path, environ, first.forks.remarks.append)
    later = first.vault.later
    return Session.open(
        path, state=state, home=home, environ=environ, settings=settings, platform=confinement.platform, later=later
    )


def tied_roots(first: Session, order: Order, paths: Sequence[bytes]) -> tuple[tuple[Tie, Session], ...]:
    """Return other projects and sessions on them, parents before their children. Raise UsageError if they cannot be
    staged together, Unsupported if the command has no sandbox of its own that shows them."""
    if order.grant.level != 1 or order.actor.card is not None or order.actor.settings.engine_beside:
        found = "an agent" if order.actor.card is not None else f"level {order.grant.level}, or --engine"
        raise Unsupported("a second project or the home beside the first", "level 1 and a command of your own", found)
    project, home = first.project, first.machine.confinement.own_home
    real = sorted(dict.fromkeys(os.path.realpath(path) for path in paths))
    for path in real:
        for other in (project, *real):
            if path != other and is_below(other, path) and path != home:
                raise UsageError(
                    f"{show(other)} lies in {show(path)}", f"mudroom --project {show(path)} run -- COMMAND stages both"
                )
        if is_below(path, project):
            raise UsageError(f"{show(path)} lies in the project, which is staged as a whole", "leave it out")
    sessions = [first.root(Tie(b"", path)) for path in real]
    return tuple((tie_to(session.vault, is_home=session.is_home), session) for session in sessions)
