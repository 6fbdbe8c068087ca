"""``mudroom policy why -- CMD``: the verdict about an agent's command. The command is not run."""

from __future__ import annotations

import json
import os

from mudroom.cli.project_session import project_of, settings_of, working_directory
from mudroom.cli.terminal.context import Context
from mudroom.core.command.policy import decide
from mudroom.core.command.program.classification import classify_line, classify_words
from mudroom.core.command.verdict import Classification, Verdict
from mudroom.core.result import text
from mudroom.core.tree.path import show
from mudroom.errors import UsageError
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


def judge(args: argparse.Namespace, context: Context) -> int:
    if not args.command:
        raise UsageError("no command was given", "mudroom policy why -- COMMAND")
    project = project_of(context)
    directory = os.path.realpath(working_directory())
    argv = [os.fsencode(word) for word in args.command]
    is_line = len(argv) == 1 and b" " in argv[0].strip()
    classification = classify_line(argv[0], project, directory) if is_line else classify_words(argv, project, directory)
    verdict = decide(classification, settings_of(context, project).commands, args.agent)
    if context.as_json:
        context.terminal.out(json.dumps(_as_json(argv, classification, verdict, args.agent)))
    else:
        context.terminal.out("\n".join(_as_text(classification, verdict)))
    return 0


def _as_json(
    argv: list[bytes], classification: Classification, verdict: Verdict, agent: str | None
) -> dict[str, object]:
    return {
        "schema": "mudroom.verdict/1",
        "command": [text(word) for word in argv],
        "agent": agent,
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
        words = show(b" ".join(part.words)) + ("" if part.complete else " …" if part.words else "…")
        lines.append(f"  {', '.join(part.classes):<24} {words}: {part.reason}")
    return lines
