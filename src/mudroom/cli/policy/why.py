"""``mudroom policy why -- CMD``: the verdict about an agent's command at the level it would have.

The command is not run. The verdict assumes that the sandbox can be made as planned. A command whose sandbox loses
protections is judged again before it runs.
"""

from __future__ import annotations

import json
import os

from mudroom.cli.project_session import open_session, project_of, settings_of, working_directory
from mudroom.cli.terminal.context import Context
from mudroom.core.command.policy import CommandPolicy, decide, has_rule
from mudroom.core.command.program.aim import at_level
from mudroom.core.command.program.classification import classify_line, classify_words
from mudroom.core.command.verdict import Classification, Verdict
from mudroom.core.result import text
from mudroom.core.tree.quote import show_words
from mudroom.errors import UsageError
from mudroom.session.order import Order
from mudroom.stage import disk
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


def judge(args: argparse.Namespace, context: Context) -> int:
    if not args.command:
        raise UsageError("no command was given", "mudroom policy why -- COMMAND")
    project = project_of(context)
    directory = disk.real_path(working_directory())
    argv = [os.fsencode(word) for word in args.command]
    is_line = len(argv) == 1 and b" " in argv[0].strip()
    classification = classify_line(argv[0], project, directory) if is_line else classify_words(argv, project, directory)
    commands = settings_of(context, project).commands
    classification, level = _at_level(classification, commands, argv, args, context)
    verdict = decide(classification, commands, args.agent)
    if context.as_json:
        context.terminal.out(json.dumps(_as_json(argv, classification, verdict, args.agent, level)))
    else:
        context.terminal.out("\n".join(_as_text(classification, verdict)))
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
    for part in classification.parts:
        words = show_words(part.words) + ("" if part.complete else " …" if part.words else "…")
        lines.append(f"  {', '.join(part.classes):<24} {words}: {part.reason}")
    return lines
