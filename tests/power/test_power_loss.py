"""The power fails at any moment of any verb that writes: the disk keeps only what was synced (``disk.py``)."""

from __future__ import annotations

import hashlib
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clocks import let_pass
from conftest import Place
from disk import Crash, Disk, Recording, examined, record
from durable import TABLE
from faults import KILL_BEFORE, PASS, Call, watched
from faults import why_impossible as why_not_watched
from mudroom.cli.main import VERBS
from mudroom.core.journal.event import Event
from mudroom.core.retention import DAY, RetentionLimits
from mudroom.ext.attempts import record as records
from mudroom.ext.attempts.value import FORMAT, TryRecord
from mudroom.ext.effects.message import HeldQuestion
from mudroom.ext.effects.store import HeldEffect, IncomingEffect, effects, open_request, remove, save, save_sent, sent
from mudroom.ext.effects.wire import FLUSH, packet
from mudroom.ext.transfer.vault.bundle import export_fork
from mudroom.sandbox.client.client import Client
from mudroom.vault.conflict.resolution import Resolution, keep_content, keep_resolutions, load_resolutions, read_content
from mudroom.vault.forks import stacking
from mudroom.vault.retention.prune import collect_garbage
from tiers import QUICK, SEED, sample
from world import TOGETHER, Portraits, World, fast_place, portraits, why_impossible

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
touch -d @1700000000 edited new/sub/f kind/k there
"""
FEW = "echo more >> edited; chmod 755 mode; echo s > single; mv moved there; touch -d @1700000000 edited single there"
"""Few files and no directory: each is synced by itself, where directories are synced by one syncfs(2)."""
ALL = os.environ.get("MUDROOM_FAULTS") == "all"
DRAWN = sample(100) * 2
"""States that are drawn of one story; MUDROOM_FAULTS=all takes every one (MUDROOM_TEST_SECONDS=3600 with it)."""
TELLING = ("all lost", "names kept, contents lost", "names kept, contents zero")


def fill(project: Path) -> None:
    for name in ("edited", "gone/a", "gone/b/c", "removed", "mode", "kind", "moved", "untouched"):
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{name}\n")
        os.utime(path, (1_600_000_000, 1_600_000_000))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with fast_place(tmp_path_factory.mktemp("power")) as place:
        yield place


class Story:
    """A world and the disk below it."""

    def __init__(self, root: Path, client: Client, script: str = SCRIPT) -> None:
        place = root / f"world-{len(os.listdir(root))}"
        self.world = World(place, client, TOGETHER, script, make=fill)
        self.disk = Disk(place / "keep", self.world.project, self.world.state)

    def record(self, work: Callable[[], object], loose: Callable[[str], bool] = lambda _path: False) -> Recording:
        recording = record(self.disk, work, loose)
        assert recording.outcome.error is None, recording.outcome.error
        return recording

    def survives(self, recording: Recording, check: Callable[[bool], str], outcomes: set[str]) -> None:
        """Examine states after a power loss. ``outcomes``: what ``check`` returns, of all states together."""
        became: Counter[str] = Counter()
        for crash in chosen(recording, self.disk):
            outcome = examined(self.disk, crash, lambda crash=crash: check(crash.finished))  # type: ignore[misc]
            where = f"after {crash.cut} of {len(recording.steps)} calls, {crash.kind}"
            assert outcome.error is None, f"{where}: {outcome.error[1]}\n{outcome.error[2]}\n{_calls(recording, crash)}"
            became[outcome.value] += 1
        assert set(became) == outcomes or (QUICK and set(became) <= outcomes), became


def chosen(recording: Recording, disk: Disk) -> Iterator[Crash]:
    """Yield the states to examine: every one, a sample, or a few of which some are always the same."""
    last = len(recording.steps)
    if QUICK:
        landing = [number for number, step in enumerate(recording.steps, 1) if "/project/" in step.call][:1]
        for crash in recording.crashes(disk.inodes, [*landing, last]):
            if crash.kind in TELLING or (crash.kind.startswith("kept alone") and crash.kind.endswith("/pending")):
                yield crash
    elif not ALL:
        yield from (crash for crash in recording.crashes(disk.inodes, [1, last]) if crash.kind in TELLING)
    draw = random.Random(SEED)
    crashes = list(recording.crashes(disk.inodes, draw.sample(range(last), 2) if QUICK else None))
    yield from crashes if ALL else draw.sample(crashes, min(DRAWN, len(crashes)))


def _calls(recording: Recording, crash: Crash) -> str:
    return "\n".join(f"{number:4} {step.call}" for number, step in enumerate(recording.steps[: crash.cut], 1))


def examined_journal(world: World) -> str:
    """Return what is wrong with the journal; its end may be lost, which the next event tells."""
    with world.session() as session:
        session.vault.journal.append("test", "", {}, time=session.forks.clock())
        broken = session.vault.journal.examine().broken
        return broken.text if broken is not None else ""


def check_landing(world: World, after: Portraits, wanted: Portraits, finished: bool) -> str:
    """Recover, and check that the project is as before or after. Return what it is."""
    recovered = world.recover()
    assert all(not one.applied.conflicts for one in recovered), recovered
    now = portraits(world.project)
    assert now in (world.before, after), f"torn: {difference(now, world.before, after)}"
    assert now == wanted or not finished, f"it was said to be done: {difference(now, world.before, after)}"
    assert examined_journal(world) == ""
    return "after" if now == after else "before"


def check_undo_at_last(world: World) -> None:
    assert world.undo() == 0
    assert world.is_as_before(), f"undo: {difference(portraits(world.project), world.before, {})}"
    assert world.unfinished() == []


@pytest.mark.limit(600)
@pytest.mark.parametrize("script", [FEW, pytest.param(SCRIPT, marks=pytest.mark.deep)], ids=["few", "directories"])
def test_apply(root: Path, client: Client, script: str) -> None:
    story = Story(root, client, script)
    world = story.world
    recording = story.record(world.apply)
    after = portraits(world.project)

    def check(finished: bool) -> str:
        now = check_landing(world, after, after, finished)
        assert world.still_there() == (now == "before"), f"the project is as {now}, and the fork does not agree"
        if now == "before":
            assert world.apply() == (0, 0)
            assert portraits(world.project) == after
        check_undo_at_last(world)
        return now

    story.survives(recording, check, {"before", "after"})


@pytest.mark.limit(600)
def test_apply_of_files_that_nobody_has_synced(root: Path, client: Client) -> None:
    """What the command wrote is in the page cache only: until it is applied, a power loss may take it."""
    story = Story(root, client)
    world = story.world
    recording = story.record(world.apply, lambda path: "/layers/" in path)
    after = portraits(world.project)

    def check(finished: bool) -> str:
        now = check_landing(world, after, after, finished)
        if now == "after":
            check_undo_at_last(world)
            assert world.redo() == 0
            assert portraits(world.project) == after
        return now

    story.survives(recording, check, {"before", "after"})


@pytest.mark.deep
@pytest.mark.limit(600)
def test_undo(root: Path, client: Client) -> None:
    story = Story(root, client)
    world = story.world
    world.apply()
    after = portraits(world.project)
    recording = story.record(world.undo)

    def check(finished: bool) -> str:
        now = check_landing(world, after, world.before, finished)
        if now == "after":
            check_undo_at_last(world)
        assert world.is_as_before()
        assert world.redo() == 0
        assert portraits(world.project) == after
        return now

    story.survives(recording, check, {"before", "after"})


@pytest.mark.deep
@pytest.mark.limit(600)
def test_redo(root: Path, client: Client) -> None:
    story = Story(root, client)
    world = story.world
    world.apply()
    after = portraits(world.project)
    world.undo()
    recording = story.record(world.redo)

    def check(finished: bool) -> str:
        now = check_landing(world, after, after, finished)
        if now == "before":
            assert world.redo() == 0
            assert portraits(world.project) == after
        check_undo_at_last(world)
        return now

    story.survives(recording, check, {"before", "after"})


@pytest.mark.deep
@pytest.mark.limit(600)
@pytest.mark.parametrize(
    ("name", "at", "becomes"),
    [("rename", "plan.ready", "before"), ("unlink", "plan.prepare", "after"), ("rename", "plan.done", "after")],
)
def test_recovery(root: Path, client: Client, name: str, at: str, becomes: str) -> None:
    """Killed before the call on the plan ``at``, then the power fails while the next command recovers."""
    story = Story(root, client)
    world = story.world
    calls: list[str] = []

    def kill(call: Call) -> int:
        calls.append(call.what)
        return KILL_BEFORE if call.what.endswith(at) and call.name == name else PASS

    other = World(root / f"other-{at}", client, TOGETHER, SCRIPT, make=fill)
    other.apply()
    after = portraits(other.project)
    assert watched(world.apply, kill).killed, calls
    recording = story.record(world.recover)

    def check(finished: bool) -> str:
        now = check_landing(world, after, after if becomes == "after" else world.before, finished)
        assert world.still_there() == (now == "before"), f"the project is as {now}, and the fork does not agree"
        if now == "before":
            assert world.apply() == (0, 0)
            assert portraits(world.project) == after
        check_undo_at_last(world)
        return now

    story.survives(recording, check, {becomes})


def diff(world: World) -> bytes | None:
    """Return the changes of the fork as a diff; None if it is gone."""
    with world.session() as session:
        if session.vault.find(world.fork) is None:
            return None
        return b"".join(session.changes.diff(world.fork))


@pytest.mark.limit(600)
def test_checkpoint(root: Path, client: Client) -> None:
    """Nobody has synced the files that the command wrote: a checkpoint that was reported has them."""
    story = Story(root, client)
    world = story.world
    expected = diff(world)

    def checkpoint() -> None:
        with world.session() as session, session.alone("checkpoint"):
            session.forks.checkpoint(world.fork, "point")

    recording = story.record(checkpoint, lambda path: "/layers/" in path or path.endswith("/record"))

    def check(finished: bool) -> str:
        world.recover()
        assert examined_journal(world) == ""
        with world.session() as session:
            points = [point.name for point in session.vault.fork(world.fork).state.checkpoints]
        assert points == ["point"] or not finished, "it was said to be made"
        if finished:
            assert diff(world) == expected
            assert world.apply() == (0, 0)
            check_undo_at_last(world)
        return f"{points}"

    story.survives(recording, check, {"[]", "['point']"})


@pytest.mark.limit(600)
def test_rename(root: Path, client: Client) -> None:
    story = Story(root, client)
    world = story.world
    expected = diff(world)
    old = world.fork

    def rename() -> None:
        with world.session() as session:
            session.forks.rename(old, "renamed")

    recording = story.record(rename, lambda path: "/layers/" in path or path.endswith("/record"))

    def check(finished: bool) -> str:
        world.recover()
        with world.session() as session:
            names = {fork.name for fork in session.vault.forks()} & {old, "renamed"}
            assert len(names) == 1, "it has one name"
            found = names.pop()
            assert found == "renamed" or not finished, "it was said to be done"
            if finished:
                assert b"".join(session.changes.diff(found)) == expected
        return found

    story.survives(recording, check, {old, "renamed"})


@pytest.mark.limit(600)
def test_resolve(root: Path, client: Client) -> None:
    story = Story(root, client)
    world = story.world

    def resolve() -> None:
        with world.session() as session:
            fork = session.vault.fork(world.fork)
            content = keep_content(fork, b"decided")
            keep_resolutions(fork, {b"edited": Resolution("content", b"o", b"t", content=content)})

    recording = story.record(resolve)

    def check(finished: bool) -> str:
        with world.session() as session:
            fork = session.vault.fork(world.fork)
            decisions = load_resolutions(fork)
            assert decisions or not finished, "it was said to be decided"
            contents = [read_content(fork, decision) for decision in decisions.values()]
        assert contents in ([], [b"decided"]), "a decision has its content"
        return str(len(contents))

    story.survives(recording, check, {"0", "1"})


@pytest.mark.limit(600)
def test_export(root: Path, client: Client) -> None:
    """Then the fork may be discarded: what both reported leaves the archive."""
    story = Story(root, client)
    world = story.world
    archive = world.state / "exported.tar"

    def export() -> None:
        with world.session() as session:
            fork = session.vault.fork(world.fork)
            with fork.lock("export"):
                export_fork(session.vault, fork, os.fsencode(archive), session.forks.clock())

    recording = story.record(export)
    whole = archive.read_bytes()

    def check(finished: bool) -> str:
        found = archive.read_bytes() if archive.exists() else None
        assert found in (None, whole), "it is there wholly or not at all"
        assert found == whole or not finished, "it was said to be written"
        return "there" if found else "absent"

    story.survives(recording, check, {"there", "absent"})


@pytest.mark.limit(600)
def test_the_record_of_a_try(root: Path, client: Client) -> None:
    story = Story(root, client)
    vault = os.fsencode(next((story.world.state / "vaults").iterdir()))

    def begin_and_save() -> None:
        lock = records.begin(vault)
        try:
            records.save(vault, TryRecord(FORMAT, lock.name, 1, 2, (b"true",), (), "exit", "", 0, ()))
        finally:
            lock.release()

    recording = story.record(begin_and_save)

    def check(finished: bool) -> str:
        found = records.tries(vault)
        assert found.damaged == () or not finished
        assert found.records or not finished, "it was said to be kept"
        return str(len(found.records))

    story.survives(recording, check, {"0", "1"})


PUSHED = b"%s %s refs/heads/main\0 report-status" % (b"1" * 40, b"2" * 40)
PACK = b"PACK\0\0\0\2\0\0\0\0"


PUSH = HeldQuestion("push", "https", "/a.git")


def hold_push(place: bytes) -> HeldEffect | None:
    incoming = IncomingEffect(place)
    try:
        pack = PACK + hashlib.sha1(PACK, usedforsecurity=False).digest()
        incoming.add(packet(PUSHED) + FLUSH + pack)
        return incoming.keep(HeldEffect(0, 1, "https", "git.example", 443, "/a.git"), PUSH, ())[0]
    finally:
        incoming.close()


def test_a_held_push(root: Path, client: Client) -> None:
    story = Story(root, client)
    with story.world.session() as session:
        place = session.vault.fork(story.world.fork).path
    recording = story.record(lambda: hold_push(place))

    def check(finished: bool) -> str:
        found = effects(place)
        assert found or not finished, "the client was told that it is held"
        for push in found:
            os.close(open_request(place, push))
        return str(len(found))

    story.survives(recording, check, {"0", "1"})


def test_the_release_of_a_held_push(root: Path, client: Client) -> None:
    """Before a server hears of it the push is ``sending``, and later it is nowhere ``held``: nothing is sent twice."""
    story = Story(root, client)
    with story.world.session() as session:
        place = session.vault.fork(story.world.fork).path
        apply = session.vault.new_apply()
    os.makedirs(apply, exist_ok=True)
    held = hold_push(place)
    assert held is not None
    sending, done = held._replace(state="sending"), held._replace(state="sent")

    recording = story.record(lambda: save(place, sending))

    def check(finished: bool) -> str:
        (found,) = effects(place)
        assert found.state == "sending" or not finished, "the server may have heard of it"
        return found.state

    story.survives(recording, check, {"held", "sending"})

    def release() -> None:
        save(place, sending)
        save_sent(apply, done)
        remove(place, sending)

    recording = story.record(release)

    def check_settled(finished: bool) -> str:
        kept, waiting = sent(apply), effects(place)
        states = [push.state for push in (*kept, *waiting)]
        assert states in (["held"], ["sending"], ["sent", "sending"], ["sent"])
        assert states == ["sent"] or not finished
        return " ".join(states)

    story.survives(recording, check_settled, {"held", "sending", "sent sending", "sent"})


@pytest.mark.deep
@pytest.mark.limit(600)
def test_rollback(root: Path, client: Client) -> None:
    story = Story(root, client)
    world = story.world
    old = diff(world)
    with world.session() as session:
        session.forks.checkpoint(world.fork, "point")
        session.run([b"sh", b"-c", b"echo 2 > second; rm untouched"], fork=world.fork)
    new = diff(world)

    def rollback() -> None:
        with world.session() as session, session.alone("rollback"):
            session.forks.rollback(world.fork, "point")

    recording = story.record(rollback)

    def check(finished: bool) -> str:
        world.recover()
        assert examined_journal(world) == ""
        found = diff(world)
        assert found in (old, new)
        assert found == old or not finished, "it was said to be done"
        if found == new:
            rollback()
            assert diff(world) == old
        return "old" if found == old else "new"

    story.survives(recording, check, {"old", "new"})


@pytest.mark.deep
@pytest.mark.limit(600)
def test_discard(root: Path, client: Client) -> None:
    story = Story(root, client)
    world = story.world
    expected = diff(world)

    def discard() -> None:
        with world.session() as session, session.alone("discard"):
            session.forks.discard(world.fork)

    recording = story.record(discard)

    def check(finished: bool) -> str:
        world.recover()
        assert examined_journal(world) == ""
        found = diff(world)
        assert found in (None, expected)
        assert found is None or not finished, "it was said to be gone"
        assert world.unfinished() == []
        return "gone" if found is None else "whole"

    story.survives(recording, check, {"gone", "whole"})


@pytest.mark.deep
@pytest.mark.limit(600)
def test_gc(root: Path, client: Client) -> None:
    """Old applies, layers of a discarded fork and an unnamed fork go; events move to an archive; nothing else does."""
    story = Story(root, client)
    world = story.world
    with world.session() as session:
        session.run([b"sh", b"-c", b"echo k > kept"], fork="kept")
        session.forks.checkpoint("kept", "point")
        for number in range(3):
            session.run([b"sh", b"-c", b"echo %d > number; rm -f untouched" % number], fork="kept")
            with session.forks.at_rest("kept") as fork:
                stacking.checkpoint(session.vault, fork, f"before-{number}", session.forks.clock(), automatic=True)
    assert world.apply() == (0, 0)
    with world.session() as session:
        session.run([b"sh", b"-c", b"echo t > third"], fork="third")
        assert session.changes.apply("third").conflicts == ()
        unnamed = session.run([b"sh", b"-c", b"echo old > old"]).fork
        expected = b"".join(session.changes.diff("kept"))
    project = portraits(world.project)
    events = {event.number: event.digest for event in _events(world)}

    def gc() -> None:
        with world.session() as session, session.alone("gc"):
            now = let_pass(session.vault, session.forks.clock() + 100 * DAY)
            swept = collect_garbage(session.vault, RetentionLimits(0, 1, 0), now, forks_older=DAY)
            assert swept.applies, swept
            assert unnamed in swept.forks, swept
            assert any(name.endswith(b".gz") for name in os.listdir(session.vault.path + b"/journal"))

    recording = story.record(gc)

    def check(_finished: bool) -> str:
        world.recover()
        found = {event.number: event.digest for event in _events(world)}
        assert all(found.get(number) == digest for number, digest in events.items()), "events are lost"
        assert examined_journal(world) == ""
        assert portraits(world.project) == project
        with world.session() as session:
            assert b"".join(session.changes.diff("kept")) == expected
            points = [point.name for point in session.vault.fork("kept").state.checkpoints]
            assert points in (["point"], ["point", *(f"before-{number}" for number in range(3))])
            gone = session.vault.find(unnamed) is None
        gc_again(world)  # what came back is old again
        assert world.undo() == 0, "the newest apply can be undone, whatever its age"
        assert not (world.project / "third").exists()
        assert world.unfinished() == []
        return "gone" if gone else "there"

    story.survives(recording, check, {"gone", "there"})


def gc_again(world: World) -> None:
    with world.session() as session, session.alone("gc"):
        now = let_pass(session.vault, session.forks.clock() + 200 * DAY)
        assert collect_garbage(session.vault, RetentionLimits(0, 1, 0), now).remarks == ()


def _events(world: World) -> list[Event]:
    with world.session() as session:
        return list(session.vault.journal.events())


@pytest.mark.limit(600)
def test_first_use(root: Path, client: Client) -> None:
    """The vault is made, and can be used whatever is left of it."""
    (root / "first").mkdir(exist_ok=True)
    place = Place(root / "first", client)
    place.state.mkdir()
    fill(place.project)
    disk = Disk(place.root / "keep", place.state)

    def use() -> None:
        with place.session() as session:
            session.vault.journal.append("test", "", {}, time=session.forks.clock())

    recording = record(disk, use)
    assert recording.outcome.error is None, recording.outcome.error
    for crash in chosen(recording, disk):
        outcome = examined(disk, crash, use)
        assert outcome.error is None, f"after {crash.cut} calls, {crash.kind}: {outcome.error}"


def test_every_verb_has_a_row_about_what_is_durable() -> None:
    assert set(TABLE) == set(VERBS), "durable.py: one row for each verb"
    assert {verb for verb, row in TABLE.items() if row.durable and not row.tests} == set()
    for name in {test for row in TABLE.values() for test in row.tests}:
        assert name in globals() or (Path(__file__).parents[1] / name).is_file(), f"{name} is no test"


def difference(now: Portraits, before: Portraits, after: Portraits) -> str:
    names = sorted({*now, *before, *after})
    old = [name for name in names if now.get(name) != before.get(name)]
    new = [name for name in names if now.get(name) != after.get(name)]
    return f"not as before: {old[:6]}; not as after: {new[:6]}"
