"""The model stories as a script, so that they can run as any user and in namespaces.

``python story.py PROJECT STATE HOME MODEL`` prints one JSON object (``Outcome``). No test is here.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
import traceback
from pathlib import Path
from typing import NamedTuple

from full_disk import Filler, full_story
from kill_storm import storm
from many_checkpoints import checkpoints
from model_story import crowd, stepping, story
from story_world import Defect, RefusedHere, World, fill

sys.path[:0] = [
    str(Path(__file__).resolve().parents[1]),
    str(Path(__file__).resolve().parents[2] / "src"),
]  # of forked commands


class Outcome(NamedTuple):
    result: str
    """``works``, ``refused`` or ``defect``."""
    step: str
    """The step at which the story ended; empty if it came to its end."""
    text: str
    remarks: list[str]
    """What mudroom said about the file system, each line once."""
    seconds: float
    figures: dict[str, float]


def import_all() -> None:
    """So that each forked command need not."""
    import importlib
    import pkgutil

    import mudroom

    for module in pkgutil.walk_packages(mudroom.__path__, "mudroom."):
        if not re.search(r"windows|macos|\.nt_|\.(web|tui|launcher|orchestra)\b|__main__", module.name):
            importlib.import_module(module.name)


def wait(*step: str) -> None:
    sys.stdout.write(json.dumps(step) + "\n")
    sys.stdout.flush()
    sys.stdin.readline()


def play(words: list[str]) -> Outcome:
    parser = argparse.ArgumentParser()
    for name in ("project", "state", "home", "model"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--clock", action="store_true")
    parser.add_argument("--view")
    parser.add_argument("--crowd", action="store_true")
    parser.add_argument("--full", choices=("bytes", "inodes"))
    parser.add_argument("--filler", type=Path)
    parser.add_argument("--kills", type=int)
    parser.add_argument("--checkpoints", type=int)
    parser.add_argument("--paced", action="store_true", help="wait for a line before and after each command")
    args = parser.parse_args(words)
    began = time.monotonic()
    os.umask(0o022)
    for path in (args.home, args.model):
        path.mkdir(parents=True, exist_ok=True)
    if not (args.project / "edit").exists():
        fill(args.project)
    import_all()
    world = World(args.project, args.state, args.home, args.model, args.seed)
    if args.view:
        world.view = ("--view", args.view)
    if args.clock:
        world.ahead = stepping(world)
    if args.paced:
        world.pace = wait
    result, text, step = "works", "", ""
    filler = Filler(args.filler, args.full or "bytes") if args.filler else None
    try:
        if args.kills:
            storm(world, args.kills, filler)
        elif args.checkpoints:
            checkpoints(world, args.checkpoints)
        elif args.full:
            assert filler
            full_story(world, filler)
        elif args.crowd:
            with crowd(world):
                story(world)
        else:
            story(world)
    except RefusedHere as error:
        result, text, step = "refused", str(error), world.step
    except Exception as error:  # noqa: BLE001 - told to whoever reads the outcome
        where = traceback.format_exc() if not isinstance(error, Defect) else ""
        result, text, step = "defect", f"{error}\n{where}".strip(), world.step
    world.figures["calls"] = world.calls
    return Outcome(result, step, text, list(world.remarks), round(time.monotonic() - began, 1), world.figures)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(play(sys.argv[1:])._asdict()) + "\n")
