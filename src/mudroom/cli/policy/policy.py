"""``mudroom policy``: the settings in force, where each is set, and why something was or would be refused."""

from __future__ import annotations

import argparse
import importlib
import json
import os

from mudroom.cli.doctor.probe import why_call
from mudroom.cli.project_session import open_session, project_of, settings_of, working_directory
from mudroom.cli.terminal.context import Context
from mudroom.cli.terminal.fold import fold
from mudroom.core.agent.sandbox_level import LEVELS
from mudroom.core.command.policy import CommandPolicy, decide, has_rule
from mudroom.core.command.program.aim import at_level
from mudroom.core.command.program.classification import classify_line, classify_words
from mudroom.core.command.verdict import Classification, Verdict
from mudroom.core.confinement.access_reason import AccessReason
from mudroom.core.journal.event_filter import EventFilter
from mudroom.core.network.preset import EFFECTS
from mudroom.core.registry import part
from mudroom.core.result import text
from mudroom.core.tree.path import show
from mudroom.core.tree.quote import show_text, show_words
from mudroom.errors import UsageError
from mudroom.session import Session
from mudroom.session.order import Order
from mudroom.session.project_session import held_if_possible, host_answers
from mudroom.stage import disk
from mudroom.typing import Any

# --- ``mudroom policy why -- CMD``: the verdict about an agent's command at the level it would have ---
# The command is not run. The verdict assumes that the sandbox can be made as planned. A command whose sandbox loses
# protections is judged again before it runs.


def judge(args: argparse.Namespace, context: Context) -> int:
    if not args.command:
        raise UsageError("no command was given", "mudroom policy why -- COMMAND")
    project = project_of(context)
    directory = disk.real_path(working_directory())
    argv = [os.fsencode(word) for word in args.command]
    is_line = len(argv) == 1 and b" " in argv[0].strip()
    classification = classify_line(argv[0], project, directory) if is_line else classify_words(argv, project, directory)
    settings = settings_of(context, project)
    commands = settings.commands
    classification, level = _at_level(classification, commands, argv, args, context)
    verdict = decide(classification, commands, args.agent)
    own = settings.level if level is None else level
    is_held = "networked" in verdict.classes and own > 0 and settings.network_at(own) == "gate"
    rules = held_if_possible(host_answers(project, context.environ).rules()) if is_held else ()
    takers = dict.fromkeys(rule.pattern for rule in rules if rule.hold)
    holds = [host for host in takers if host not in EFFECTS or EFFECTS[host].holds]
    if context.as_json:
        context.terminal.json(_as_json(argv, classification, verdict, args.agent, level) | {"holds": holds})
    else:
        context.terminal.out("\n".join(_as_text(classification, verdict)))
        if holds:
            text = f"held: what it pushes or publishes to {', '.join(holds)} waits for the apply: mudroom net why HOST"
            context.terminal.out(fold(text, context.terminal.columns(1)))
    return 0


def _at_level(
    classification: Classification,
    commands: CommandPolicy,
    argv: list[bytes],
    args: argparse.Namespace,
    context: Context,
) -> tuple[Classification, int | None]:
    """Return the classification at the command's level, and that level if it was requested or matters, else None."""
    has_aims = any(part.aims for part in classification.parts)
    if not has_aims or has_rule(commands, "host_escape_risk", args.agent):
        return classification, args.level

    with open_session(context, level=args.level) as session:
        grant = session.machine.granted(session.actor)
        order = Order(tuple(argv), session.project, session.actor, grant)
        return at_level(classification, session.approval.protections(order))[0], grant.level


def _as_json(
    argv: list[bytes], classification: Classification, verdict: Verdict, agent: str | None, level: int | None
) -> dict[str, object]:
    return {
        "schema": "mudroom.verdict/1",
        "command": [text(word) for word in argv],
        "agent": agent,
        "level": level,
        **verdict._asdict(),
        "classes": list(verdict.classes),
        "parts": [
            {
                "words": [text(word) for word in part.words],
                "complete": part.complete,
                "classes": list(part.classes),
                "reason": part.reason,
            }
            for part in classification.parts
        ],
    }


def _as_text(classification: Classification, verdict: Verdict) -> list[str]:
    lines = [f"{verdict.action}: {verdict.reason}", f"rule: {verdict.rule}"]
    if verdict.instead:
        lines.append(f"instead: {verdict.instead}")
    for each in classification.parts:
        words = show_words(each.words) + ("" if each.complete else " …" if each.words else "…")
        lines.append(f"  {', '.join(each.classes):<24} {words}: {each.reason}")
    return lines


EXAMPLES = """\
examples:
  mudroom policy init                 a first .mudroom/policy.yaml, with all that there is to set
  mudroom policy check                read all policy files, try their examples, look for contradictions
  mudroom policy show                 the settings in force, each with its file and line
  mudroom policy why -- git push -f   the verdict about an agent's command, with its reason (--agent ID)
  mudroom policy why --level 0 -- kill 42    the same at another level: what the sandbox holds is not asked about
  mudroom policy trust                show what the project's policy loosens, and trust it here (distrust)
  mudroom policy learn                a policy file with what was answered here, to read and include
  mudroom policy learn a b --diff     the same of two forks as a patch: | git apply, and mudroom policy trust
  mudroom policy schema               the JSON Schema of the file, for editors
  mudroom policy why                  the refusals of the last command, with reasons
  mudroom policy why --fork a         the same of the last command in the fork a
  mudroom policy why ptrace           whether commands may make a system call
  mudroom policy why ~/.ssh/id_rsa    whether commands can see a path

Exit codes: why: 0 if something is refused, else 1; why -- COMMAND: 0; check: 0 if the files are valid, else 1."""

_MODULES = {
    "check": "mudroom.cli.policy.check",
    "init": "mudroom.cli.policy.first_file",
    "learn": "",
    "schema": "mudroom.cli.policy.first_file",
    "show": "mudroom.cli.policy.show",
    "trust": "mudroom.cli.policy.trust",
    "distrust": "mudroom.cli.policy.trust",
}
"""Action to the module that performs it; empty: a row of the registry."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=("why", *_MODULES), help="see the examples")
    parser.add_argument(
        "about",
        nargs="?",
        metavar="CALL|PATH|FILE|FORK",
        help="of why: a system call, or a path; default: the last command. Of check: a policy file, default: all. Of "
        "learn: a fork, default: all",
    )
    parser.add_argument("forks", nargs="*", metavar="FORK", help="of learn: more forks")
    parser.add_argument("--diff", action="store_true", help="of learn: as a patch of the project's policy")
    parser.add_argument("--fork", metavar="NAME", help="of the last command in this fork")
    parser.add_argument("--agent", metavar="ID", help="of why -- CMD: as this agent's command")
    parser.add_argument(
        "--level", type=int, choices=LEVELS, help="of why -- CMD: as if it ran at this level; default: the policy's"
    )
    parser.add_argument("--yes", "-y", action="store_true", help="of trust: without asking")


def execute(args: argparse.Namespace, context: Context) -> int:
    wrong = args.forks or ([args.about] if args.about is not None and args.what not in ("why", "check") else [])
    if args.what != "learn" and (wrong or args.diff):
        word = wrong[0] if wrong else "--diff"
        raise UsageError(f"mudroom policy {args.what} takes no {word!r}", "mudroom policy --help has examples")
    if args.what in _MODULES:
        name = _MODULES[args.what]
        what = f"mudroom policy {args.what}"
        module: Any = importlib.import_module(name) if name else part("policy", args.what, what)
        code: int = module.execute(args, context)
        return code
    if args.command is not None:
        return judge(args, context)
    with open_session(context) as session:
        if args.about is None:
            return _why_last(session, args.fork, context)
        if "/" in args.about:
            answers = [session.why_path(os.fsencode(os.path.abspath(args.about)))]
        else:
            answers = why_call(args.about)
    return _print_answers(answers, context)


def _why_last(session: Session, fork: str | None, context: Context) -> int:
    forks = (fork,) if fork is not None else ()
    runs = list(session.vault.journal.events(last=1, where=EventFilter(("run",), forks)))
    recoveries = list(session.vault.journal.events(last=1, where=EventFilter(("recover",), forks)))
    is_cut_off = bool(recoveries) and json.loads(recoveries[-1].data).get("outcome") == "collected"
    if is_cut_off and (not runs or recoveries[-1].number > runs[-1].number):
        name = recoveries[-1].fork
        raise UsageError(
            f"mudroom was killed while the last command ran in {name}: its refusals are not known",
            f"its changes are collected: mudroom diff {name}",
        )
    if not runs:
        raise UsageError("no command has run" + (f" in {fork}" if fork else ""), "mudroom log shows what has happened")
    data = json.loads(runs[-1].data)
    refused = data.get("denials", [])
    if context.as_json:
        row = {"schema": "mudroom.why/1", "command": data["command"], "fork": runs[-1].fork, "denials": refused}
        context.terminal.json(row)
        return 0 if refused else 1
    command = show_text(data["command"])
    if not refused:
        context.terminal.out(f"nothing was refused to: {command}")
        return 1
    context.terminal.out(f"refused to: {command}")
    for denial in refused:
        times = f"  ({denial['count']} times)" if denial["count"] > 1 else ""
        context.terminal.out(f"  {denial['kind']}  {show(denial['target'].encode())}{times}: {denial['reason']}")
    return 0


def _print_answers(answers: list[AccessReason], context: Context) -> int:
    if context.as_json:
        context.terminal.json({"schema": "mudroom.why/1", "rules": [answer._asdict() for answer in answers]})
    for answer in answers if not context.as_json else ():
        context.terminal.out(f"{answer.subject}: {answer.verdict}: {answer.reason}")
    return 0 if any(answer.refused for answer in answers) else 1
