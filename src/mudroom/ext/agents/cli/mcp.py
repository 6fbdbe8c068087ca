"""``mudroom mcp``: a fork's tools for clients of the Model Context Protocol."""

from __future__ import annotations

import functools
import os

from mudroom import __version__
from mudroom.cli.command.exec import DEFAULT_AGENT
from mudroom.cli.command.run import add_confinement_options, adjusted, asked_level
from mudroom.cli.project_session import open_session, project_of
from mudroom.cli.terminal.context import Context
from mudroom.cli.terminal.protocol_streams import take_streams
from mudroom.cli.terminal.signals import end, handling, numbers_of, wake_for_signals
from mudroom.core.confinement.environment import is_inside
from mudroom.core.settings import Settings
from mudroom.errors import UsageError
from mudroom.ext.agents.card import load_card, trusted_hosts, with_card_network
from mudroom.ext.agents.mcp import http, stdio
from mudroom.ext.agents.mcp.server import Options, Server
from mudroom.sandbox.platform import new_client
from mudroom.session import Session
from mudroom.typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse

    from mudroom.session import Client

EXAMPLES = """\
examples:
  claude mcp add mudroom -- mudroom mcp              for Claude Code; docs/MCP.md has the others
  codex mcp add mudroom -- mudroom mcp
  mudroom mcp --fork try-1                           this fork, which several servers may share
  mudroom mcp --agent coder                          judged by the policy's rules for this agent
  mudroom mcp --http 8766                            for clients on this machine; prints the address and the token
  mudroom diff claude-code, mudroom apply claude-code   look at what a client has done, bring it into the project

A client has bash, read, write, edit, multi_edit, list, glob, grep, diff, status, drop_held, checkpoint, rollback,
forks and why, on one fork. Nothing lands before you apply it."""

ASKS = ("client", "queue", "never")
PORT = 8766


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--fork", metavar="NAME", help="the fork; made if there is none. Default: one for each client")
    parser.add_argument("--card", metavar="FILE", help="the agent's card (JSON): the policy decides what it gets")
    parser.add_argument("--agent", metavar="NAME", help="whose commands they are, for the rules of the policy")
    parser.add_argument(
        "--ask",
        choices=ASKS,
        default="client",
        help="who is asked if the policy wants a command approved. client: the client's user, where the client can "
        "ask, and mudroom approve (default); queue: mudroom approve alone; never: refuse",
    )
    parser.add_argument(
        "--http",
        nargs="?",
        type=int,
        const=PORT,
        metavar="PORT",
        help=f"streamable HTTP on 127.0.0.1 instead of stdio; default port: {PORT}, 0: any free one",
    )
    add_confinement_options(parser)


def execute(args: argparse.Namespace, context: Context) -> int:
    if args.http is not None and not 0 <= args.http < 1 << 16:
        raise UsageError(f"{args.http} is not a port", "0 to 65535")
    if is_inside(context.environ):
        raise UsageError(
            "mudroom mcp runs inside mudroom, where its forks would be lost with the sandbox",
            "the client's own commands and edits are staged already: leave the server out",
        )
    if args.http is None and context.terminal.interactive:
        raise UsageError(
            "mudroom mcp speaks a protocol on its standard input, and that is a terminal",
            "claude mcp add mudroom -- mudroom mcp lets a client start it",
        )

    streams = take_streams() if args.http is None else None
    client = context.client or new_client(context.environ)
    ends = dict.fromkeys(numbers_of("SIGTERM", "SIGINT", "SIGHUP"), end)
    client.start()  # it starts while settings and project are read
    try:
        with handling(ends), wake_for_signals(), _open(args, context, client) as session:
            _check_fork(args.fork, session)
            if streams is None:
                return _http(args, context, session)
            server = Server(session, _options(args), context.terminal.note)
            stdio.serve(server, *streams)
    except SystemExit:
        pass  # a signal: the session is closed, with all commands in it
    finally:
        client.close()
    return 0


def _http(args: argparse.Namespace, context: Context, session: Session) -> int:
    server = Server(session, _options(args), context.terminal.note)
    with http.McpListener(server, args.http, os.urandom(24).hex()) as listener:
        if context.as_json:
            report = {"schema": "mudroom.mcp/1", "url": listener.url, "token": listener.token}
            context.terminal.json(report)
        else:
            context.terminal.out(listener.url)
            context.terminal.out(f"Authorization: Bearer {listener.token}")
        listener.serve()
    return 0


def _options(args: argparse.Namespace) -> Options:
    return Options(args.fork, elicits=args.ask == "client", asks=args.ask != "never", version=__version__)


def _open(args: argparse.Namespace, context: Context, client: Client) -> Session:
    ask: Any = "never" if args.ask == "never" else "later"
    options: dict[str, Any] = {"client": client, "level": asked_level(args), "ask": ask}
    agent = args.agent or DEFAULT_AGENT
    if not args.card:
        return open_session(context, adjust=functools.partial(adjusted, args), agent=agent, **options)

    card = load_card(os.fsencode(args.card))

    def adjust(settings: Settings) -> Settings:
        return with_card_network(card, adjusted(args, settings), args.net)

    also = trusted_hosts(card, project_of(context), context.environ)
    return open_session(context, adjust=adjust, card=card, agent=args.agent or card.agent, also=also, **options)


def _check_fork(name: str | None, session: Session) -> None:
    if name is not None:
        session.vault.find(name)  # a name that is not allowed raises UsageError now
