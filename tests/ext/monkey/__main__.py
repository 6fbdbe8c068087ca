"""``dev/monkey``: a walk of one of them, as long as one likes, with its steps as they are gone."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import tempfile
from pathlib import Path

from conftest import Place
from monkey.chance import Astray, Walk
from mudroom.sandbox.client.launcher_client import LauncherClient, SpawnedLauncher

WHO = {"page": "Page", "terminal": "Terminal", "api": "Api"}


def main() -> int:
    parser = argparse.ArgumentParser(prog="dev/monkey", description=__doc__)
    parser.add_argument("who", choices=WHO, nargs="?", default="terminal")
    parser.add_argument("--seconds", type=float, default=60.0, metavar="N", help="how long (default: 60)")
    parser.add_argument("--steps", type=int, default=0, metavar="N", help="how many steps, instead")
    parser.add_argument(
        "--seed", type=int, default=None, metavar="S", help="go the way again that this was (default: any)"
    )
    parser.add_argument("--quiet", action="store_true", help="tell the steps only if something is wrong")
    asked = parser.parse_args()
    seed = int.from_bytes(os.urandom(3)) if asked.seed is None else asked.seed
    seconds = 0.0 if asked.steps else asked.seconds
    walk = Walk(seed, seconds=seconds, steps=asked.steps, loud=not asked.quiet)
    print(f"dev/monkey {asked.who} --seed {seed}", flush=True)  # noqa: T201
    with tempfile.TemporaryDirectory() as directory:
        client = LauncherClient(SpawnedLauncher())
        client.start()
        place = Place(Path(directory), client)
        try:
            getattr(importlib.import_module(f"monkey.{asked.who}"), WHO[asked.who])(place, walk).go()
        except Astray as astray:
            print(astray, file=sys.stderr)  # noqa: T201
            return 1
        finally:
            place.close()
            client.close()
    print(f"{walk.number} steps, nothing wrong; --seed {seed}")  # noqa: T201
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
