"""``python -m tests.conformance.escapes``: the same attempts through mudroom and what people use instead, one table.

    python -m tests.conformance.escapes                    on the terminal
    python -m tests.conformance.escapes --only bwrap       one tool, with how it got out of it
    python -m tests.conformance.escapes --write FILE       as docs/evidence/ESCAPES.md has it; its other sections stay
    python -m tests.conformance.escapes --report WHERE     mudroom alone, as a line for that section: tiers.py

Programs are looked for on PATH and in the directories of MUDROOM_RIVALS. Run it as a user of its own: without a sandbox
an attempt reaches every process of the user.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence

from . import benchmark, tiers
from .attempt import TABLE, Attempt
from .outside import Outcome, Range
from .pairs import section
from .tools import TOOLS, Tool, missing, runner, start, version

Column = Mapping[str, Outcome]
_KEY = {"out": "**out**", "held": "·", "none": "-"}


def tried(tool: Tool) -> Column | str:
    """What came of every attempt; or why the tool cannot run here."""
    absent = missing(tool)
    if absent:
        return f"cannot run here: {', '.join(absent)} not installed"
    bare = tool.name == "none"
    names = [name for name, attempt in TABLE.items() if not bare or able(attempt)]
    with Range() as place:
        said, complaint = start(tool, place, ["sh", "-c", "echo it runs"])
        if "it runs" not in said:
            return f"cannot run here: {(complaint or said).strip()[-300:]}"
        found = place.try_all(runner(tool, place), names)
    if not any(outcome.evidence or outcome.error != "no answer" for outcome in found.values()):
        return "cannot run here: no attempt was even made"
    return found


def able(attempt: Attempt) -> bool:
    """Whether it is harmless, and possible for this user, without a sandbox."""
    return attempt.control == "anybody" or (attempt.control == "root" and os.geteuid() == 0)


def lines(columns: Mapping[str, Column | str]) -> list[str]:
    """The document."""
    ran = {name: column for name, column in columns.items() if not isinstance(column, str)}
    found = [
        "# Attempts to get out",
        "",
        "What `python -m tests.conformance.escapes` found: every attempt of `tests/conformance/escapes`, each a small",
        "program that succeeds when it gets out, through mudroom, through others as a careful user would start them,",
        "and without a sandbox. Success is judged from outside. A tool that is made to write the project in place, as",
        "all but mudroom are, cannot hold those of the group *files: first creation* that try the project: that is",
        "what it is for. Some attempts need what this kernel or an ordinary user does not have; everybody holds those.",
        "What mudroom does not hold without namespaces is in [THREATS.md](../THREATS.md). A core dump, or a call that",
        "only the kernel refuses and not the sandbox, counts as getting out here; not everybody will think so.",
        "",
        f"{datetime.date.today().isoformat()}, Linux {platform.release()} {platform.machine()}, "
        f"as {'root' if os.geteuid() == 0 else 'an ordinary user'}.",
        "",
        "| tool | version | started as | got out | of |",
        "| --- | --- | --- | --- | --- |",
    ]
    for tool in TOOLS:
        column = columns.get(tool.name)
        if isinstance(column, str):
            found.append(f"| {tool.name} | {version(tool)} | {tool.line} | {column} | |")
        elif column is not None:
            count = sum(bool(outcome.evidence) for outcome in column.values())
            found.append(f"| {tool.name} | {version(tool)} | {tool.line} | {count} | {len(column)} |")
    found += ["", f"{_KEY['out']}: it got out. {_KEY['held']} it did not. {_KEY['none']} not tried.", ""]
    found += ["| attempt | what it tries | known from | " + " | ".join(ran) + " |"]
    found += ["| --- | --- | --- |" + " --- |" * len(ran)]
    for group in dict.fromkeys(attempt.group for attempt in TABLE.values()):
        found.append(f"| **{group}** | | |" + " |" * len(ran))
        for attempt in (one for one in TABLE.values() if one.group == group):
            cells = " | ".join(cell(column.get(attempt.name)) for column in ran.values())
            found.append(f"| {attempt.name} | {attempt.tries} | {attempt.source} | {cells} |")
    return found


def cell(outcome: Outcome | None) -> str:
    return _KEY["none"] if outcome is None else _KEY["out"] if outcome.evidence else _KEY["held"]


def report_here(tier: str) -> int:
    column = tried(next(tool for tool in TOOLS if tool.name == "mudroom"))
    if isinstance(column, str):
        sys.exit(column)
    with Range() as place:
        notes = start(next(tool for tool in TOOLS if tool.name == "mudroom"), place, ["true"])[1]
    found = tiers.report(tier, column, namespaces="user namespaces are not permitted" not in notes)
    sys.stdout.write(json.dumps(found._asdict()) + "\n")
    return 0


def write_tiers(sources: Sequence[str], document: str) -> int:
    reports: list[tiers.Report] = []
    for source in sources:
        with open(source) as stream:
            reports += tiers.read(stream)
    with open(document) as stream:
        text = tiers.put(stream.read(), tiers.section(reports))
    with open(document, "w") as stream:
        stream.write(text)
    return 0


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.escapes", description="Who gets out of what.")
    parser.add_argument("--only", action="append", choices=[tool.name for tool in TOOLS], help="one tool; repeatable")
    parser.add_argument("--write", metavar="FILE", help="write the table there")
    parser.add_argument("--report", metavar="WHERE", help="mudroom alone, as one line of JSON")
    parser.add_argument("--tiers", metavar="FILE", nargs="+", help="make the section of tiers from such lines")
    parser.add_argument("--into", metavar="FILE", help="the document that it is a section of")
    args = parser.parse_args(argv)
    if args.report:
        return report_here(args.report)
    if args.tiers:
        return write_tiers(args.tiers, args.into)
    columns = {tool.name: tried(tool) for tool in TOOLS if not args.only or tool.name in args.only}
    text = "\n".join(lines(columns)) + "\n"
    if args.write:
        if os.path.exists(args.write):
            with open(args.write) as stream:
                document = stream.read()
            for part in (tiers, section):
                kept = part.of(document)
                text = part.put(text, iter(kept.splitlines())) if kept else text
            text = benchmark.put(text, benchmark.section())
        with open(args.write, "w") as stream:
            stream.write(text)
    else:
        sys.stdout.write(text)
    for name in args.only or ():
        for outcome in getattr(columns[name], "values", tuple)():
            if outcome.evidence:
                sys.stdout.write(f"{name}: {outcome.attempt.name}: {outcome.evidence[:200]}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
