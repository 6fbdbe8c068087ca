"""``mudroom exec``: an agent's command in a fork. Nothing is applied."""

from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Sequence
from contextlib import closing

from mudroom.cli.command.run import (
    OpenedProgram,
    add_confinement_options,
    add_on_option,
    adjusted,
    asked_level,
    command_directory,
    notes_of,
    open_for_program,
    own_stdio,
    print_json,
    require_shown,
    run_there,
    show_result,
    tool_log,
    warn_if_bare,
)
from mudroom.cli.parser import Rare
from mudroom.cli.project_session import full_disk_hint, no_leftover, open_session, project_of
from mudroom.cli.terminal.approver import ASKS, Ask, set_host_approver
from mudroom.cli.terminal.command_signals import command_signals
from mudroom.cli.terminal.context import Context
from mudroom.cli.terminal.terminal import TITLE, cut
from mudroom.core.tree.quote import show_words
from mudroom.errors import CommandNotStarted, UsageError
from mudroom.sandbox.platform import new_client
from mudroom.session.forks import SESSION_ENDED
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mudroom.cli.change.preview import PreviewNotes
    from mudroom.core.result import Result
    from mudroom.session import Background, Client, Session
    from mudroom.session.order import Stdio

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
    parser.add_argument("--card", metavar="FILE", help=Rare("the agent's card (JSON): the policy decides what it gets"))
    parser.add_argument("--agent", metavar="NAME", help="whose command it is, for the rules of the policy")
    add_ask_option(parser)
    parser.add_argument(
        "--background",
        action="store_true",
        help="let it go on, and return at once with its id; until it ends, other commands of this fork run beside it",
    )
    parser.add_argument(
        "--companion", type=int, default=0, metavar="PID", help=Rare("with --background: until this process has ended")
    )
    add_on_option(parser)
    parser.add_argument("--stream", action="store_true", help=Rare("with --json: print output as it arrives"))
    parser.add_argument("--quiet", action="store_true", help=Rare("print nothing about a command that has run"))
    add_confinement_options(parser)
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the command and its arguments")


def add_ask_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--ask",
        choices=ASKS,
        help=Rare(
            "who is asked if the policy wants the command approved. terminal: whoever sits there (default, if there "
            "is one); queue: wait for mudroom approve; later: refuse, and hold for the next time what mudroom approve "
            "says (default); never: refuse"
        ),
    )


def execute(args: argparse.Namespace, context: Context) -> int:
    agent = args.agent or DEFAULT_AGENT
    if args.stream and (args.background or not context.as_json):
        raise UsageError("--stream is for --json, and not for the background", "mudroom ps --output ID")
    if args.on is not None:
        return _run_elsewhere(args, context, agent)
    if not args.background:
        return run_command(args, context, agent, args.ask, stream=args.stream, quiet=args.quiet)
    from mudroom.cli.command.background import Keeper, start

    argv = _command(args)
    keeper = Keeper(
        lambda client: open_for_command(argv, args, context, client, agent, args.ask),
        lambda opened: [_background(opened.session, opened.argv, args, context)],
        lambda result: _print_outcome(result, argv, context, result.exit_code),
    )
    return start(keeper, context)


def _run_elsewhere(args: argparse.Namespace, context: Context, agent: str) -> int:
    if args.background or args.stream or args.fork is not None:
        raise UsageError("--on is not for --background, --stream and --fork", "mudroom exec --on NAME -- COMMAND")
    argv = _command(args)
    opened = open_for_command(argv, args, context, None, agent, args.ask)
    with opened.session as session:
        there = run_there(session, args.on, opened.argv, command_directory(session), context)
    if args.quiet and there.result.ran and not context.as_json:
        return there.code
    code = _print_outcome(there.result, argv, context, there.code)
    _print_fork(there.result.fork, context)
    return code


def _print_fork(fork: str, context: Context) -> None:
    """Print the name of a fork that the command line did not name."""
    if fork and not context.as_json:
        context.terminal.say(f"kept as {fork}: mudroom diff {fork}, mudroom apply {fork}, mudroom discard {fork}")


def _background(session: Session, argv: list[bytes], args: argparse.Namespace, context: Context) -> Background:
    set_host_approver(args.ask, context, session, stays=False)
    return session.start(argv, fork=args.fork, cwd=command_directory(session), companion=args.companion)


def _command(args: argparse.Namespace) -> list[bytes]:
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        raise UsageError("no command was given", "mudroom exec --fork NAME -- COMMAND")
    return [os.fsencode(word) for word in command]


def _run(session: Session, argv: list[bytes], fork: str | None, stdio: Stdio) -> Result:
    """Run the command. If it does not exist and its first word is a fork, the error's hint gives the right line."""
    try:
        return session.run(argv, fork=fork, cwd=command_directory(session), stdio=stdio)
    except CommandNotStarted as error:
        words = argv[2:] if argv[1:2] == [b"--"] else argv[1:]
        if fork is None and words and os.fsdecode(argv[0]) in {known.name for known in session.vault.forks()}:
            error.hint = f"in that fork: mudroom exec --fork {os.fsdecode(argv[0])} -- {show_words(words)}"
        raise


def run_command(
    args: argparse.Namespace,
    context: Context,
    agent: str | None,
    ask: Ask | None = None,
    *,
    stream: bool = False,
    quiet: bool = False,
) -> int:
    """Run a command in a fork. ``agent`` is the agent that runs it unless a card names another; None is the user, whose
    commands are not judged. ``stream`` prints output as it arrives. ``quiet`` prints no summary if the command ran."""
    argv = _command(args)
    client = context.client or new_client(context.environ)
    client.start()  # it starts while settings and project are read
    with closing(client):
        opened = open_for_command(argv, args, context, client, agent, ask)
        with opened.session as session:
            require_shown(session, args.show)
            warn_if_bare(session, context)
            stdio = own_stdio(context)
            if stream:
                stdio = stdio._replace(on_output=lambda name, data: _print_piece(name, data, context))
            with (
                command_signals(session) as signals,
                full_disk_hint(session, args.fork),
                no_leftover(session, args.fork),
            ):
                result = _run(session, opened.argv, args.fork, stdio)
            notes = None if context.as_json or quiet else notes_of(session, result)
            log = "" if context.as_json or quiet else tool_log(session, result)
            if args.fork is None and result.fork and not result.changeset.changes:
                session.forks.discard_unchanged(result.fork)
    if quiet and result.ran and not context.as_json:
        if (ended := SESSION_ENDED.format(result.fork)) in result.notes:
            context.terminal.note(ended)
        return signals.exit_code(result)
    code = _print_outcome(result, argv, context, signals.exit_code(result), notes, log)
    if args.fork is None and result.changeset.changes:
        _print_fork(result.fork, context)
    return code


def open_for_command(
    argv: Sequence[bytes],
    args: argparse.Namespace,
    context: Context,
    client: Client | None,
    agent: str | None,
    ask: Ask | None,
) -> OpenedProgram:
    """Open a session for a command line, by ``--card``, ``--agent`` and the options for confinement."""
    if args.card:
        return OpenedProgram(_by_card(args, context, client, agent, ask), list(argv))
    adjust = functools.partial(adjusted, args)
    return open_for_program(argv, args, context, client=client, adjust=adjust, ask=ask, agent=agent)


def _by_card(
    args: argparse.Namespace, context: Context, client: Client | None, agent: str | None, ask: Ask | None
) -> Session:
    """Open a session for an agent's card. The card's hosts are allowed as far as the policy trusts the card
    (``network.cards``). Others are asked about when a command tries to reach them."""
    from mudroom.core.known_agents import agent_cards

    cards = agent_cards("--card")
    card = cards.load_card(os.fsencode(args.card))
    return open_session(
        context,
        client=client,
        adjust=lambda settings: cards.with_card_network(card, adjusted(args, settings), args.net),
        level=asked_level(args),
        card=card,
        agent=card.agent if agent in (None, DEFAULT_AGENT) else agent,
        ask=ask,
        also=cards.trusted_hosts(card, project_of(context), context.environ),
    )


def _print_piece(stream: str, data: bytes, context: Context) -> None:
    """Print a JSON line for a piece of output: its text, and its bytes too if they are not valid UTF-8. A character may
    be split between pieces."""
    import base64

    row = {"schema": "mudroom.output/1", "stream": stream, "data": data.decode("utf-8", "replace")}
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        row["data_base64"] = base64.b64encode(data).decode()
    context.terminal.json(row)


def _print_outcome(
    result: Result,
    argv: list[bytes],
    context: Context,
    code: int,
    notes: PreviewNotes | None = None,
    log: str = "",
) -> int:
    if context.as_json:
        print_json(result._replace(exit_code=code), None, context)
    elif not result.ran:
        print_refused(result, context)
    else:
        show_result(result, argv, context, notes, log)
    return code


def print_refused(result: Result, context: Context) -> None:
    verdict = result.verdict
    line = cut(show_words(result.command), TITLE)
    context.terminal.error(f"refused: {verdict.reason} ({verdict.rule}): {line}", verdict.instead)
