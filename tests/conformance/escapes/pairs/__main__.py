"""``python -m tests.conformance.escapes.pairs``: all pairs, in every way to confine, for docs/evidence/ESCAPES.md.

    python -m tests.conformance.escapes.pairs                  on the terminal
    python -m tests.conformance.escapes.pairs --into FILE      in the place of the document's section
    python -m tests.conformance.escapes.pairs --only NAME      one way to confine; repeatable

Run it as a user of its own: without a sandbox a pair reaches every process of the user.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from . import section
from .backend import BACKENDS, Backend, landed, sides
from .outside import Ground, meet
from .section import NONE, Column
from .side import ProcessSide, own_host_name
from .way import WAYS, unconfined

WINDOW = 3.0
"""Seconds for a meeting, longer than in the tests: this is done once, and other things may go on."""


def tried(backend: Backend) -> Column:
    with Ground() as ground, sides(ground, backend) as (giver, taker):
        meetings = meet(ground, giver, taker, window=WINDOW)
    return Column(meetings, {way: changed_on(backend, way) for way in WAYS})


def changed_on(backend: Backend, way: str) -> int:
    with Ground() as ground:
        return len(landed(ground, backend, way))


def without() -> Column:
    with Ground() as ground, own_host_name():
        side = ProcessSide(ground.project, [], {**os.environ, "HOME": str(ground.home)})
        meetings = meet(ground, side, side, window=WINDOW)
    with Ground() as ground:
        return Column(meetings, {"mv": len(unconfined(ground)[1])})


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.escapes.pairs", description="Who meets whom.")
    parser.add_argument("--only", action="append", choices=list(BACKENDS), help="one way to confine; repeatable")
    parser.add_argument("--into", metavar="FILE", type=Path, help="the document that it is a section of")
    parser.add_argument("--before", metavar="TEXT", default="", help="a paragraph about an earlier state")
    args = parser.parse_args(argv)
    columns = {NONE: without()}
    for name, backend in BACKENDS.items():
        if not args.only or name in args.only:
            columns[name] = tried(backend)
    lines = section.lines(columns, args.before)
    if not args.into:
        sys.stdout.write("\n".join(lines) + "\n")
        return 0
    section.SECTION.write(args.into, lines)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
