"""Links that somebody in a container has put where mudroom's own files are: none is followed, and it is said."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from conftest import Place
from mudroom.core.settings import Settings, ViewChoice
from mudroom.core.tree.change import Changeset
from mudroom.core.tree.entry import Entry
from mudroom.errors import MudroomError
from mudroom.session import Session
from mudroom.stage.originals.original import SMALL, Original, Originals, append_rows
from mudroom.stage.views.overlay import OverlayView
from mudroom.vault.record import FORK_FORMAT, ForkRecord, load, save

pytestmark = [pytest.mark.both_users, pytest.mark.root]

FILE = Entry("file", 0o644, 3, b"", 1, 1, 1, 0, 0, 0, 0)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Of the host, and none of a command's business."""
    place = tmp_path / "target"
    place.mkdir()
    (place / "theirs").write_text("theirs\n")
    place.chmod(0o711)
    return place


def untouched(target: Path) -> bool:
    names, mode = os.listdir(target), stat.S_IMODE(target.stat().st_mode)
    return (names, mode, (target / "theirs").read_text()) == (["theirs"], 0o711, "theirs\n")


def layer(session: Session) -> Path:
    """Of the fork ``f``, in which a command has run."""
    session.run([b"sh", b"-c", b"echo one >f"], fork="f")
    return Path(os.fsdecode(session.vault.layer(session.vault.fork("f").state.upper)))


@pytest.mark.parametrize(
    ("view", "name"), [("overlay", "upper"), ("overlay", "work"), ("copy", "plain"), ("copy", "plain/npm")]
)
def test_a_cache(place: Place, target: Path, view: ViewChoice, name: str) -> None:
    session = place.session(Settings(view=view))
    session.run([b"true"], fork="f")
    planted = Path(os.fsdecode(session.vault.fork("f").path)) / "caches" / name
    planted.rename(planted.with_name("moved"))
    planted.symlink_to(target)
    with pytest.raises(MudroomError, match=rf"caches/{name} is not a directory that mudroom made"):
        session.run([b"sh", b"-c", b"echo mine >~/.npm/mine"], fork="f")
    assert untouched(target)


def test_the_tree_of_a_layer(place: Place, target: Path) -> None:
    session = place.session()
    tree = layer(session) / "tree"
    tree.rename(tree.parent / "other")
    tree.symlink_to(target)
    with pytest.raises(MudroomError, match=r"tree is not a directory that mudroom made") as caught:
        session.run([b"sh", b"-c", b"echo mine >mine; rm -f theirs"], fork="f")
    assert "\n" not in str(caught.value)
    assert untouched(target)


def test_originals(place: Place, target: Path) -> None:
    place.write("big", b"x" * (SMALL + 1))
    place.write("g", "one\n")
    session = place.session()
    (layer(session) / "originals").symlink_to(target)
    with pytest.raises(MudroomError, match=r"originals is not a directory that mudroom made"):
        session.run([b"sh", b"-c", b"echo two >g; echo two >big"], fork="f")
    assert untouched(target)


@pytest.mark.parametrize("name", ["index", "pack"])
def test_a_file_of_the_originals(tmp_path: Path, target: Path, name: str) -> None:
    place = tmp_path / "layer"
    (place / "originals").mkdir(parents=True)
    (place / "originals" / name).symlink_to(target / "theirs")
    with pytest.raises(MudroomError, match=f"{name} is not a file that mudroom made"):
        found = Originals([os.fsencode(place)])
        found.keep(b"a", FILE, b"abc")
        found.save()
    assert untouched(target)


def test_an_index_that_leads_elsewhere(tmp_path: Path, target: Path) -> None:
    place = os.fsencode(tmp_path / "layer")
    os.makedirs(place + b"/originals")
    at = os.open(place + b"/originals", os.O_RDONLY)
    append_rows(at, b"index", [(b"a", Original(FILE, "../../target/theirs", 0, 6))])
    os.close(at)
    with pytest.raises(MudroomError, match="it names an invalid original"):
        Originals([place])


def test_a_record_is_not_written_through_a_link(tmp_path: Path, target: Path) -> None:
    record = ForkRecord(FORK_FORMAT, "f", "overlay", (), 0, 0, Changeset())
    path = tmp_path / "record"
    (tmp_path / "record.new").symlink_to(target / "theirs")
    path.symlink_to(target / "theirs")
    save(os.fsencode(path), record, durable=False)
    assert load(os.fsencode(path), ForkRecord) == record
    assert untouched(target)
    path.unlink()
    path.symlink_to(target / "theirs")
    with pytest.raises(MudroomError, match="record is not a file that mudroom made"):
        load(os.fsencode(path), ForkRecord)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(MudroomError, match="record is not a file that mudroom made"):
        load(os.fsencode(path), ForkRecord)


@pytest.mark.parametrize("there", ["theirs", "nothing"])
def test_a_layer_is_sealed_with_the_record_of_its_fork(place: Place, target: Path, there: str) -> None:
    session = place.session()
    record = layer(session) / "record"
    record.symlink_to(target / there)
    fork = session.vault.fork("f")
    session.vault.seal(fork)
    assert not record.is_symlink()
    assert [change.path for change in session.vault.fork("f").sealed_changes.changes] == [b"f"]
    assert untouched(target)


def test_work_directories(tmp_path: Path, target: Path) -> None:
    layer = tmp_path / "layer"
    layer.mkdir()
    (layer / "work").symlink_to(target)
    view = OverlayView(os.fsencode(tmp_path), (), os.fsencode(layer / "tree"), os.fsencode(layer / "work"))
    with pytest.raises(MudroomError, match="work is not a directory that mudroom made"):
        view.prepare()
    with pytest.raises(MudroomError, match="work is not a directory that mudroom made"):
        view.tidy()
    (layer / "work").unlink()
    view.prepare()
    view.prepare()  # another mount: with the first one there is nothing to remove
    (layer / "work" / "9").symlink_to(target)
    view.tidy()
    assert os.listdir(layer / "work") == [os.fsdecode(view.work[1])]
    assert untouched(target)
