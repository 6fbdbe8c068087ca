"""The parts of the home that are a fork's own, for a command of an agent: the copy of its store, and the user's
settings of git and shells."""

from __future__ import annotations

from collections.abc import Callable

from mudroom.core.confinement.fallback import CONTAINERS, ELSEWHERE, Mode
from mudroom.session.confinement.confinement import Confinement
from mudroom.session.confinement.grant import Grant
from mudroom.typing import TYPE_CHECKING
from mudroom.vault.homes.agent_home import AgentHome
from mudroom.vault.homes.dotfiles import Dotfiles
from mudroom.vault.store.fork import Fork

if TYPE_CHECKING:
    from mudroom.core.confinement.spec import Bind


def with_home(confinement: Confinement, fork: Fork, grant: Grant, mode: Mode, note: Callable[..., None]) -> Grant:
    """Return the grant of a command, with these parts at their places in the home. ``note`` is called with what is left
    out. Hold the fork's lock; no process of the fork may live."""
    if confinement.own_home != confinement.home:  # another user's, on this machine
        return grant._replace(staged=())
    mounts, logins = mode not in ELSEWHERE, grant.live
    owner = confinement.owner_inside(grant)
    if grant.level and mode not in CONTAINERS and mode != "job":  # Windows: links need a privilege
        seen = Dotfiles(fork, confinement.home).prepare(mounts=mounts, owner=owner)
        grant = grant._replace(live=(*grant.live, seen.bind), links=seen.links)
    if not grant.staged:
        return grant
    if not mounts and not grant.level:
        note("the agent's store cannot be staged at level 0 without mounts: its settings are read-only")
        return grant._replace(live=tuple(bind for bind in grant.live if bind.source == bind.path))
    binds: list[Bind] = []
    for staged in grant.staged:
        home = AgentHome(fork, confinement.home, staged)
        binds += home.prepare(logins, mounts=mounts, owner=owner)
        note(*home.notes)
    if mounts:
        return grant._replace(live=(*binds, *grant.live))
    links = tuple((bind.source, bind.path) for bind in binds)
    own = [bind._replace(path=bind.source) for bind in (*binds, *grant.live)]
    return grant._replace(live=tuple(own), links=(*grant.links, *links))
