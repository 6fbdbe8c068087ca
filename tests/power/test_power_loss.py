"""The power fails at any moment of apply, undo, redo and recovery: the disk keeps only what was synced (``disk.py``)."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from disk import Crash, Disk, Recording, examined, record
from faults import why_impossible as why_not_watched
from mudroom.sandbox.client.client import Client
from tiers import QUICK, SEED
from world import TOGETHER, Portraits, World, fast_place, inodes, portraits, why_impossible

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(why_not_watched() or why_impossible(TOGETHER)), reason=why_not_watched()),
]

SCRIPT = """
set -e
echo more >> edited; rm -r gone removed
mkdir -p new/sub; echo n > new/sub/f
chmod 755 mode
rm kind; mkdir kind; echo k > kind/k
mv moved there
"""
STATES = 25
"""States that the quick tier examines of one story; the deep tier examines all."""


def fill(project: Path) -> None:
    for name in ("edited", "gone/a", "gone/b/c", "removed", "mode", "kind", "moved", "untouched"):
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{name}\n")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with fast_place(tmp_path_factory.mktemp("power")) as place:
        yield place


class Story:
    """A world and the disk below it."""

    def __init__(self, root: Path, client: Client) -> None:
        self.world = World(root / "world", client, TOGETHER, SCRIPT, make=fill)
        self.disk = Disk(root / "world" / "keep", self.world.project, self.world.state)
        self.after: Portraits = {}

    def survives(self, recording: Recording, check: Callable[[bool], str]) -> Counter[str]:
        """Examine the states after a power loss. Return how often ``check`` returned what."""
        crashes = chosen(recording, self.disk)
        became: Counter[str] = Counter()
        for crash in crashes:
            outcome = examined(self.disk, crash, lambda crash=crash: check(crash.finished))  # type: ignore[misc]
            where = f"after {crash.cut} of {len(recording.steps)} calls, {crash.kind}"
            if os.environ.get("EXPLORE") and outcome.error:
                last = recording.steps[crash.cut-1].call if crash.cut else ''
                print(f"FAIL {where} [{last}]: {outcome.error[0]} {outcome.error[1].splitlines()[0][:230]}")
                continue
            assert outcome.error is None, f"{where}: {outcome.error[1]}\n{outcome.error[2]}\n{_calls(recording, crash)}"
            became[outcome.value] += 1
        return became


def chosen(recording: Recording, disk: Disk) -> list[Crash]:
    crashes = list(recording.crashes(disk.inodes))
    if os.environ.get("EXPLORE"):
        print(len(crashes), "of", len(recording.steps), Counter(c.kind.split(":")[0].split(" of")[0] for c in crashes).most_common(8))
        if os.environ.get("EXPLORE") == "kept":
            return [c for c in crashes if c.kind == "all kept"]
        return random.Random(1).sample(crashes, int(os.environ["EXPLORE"]))
    if not QUICK or len(crashes) <= STATES:
        return crashes
    return random.Random(SEED).sample(crashes, STATES)


def _calls(recording: Recording, crash: Crash) -> str:
    return "\n".join(f"{number:4} {step.call}" for number, step in enumerate(recording.steps[: crash.cut], 1))


def test_apply(root: Path, client: Client) -> None:
    story = Story(root, client)
    world = story.world
    recording = record(story.disk, world.apply)
    assert recording.outcome.error is None, recording.outcome.error
    after = portraits(world.project)

    def check(finished: bool) -> str:
        recovered = world.recover()
        assert all(not one.applied.conflicts for one in recovered), recovered
        now = portraits(world.project)
        landed = now == after
        assert landed or world.is_as_before(), f"torn: {difference(now, world.before, after)}"
        assert landed or not finished, "it was said to be applied"
        assert world.still_there() != landed, f"the fork {'still' if landed else 'no longer'} has its changes"
        if not landed:
            assert world.apply() == (0, 0)
            assert portraits(world.project) == after
        assert world.undo() == 0
        assert world.is_as_before(), f"undo: {difference(portraits(world.project), world.before, after)}"
        assert world.unfinished() == []
        return "landed" if landed else "untouched"

    became = story.survives(recording, check)
    print(became)
    assert set(became) == {"landed", "untouched"}


def difference(now: Portraits, before: Portraits, after: Portraits) -> str:
    names = sorted({*now, *before, *after})
    old = [name for name in names if now.get(name) != before.get(name)]
    new = [name for name in names if now.get(name) != after.get(name)]
    return f"not as before: {old[:6]}; not as after: {new[:6]}"
