"""A state or a project that was copied, as a backup is restored or a disk replaced: every verb goes on as without it.

Each story is played twice, with a copy in its middle and without one, and both have to end alike.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest

from box import if_namespaces
from conftest import Place, tick
from mudroom.core.clock import CommandStart
from mudroom.core.settings import Settings
from mudroom.errors import ForkChanged, ForkMoved, ForkReplaced
from mudroom.sandbox.client.client import Client
from mudroom.sandbox.client.launcher_client import LauncherClient, SpawnedLauncher
from mudroom.session import Session
from mudroom.session.upkeep import problems
from mudroom.vault.apply import imprint
from mudroom.vault.retention import restored
from mudroom.vault.retention.restored import renew_stamps as renew
from mudroom.vault.store.store import Vault
from tiers import pairs

pytestmark = [pytest.mark.both_users, if_namespaces]

View = Literal["overlay", "copy"]
LINES = "".join(f"{number}\n" for number in range(50))
PENDING = r"""
set -e
echo more >> edited; rm gone; rm -r whole; rm -r again; mkdir again; echo new > again/new; ln -sf other link
mkdir -p made/deep; echo n > made/deep/n; ln made/deep/n made/hard; mv moved there; chmod 755 mode
"""


def cp(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-a", source, target], check=True)


def tar(source: Path, target: Path) -> None:
    """Times in whole seconds, and no attributes: the directories that a layer replaces are not marked."""
    target.mkdir()
    with subprocess.Popen(["tar", "-C", source, "--warning=no-file-ignored", "-cf", "-", "."], stdout=-1) as made:
        subprocess.run(["tar", "-C", target, "-xpf", "-"], stdin=made.stdout, check=True)


def rsync(source: Path, target: Path) -> None:
    """As ``rsync -a`` does for an ordinary user: no attributes, and no devices, so no whiteouts."""
    subprocess.run(["cp", "-dR", "--preserve=mode,ownership,timestamps", source, target], check=True)
    for path in target.rglob("*"):
        if stat.S_ISCHR(path.lstat().st_mode):
            above = path.parent.stat()
            path.unlink()
            os.utime(path.parent, ns=(above.st_atime_ns, above.st_mtime_ns))


WAYS: dict[str, Callable[[Path, Path], None]] = {"cp": cp, "tar": tar, "rsync": rsync}


class Copied(NamedTuple):
    way: str
    what: tuple[str, ...]

    def make(self, place: Place) -> None:
        for name in self.what:
            path = place.root / name
            WAYS[self.way](path, place.root / "copy")
            shutil.rmtree(path)
            (place.root / "copy").rename(path)
        tick()


STATE, PROJECT, BOTH = ("state",), ("project",), ("state", "project")
COPIES = [Copied(way, what) for way in WAYS for what in (STATE, PROJECT, BOTH)]
NONE = Copied("", ())


def fill(place: Place) -> None:
    for name in ("edited", "gone", "moved", "mode", "both", "other", "first", "second", "third"):
        place.write(name, LINES + name)
    for name in ("whole", "again"):
        for number in range(5):
            place.write(f"{name}/{number}", f"{name} {number}\n")
    (place.project / "link").symlink_to("edited")


def sh(session: Session, fork: str, script: str) -> None:
    result = session.run([b"sh", b"-c", script.encode()], fork=fork)
    assert result.exit_code == 0, result.stderr


def tree(top: Path) -> dict[str, Any]:
    """Return the project's entries with kind, mode and content."""
    found = {}
    for path in sorted(top.rglob("*")):
        name, info = str(path.relative_to(top)), path.lstat()
        if not name.startswith(".mudroom"):
            content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else b""
            found[name] = (stat.filemode(info.st_mode) if not path.is_symlink() else "link", content)
    return found


def before(session: Session) -> None:
    """Make all that is kept: applies, one undone; a reviewed fork; checkpoints; a conflict with its decision."""
    sh(session, "one", "echo 1 >> first; echo n > one; rm second; mkdir dir; echo 1 > dir/a; echo 2 > dir/b")
    session.changes.apply("one")
    sh(session, "two", "echo 2 >> first; echo n > two; rm third")
    session.changes.apply("two")
    session.changes.undo()
    sh(session, "pending", PENDING)
    sh(session, "points", "echo 1 >> edited; echo 1 > p1; rm gone")
    session.forks.checkpoint("points", "point")
    sh(session, "points", "echo 2 >> edited; rm p1; echo 2 > p2; rm other")
    session.forks.new("child", parent="points")
    sh(session, "child", "echo c > c; rm -r whole")
    sh(session, "decided", "echo theirs > both")
    sh(session, "held", "echo theirs > mode")


def edit(place: Place) -> None:
    for name in ("both", "mode"):
        place.write(name, "ours\n")


class Story:
    """What verbs find, by name."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}

    def applied(self, name: str, applied: Any, place: Place) -> None:
        conflicts = sorted((conflict.path, conflict.reason) for conflict in applied.conflicts)
        self.found[name] = applied.written, applied.removed, conflicts, tree(place.project)


def told(session: Session, place: Place) -> dict[str, Any]:
    """Use every verb, and return what it says and what is in the project then."""
    story, found = Story(), dict[str, Any]()
    for fork in ("pending", "points", "child", "two", "decided", "held"):
        found[f"diff {fork}"] = b"".join(session.changes.diff(fork))
        found[f"remarks {fork}"] = session.changes.of(fork).remarks
    for fork in ("decided", "held", "pending"):
        found[f"conflicts {fork}"] = [(each.path, each.reason) for each in session.changes.conflicts(fork)]
    found["diff points@point"] = b"".join(session.forks.compare("points@point", "points").lines(()))
    sh(session, "child", "ls -R > listed; cat edited >> listed")
    found["run child"] = b"".join(session.changes.diff("child"))
    sh(session, "pending", "ls -R > listed; ls -R again whole made >> listed 2>&1 || true")
    found["run pending"] = b"".join(session.changes.diff("pending"))
    session.forks.rollback("points", "point")
    found["rollback"] = b"".join(session.changes.diff("points"))
    for fork in ("decided", "held", "pending", "child"):
        story.applied(f"apply {fork}", session.changes.apply(fork).applied, place)
    for number in range(3):
        story.applied(f"undo {number}", session.changes.undo(), place)
    story.applied("redo", session.changes.redo(), place)
    for number in range(2):
        story.applied(f"undo again {number}", session.changes.undo(), place)
    return found | story.found


@contextmanager
def opened(place: Place, view: View) -> Iterator[Session]:
    """Yield a session with a launcher of its own, as another process has it: it holds no directory of the old state."""
    tick()
    client = LauncherClient(SpawnedLauncher())
    client.start()
    paths = {"state": os.fsencode(place.state), "home": os.fsencode(place.home)}
    settings = Settings(view=view)
    with Session.open(
        os.fsencode(place.project), environ={b"LC_ALL": b"C"}, settings=settings, client=client, **paths
    ) as session:
        yield session
    client.close()


def play(place: Place, copied: Copied, view: View) -> dict[str, Any]:
    fill(place)
    with opened(place, view) as session:
        prepare(place, session)
    copied.make(place)
    with opened(place, view) as session:
        assert problems(session) == []
        session.changes.apply("pending", [b"link"])  # reviewed before the copy
        session.changes.undo()
        return told(session, place)


def prepare(place: Place, session: Session) -> None:
    before(session)
    edit(place)
    (conflict,) = session.changes.conflicts("decided")
    session.changes.decide("decided", conflict, "theirs")
    session.changes.review("pending")


VIEWS: tuple[View, ...] = ("overlay", "copy")
WITHOUT: dict[View, dict[str, Any]] = {}
"""What is found without a copy: the same for every row."""


@pytest.mark.parametrize(
    ("copied", "view"),
    pairs(COPIES, VIEWS, 6),
    ids=lambda part: "-".join((part.way, *part.what)) if part not in VIEWS else part,
)
def test_every_verb_goes_on_with_a_copy(place: Place, client: Client, copied: Copied, view: View) -> None:
    if view not in WITHOUT:
        root = place.root / "without"
        root.mkdir()
        WITHOUT[view] = play(Place(root, client), NONE, view)
    found = play(place, copied, view)
    assert {name: value for name, value in found.items() if value != WITHOUT[view][name]} == {}


def big(place: Place) -> None:
    place.write("README", "by which the directory is known\n")
    for number in range(300):
        place.write(f"many/{number}", f"{number}\n")


@pytest.mark.parametrize(("what", "way"), pairs([STATE, PROJECT, BOTH], ["cp", "tar"]))
def test_a_large_apply_without_digests_is_undone_in_a_copy(
    place: Place, way: str, what: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imprint, "FILES", 0)
    big(place)
    start = tree(place.project)
    with opened(place, "overlay") as session:
        sh(session, "f", "cd many; for f in ?; do echo x >> $f; done; mkdir new; echo 1 > new/1; echo 2 > new/2")
        session.changes.apply("f")
    applied = tree(place.project)
    Copied(way, what).make(place)
    with opened(place, "overlay") as session:
        assert session.changes.undo().conflicts == ()
        assert tree(place.project) == start
        assert session.changes.redo().conflicts == ()
        assert tree(place.project) == applied


@pytest.mark.parametrize("what", [STATE, PROJECT, BOTH], ids="-".join)
def test_a_large_deletion_lands_from_a_copy(place: Place, what: tuple[str, ...]) -> None:
    """More files than originals are kept of."""
    big(place)
    with opened(place, "overlay") as session:
        sh(session, "g", "rm -r many")
    Copied("tar", what).make(place)
    with opened(place, "overlay") as session:
        assert session.changes.conflicts("g") == []
        assert session.changes.apply("g").applied.conflicts == ()
        assert not (place.project / "many").exists()


def test_an_edit_in_a_copy_of_the_project_stays(place: Place) -> None:
    """Also one that keeps size and time, where the earlier content is known."""
    fill(place)
    with opened(place, "overlay") as session:
        sh(session, "f", "rm first second; echo x >> third")
        sh(session, "g", "echo x > other")
        session.changes.apply("g")
    COPIES[1].make(place)
    info = (place.project / "first").stat()
    place.write("first", (place.project / "first").read_text().replace("7", "8"))
    os.utime(place.project / "first", ns=(info.st_atime_ns, info.st_mtime_ns))
    info = (place.project / "other").stat()
    place.write("other", "y\n")
    os.utime(place.project / "other", ns=(info.st_atime_ns, info.st_mtime_ns))
    with opened(place, "overlay") as session:
        assert [conflict.path for conflict in session.changes.conflicts("f")] == [b"first"]
        assert [conflict.path for conflict in session.changes.undo().conflicts] == [b"other"]
    assert (place.project / "other").read_text() == "y\n"


def test_what_a_command_did_after_the_review_is_not_reviewed_in_a_copy(place: Place) -> None:
    """Also if it restored size and mtime."""
    fill(place)
    with opened(place, "overlay") as session:
        sh(session, "f", "printf one > other; touch -d @1700000000 other")
        session.changes.review("f")
        sh(session, "f", "printf two > other; touch -d @1700000000 other")
    COPIES[0].make(place)
    with opened(place, "overlay") as session, pytest.raises(ForkChanged):
        session.changes.apply("f")
    assert (place.project / "other").read_text() != "two"


@pytest.mark.parametrize("what", ["content", "gone", "mode"])
def test_a_file_of_a_fork_that_is_another_in_the_copy_does_not_land(place: Place, what: str) -> None:
    fill(place)
    with opened(place, "overlay") as session:
        sh(session, "f", "echo one > other; echo 1 > one")
        session.changes.review("f")
    COPIES[0].make(place)
    (staged,) = place.state.glob("vaults/*/layers/*/tree/other")
    if what == "content":
        staged.write_text("two\n")
    elif what == "gone":
        staged.unlink()
    else:
        staged.chmod(0o755)
    with opened(place, "overlay") as session, pytest.raises(ForkMoved):
        session.changes.apply("f")
    assert (place.project / "other").read_text() == LINES + "other"


def test_a_command_that_had_not_ended_is_collected_in_the_copy(place: Place) -> None:
    """Its files are not those of the review."""
    fill(place)
    with opened(place, "overlay") as session:
        sh(session, "f", "printf one > other")
        session.changes.review("f")
        fork = session.vault.fork("f")
        with fork.lock("a command"):
            fork.begin(CommandStart(session.forks.clock()))
            (Path(os.fsdecode(fork.upper)) / "other").write_text("two")
    COPIES[0].make(place)
    with opened(place, "overlay") as session, pytest.raises(ForkChanged):
        session.changes.apply("f")


def test_a_state_that_was_moved_to_another_path_and_file_system(place: Place, tmp_path: Path) -> None:
    shm = Path("/dev/shm")
    if not shm.is_dir() or shm.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("/dev/shm is not a writable file system of its own")
    fill(place)
    start = tree(place.project)
    with opened(place, "overlay") as session:
        sh(session, "one", "echo 1 >> first; rm second; rm -r whole; mkdir dir; echo 1 > dir/a")
        session.changes.apply("one")
        sh(session, "f", PENDING.replace("rm -r whole;", ""))
        session.changes.review("f")
    applied = tree(place.project)
    with tempfile.TemporaryDirectory(dir=shm) as other:
        cp(place.state, Path(other) / "state")
        shutil.rmtree(place.state)
        place.state = Path(other) / "state"
        with opened(place, "overlay") as session:
            session.changes.undo()
            assert tree(place.project) == start
            session.changes.redo()
            assert tree(place.project) == applied
            assert session.changes.apply("f").applied.conflicts == ()
            session.changes.undo()
            session.changes.undo()
            assert tree(place.project) == start
            assert problems(session) == []


def test_a_state_that_was_renamed(place: Place) -> None:
    fill(place)
    start = tree(place.project)
    with opened(place, "overlay") as session:
        sh(session, "one", "echo 1 >> first; rm second")
        session.changes.apply("one")
    place.state = place.state.rename(place.root / "elsewhere")
    with opened(place, "overlay") as session:
        assert session.changes.undo().conflicts == ()
    assert tree(place.project) == start


def test_a_copy_is_read_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(place)
    with opened(place, "overlay") as session:
        sh(session, "f", "echo 1 >> first")
    COPIES[0].make(place)
    reads = []

    def counting(vault: Vault) -> None:
        reads.append(vault)
        renew(vault)

    monkeypatch.setattr(restored, "renew_stamps", counting)
    for _ in range(2):
        with opened(place, "overlay") as session:
            b"".join(session.changes.diff("f"))
    assert len(reads) == 1


def test_damage_in_a_copy_concerns_its_fork_alone(place: Place) -> None:
    fill(place)
    with opened(place, "overlay") as session:
        for name in ("bad", "good"):
            sh(session, name, f"echo {name} > {name}")
    COPIES[0].make(place)
    (record,) = place.state.glob("vaults/*/forks/bad/record")
    record.write_bytes(b"damaged")
    with opened(place, "overlay") as session:
        assert session.changes.apply("good").applied.written == 1
        assert [problem.subject for problem in problems(session)] == ["fork bad"]


def test_a_copy_on_a_full_disk_is_renewed_at_the_next_verb(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(place)
    with opened(place, "overlay") as session:
        sh(session, "f", "echo 1 >> first")
        session.changes.review("f")
    COPIES[0].make(place)

    def full(*_words: object, **_options: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(restored, "save", full)
        with opened(place, "overlay") as session:
            assert session.changes.applies() == []
    with opened(place, "overlay") as session:
        assert session.changes.apply("f").applied.written == 1


@pytest.mark.parametrize("part", ["layers", "forks"])
def test_a_part_of_the_state_that_is_restored_in_place_is_told(place: Place, part: str) -> None:
    place.write("a", b"base\n")
    with opened(place, "overlay") as session:  # its launcher ends, and removes no work directory beside cp
        session.run([b"sh", b"-c", b"echo first > a"], fork="one")
    (vault,) = (place.state / "vaults").iterdir()
    cp(vault / part, place.root / "backup")
    with opened(place, "overlay") as session:
        session.run([b"sh", b"-c", b"echo longer > a"], fork="one")
    subprocess.run(["cp", "-a", f"{place.root}/backup/.", vault / part], check=True)
    with place.session() as session:
        with pytest.raises(ForkReplaced, match="a in one is not the file that its last command left") as raised:
            list(session.changes.diff("one", reviewed=session.changes.review("one").changeset.changes))
        assert raised.value.path == b"a"
        assert raised.value.hint == "mudroom exec --fork one -- true records the files as they are now"
        session.run([b"true"], fork="one")
        reviewed = session.changes.review("one").changeset.changes
        content = b"+first" if part == "layers" else b"+longer"
        assert content in b"".join(session.changes.diff("one", reviewed=reviewed)).splitlines()
        assert session.changes.apply("one").conflicts == ()
    assert (place.project / "a").read_bytes() == content[1:] + b"\n"


@pytest.mark.parametrize("then", ["a command", "a checkpoint", "a checkpoint and a command"])
def test_the_check_names_a_fork_whose_directory_alone_was_restored(place: Place, then: str) -> None:
    """All files that its older record names are there, so no other verb finds it."""
    with place.session() as session:
        sh(session, "one", "echo first > a")
        sh(session, "other", "echo first > a")
        (vault,) = (place.state / "vaults").iterdir()
        hours_ago = time.time_ns() - 10**13
        os.utime(vault / "forks/one/record", ns=(hours_ago, hours_ago))
        backup = place.root / "backup"
        backup.mkdir()
        for name in ("state", "record"):
            shutil.copy2(vault / "forks/one" / name, backup)
        if "checkpoint" in then:
            session.forks.checkpoint("one", "point")
        if "command" in then:
            sh(session, "one", "echo more > b")
        assert problems(session) == []
    for name in ("state", "record"):
        shutil.copy2(backup / name, vault / "forks/one" / name)
    with place.session() as session:
        assert [change.path for change in session.changes.of("one").changes] == [b"a"]
        (problem,) = problems(session)
        assert problem.subject == "fork one"
        assert problem.text.startswith("is older than its last command or checkpoint in the journal")


def test_the_check_names_no_fork_that_a_rollback_has_made_older(place: Place) -> None:
    with place.session() as session:
        sh(session, "one", "echo first > a")
        hours_ago = time.time_ns() - 10**13
        os.utime(session.vault.fork("one").record_path, ns=(hours_ago, hours_ago))
        session.forks.checkpoint("one", "point")
        sh(session, "one", "echo more > b")
        session.forks.rollback("one", "point")
        assert problems(session) == []


def test_a_fork_that_runs_meanwhile_was_not_replaced(place: Place) -> None:
    place.write("a", b"base\n")
    session = place.session()
    session.run([b"sh", b"-c", b"echo first > a"], fork="one")
    reviewed = session.changes.review("one").changeset.changes
    session.run([b"sh", b"-c", b"echo longer > a"], fork="one")
    with pytest.raises(ForkMoved, match="a in the fork is not what was reviewed"):
        list(session.changes.diff("one", reviewed=reviewed))
