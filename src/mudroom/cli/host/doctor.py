"""``mudroom doctor``: show what this machine can protect, by trying it.

``--setup`` shows it to a new user; ``--certify`` belongs to a satellite (``core/registry.py``).
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile

from mudroom.cli.doctor.probe import certified, examine
from mudroom.cli.doctor.report import SANDBOX, everything, screen
from mudroom.cli.project_session import project_of, settings_of
from mudroom.cli.terminal.context import Context
from mudroom.core.confinement.protection import document, rows
from mudroom.core.registry import NotInstalled, part
from mudroom.core.settings import EngineChoice
from mudroom.errors import UsageError
from mudroom.policy.config import places
from mudroom.sandbox.platform import BY_RECORD
from mudroom.stage.private_directory import require_private

EXAMPLES = """\
examples:
  mudroom doctor
  mudroom doctor --all         every protection in a line of its own, nothing cut
  mudroom doctor --json
  mudroom doctor --setup       levels, commands that add missing protections, agents, a command to try
  mudroom doctor --certify     --json FILE writes what held: no path and no name is in it
  mudroom doctor --table       what is protected on which platform, by what, and where that was tried

Each row of --certify is a deed that works outside of the sandbox. Only rows that held inside open something on macOS
and Windows; on Linux they open nothing. Exit code 0 if commands can be confined here, 1 if not."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="every protection or row, and every fix in full")
    look = parser.add_mutually_exclusive_group()
    look.add_argument(
        "--table", action="store_true", help="every platform's protections as a document, instead of trying this one's"
    )
    look.add_argument("--setup", action="store_true", help="the first look of a new user, in one screen")
    look.add_argument(
        "--certify", action="store_true", help="try what the sandbox holds here; on macOS and Windows open what held"
    )
    parser.add_argument("file", nargs="?", metavar="FILE", help="with --certify --json: a new file for the certificate")


def execute(args: argparse.Namespace, context: Context) -> int:
    if args.certify:
        code: int = part("doctor", "certify", "mudroom doctor --certify").execute(args, context)
        return code
    if args.file is not None:
        raise UsageError("only --certify writes a file", f"mudroom doctor --certify --json {args.file}")
    if args.table:
        return _table(context)
    if args.setup:
        context.terminal.progress("trying what this machine can protect", 0, 0)
    place = places(context.environ)
    require_private(place.state)
    if sys.platform in BY_RECORD:
        findings = certified(place.state)[0]
    else:
        with tempfile.TemporaryDirectory(dir=place.state, prefix=b"doctor-") as directory:
            findings = examine(directory, home=place.home, environ=context.environ, engine=_engine(context))
    if args.setup:
        from mudroom.cli.host.setup import show_setup

        return show_setup(findings, context, screen_size()[0])
    if context.as_json:
        rows = [finding._asdict() for finding in findings]
        context.terminal.json({"schema": "mudroom.doctor.probe/1", "protections": rows})
    else:

        def style(text: str, name: str) -> str:
            return context.terminal.style(text, name, 1)

        lines = everything(findings, style) if args.all else screen(findings, style, *screen_size())
        lines += _keeper(context) if args.all and sys.platform == "linux" else []
        context.terminal.out("\n".join(lines))
    return 1 if any(f.protection == SANDBOX and f.state == "missing" for f in findings) else 0


def _keeper(context: Context) -> list[str]:
    """Return whether a warm process runs this shell's commands, and why not."""
    try:
        return [str(part("doctor", "keeper", "a keeper").here(context))]
    except NotInstalled as error:
        return [f"no keeper: {error.message}"]


def screen_size() -> tuple[int, int]:
    """Return the columns and rows of the terminal on stdout, at least (40, 12). Without a terminal return (80, 24)."""
    try:
        columns, rows = os.get_terminal_size(1)
    except OSError:
        return 80, 24
    return max(columns or 80, 40), max(rows or 24, 12)


def _engine(context: Context) -> EngineChoice:
    """Return the policy's engine, or "auto" with a note if the policy cannot be read: the other probes still run."""
    try:
        return settings_of(context, project_of(context)).engine
    except UsageError as error:
        context.terminal.note(f"the policy cannot be read and is ignored here: {error}")
        return "auto"


def _table(context: Context) -> int:
    if context.as_json:
        names = ("protection", "level", "platform", "mechanism", "tested")
        protections = [dict(zip(names, row, strict=True)) for row in rows()]
        context.terminal.json({"schema": "mudroom.protections/1", "protections": protections})
    else:
        context.terminal.out(document().rstrip("\n"))
    return 0
