"""``mudroom.open``: make a room from a path and options."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from mudroom.core.known_agents import agent_cards
from mudroom.core.system.closing import ClosedOnError
from mudroom.errors import UsageError
from mudroom.library.argument import (
    directory_of,
    environment_of,
    hosts_of,
    require_known,
    seconds_of,
    variables_of,
    word_of,
)
from mudroom.library.question import command_approver, set_approvers
from mudroom.library.room import Room
from mudroom.session.project_session import open_project, with_shown
from mudroom.typing import TYPE_CHECKING, TypedDict, Unpack

if TYPE_CHECKING:
    from mudroom.core.settings import Settings
    from mudroom.library.argument import NetworkMode, StrPath, ViewMode, Word
    from mudroom.library.question import Ask


class RoomOptions(TypedDict, total=False):
    """Options for ``mudroom.open`` and ``mudroom.aopen``. Omitting one is the same as passing None."""

    agent: str | None
    card: StrPath | None
    level: int | None
    network: NetworkMode | None
    allow: Sequence[str]
    deny: Sequence[str]
    limits: Mapping[str, str | float] | None
    timeout: float | None
    output_limit: int | None
    env: Mapping[str, str] | None
    show: Sequence[str]
    read: Sequence[Word]
    view: ViewMode | None
    image: str | None
    environ: Mapping[str, str] | None


def open(project: Word, *, ask: Ask | None = None, **options: Unpack[RoomOptions]) -> Room:  # noqa: A001
    """Open the project in this directory, under its policy files and the user's, and return a room.

    ``agent``: the agent whose commands will run; the policy judges them. None: the commands are the caller's own, and
    are not judged. ``card``: a file with the agent's card. ``ask``: a function that answers questions, "queue" (wait
    for ``mudroom approve``) or "never" (``library/question.py``).

    For all commands in the room: ``level`` (0, 1, 2), ``network`` ("gate", "none", "open"), ``allow`` and ``deny``
    (hosts, for this room only; the policy's denials stay), ``limits`` ({"memory": "512M", "processes": 100}),
    ``timeout`` (seconds), ``output_limit`` (bytes kept per stream), ``env`` (more variables), ``show`` (project secrets
    that may be read), ``read`` (paths on this machine that are visible), ``view``, ``image``.

    ``environ`` replaces this process's environment, for home, state directory, policy and commands.

    Raise UsageError if the project cannot be staged, or an argument or a policy file is not valid.
    """
    require_known("open", options, RoomOptions)
    variables = environment_of(options.get("environ"))
    place = os.path.realpath(directory_of(project, "the project"))
    level, agent, card = options.get("level"), options.get("agent"), options.get("card")
    if level not in (None, 0, 1, 2) or isinstance(level, bool):
        raise UsageError(f"level is {level!r}", "0: no isolation, 1: OS sandbox, 2: container")
    if agent is not None and not (isinstance(agent, str) and agent.strip()):
        raise UsageError(f"agent is {agent!r}, not a name", 'agent="coder"')
    rules = hosts_of(options.get("allow", ()), options.get("deny", ()))
    cards = agent_cards("an agent's card") if card is not None else None
    parsed = cards.load_card(os.fsencode(card)) if cards is not None and card is not None else None
    if cards is not None and parsed is not None:
        rules = (*rules, *cards.trusted_hosts(parsed, place, variables))

    def adjust(settings: Settings) -> Settings:
        adjusted = with_options(settings, options)
        if cards is not None and parsed is not None:
            adjusted = cards.with_card_network(parsed, adjusted, options.get("network"))
        return adjusted

    notes: list[str] = []
    session = open_project(
        place,
        variables,
        note=notes.append,
        adjust=adjust,
        level=2 if options.get("image") is not None and level is None else level,
        card=parsed,
        agent=agent or (parsed.agent if parsed is not None else None),
        also=rules,
    )
    with ClosedOnError(session):
        set_approvers(session, ask)
    return Room(session, notes, lambda cancellation: command_approver(session, ask, cancellation))


def with_options(settings: Settings, options: RoomOptions) -> Settings:
    """Return the policy files' settings with a room's options added."""
    network, view, image = options.get("network"), options.get("view"), options.get("image")
    output_limit = options.get("output_limit")
    if output_limit is not None and not (isinstance(output_limit, int) and 0 < output_limit < 1 << 40):
        raise UsageError(f"output_limit is {output_limit!r}, not a number of bytes", "output_limit=8 << 20")
    for name, value, known in (("network", network, ("gate", "none", "open")), ("view", view, _VIEWS)):
        if value is not None and value not in known:
            raise UsageError(f"{name} is {value!r}", f"write one of: {', '.join(map(repr, known))}")
    for limit, amount in (options.get("limits") or {}).items():
        from mudroom.policy.limit_option import CONVERTERS, with_limit

        if limit not in CONVERTERS:
            raise UsageError(f"there is no limit {limit!r}", f"write one of: {', '.join(CONVERTERS)}")
        settings = with_limit(settings, limit, amount, f"limits[{limit!r}]")
    places = [os.path.realpath(directory_of(path, "a path of read")) for path in options.get("read", ())]
    for place in places:
        if not os.path.exists(place):
            raise UsageError(f"read: {os.fsdecode(place)!r}: no such file or directory")
    if image is not None:
        from mudroom.policy.setting_type import image as checked

        settings = settings._replace(image=checked(image, "image"))
    variables = variables_of(options.get("env") or {}, "env")
    shown = [os.fsdecode(word_of(path, "a path of show")) for path in options.get("show", ())]
    return with_shown(settings, shown)._replace(
        network=network or settings.network,
        view=view or settings.view,
        environment=(*settings.environment, *(name + b"=" + value for name, value in variables)),
        read=(*settings.read, *places),
        timeout=seconds_of(options.get("timeout")) or settings.timeout,
        output_limit=output_limit or settings.output_limit,
    )


_VIEWS = ("auto", "overlay", "copy")
