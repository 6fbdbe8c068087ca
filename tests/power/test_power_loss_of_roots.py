"""The power fails at any moment of an apply, undo or redo over two projects: both are as before, or both as after.

The recovery begins in either project. Two file systems are for tests/session/test_root_kills.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from box import if_namespaces
from disk import Disk
from faults import why_impossible as why_not_watched
from mudroom.sandbox.client.client import Client
from mudroom.vault.forks.ties import Tie
from test_power_loss import FEW, Story, examined_journal, fill
from world import TOGETHER, Portraits, World, fast_place, portraits, why_impossible

pytestmark = [
    pytest.mark.slow,
    pytest.mark.both_users,
    if_namespaces,
    pytest.mark.skipif(bool(why_not_watched() or why_impossible(TOGETHER)), reason=why_not_watched()),
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with fast_place(tmp_path_factory.mktemp("power")) as place:
        yield place


class TwoProjects(World):
    """A world beside ``lib``, with a fork that has changed both."""

    def __init__(self, root: Path, client: Client) -> None:
        super().__init__(root, client, TOGETHER, "true", make=fill)
        self.lib = root / "lib"
        self.lib.mkdir()
        fill(self.lib)
        with self.session(self.settings) as session:
            words = [b"sh", b"-ec", f"{FEW}\ncd ../lib\n{FEW}".encode()]
            result = session.run(words, roots=[os.fsencode(self.lib)])
            assert result.exit_code == 0, result.stderr
            self.fork = result.fork
            session.changes.of(self.fork)
            for tied, there in session.changes.parts(self.fork):
                there.changes.of(tied.name)
        self.both = self.now()

    def now(self) -> tuple[Portraits, Portraits]:
        return portraits(self.project), portraits(self.lib)

    def settle(self, *, from_lib: bool) -> None:
        with self.session(self.settings) as session:
            there = session.root(Tie(b"", os.fsencode(self.lib)))
            for one in (there, session) if from_lib else (session, there):
                with one.alone("recover"):
                    pass


class RootStory(Story):
    world: TwoProjects

    def __init__(self, root: Path, client: Client) -> None:
        place = root / f"world-{len(os.listdir(root))}"
        self.world = TwoProjects(place, client)
        self.disk = Disk(place / "keep", self.world.project, self.world.lib, self.world.state)


@pytest.mark.limit(600)
@pytest.mark.deep
@pytest.mark.parametrize("verb", ["apply", "undo", "redo"])
def test_a_power_loss_leaves_both_as_before_or_both_as_after(root: Path, client: Client, verb: str) -> None:
    story = RootStory(root, client)
    world = story.world
    works: dict[str, Callable[[], object]] = {"apply": world.apply, "undo": world.undo, "redo": world.redo}
    for before in {"apply": (), "undo": ("apply",), "redo": ("apply", "undo")}[verb]:
        works[before]()
    earlier = world.now()
    recording = story.record(works[verb])
    later = world.now()

    def check(finished: bool) -> str:
        world.settle(from_lib=world.now() != earlier)
        now = world.now()
        assert now in (earlier, later), "torn"
        assert now == later or not finished, "it was said to be done"
        assert examined_journal(world) == ""
        if now == world.both:
            assert works["apply" if verb == "apply" else "redo"]() in ((0, 0), 0)
        assert world.undo() == 0
        assert world.now() == world.both
        return "after" if now == later else "before"

    story.survives(recording, check, {"before", "after"})
