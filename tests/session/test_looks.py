"""A look at a fork in use is no review: an apply refuses its fingerprint, and what lands was shown by a review.

The commands here store into a page that is dirty already: no time of the file changes until the kernel writes the page
back, so that the fingerprints of before and after are of equal stamps.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from background_command import heard
from box import if_namespaces
from conftest import Place
from mounted_fork import sh
from mudroom.core.settings import Settings
from mudroom.errors import ForkMoved, MudroomError, NotReviewed
from mudroom.session import Session
from mudroom.session.background import Background
from mudroom.stage.views.preflight import is_in_memory
from mudroom.vault.forks import review
from mudroom.vault.forks.fork_summary import ForkSummaries
from tiers import pairs

pytestmark = [pytest.mark.both_users, if_namespaces]

View = Literal["overlay", "copy"]
STORING = """
import mmap, os, signal
place = os.open("made", os.O_RDWR | os.O_CREAT, 0o644)
os.ftruncate(place, 9)
page = mmap.mmap(place, 9)
page[:9] = b"reviewed\\n"
def end(*_):
    page[:9] = b"planted!\\n"
    os._exit(0)
signal.signal(signal.SIGTERM, end)
print("up", flush=True)
while True:
    signal.pause()
"""
INHERITED = """
import os, signal
told, tell = os.pipe()
done, do = os.pipe()
if os.fork():
    def end(*_):
        os.write(tell, b".")
        os.read(done, 1)
        os._exit(0)
    signal.signal(signal.SIGTERM, end)
    while True:
        signal.pause()
import mmap
place = os.open("made", os.O_RDWR | os.O_CREAT, 0o644)
os.ftruncate(place, 9)
page = mmap.mmap(place, 9)
page[:9] = b"reviewed\\n"
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
os.read(told, 1)
page[:9] = b"planted!\\n"
os.write(do, b".")
"""
"""The page is of another process than the one that ``ps`` names."""
LATE = """
import os, signal, time
place = os.open("made", os.O_RDWR | os.O_CREAT, 0o644)
os.write(place, b"reviewed\\n")
os.utime(place, ns=(1, 1))
def end(*_):
    os.pwrite(place, b"planted!\\n", 0)
    os.utime(place, ns=(1, 1))
    os._exit(0)
signal.signal(signal.SIGTERM, end)
print("up", flush=True)
while True:
    signal.pause()
"""
"""A write with the times set back: the ctime tells."""


def storing(session: Session, script: str = STORING) -> Background:
    background = session.start([sys.executable.encode(), b"-I", b"-S", b"-c", script.encode()], fork="f")
    heard(background, b"up")
    return background


def shown(session: Session) -> bytes:
    return b"".join(session.changes.diff("f"))


def landed(place: Place) -> bytes | None:
    made = place.project / "made"
    return made.read_bytes() if made.exists() else None


@pytest.mark.parametrize("view", ["overlay", "copy"])
@pytest.mark.parametrize(("script", "names_it"), pairs([STORING, INHERITED, LATE], [False, True]))
def test_what_was_shown_while_a_command_ran_does_not_land(
    place: Place, view: View, script: str, names_it: bool
) -> None:
    session = place.session(Settings(view=view))
    background = storing(session, script)
    look = session.changes.review("f")
    assert b"reviewed" in shown(session) and look.in_use.startswith("is running (")
    assert look.fingerprint.startswith(review.LOOK)
    background.end()
    with pytest.raises(NotReviewed) as refused:
        session.changes.apply("f", reviewed=look.fingerprint if names_it else None)
    assert refused.value.exit_code == 4
    assert refused.value.hint == "mudroom diff f shows it as it is now"
    assert landed(place) is None
    again = session.changes.review("f")
    assert not again.in_use and b"planted!" in shown(session)
    session.changes.apply("f", reviewed=again.fingerprint)
    assert landed(place) == b"planted!\n"
    session.changes.undo()
    assert landed(place) is None


@pytest.mark.parametrize("view", ["overlay", "copy"])
def test_at_level_0(place: Place, view: View) -> None:
    session = place.session(Settings(view=view, level=0))
    background = storing(session)
    look = session.changes.review("f")
    background.end()
    with pytest.raises(NotReviewed):
        session.changes.apply("f", reviewed=look.fingerprint)
    assert landed(place) is None


def test_no_apply_takes_the_fingerprint_that_any_front_door_shows_of_a_fork_in_use(place: Place) -> None:
    session = place.session()
    background = storing(session)
    marks = {
        session.changes.fingerprint("f"),
        session.changes.look("f").fingerprint,
        *(summary.fingerprint for summary in ForkSummaries().all(session.vault)),
    }
    background.end()
    assert all(mark.startswith(review.LOOK) for mark in marks)
    for mark in marks:
        with pytest.raises(NotReviewed):
            session.changes.apply("f", reviewed=mark)
    assert landed(place) is None


def test_a_list_shows_no_contents_and_its_fingerprint_is_a_look(place: Place) -> None:
    session = place.session()
    sh(session, "echo made > made")
    (summary,) = ForkSummaries().all(session.vault)
    with pytest.raises(NotReviewed):
        session.changes.apply("f", reviewed=summary.fingerprint)
    session.forks.discard("f", summary.fingerprint)  # nothing lands by it
    assert session.vault.find("f") is None


def test_a_fork_that_was_never_looked_at_is_applied_on_request(place: Place) -> None:
    session = place.session()
    storing(session).end()
    session.changes.apply("f")
    assert landed(place) == b"planted!\n"


def test_a_review_before_the_command_does_not_cover_it(place: Place) -> None:
    session = place.session()
    sh(session, "printf 'reviewed\\n' > made")
    before = session.changes.review("f")
    assert not before.in_use
    storing(session).end()
    with pytest.raises(ForkMoved):
        session.changes.apply("f", reviewed=before.fingerprint)
    assert landed(place) is None


def test_a_checkpoint_of_a_running_fork_is_reviewed_by_itself(place: Place) -> None:
    session = place.session()
    background = storing(session)
    session.forks.checkpoint("f", "point")
    session.forks.new("g", parent="f", at="point")
    look = session.changes.review("g")
    background.end()
    assert not look.in_use
    session.changes.apply("g", reviewed=look.fingerprint)
    assert landed(place) == b"reviewed\n"


def test_a_reader_that_holds_the_lock_is_waited_for(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another page or `diff` holds it for moments. Without the lock the look would be no review."""
    session = place.session()
    sh(session, "echo made > made")
    fork = session.vault.fork("f")
    tries = []
    with fork.lock("mudroom diff"):
        monkeypatch.setattr("mudroom.session.forks.PATIENCE", 0.0)
        tries.append(place.session().changes.look("f").in_use)
    tries.append(session.changes.look("f").in_use)
    assert tries == ["is in use (mudroom diff)", ""]


@pytest.mark.parametrize("view", ["overlay", "copy"])
def test_the_rest_of_an_apply_is_shown(place: Place, view: View) -> None:
    """An apply seals a copy into a layer, whose files the record names from then on."""
    place.write("a.txt", "one\n")
    session = place.session(Settings(view=view))
    sh(session, "echo theirs > a.txt; echo new > new.txt")
    place.write("a.txt", "mine\n")
    assert session.changes.apply("f").applied.conflicts
    look = session.changes.review("f")
    assert b"+theirs" in b"".join(session.changes.diff("f", reviewed=look.changeset.changes))
    ((_change, _base, staged),) = session.changes.texts("f", reviewed=look.changeset.changes)
    assert staged == b"theirs\n"


def mounted(session: Session) -> Path:
    session.forks.new("f")
    return Path(os.fsdecode(session.forks.mount("f", kind=None).place))


def test_a_look_at_a_mounted_fork_is_no_review(place: Place) -> None:
    session = place.session()
    at = mounted(session)
    (at / "made").write_text("shown\n")
    look = session.changes.review("f")
    assert look.in_use == f"is mounted at {at}"
    with session.alone("a test"), pytest.raises(MudroomError) as refused:
        session.changes.apply("f")
    if session.forks.mounts()["f"].kind == "copy":
        assert "is mounted at" in refused.value.message
    else:
        assert refused.value.hint == "mudroom unmount f, then mudroom diff f shows it as it is now"
    session.forks.unmount("f")
    with session.alone("a test"), pytest.raises(NotReviewed):
        session.changes.apply("f", reviewed=look.fingerprint)
    assert landed(place) is None
    with session.alone("a test"):
        session.changes.apply("f", reviewed=session.changes.review("f").fingerprint)
    assert landed(place) == b"shown\n"


@pytest.fixture
def whole_seconds(tmp_path: Path) -> Iterator[Path]:
    """A file system that stamps whole seconds: ext4 with inodes of 128 bytes."""
    if os.geteuid() != 0:
        pytest.skip("mounting file systems needs root")
    image, at = tmp_path / "image", tmp_path / "at"
    at.mkdir()
    with open(image, "wb") as stream:
        stream.truncate(64 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-I", "128", str(image)], check=True, capture_output=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(at)], check=True)
    yield at
    subprocess.run(["umount", "-l", str(at)], check=True)


@pytest.mark.root
@pytest.mark.parametrize("view", ["overlay", "copy"])
def test_where_files_are_stamped_with_whole_seconds(place: Place, whole_seconds: Path, view: View) -> None:
    """The second command writes the same number of bytes within the second of the first."""
    for name in ("project", "state"):
        (whole_seconds / name).mkdir()
    place.project, place.state = whole_seconds / "project", whole_seconds / "state"
    session = place.session(Settings(view=view))
    sh(session, "printf 'reviewed\n' > made")
    look = session.changes.review("f")
    sh(session, "printf 'planted!\n' 1<> made")
    with pytest.raises(ForkMoved):
        session.changes.apply("f", reviewed=look.fingerprint)
    assert landed(place) is None
    session.close()


MAPPED = """
import mmap, os
place = os.open("made", os.O_RDWR)
page = mmap.mmap(place, 9)
page[0]  # a read makes the page writable there: the store is no fault
page[:9] = b"planted!\\n"
"""


@pytest.fixture
def in_memory() -> Iterator[Path]:
    """A directory on tmpfs, whose files keep their times when a mapped page is written."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as at:
        assert is_in_memory(at.encode())
        yield Path(at)


@pytest.mark.parametrize("view", ["overlay", "copy"])
@pytest.mark.parametrize("point", [False, True])
def test_where_stores_to_mapped_pages_change_no_time(place: Place, in_memory: Path, view: View, point: bool) -> None:
    for name in ("project", "state"):
        (in_memory / name).mkdir()
    place.project, place.state = in_memory / "project", in_memory / "state"
    session = place.session(Settings(view=view))
    sh(session, "printf 'reviewed\n' > made; printf 'other\n' > other")
    if point:
        session.forks.checkpoint("f", "point")
        sh(session, "printf 'reviewed\n' > made")
    look = session.changes.review("f")
    assert not look.in_use and session.changes.review("f").fingerprint == look.fingerprint
    session.run([sys.executable.encode(), b"-I", b"-S", b"-c", MAPPED.encode()], fork="f")
    with pytest.raises(ForkMoved):
        session.changes.apply("f", reviewed=look.fingerprint)
    assert landed(place) is None
    assert b"planted!" in shown(session)
    result = sh(session, "true")
    session.changes.apply("f", reviewed=review.fingerprint(result.changeset))
    assert landed(place) == b"planted!\n"
    session.close()


@pytest.mark.parametrize("view", ["overlay", "copy"])
def test_a_file_that_is_exchanged_while_it_is_shown(place: Place, view: View) -> None:
    """Directories are renamed, which changes no file in them: the review is of the first file before and after."""
    place.write("d/made", "old\n")
    session = place.session(Settings(view=view))
    sh(session, "rm -r d; mkdir d; printf 'planted!\n' > d/made; touch -d @1 d/made")
    look = session.changes.review("f")
    changes = look.changeset.changes
    sh(session, "mv d e; mkdir d; printf 'reviewed\n' > d/made; touch -d @1 d/made")
    assert b"+reviewed" in shown(session)
    with pytest.raises(ForkMoved):
        b"".join(session.changes.diff("f", reviewed=changes))
    with pytest.raises(ForkMoved):
        list(session.changes.texts("f", reviewed=changes))
    sh(session, "rm -r d; mv e d")
    assert session.changes.review("f").fingerprint == look.fingerprint
    assert b"+planted!" in b"".join(session.changes.diff("f", reviewed=changes))
    assert [new for _change, _old, new in session.changes.texts("f", reviewed=changes)] == [b"planted!\n"]


@pytest.mark.parametrize("meanwhile", [False, True])
def test_a_command_while_both_versions_are_kept(
    place: Place, monkeypatch: pytest.MonkeyPatch, *, meanwhile: bool
) -> None:
    """The copy beside the file is part of the review. A command's change in between is not."""
    place.write("b", "\0old")
    session = place.session()
    sh(session, "printf '\\0theirs' > b; echo seen > made")
    place.write("b", "\0ours, longer")
    session.changes.review("f")
    (conflict,) = session.changes.conflicts("f")
    decide = session.changes.decide

    def late(*words: Any) -> None:
        if meanwhile:
            sh(session, "echo planted > made")
        decide(*words)

    monkeypatch.setattr(session.changes, "decide", late)
    beside = session.changes.keep_both("f", conflict)
    if meanwhile:
        with pytest.raises(ForkMoved):
            session.changes.apply("f")
        assert landed(place) is None
    else:
        session.changes.apply("f")
        assert landed(place) == b"seen\n"
        assert (place.project / os.fsdecode(beside)).read_bytes() == b"\0theirs"
