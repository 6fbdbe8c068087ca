"""``mudroom acp``: between an editor and an agent that speak the Agent Client Protocol (docs/ACP.md).

stdin and stdout are the editor's; mudroom's own messages go to stderr, which editors keep as a log.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager

from mudroom.cli.command.run import add_confinement_options, adjusted, asked_level, warn_if_bare
from mudroom.cli.project_session import open_session, print_remarks, working_directory
from mudroom.cli.terminal.approver import Ask, remember_command
from mudroom.cli.terminal.context import Context
from mudroom.cli.terminal.protocol_streams import take_streams
from mudroom.cli.terminal.signals import handling, numbers_of, wake_for_signals
from mudroom.core.tree.path import is_below
from mudroom.errors import UsageError
from mudroom.ext.agents.acp.serve import AgentStart, Asking, ServeEnd, serve
from mudroom.ext.agents.cli.agent_profile import chosen_profile, missing_program, search_of
from mudroom.ext.agents.cli.agent_run import (
    closed_place_notes,
    open_requested,
    request_by_profile,
)
from mudroom.ext.agents.session.host_program import find_program
from mudroom.sandbox.platform import new_client
from mudroom.session import Session
from mudroom.session.upkeep import QueueApprover
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from mudroom.session import Client

EXAMPLES = """\
examples:
  mudroom acp -- gemini --acp                 for an editor: the agent, its file calls and terminals in a fork
  mudroom acp --fork try-1 -- opencode acp    in a fork of this name
  mudroom acp --outside -- my-agent           the agent's process on the host; only its calls go to the fork
  mudroom diff gemini, mudroom apply gemini   look at its changes, bring them into the project

An editor starts it. Zed, settings.json:
  "agent_servers": {"gemini staged": {"type": "custom", "command": "mudroom",
                                      "args": ["acp", "--", "gemini", "--acp"]}}

Exit codes: 0 the editor has ended; otherwise the agent's own, 126 if the policy refuses it."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--fork", metavar="NAME", help="where it works; made if there is none. Default: its own")
    parser.add_argument(
        "--outside",
        action="store_true",
        help="leave the agent's process on the host, unconfined: only its file calls and terminals are staged",
    )
    parser.add_argument(
        "--ask",
        choices=("editor", "queue", "later", "never"),
        help="who is asked if the policy wants a terminal's command or a host approved. editor: a permission request "
        "there (default); queue: wait for mudroom approve; later: refuse, and hold for the next time what mudroom "
        "approve says; never: refuse",
    )
    add_confinement_options(parser)


def execute(args: argparse.Namespace, context: Context) -> int:
    if not args.command:
        raise UsageError("no agent was named", "mudroom acp -- gemini --acp")
    if context.as_json:
        raise UsageError("--json is not for acp: its standard output belongs to the editor", "leave it out")
    client = new_client(context.environ)
    client.start()  # it starts while the profile and the settings are read
    with closing(client):
        return _serve_outside(args, context, client) if args.outside else _serve_inside(args, context, client)


def _serve_inside(args: argparse.Namespace, context: Context, client: Client) -> int:
    adjust, level, ask = functools.partial(adjusted, args), asked_level(args), _ask_of_queue(args)
    request = request_by_profile(args.command, context, adjust, level)
    with open_requested(request, context, client=client, adjust=adjust, level=level, ask=ask) as session:
        warn_if_bare(session, context)
        for line in (*request.hosts.notes, *closed_place_notes(session, request, context)):
            context.terminal.note(line)
        start = (request.argv, _directory(session), session.actor, context.environ, args.fork)
        agent = AgentStart(request.card.agent, *start)
        code = _serve(session, agent, args)
    print_remarks(session, context)  # from its sandbox, which has ended with the session
    return code


def _serve_outside(args: argparse.Namespace, context: Context, client: Client) -> int:
    profile, word = chosen_profile(args.command[0], context), os.fsencode(args.command[0])
    if find_program(word, search_of(context.environ), working_directory()) is None:
        raise missing_program(args.command[0], profile)
    name = profile.name
    with open_session(
        context,
        client=client,
        adjust=lambda policy: adjusted(args, policy),
        level=asked_level(args),
        agent=name,
        ask=_ask_of_queue(args),
    ) as session:
        context.terminal.note(f"{name} runs on this host, unconfined: only its file calls and terminals are staged")
        argv = tuple(os.fsencode(word) for word in args.command)
        agent = AgentStart(name, argv, _directory(session), None, context.environ, args.fork)
        return _serve(session, agent, args)


def _serve(session: Session, agent: AgentStart, args: argparse.Namespace) -> int:
    ends = take_streams()
    end = ServeEnd()
    with _signals(end):
        code = serve(session, agent, _asking(session, args), end, ends)
    return 128 + end.signal if end.signal else code


def _directory(session: Session) -> bytes:
    current = os.path.realpath(working_directory())
    return current if is_below(current, session.project) else session.project


def _ask_of_queue(args: argparse.Namespace) -> Ask:
    """Return how the session asks before an editor is connected."""
    asks: dict[str, Ask] = {"queue": "queue", "never": "never"}
    return asks.get(args.ask, "later")


def _asking(session: Session, args: argparse.Namespace) -> Asking:
    """Set the approvers. Questions come in threads, so the queue is asked without a signal handler."""
    queue = session.vault.approvals
    patience = session.actor.settings.approval_timeout if args.ask == "queue" else 0
    by_queue = QueueApprover(queue, patience)

    def remember(rule: str, allow: bool) -> None:
        remember_command(session, rule, allow)

    if args.ask in (None, "editor"):
        return Asking(lambda approver: session.approval.ask_about(approver, remember), by_queue)
    session.approval.ask_about(None if args.ask == "never" else by_queue, remember)
    return Asking(None, by_queue)


@contextmanager
def _signals(end: ServeEnd) -> Iterator[None]:
    """Let a signal end the agent, and then mudroom. A signal that was ignored at the start stays ignored."""
    numbers = numbers_of("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")
    with handling(dict.fromkeys(numbers, lambda told, _frame: end.told(told))), wake_for_signals():
        yield
