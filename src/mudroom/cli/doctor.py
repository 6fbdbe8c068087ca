"""``mudroom doctor``: what this machine can protect, found out by trying."""

from __future__ import annotations

import argparse
import json
import os
import tempfile

from mudroom.cli.main import Context
from mudroom.config import places
from mudroom.doctor import examine

EXAMPLES = """\
examples:
  mudroom doctor
  mudroom doctor --json

Exit code 0 if commands can be confined here, 1 if not."""

_STYLES = {"strict": "green", "degraded": "yellow", "missing": "red", "not probed": "red"}


def configure(parser: argparse.ArgumentParser) -> None:
    del parser


def execute(args: argparse.Namespace, context: Context) -> int:
    del args
    place = places(context.environ)
    os.makedirs(place.state, mode=0o700, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.state, prefix=b"doctor-") as directory:
        findings = examine(directory, home=place.home, environ=context.environ)
    if context.as_json:
        rows = [finding._asdict() for finding in findings]
        context.terminal.out(json.dumps({"schema": "mudroom.doctor/1", "protections": rows}))
    else:
        width = max(len(finding.protection) for finding in findings)
        for finding in findings:
            state = context.terminal.style(f"{finding.state:<10}", _STYLES[finding.state], 1)
            context.terminal.out(f"{finding.protection:<{width}}  {state}  {finding.found}")
            if finding.fix:
                context.terminal.out(f"{'':<{width}}            fix: {finding.fix}")
    return 1 if any(f.protection == "a sandbox" and f.state == "missing" for f in findings) else 0
