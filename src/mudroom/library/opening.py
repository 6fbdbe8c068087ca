"""``mudroom.open``: from a path and options to a room."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from mudroom.core.known_agents import agent_cards
from mudroom.errors import UsageError
from mudroom.library.argument import directory_of, environment_of, hosts_of, with_options
from mudroom.library.question import command_approver, set_approvers
from mudroom.library.room import Room
from mudroom.session.project_session import open_project
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mudroom.core.settings import Settings
    from mudroom.library.argument import NetworkMode, StrPath, ViewMode, Word
    from mudroom.library.question import Ask


def open(  # noqa: A001
    project: Word,
    *,
    agent: str | None = None,
    card: StrPath | None = None,
    ask: Ask | None = None,
    level: int | None = None,
    network: NetworkMode | None = None,
    allow: Sequence[str] = (),
    deny: Sequence[str] = (),
    limits: Mapping[str, str | float] | None = None,
    timeout: float | None = None,
    output_limit: int | None = None,
    env: Mapping[str, str] | None = None,
    show: Sequence[str] = (),
    read: Sequence[Word] = (),
    view: ViewMode | None = None,
    image: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Room:
    """Open the project in this directory, under its policy files and the user's, and return a room.

    ``agent``: the agent whose commands will run; the policy judges them. None: they are the caller's own, and are not
    judged. ``card``: a file with its card. ``ask``: a function that answers questions, "queue" (wait for ``mudroom
    approve``) or "never" (``library/question.py``).

    For all commands of the room: ``level`` (0, 1, 2), ``network`` ("gate", "none", "open"), ``allow`` and ``deny``
    (hosts, for this room only; a deny of the policy stays), ``limits`` ({"memory": "512M", "processes": 100}),
    ``timeout`` (seconds), ``output_limit`` (bytes of each stream that are kept), ``env`` (more variables), ``show``
    (secrets of the project that may be read), ``read`` (paths of this machine that are visible), ``view``, ``image``.

    ``environ``: instead of this process's environment, for home, state directory, policy and commands.

    Raise UsageError if the project cannot be staged, or an argument or a policy file is not valid.
    """
    variables = environment_of(environ)
    place = os.path.realpath(directory_of(project, "the project"))
    if level not in (None, 0, 1, 2) or isinstance(level, bool):
        raise UsageError(f"level is {level!r}", "0: no isolation, 1: OS sandbox, 2: container")
    if output_limit is not None and not (isinstance(output_limit, int) and 0 < output_limit < 1 << 40):
        raise UsageError(f"output_limit is {output_limit!r}, not a number of bytes", "output_limit=8 << 20")
    if agent is not None and not (isinstance(agent, str) and agent.strip()):
        raise UsageError(f"agent is {agent!r}, not a name", 'agent="coder"')
    rules = hosts_of(allow, deny)
    cards = agent_cards("an agent's card") if card is not None else None
    parsed = cards.load_card(os.fsencode(card)) if cards is not None and card is not None else None
    if cards is not None and parsed is not None:
        rules = (*rules, *cards.trusted_hosts(parsed, place, variables))

    def adjust(settings: Settings) -> Settings:
        adjusted = with_options(
            settings,
            network=network,
            view=view,
            image=image,
            limits=limits or {},
            env=env or {},
            show=show,
            read=read,
            timeout=timeout,
        )
        if output_limit is not None:
            adjusted = adjusted._replace(output_limit=output_limit)
        if cards is not None and parsed is not None:
            adjusted = cards.with_card_network(parsed, adjusted, network)
        return adjusted

    notes: list[str] = []
    session = open_project(
        place,
        variables,
        note=notes.append,
        adjust=adjust,
        level=2 if image is not None and level is None else level,
        card=parsed,
        agent=agent or (parsed.agent if parsed is not None else None),
        also=rules,
    )
    try:
        set_approvers(session, ask)
    except BaseException:
        session.close()
        raise
    return Room(session, notes, lambda cancellation: command_approver(session, ask, cancellation))
