"""``mudroom send``: hand a fork's remarks to its agent, in the same fork and conversation."""

from __future__ import annotations

import json
import os

from mudroom.cli.main import VERBS, verb_module, verb_parser
from mudroom.cli.parser import parse
from mudroom.cli.project_session import only_fork, open_session
from mudroom.cli.terminal.context import Context
from mudroom.cli.terminal.terminal import Terminal
from mudroom.core.registry import part
from mudroom.core.text.plural import counted
from mudroom.core.tree.quote import show_words
from mudroom.errors import CommandNotStarted, Unsupported, UsageError
from mudroom.ext.remarks.core.prompt import FETCHED
from mudroom.ext.remarks.session import Handing, Remarks, prompt_id
from mudroom.policy.config import user_config
from mudroom.session import Session
from mudroom.typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

EXAMPLES = """\
examples:
  mudroom send agent-1                    to its agent, without a terminal: as claude --continue -p would
  mudroom send agent-1 --interactive      the agent's own screen, with its conversation and the remarks
  mudroom send agent-1 --print            print the prompt; nothing is sent
  mudroom send agent-1 --wait             leave them for the tool remarks of mudroom mcp
  mudroom send agent-1 -- my-agent -p     to this command of an agent; the prompt is its last word
  mudroom send agent-1 --file REVIEW.md   write them to a new file of the fork

A remark is sent once. Before that the fork gets the checkpoint round-N, and mudroom diff agent-1@round-N agent-1 shows
what the agent has changed since. The exit code is the agent's."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("fork", nargs="?", metavar="FORK", help="the fork; may be left out if there is only one")
    parser.add_argument("--print", action="store_true", help="print the prompt, and send nothing")
    parser.add_argument("--interactive", action="store_true", help="start the agent on this terminal")
    parser.add_argument("--wait", action="store_true", help="leave them until the agent looks: mudroom mcp")
    parser.add_argument("--file", metavar="PATH", help="write them to a new file of the fork")
    parser.add_argument("--again", action="store_true", help="those of a sending that was cut off, too")
    parser.add_argument("--checked", metavar="ID", help="only if this is the prompt's id in --print --json")
    parser.add_argument("--agent", metavar="NAME", help="whose conversation goes on, if the fork has several")


def execute(args: argparse.Namespace, context: Context) -> int:
    ways = [f"--{way}" for way in ("print", "interactive", "wait", "file") if getattr(args, way)]
    ways += ["a command"] if args.command else []
    if len(ways) > 1:
        raise UsageError(f"{ways[0]} and {ways[1]} are two ways", "one at a time")
    if args.interactive and context.as_json:
        raise UsageError("--json is not for --interactive", "mudroom send FORK --json")
    if args.command == []:
        raise UsageError("no command was given", "mudroom send FORK -- AGENT WORDS")
    with open_session(context, needs_policy=False) as session:
        remarks = Remarks(session, only_fork(session, args.fork))
        if args.print:
            prompt = remarks.prompt(again=args.again)
            told = {"schema": "mudroom.prompt/1", "fork": remarks.fork, "id": prompt_id(prompt), "prompt": prompt}
            context.terminal.out(json.dumps(told) if context.as_json else prompt.removesuffix("\n"))
            return 0
        if args.wait:
            with remarks.handing("waiting", again=args.again, most=FETCHED, expected=args.checked) as handing:
                handing.settle("waiting")
            return _tell(remarks, handing, context, "they wait for the agent's look")
        _require_rest(session, remarks.fork)
        remarks.prompt(again=args.again)  # no agent is looked for if there is nothing to send
        if args.file:
            return _to_file(args, session, remarks, context)
        words = args.command or agent_words(
            session, remarks.fork, context.environ, args.agent or "", is_interactive=args.interactive
        )
        with remarks.handing("sending", again=args.again, expected=args.checked) as handing:
            return _to_agent(words, remarks, handing, context)


def _require_rest(session: Session, fork: str) -> None:
    if not session.forks.is_at_rest(fork):
        raise UsageError(
            f"a command is running in {fork}",
            f"mudroom send {fork} --wait leaves them for the agent's look; or wait for the end",
        )


def _to_file(args: argparse.Namespace, session: Session, remarks: Remarks, context: Context) -> int:
    files = session.forks.files(remarks.fork)
    with remarks.handing("sending", again=args.again, expected=args.checked) as handing:
        try:
            with files.create(args.file, exclusive=True) as draft:
                draft.write(handing.prompt.encode())
        except OSError as error:
            handing.settle(None)
            raise UsageError(f"{args.file}: {(error.strerror or str(error)).lower()}", "name a new file") from None
        session.forks.flush(remarks.fork)
        handing.settle("sent")
    return _tell(remarks, handing, context, f"they are in {args.file} of the fork, which is one of its changes now")


def agent_words(
    session: Session, fork: str, environ: Mapping[bytes, bytes], agent: str = "", *, is_interactive: bool = False
) -> list[str]:
    """Return the words before the prompt, by the profile of the fork's agent. Raise UsageError if there is none."""
    catalog = part("agents", "catalog", "mudroom send").Catalog(user_config(environ))
    own = session.vault.fork(fork)
    there = catalog.of_homes(own.path)
    last = [one for one in there if one.name == own.agent]
    profiles = [catalog.profile(agent)] if agent else last or there
    able = [one for one in profiles if (one.resumed if is_interactive else one.sent)]
    if len(able) == 1:
        profile = able[0]
        return [profile.programs[0], *(profile.resumed if is_interactive else profile.sent)]
    if able:
        known = ", ".join(one.name for one in able)
        raise UsageError(f"{fork} has conversations with {known}", f"mudroom send {fork} --agent {able[0].name}")
    who = f"{profiles[0].name}'s profile has no words to go on" if profiles else f"{fork} has no conversation to go on"
    raise UsageError(f"{who} with", f"mudroom send {fork} -- AGENT WORDS starts one with the prompt, --print prints it")


class _Silent(Terminal):
    """Prints no result: the verb that runs another one prints its own."""

    def out(self, text: str) -> None:
        del text


def _to_agent(words: list[str], remarks: Remarks, handing: Handing, context: Context) -> int:
    terminal, fork = context.terminal, remarks.fork
    if not context.as_json:
        count = counted(len(handing.remarks), "remark")
        terminal.say(f"round {handing.round}: {count} to {show_words([os.fsencode(word) for word in words])}")
    agent = verb_module("agent")
    args: Any = parse(verb_parser("agent"), ["run", "--fork", fork], in_order=VERBS["agent"].in_order)
    args.command, args.result = [*words, handing.prompt], None
    quiet = context._replace(terminal=_Silent(context.environ)) if context.as_json else context
    try:
        code = int(agent.execute(args, quiet))
    except (CommandNotStarted, Unsupported, UsageError):  # raised before the agent is started
        handing.settle(None)
        raise
    result = args.result
    if result is None or not result.ran:
        handing.settle(None)
    elif code == 0:
        handing.settle("sent")
    else:
        handing.settle("unknown")
    if context.as_json:
        output = result.stdout.decode("utf-8", "replace") if result is not None else ""
        return _tell(remarks, handing, context, "", code=code, output=output)
    if result is None or not result.ran:
        return code
    if code:
        terminal.note(
            f"{words[0]} ended with {code}; it has read the remarks or not: mudroom send {fork} --again repeats them"
        )
    elif handing.point:
        terminal.say(f"what is new: mudroom diff {fork}@{handing.point} {fork}; the remarks: mudroom comment {fork}")
    return code


def _tell(remarks: Remarks, handing: Handing, context: Context, words: str, *, code: int = 0, output: str = "") -> int:
    if context.as_json:
        names = [one.name for one in handing.remarks]
        told = {"schema": "mudroom.sent/1", "fork": remarks.fork, "round": handing.round, "remarks": names}
        told |= {"checkpoint": handing.point or None, "exit_code": code, "output": output}
        context.terminal.out(json.dumps(told))
    else:
        count = counted(len(handing.remarks), "remark")
        context.terminal.say(f"round {handing.round}, {count}: {words}")
    return code
