"""``mudroom exec``: an agent's command in a fork. Nothing is applied."""

from __future__ import annotations

import argparse
import os

from mudroom.cli.main import Context
from mudroom.cli.open import open_session, working_directory
from mudroom.cli.run import adjusted, configure_confinement, foreground, print_json, show_result, standard, warn
from mudroom.cli.whom import ASKS, Ask
from mudroom.config import load_card
from mudroom.core.path import is_below, show
from mudroom.core.result import Result
from mudroom.errors import UsageError
from mudroom.session import Client

EXAMPLES = """\
examples:
  mudroom exec --fork try-1 -- npm test          in that fork, which is made if there is none
  mudroom exec --fork try-1 --json -- npm test   one JSON object: exit code, output, changes
  mudroom exec --agent coder -- rm -rf build     by name, for rules about it; judged by the policy as all of these are
  mudroom exec --card agent.json -- claude       an agent, at the level and with the credentials of its card
  mudroom diff try-1, mudroom apply try-1        look at it, bring it into the project"""


DEFAULT_AGENT = "agent"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--fork", metavar="NAME", help="the fork; made if there is none. Default: a new one")
    parser.add_argument("--card", metavar="FILE", help="the agent's card (JSON): the policy decides what it gets")
    parser.add_argument("--agent", metavar="NAME", help="whose command it is, for the rules of the policy")
    configure_asking(parser)
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
    return run_command(args, context, args.agent or DEFAULT_AGENT, args.ask)


def run_command(args: argparse.Namespace, context: Context, agent: str | None, ask: Ask | None = None) -> int:
    """``agent``: whose command it is, unless a card says so; None: the user's own, which nobody judges."""
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        raise UsageError("no command was given", "mudroom exec --fork NAME -- COMMAND")
    client = Client()
    client.start()  # it starts while we read settings and look at the project
    argv = [os.fsencode(word) for word in command]
    try:
        card = load_card(os.fsencode(args.card)) if args.card else None
        with open_session(
            context,
            client=client,
            adjust=lambda settings: adjusted(args, settings),
            level=args.level,
            card=card,
            agent=card.agent if card is not None and agent in (None, DEFAULT_AGENT) else agent,
            ask=ask,
        ) as session:
            here = os.path.realpath(working_directory())
            cwd = here if is_below(here, session.project) else session.project
            warn(session, context)
            with foreground(session):
                result = session.run(argv, fork=args.fork, cwd=cwd, stdio=standard(context))
    finally:
        client.close()
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
