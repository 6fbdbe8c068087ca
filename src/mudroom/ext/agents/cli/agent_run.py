"""``mudroom agent run``: run an agent from start to end.

A signal that tells mudroom to end (Ctrl-C, SIGTERM, a closed terminal) is passed to the agent. mudroom ends only after
the agent's changes, which stay in its fork, have been collected and journalled.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import closing

from mudroom.cli.command.exec import DEFAULT_AGENT, print_refused
from mudroom.cli.command.run import (
    adjusted,
    asked_level,
    notes_of,
    own_stdio,
    print_json,
    run_there,
    show_result,
    warn_if_bare,
)
from mudroom.cli.project_session import exclusive, open_session, project_of, working_directory
from mudroom.cli.terminal.command_signals import command_signals
from mudroom.cli.terminal.context import Context
from mudroom.core.registry import part
from mudroom.core.result import text, to_json
from mudroom.core.tree.path import is_below, show, show_path
from mudroom.core.tree.quote import show_words
from mudroom.errors import MudroomError, Refused, Unsupported, UsageError
from mudroom.ext.agents.card import load_card, with_card_network
from mudroom.ext.agents.cli.agent_profile import (
    ProfiledAgent,
    closed_places,
    first_line,
    offer,
    profile_lines,
    profiled,
    search_of,
)
from mudroom.ext.agents.cli.agent_settings import rows_of
from mudroom.ext.agents.cli.card_hosts import CardHosts, decide_card_hosts
from mudroom.ext.agents.cli.hook_install import installed_scopes
from mudroom.ext.agents.home.agent_settings import agent_settings
from mudroom.ext.agents.session.host_program import find_program, needed_places
from mudroom.ext.agents.session.run_agent import AgentResult, run_agent
from mudroom.ext.agents.settings_review import settings_lines
from mudroom.policy.config import load_policy, places
from mudroom.sandbox.platform import new_client
from mudroom.session import Session
from mudroom.session.confinement.grant import decide
from mudroom.stage import disk
from mudroom.typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import argparse

    from mudroom.cli.change.preview import PreviewNotes
    from mudroom.cli.terminal.approver import Ask
    from mudroom.core.agent.card import AgentCard
    from mudroom.core.settings import Settings
    from mudroom.session import Client
    from mudroom.session.actor import Actor

_MOST_SHOWN = 10
_LEAST_DIGITS = 8
"""Fewest digits that ``--checked`` takes."""


def execute(args: argparse.Namespace, context: Context) -> int:
    if not args.command:
        if args.card is None:
            raise offer(context)
        if os.path.exists(args.card):
            raise UsageError("no command was given", "mudroom agent run CARD -- COMMAND")
        args.card, args.command = None, [args.card]  # mudroom agent run claude
    client = context.client if context.client is not None else new_client(context.environ)
    if args.on is None:
        client.start()  # it starts while the card and the settings are read
    with closing(client):
        return _run(args, context, client)


class AgentRequest(NamedTuple):
    """The agent in a command line: by its profile, or by its card."""

    card: AgentCard
    argv: tuple[bytes, ...]
    environment: tuple[bytes, ...] = ()
    hosts: CardHosts = CardHosts()
    profiled: ProfiledAgent | None = None


def _run(args: argparse.Namespace, context: Context, client: Client) -> int:
    adjust, level = functools.partial(adjusted, args), asked_level(args)
    if args.card is None and args.checked is not None:
        raise UsageError("--checked is for a card", "mudroom agent run CARD --checked ID -- COMMAND")
    is_by_card = args.card is not None
    request = _by_card(args, context) if is_by_card else request_by_profile(args.command, context, adjust, level)
    card, argv, hosts = request.card, list(request.argv), request.hosts
    with open_requested(
        request, context, client=client, adjust=adjust, level=level, ask=args.ask, net=args.net
    ) as session:
        directory = disk.real_path(working_directory())
        cwd = directory if is_below(directory, session.project) else session.project
        warn_if_bare(session, context)
        closed = closed_place_notes(session, request, context)
        if not context.as_json:  # before an agent that cannot reach its model says so in its own words
            for line in closed:
                context.terminal.note(line)
        if args.on is not None:
            return _run_elsewhere(session, argv, cwd, args, context)
        place = disk.given_path(os.fsencode(args.artifacts)) if args.artifacts else None
        with command_signals(session) as signals:
            run = run_agent(session, card, argv, fork=args.fork, cwd=cwd, stdio=own_stdio(context), artifacts=place)
        args.result = run.result
        unset = _unset(card, session, context) if request.profiled is None else []
        told = closed if context.as_json else ()
        run = run._replace(notes=(*hosts.notes, *told, *unset, *run.notes))
        branch = (
            _branch(session, card, run, args, context, told=signals.ended_by(run.result) is not None)
            if run.result.ran
            else {}
        )
        settings = agent_settings(session, run.result.fork) if run.result.ran else []
        lines = settings_lines(run.result.fork, settings)
        notes = None if context.as_json or not run.result.ran else notes_of(session, run.result)
    code = signals.exit_code(run.result)
    if context.as_json:
        rows = [row for home, changes in settings for row in rows_of(home, changes)]
        context.terminal.json(_as_json(card, run, branch, code) | {"settings": rows})
    elif not run.result.ran:
        print_refused(run.result, context)
    else:
        _print_result(card, run, branch, argv, notes, context)
        if code and request.profiled is not None and not request.profiled.profile.programs:
            for line in profile_lines(request.profiled, run.result.denials, context, session.actor.settings):
                context.terminal.say(line)
        for line in lines:
            context.terminal.say(line)
    return code


def _run_elsewhere(session: Session, argv: list[bytes], cwd: bytes, args: argparse.Namespace, context: Context) -> int:
    """Run an agent on a worker. It has no terminal and none of this machine's credentials there."""
    if args.fork is not None or args.artifacts:
        raise UsageError("--on is not for --fork and --artifacts", "mudroom agent run --on NAME CARD -- COMMAND")
    there = run_there(session, args.on, argv, cwd, context)
    if context.as_json:
        print_json(there.result._replace(exit_code=there.code), None, context)
    elif not there.result.ran:
        print_refused(there.result, context)
    else:
        show_result(there.result, argv, context)
        if there.result.fork:
            fork = there.result.fork
            context.terminal.say(f"kept as {fork}: mudroom diff {fork}, mudroom apply {fork}, mudroom discard {fork}")
    return there.code


def _by_card(args: argparse.Namespace, context: Context) -> AgentRequest:
    card = load_card(os.fsencode(args.card))
    _require_checked(card, args.checked)
    request = AgentRequest(card, tuple(os.fsencode(word) for word in args.command))
    policy = load_policy(project_of(context), context.environ).settings
    settings = request_settings(request, adjusted(args, policy), args.net)
    decision = decide(settings, card, asked_level(args), context.environ)
    if decision.level is None:  # the session reports the refusal
        return request
    return request._replace(
        hosts=decide_card_hosts(card, settings, decision.level, context, allow=args.allow_card_network)
    )


def _require_no_hook(agent: str, context: Context) -> None:
    """Raise UsageError if mudroom's hook is installed for the agent: inside, it could only refuse all tools."""
    if not os.path.isdir(places(context.environ).state + b"/hooks"):
        return

    for scope in installed_scopes(agent, context):
        whose = "this project" if scope == "project" else "all projects"
        option = "" if scope == "project" else f" --scope {scope}"
        raise UsageError(
            f"the hook of {agent} is installed for {whose}, and inside mudroom it cannot work",
            f"mudroom hook install {agent} --remove{option}; or start {agent} as it is, with its hook",
        )


def request_by_profile(
    argv: Sequence[str], context: Context, adjust: Callable[[Settings], Settings], asked: int | None
) -> AgentRequest:
    """Return the agent by its profile, and print which variables it gets. Its hosts need no question: the profile is
    mudroom's own, or the user's."""
    settings = adjust(load_policy(project_of(context), context.environ).settings)
    default = settings.level if settings.levels.default is None else settings.levels.default
    level = asked if asked is not None else default
    agent = profiled(argv, context, settings, level)
    _require_no_hook(agent.profile.name, context)
    if not context.as_json:
        context.terminal.note(first_line(agent, context, settings))
    return AgentRequest(
        agent.profile.card(level), agent.argv, agent.environment, CardHosts(agent.rules, agent.notes), agent
    )


def open_requested(
    request: AgentRequest,
    context: Context,
    *,
    client: Client | None,
    adjust: Callable[[Settings], Settings],
    level: int | None,
    ask: Ask | None,
    agent: str | None = None,
    net: str | None = None,
) -> Session:
    """Open a session for an agent, with the directories that its program needs shown."""
    session = open_session(
        context,
        client=client,
        adjust=lambda policy: request_settings(request, adjust(policy), net),
        level=level,
        card=request.card,
        agent=agent or request.card.agent,
        ask=ask,
        also=request.hosts.rules,
    )
    session.approval.actor = actor_with_program(session, request, context)
    return session


def open_profiled(
    argv: Sequence[bytes],
    context: Context,
    *,
    client: Client | None,
    adjust: Callable[[Settings], Settings],
    level: int | None,
    ask: Ask | None,
    agent: str | None,
) -> tuple[Session, list[bytes]] | None:
    """Open a session for a program that a profile names. Return it with the program's words; None if the program is
    not on this host, or is a file of the project, which an agent may have written."""
    program = find_program(argv[0], search_of(context.environ), working_directory())
    if program is None:
        return None
    project = disk.real_path(project_of(context))
    if any(is_below(disk.real_path(path), project) for path in (program.path, program.real)):
        context.terminal.note(
            f"{show(argv[0])} is a file of the project, so it has no profile: mudroom agent run -- {show_words(argv)} "
            "gives it one"
        )
        return None
    request = request_by_profile([os.fsdecode(word) for word in argv], context, adjust, level)
    named = None if agent == DEFAULT_AGENT else agent
    session = open_requested(request, context, client=client, adjust=adjust, level=level, ask=ask, agent=named)
    if not context.as_json:
        for line in (*request.hosts.notes, *closed_place_notes(session, request, context)):
            context.terminal.note(line)
    return session, list(request.argv)


def request_settings(request: AgentRequest, settings: Settings, net: str | None) -> Settings:
    settings = with_card_network(request.card, settings, net)
    if request.profiled is not None and settings.home == "auto":
        settings = settings._replace(home=request.profiled.profile.home)
    return settings._replace(environment=(*request.environment, *settings.environment))


def actor_with_program(session: Session, request: AgentRequest, context: Context) -> Actor:
    """Return the session's actor, with the directories that its program needs shown."""
    if request.profiled is None:
        return session.actor
    if sys.platform == "win32":
        _require_readable(session, request.profiled)
        return session.actor

    confinement, settings = session.machine.confinement, session.actor.settings
    binds = (*confinement.host.system, *confinement.host.home)
    shown = [*(bind.path for bind in binds), *settings.read, session.project]
    places = needed_places(request.profiled.program, search_of(context.environ), confinement.home, shown)
    return session.actor._replace(settings=settings._replace(read=(*settings.read, *places)))


def _require_readable(session: Session, agent: ProfiledAgent) -> None:
    """Raise Unsupported for a program below the home, where no command at level 1 can read. Its files would have to
    name the sandbox one by one."""
    home, real = session.machine.confinement.home, agent.program.real
    if session.granted().level and is_below(real.lower(), home.lower()):
        raise Unsupported(
            f"{agent.profile.name}, which is installed below your home,",
            "rights of the sandbox on its files",
            show_path(agent.program.path),
            'install it for all users, for npm with --prefix "C:\\Program Files\\agents", and put that on PATH',
        )


def closed_place_notes(session: Session, request: AgentRequest, context: Context) -> list[str]:
    """Return notes about servers on this machine that the agent's variables name and no rule opens to it."""
    level = session.granted().level
    if request.profiled is None or not level or session.actor.settings.network_at(level) != "gate":
        return []

    return closed_places(request.profiled, context.environ, session.machine.host_answers.rules())


def _require_checked(card: AgentCard, checked: str | None) -> None:
    if checked is not None and (len(checked) < _LEAST_DIGITS or not card.digest.startswith(checked.lower())):
        raise Refused("the card is not the one that was checked", "look again: mudroom agent check")


def _unset(card: AgentCard, session: Session, context: Context) -> list[str]:
    """Return a note for each variable that the card requests, that is set here, and that is not passed."""
    passed = {variable.partition(b"=")[0] for variable in session.actor.settings.environment}
    names = [
        variable
        for variable in card.environment
        if variable.encode() in context.environ and variable.encode() not in passed
    ]
    return [f"{card.agent} asks for the variable {name}: --env {name} passes it" for name in names]


def _branch(
    session: Session, card: AgentCard, run: AgentResult, args: argparse.Namespace, context: Context, *, told: bool
) -> dict[str, Any]:
    """Bring the commits as a branch, if the user has asked for it; otherwise, if the card wants a branch, return the
    command that brings them. ``told``: mudroom was told to end."""
    fork = run.result.fork
    name = args.branch if isinstance(args.branch, str) else card.branch if isinstance(card.branch, str) else None
    later = f"mudroom apply {fork} --commits" + (f" --branch {name}" if name else "")
    if args.branch is None or told:
        return {"later": later} if card.branch or args.branch is not None else {}
    try:
        with exclusive(session, context, f"mudroom agent run {card.agent}"):
            commits = part("commits", "session", "mudroom agent run --branch")
            result = commits.bring_commits(session, fork, branch=name)
    except MudroomError as error:
        return {"branch": None, "error": str(error), "later": later}
    return {"branch": result.branch, "head": result.head, "commits": len(result.commits)}


def _as_json(card: AgentCard, run: AgentResult, branch: dict[str, Any], code: int) -> dict[str, Any]:
    artifacts = run.artifacts
    result = run.result._replace(exit_code=code, notes=(*run.notes, *run.result.notes))
    agent = {
        "id": card.agent,
        "card": card.digest,
        "artifacts": {
            "place": os.fsdecode(artifacts.place) or None,
            "streams": list(artifacts.streams),
            "files": [text(path) for path in artifacts.files],
            "bytes": artifacts.size,
            "left": [{"path": text(path), "reason": why} for path, why in artifacts.left],
        },
        "branch": branch or None,
    }
    return to_json(result) | {"agent": agent}


def _print_result(
    card: AgentCard,
    run: AgentResult,
    branch: dict[str, Any],
    argv: list[bytes],
    notes: PreviewNotes | None,
    context: Context,
) -> None:
    print_line, note, fork = context.terminal.say, context.terminal.note, run.result.fork
    for note_text in run.notes:
        note(note_text)
    show_result(run.result, argv, context, notes)
    artifacts = run.artifacts
    if artifacts.files or artifacts.streams:
        files = "1 file" if len(artifacts.files) == 1 else f"{len(artifacts.files):,} files"
        print_line(f"artefacts: {files} in {show_path(artifacts.place)}")
    for path, why in artifacts.left[:_MOST_SHOWN]:
        note(f"no artefact: {show_path(path)} {why}")
    if len(artifacts.left) > _MOST_SHOWN:
        note(f"no artefact: {len(artifacts.left) - _MOST_SHOWN:,} more")
    if branch.get("branch"):
        short = branch["branch"].removeprefix("refs/heads/")
        commits_of_branch = "1 commit" if branch["commits"] == 1 else f"{branch['commits']:,} commits"
        print_line(f"{short}: {commits_of_branch}   look: git log {short}")
    elif "error" in branch:
        note(f"no branch: {branch['error']}")
    elif "later" in branch:
        print_line(f"its commits as a branch: {branch['later']}")
    if run.result.changeset.changes:
        print_line(f"kept as {fork}: mudroom diff {fork}, mudroom apply {fork}, mudroom discard {fork}")
    else:
        print_line(f"its fork is {fork}, where the next run of {card.agent} goes on")
