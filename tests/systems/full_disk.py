"""A story on a small disk: each verb is done, or refused in one line, and nothing is lost."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from model_story import first
from story_world import Defect, Tree, World, difference, on


class Filler:
    """Takes the rest of a small disk, by bytes or by inodes."""

    def __init__(self, directory: Path, what: str) -> None:
        self._directory, self._what = directory, what

    def take(self, spare: int = 0) -> None:
        self._directory.mkdir(exist_ok=True)
        try:
            if self._what == "inodes":
                for number in range(1_000_000):
                    (self._directory / str(number)).touch()
            else:
                with open(self._directory / "big", "wb", buffering=0) as stream:
                    for block in (1 << 20, 1 << 12, 1 << 9, 1):
                        try:
                            while True:
                                stream.write(bytes(block))
                        except OSError:
                            continue
        except OSError:
            pass
        for number in range(spare):
            (self._directory / str(number)).unlink(missing_ok=True)
        if spare and self._what == "bytes":
            with open(self._directory / "big", "r+b") as stream:
                size = stream.seek(0, 2)
                stream.truncate(max(0, size - spare * 4096))

    def give(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)


SMALL = """
echo more >> edit; rm -r gone; mkdir -p new/deep; echo n > new/deep/n; mv moved there
head -c 60000 /dev/zero | tr '\\0' x > big; rm -r d; echo file > d; cat data > data2; mkdir many
i=0; while [ $i -lt 30 ]; do echo $i > many/$i; i=$((i+1)); done
"""


def full_story(world: World, filler: Filler) -> None:
    """Each verb on a full disk: done, or refused in one line with nothing lost; after room is made it goes on."""
    first(world)
    world.ok("discard", "a")
    before = world.tree(world.project)
    model = world.model("full")
    on(model, SMALL)
    after = world.tree(model)
    refused = 0
    for spare in (0, 1, 4, 16, 40):

        def at_full(*argv: str, states: tuple[Tree, ...], spare: int = spare) -> bool:
            """Return whether it was done."""
            nonlocal refused
            filler.take(spare)
            ended = world.m(*argv)
            world.lists()
            found = world.tree(world.project)
            filler.give()
            if len([line for line in ended.err.splitlines() if line.startswith("mudroom:")]) > 1:
                raise Defect(f"{argv}: more than one line: {ended.err}")
            world.ok("recover", code=(0, 3))
            now = world.tree(world.project)
            if now not in states:
                raise Defect(
                    f"{argv} on a full disk ({spare} spare): {difference(states[0], now)} (before: {found == now})"
                )
            refused += ended.code != 0
            if ended.code == 125 and not re.search("space|full|make room", ended.err):
                raise Defect(f"{argv}: does not say that the disk is full: {ended.err}")
            return ended.code == 0

        at_full("exec", "--fork", "f", "--", "sh", "-c", SMALL, states=(before,))
        if world.m("ls").out.startswith("f "):
            world.ok("discard", "f")
        world.shell("f", SMALL)
        at_full("checkpoint", "p", "--fork", "f", states=(before,))
        if not at_full("apply", "f", "--yes", states=(before, after)) and world.tree(world.project) == before:
            world.ok("apply", "f", "--yes")
        world.expect(after, "applied after the disk was full")
        if not at_full("undo", states=(after, before)) and world.tree(world.project) == after:
            world.ok("undo")
        world.expect(before, "undone after the disk was full")
        if not at_full("redo", states=(before, after)) and world.tree(world.project) == before:
            world.ok("redo")
        world.expect(after, "redone after the disk was full")
        world.ok("undo")
        at_full("discard", "f", states=(before,))
        world.m("discard", "f")
        at_full("vault", "gc", states=(before,))
        world.ok("vault", "check")
    world.figures["refused"] = refused
    world.ok("log", "verify", code=(0,))
