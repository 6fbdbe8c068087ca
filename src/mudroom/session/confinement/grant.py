"""A command's grant: its level, and the user's credentials that it may use.

A card or the command line requests a level; the policy and the machine decide (``core/agent/level_decision.py``). Only
named credentials are opened; a named store that does not exist is noted.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping

from mudroom.core.agent.level_decision import LevelDecision, LevelSupport, decide_level
from mudroom.core.agent.sandbox_level import BARE
from mudroom.core.confinement.container import HOST
from mudroom.core.settings import EngineChoice, Settings
from mudroom.core.tree.path import is_below, show
from mudroom.errors import Refused, Unsupported
from mudroom.typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mudroom.core.agent.card import AgentCard, StagedStore
    from mudroom.core.confinement.graphics import GraphicsAccess
    from mudroom.core.confinement.spec import Bind


class Grant(NamedTuple):
    level: int = 1
    credentials: tuple[str, ...] = ()
    """The opened stores, by their names in the card."""
    live: tuple[Bind, ...] = ()
    """Writable binds of the host's own stores."""
    named: tuple[bytes, ...] = ()
    variables: tuple[bytes, ...] = ()
    abstract: bool = False
    gpu: bool = False
    notes: tuple[str, ...] = ()
    staged: tuple[StagedStore, ...] = ()
    """Agents' stores, which the command sees as its fork's own copies."""
    links: tuple[tuple[bytes, bytes], ...] = ()
    """Links as (target, path in the home) to the fork's own git and shell settings, and, without mounts, to the copies
    of the stores."""
    files: tuple[tuple[bytes, bytes], ...] = ()
    """Single-file stores, as (path in the home, content): the command has copies in its own home."""
    image: str = ""
    """The command's image at level 2; empty: the host's own toolchain."""


PLAIN = Grant()
"""The grant for a command without a card at level 1."""


def graphics() -> GraphicsAccess:
    """Return what a command gets for graphics and compute cards; nothing on Windows, or without the satellite."""
    from mudroom.core.confinement.graphics import GraphicsAccess
    from mudroom.core.registry import part_or_none

    cdi = part_or_none("gpu", "cdi") if sys.platform != "win32" else None
    access: GraphicsAccess = GraphicsAccess() if cdi is None else cdi.access()
    return access


def free_links(links: Iterable[tuple[bytes, bytes]], binds: Iterable[Bind]) -> tuple[tuple[bytes, bytes], ...]:
    """Return the links that no bind covers: where a bind does, the user shows commands the file itself."""
    taken = [bind.path for bind in binds]
    return tuple(link for link in links if not any(is_below(link[1], path) for path in taken))


def in_the_way(live: Iterable[Bind], projects: Iterable[bytes], state: bytes) -> str:
    """Return why a store cannot be opened: its path contains the project or mudroom's state, or lies in them. Return an
    empty string if all can be opened. ``projects``: the project's paths. ``state``: the directory with all vaults."""
    for bind in live:
        for place, what in (*((path, "the project") for path in projects), (state, "mudroom's own state")):
            if is_below(bind.path, place) or is_below(place, bind.path):
                return f"{show(bind.path)} cannot be opened as credentials: {what} is there"
    return ""


def decide(
    settings: Settings, card: AgentCard | None, asked: int | None, environ: Mapping[bytes, bytes]
) -> LevelDecision:
    """Return the decision about the level. ``asked``: the command line's level, or None."""
    means = LevelSupport(_Lacking(environ, settings.engine))
    return decide_level(card, settings.levels, means, asked=asked, default=settings.level if card is None else 0)


class _Lacking(Mapping[int, str]):
    """The reason why level 2 is impossible here. Checked only if a command is to run at level 2, and only once.

    Owner: the caller, which judges one command.
    """

    def __init__(self, environ: Mapping[bytes, bytes], wanted: EngineChoice) -> None:
        self._environ, self._wanted = environ, wanted
        self._why: str | None = None

    def __getitem__(self, level: int) -> str:
        if level != 2:
            raise KeyError(level)
        if self._why is None and sys.platform == "win32":
            self._why = "Windows"
        elif self._why is None:
            from mudroom.core.registry import NotInstalled
            from mudroom.session.confinement.level_two import level_two

            try:
                self._why = level_two().why_none(self._environ, self._wanted)
            except NotInstalled as error:
                self._why = error.message
        if not self._why:
            raise KeyError(level)
        return self._why

    def __iter__(self) -> Iterator[int]:
        return iter(level for level in (2,) if level in self)

    def __len__(self) -> int:
        return len(list(self))


def granted(
    settings: Settings, card: AgentCard | None, asked: int | None, home: bytes, environ: Mapping[bytes, bytes]
) -> Grant:
    """Return a command's grant. Raise Refused if the policy refuses, Unsupported if the machine cannot."""
    decision = decide(settings, card, asked, environ)
    if decision.level is None:
        subject = f"the agent {card.agent}" if card is not None else "this command"
        if decision.rule == "machine" and sys.platform == "win32":
            hint = "use level 1, or mudroom in WSL 2"
            raise Unsupported(f"level {decision.asked} of {subject}", "a container of Linux", decision.reason, hint)
        if decision.rule == "machine":
            from mudroom.session.confinement.level_two import level_two

            needed = level_two(f"level 2 of {subject}").needed(settings.engine)
            raise Unsupported(f"level {decision.asked} of {subject}", needed, decision.reason)
        raise Refused(f"{subject} is refused: {decision.reason}", f"{decision.rule} in the policy decides")
    notes = [BARE] if decision.level == 0 else []
    if decision.is_raised:
        notes.append(f"{decision.reason} ({decision.rule})")
    if card is None:
        if decision.level == 1 and not notes:
            return PLAIN
        return Grant(decision.level, notes=tuple(notes), image=image_of(settings, None, decision.level)[0])
    from mudroom.core.known_agents import agent_cards

    opened = agent_cards(f"the card of {card.agent}").opened_by(card, home, environ)
    if card.needs.network and settings.network_at(decision.level) == "none":
        notes.append(
            f"{card.agent} needs the network, which is closed to it: network.mode in the policy, or --net gate"
        )
    if opened.stores:
        notes.append("credentials open to the command, to be read and written: " + ", ".join(opened.stores))
    notes += graphics().notes if card.needs.gpu else ()
    image, image_notes = image_of(settings, card, decision.level)
    return Grant(
        decision.level,
        opened.stores,
        opened.live,
        opened.named,
        opened.variables,
        opened.abstract,
        card.needs.gpu,
        (*notes, *image_notes, *opened.notes),
        opened.staged,
        image=image,
    )


def image_of(settings: Settings, card: AgentCard | None, level: int) -> tuple[str, tuple[str, ...]]:
    """Return a command's image (empty: the host's own toolchain), and notes. The policy names an image or permits a
    card to name it; otherwise the card's image is ignored, with a note."""
    if level < 2:
        return "", ()

    named, requested = settings.image, card.image if card is not None else ""
    notes: tuple[str, ...] = ()
    if named is None and card is not None and requested:
        if card.agent in settings.image_cards:
            named = requested
        elif requested != HOST:
            why = "container.cards in the policy does not name the agent"
            notes = (f"{card.agent} asks for the image {requested}, and has the host's own toolchain: {why}",)
    return "" if named in (None, HOST) else named, notes


def is_socket(path: bytes) -> bool:
    """Return whether the path leads to a socket, possibly through links."""
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False
