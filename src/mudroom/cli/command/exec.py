"""``mudroom exec``: an agent's command in a fork. Nothing is applied."""

from __future__ import annotations

import argparse
import functools
import os
from typing import TYPE_CHECKING

from mudroom.cli.command.run import (
    adjusted,
    asked_level,
    configure_confinement,
    foreground,
    print_json,
    show_result,
    standard,
    warn,
)
from mudroom.cli.project_session import open_session, telling_of_room, working_directory
from mudroom.cli.terminal.approver import ASKS, Ask, ask_about_hosts_by
from mudroom.cli.terminal.context import Context
from mudroom.core.result import Result
from mudroom.core.tree.path import is_below, show
from mudroom.errors import UsageError
from mudroom.policy.config import load_card
from mudroom.session import Background, Client, Session

if TYPE_CHECKING:
    from mudroom.core.agent.card import AgentCard

EXAMPLES = """\
examples:
  mudroom exec --fork try-1 -- npm test          in that fork, which is made if there is none
  mudroom exec --fork try-1 --json -- npm test   one JSON object: exit code, output, changes
  mudroom exec --fork try-1 --background -- npm run dev   returns at once; others run beside it: mudroom ps
  mudroom exec --fork try-1 --json --stream -- npm test   its output as it comes, an object a line; the result last
  mudroom exec --agent coder -- rm -rf build     by name, for rules about it; judged by the policy as all of these are
  mudroom exec --card agent.json -- claude       an agent, at the level and with the credentials of its card
  mudroom diff try-1, mudroom apply try-1        look at it, bring it into the project"""


DEFAULT_AGENT = "agent"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--fork", metavar="NAME", help="the fork; made if there is none. Default: a new one")
    parser.add_argument("--card", metavar="FILE", help="the agent's card (JSON): the policy decides what it gets")
    parser.add_argument("--agent", metavar="NAME", help="whose command it is, for the rules of the policy")
    configure_asking(parser)
    parser.add_argument(
        "--background",
        action="store_true",
        help="let it go on, and return at once with its id; until it ends, other commands of this fork run beside it",
    )
    parser.add_argument("--stream", action="store_true", help="with --json: print what it prints as it comes")
    configure_confinement(parser)
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the command and its arguments")


def configure_asking(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--ask",
        choices=ASKS,
        help="who is asked if the policy wants the command approved. terminal: whoever sits there (default, if there "
        "is one); queue: wait for mudroom approve; later: refuse, and hold for the next time what mudroom approve "
        "says (default); never: refuse",
    )


def execute(args: argparse.Namespace, context: Context) -> int:
    agent = args.agent or DEFAULT_AGENT
    if args.stream and (args.background or not context.as_json):
        raise UsageError("--stream is for --json, and not for the background", "mudroom ps --output ID")
    if not args.background:
        return run_command(args, context, agent, args.ask, stream=args.stream)
    from mudroom.cli.command.background import Keeper, start

    argv = _command(args)
    keeper = Keeper(
        lambda client: _opened(args, context, client, agent, args.ask),
        lambda session: _background(session, argv, args, context),
        lambda result: _told(result, argv, context),
    )
    return start(keeper, context)


def _background(session: Session, argv: list[bytes], args: argparse.Namespace, context: Context) -> Background:
    ask_about_hosts_by(args.ask, context, session, stays=False)
    return session.start(argv, fork=args.fork, cwd=_directory(session))


def _command(args: argparse.Namespace) -> list[bytes]:
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        raise UsageError("no command was given", "mudroom exec --fork NAME -- COMMAND")
    return [os.fsencode(word) for word in command]


def run_command(
    args: argparse.Namespace, context: Context, agent: str | None, ask: Ask | None = None, *, stream: bool = False
) -> int:
    """``agent``: whose command it is, unless a card says so; None: the user's own, which nobody judges. ``stream``:
    what it prints is printed as it comes."""
    argv = _command(args)
    client = Client()
    client.start()  # it starts while we read settings and look at the project
    try:
        with _opened(args, context, client, agent, ask) as session:
            warn(session, context)
            stdio = standard(context)
            if stream:
                stdio = stdio._replace(on_output=lambda name, data: _stream(name, data, context))
            with foreground(session), telling_of_room(session, args.fork):
                result = session.run(argv, fork=args.fork, cwd=_directory(session), stdio=stdio)
    finally:
        client.close()
    return _told(result, argv, context)


def _opened(
    args: argparse.Namespace, context: Context, client: Client | None, agent: str | None, ask: Ask | None
) -> Session:
    if args.card:
        return _by_card(load_card(os.fsencode(args.card)), args, context, client, agent, ask)
    adjust = functools.partial(adjusted, args)
    return open_session(context, client=client, adjust=adjust, level=asked_level(args), agent=agent, ask=ask)


def _by_card(
    card: AgentCard,
    args: argparse.Namespace,
    context: Context,
    client: Client | None,
    agent: str | None,
    ask: Ask | None,
) -> Session:
    """What the card says of the network holds as far as the policy takes it at its word (``network.cards``); about
    other hosts is asked as they come."""
    from mudroom.cli.net.card_hosts import at_its_word, by_card

    return open_session(
        context,
        client=client,
        adjust=lambda settings: by_card(card, adjusted(args, settings), args.net),
        level=asked_level(args),
        card=card,
        agent=card.agent if agent in (None, DEFAULT_AGENT) else agent,
        ask=ask,
        also=at_its_word(card, context),
    )


def _directory(session: Session) -> bytes:
    here = os.path.realpath(working_directory())
    return here if is_below(here, session.project) else session.project


def _stream(stream: str, data: bytes, context: Context) -> None:
    """One line for each piece: text if it is UTF-8, with the bytes beside it else. A letter may be cut in two."""
    import base64
    import json

    row = {"schema": "mudroom.output/1", "stream": stream, "data": data.decode("utf-8", "replace")}
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        row["data_base64"] = base64.b64encode(data).decode()
    context.terminal.out(json.dumps(row))


def _told(result: Result, argv: list[bytes], context: Context) -> int:
    code = 124 if result.timed_out else result.exit_code
    if context.as_json:
        print_json(result._replace(exit_code=code), None, context)
    elif not result.ran:
        tell_refused(result, context)
    else:
        show_result(result, argv, context)
    return code


def tell_refused(result: Result, context: Context) -> None:
    verdict = result.verdict
    context.terminal.error(
        f"{show(b' '.join(result.command))}: refused: {verdict.reason} ({verdict.rule})", verdict.instead
    )
