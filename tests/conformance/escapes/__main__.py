"""``python -m tests.conformance.escapes``: the same attempts through mudroom and what people use instead, one table.

    python -m tests.conformance.escapes                    on the terminal
    python -m tests.conformance.escapes --only bwrap       one tool, with how it got out of it
    python -m tests.conformance.escapes --write FILE       as docs/evidence/ESCAPES.md has it; its other sections stay
    python -m tests.conformance.escapes --report WHERE     mudroom alone, as a line for that section: tiers.py

Programs are looked for on PATH and in the directories of MUDROOM_RIVALS. Run it as a user of its own: without a sandbox
an attempt reaches every process of the user.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from .. import document  # noqa: TID252 - the package has another name inside
from ..outside import Outcomes, able, got_out  # noqa: TID252
from . import benchmark, tiers
from .attempt import TABLE
from .outside import Range
from .pairs import section
from .tools import TOOLS, Tool, missing, runner, start, version


def tried(tool: Tool) -> Outcomes | str:
    """What came of every attempt; or why the tool cannot run here."""
    absent = missing(tool)
    if absent:
        return f"cannot run here: {', '.join(absent)} not installed"
    names = able(TABLE) if tool.name == "none" else list(TABLE)
    with Range() as place:
        said, complaint = start(tool, place, ["sh", "-c", "echo it runs"])
        if "it runs" not in said:
            return f"cannot run here: {(complaint or said).strip()[-300:]}"
        found = place.try_all(runner(tool, place), names)
    if not any(outcome.evidence or outcome.error != "no answer" for outcome in found.values()):
        return "cannot run here: no attempt was even made"
    return found


def lines(columns: Mapping[str, Outcomes | str]) -> Iterator[str]:
    """Yield the document."""
    yield from (
        "# Attempts to get out",
        "",
        "What `python -m tests.conformance.escapes` found: every attempt of `tests/conformance/escapes`, each a small",
        "program that succeeds when it gets out, through mudroom, through others as a careful user would start them,",
        "and without a sandbox. Success is judged from outside. A tool that is made to write the project in place, as",
        "all but mudroom are, cannot hold those of the group *files: first creation* that try the project: that is",
        "what it is for. Some attempts need what this kernel or an ordinary user does not have; everybody holds those.",
        f"What mudroom does not hold without namespaces is in {document.THREATS}. A core dump, or a call that",
        "only the kernel refuses and not the sandbox, counts as getting out here; not everybody will think so.",
        "",
        document.made(),
        "",
    )
    yield from document.head(("tool", "version", "started as", "got out", "of"))
    for tool in TOOLS:
        column = columns.get(tool.name)
        if isinstance(column, str):
            yield f"| {tool.name} | {version(tool)} | {tool.line} | {column} | |"
        elif column is not None:
            yield f"| {tool.name} | {version(tool)} | {tool.line} | {len(got_out(column))} | {len(column)} |"
    ran = {name: column for name, column in columns.items() if not isinstance(column, str)}
    yield from document.table(TABLE, ran, "it got out", bare="none")


def report_here(tier: str) -> int:
    mudroom = next(tool for tool in TOOLS if tool.name == "mudroom")
    column = tried(mudroom)
    if isinstance(column, str):
        sys.exit(column)
    with Range() as place:
        notes = start(mudroom, place, ["true"])[1]
    found = tiers.report(tier, column, namespaces="user namespaces are not permitted" not in notes)
    sys.stdout.write(json.dumps(found._asdict()) + "\n")
    return 0


def main(argv: Sequence[str]) -> int:
    parser = document.parser("escapes", "Who gets out of what.", [tool.name for tool in TOOLS])
    parser.add_argument("--report", metavar="WHERE", help="mudroom alone, as one line of JSON")
    parser.add_argument("--tiers", metavar="FILE", nargs="+", type=Path, help="make the section of tiers of such lines")
    parser.add_argument("--into", metavar="FILE", type=Path, help="the document that it is a section of")
    args = parser.parse_args(argv)
    if args.report:
        return report_here(args.report)
    if args.tiers:
        reports = [one for path in args.tiers for one in tiers.read(path.read_text().splitlines())]
        tiers.SECTION.write(args.into, tiers.section(reports))
        return 0
    columns = {tool.name: tried(tool) for tool in TOOLS if not args.only or tool.name in args.only}
    document.write(args, columns, lines(columns), (tiers.SECTION, section.SECTION, benchmark.SECTION))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
