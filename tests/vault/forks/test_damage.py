"""What is damaged is named, other forks go on; what is too much, too many or too full is one clear error."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import Place, listing
from mudroom.errors import MudroomError
from mudroom.session.upkeep import problems
from mudroom.stage import disk
from mudroom.vault.forks import flatten
from tiers import QUICK


def damage(place: Place, name: str, content: bytes | None) -> None:
    """Of the fork ``bad``: write over a file of its directory or of its upper layer; None: remove it."""
    vault = next((place.state / "vaults").iterdir())
    layer = (vault / "forks/bad/state").read_text().split("upper ")[1].split()[0]
    path = vault / name.replace("UPPER", f"layers/{layer}").replace("FORK", "forks/bad")
    if content is None:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    else:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("FORK/state", b"", "the state of the fork bad does not begin"),
        ("FORK/state", b"mudroom-fork 2\nupper x\n", "the state of the fork bad is cut off"),
        ("FORK/state", b"mudroom-fork 9\nend\n", "the state of the fork bad has format 9"),
        ("FORK/state", b"mudroom-fork 2\nupper ../../x\nlayers\nbase live\ncreated 1\nend\n", "invalid layer name"),
        ("FORK/state", b"\xff\xfe", "the state of the fork bad"),
        ("FORK/state", None, "the state of the fork bad is missing"),
        ("FORK/record", b"garbage", "record is damaged"),
    ],
)
def test_damage_is_named_and_others_go_on(place: Place, name: str, content: bytes | None, message: str) -> None:
    place.write("file", "one\n")
    session = place.session()
    for fork in ("bad", "good"):
        session.run([b"sh", b"-c", b"echo two >> file"], fork=fork)
    damage(place, name, content)
    again = place.session()
    with pytest.raises(MudroomError, match=message):
        again.run([b"sh", b"-c", b"echo three >> file"], fork="bad")
    assert {change.path for change in again.changes.of("good").changes} == {b"file"}
    assert again.run([b"cat", b"file"], fork="good").stdout == b"one\ntwo\n"
    again.forks.discard("bad")
    assert [fork.name for fork in again.vault.forks()] == ["good"]
    assert again.changes.apply("good").conflicts == ()
    assert (place.project / "file").read_text() == "one\ntwo\n"


@pytest.mark.parametrize("content", [b"", b"\x04" + bytes(7) + b"\xc1\xc1\xc1\xc1", b"\xff\xff"])
def test_a_damaged_index_of_originals_leaves_the_fork_usable(place: Place, content: bytes) -> None:
    """Where the project has changed since is a conflict; the next command writes the index again."""
    for name in ("file", "other"):
        place.write(name, "one\n")
    session = place.session()
    session.run([b"sh", b"-c", b"echo two >> file; echo two >> other"], fork="bad")
    damage(place, "UPPER/originals/index", content)
    place.write("file", "the user's\n")
    again = place.session()
    (problem,) = problems(again)
    assert "originals/index is damaged: " in problem.text
    hint = "mudroom exec --fork bad -- true writes it again"
    assert problem.hint.startswith(hint)
    assert again.run([b"true"], fork="bad").exit_code == 0
    assert problems(again) == []
    assert again.run([b"sh", b"-c", b"echo new > new"], fork="bad").exit_code == 0
    assert [conflict.path for conflict in again.changes.apply("bad").conflicts] == [b"file"]
    assert (place.project / "file").read_text() == "the user's\n"
    assert (place.project / "other").read_text() == "one\ntwo\n"
    assert (place.project / "new").read_text() == "new\n"


def test_a_layer_that_is_missing(place: Place) -> None:
    session = place.session()
    session.run([b"sh", b"-c", b"echo 1 > a"], fork="bad")
    session.forks.checkpoint("bad", "point")
    sealed = session.vault.fork("bad").state.layers[0]
    shutil.rmtree(os.fsdecode(session.vault.layer(sealed)))
    with pytest.raises((MudroomError, OSError), match=sealed):
        place.session().run([b"true"], fork="bad")


def test_very_many_checkpoints(place: Place) -> None:
    session, many = place.session(), 60 if QUICK else 120
    for number in range(many):
        session.forks.files("deep").write("count", f"{number}") if number else session.forks.new("deep")
        session.forks.checkpoint("deep", f"p{number}")
        if number % 30 == 29:
            session.run([b"true"], fork="deep")
    fork = session.vault.fork("deep")
    assert len(fork.state.checkpoints) == many
    assert len(fork.state.layers) <= flatten.DEEP + 30
    assert session.run([b"cat", b"count"], fork="deep").stdout == b"%d" % (many - 1)
    session.forks.rollback("deep", "p57")
    assert session.run([b"cat", b"count"], fork="deep").stdout == b"57"
    session.forks.rollback("deep", f"p{many - 1}")
    assert session.forks.files("deep").read("count") == b"%d" % (many - 1)


@pytest.mark.deep
@pytest.mark.slow
def test_twenty_thousand_deletions(place: Place) -> None:
    for number in range(20_000):
        if number % 1000 == 0:
            (place.project / f"d{number // 1000}").mkdir()
        (place.project / f"d{number // 1000}" / f"f{number}").touch()
    before = listing(place.project)
    session = place.session()
    result = session.run([b"sh", b"-c", b"rm -rf ./*"], fork="f")
    assert len(result.changeset.changes) == 20_020
    session.forks.checkpoint("f", "empty")
    assert session.run([b"ls"], fork="f").stdout == b""
    landed = session.changes.apply("f")
    assert landed.conflicts == ()
    assert os.listdir(place.project) == []
    session.changes.undo()
    assert listing(place.project) == before


def test_out_of_descriptors_is_one_line(place: Place) -> None:
    import resource

    place.write("file", "x")
    program = [sys.executable, "-m", "mudroom", "run", "--yes", "--", "touch", "made"]
    environment = {**os.environ, "HOME": str(place.home), "MUDROOM_STATE": str(place.state)}
    done = subprocess.run(
        program,
        cwd=place.project,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (9, 9)),
        check=False,
    )
    assert done.returncode == 125
    assert "Traceback" not in done.stderr
    assert os.listdir(place.project) == ["file"]


@pytest.mark.both_users
@pytest.mark.root
@pytest.mark.skipif(disk.user() != 0, reason="mounting a small disk needs root")
def test_a_full_disk_loses_nothing(place: Place, tmp_path: Path) -> None:
    place.state.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m,mode=0700", "none", str(place.state)], check=True)
    try:
        session = place.session()
        session.forks.new("f")
        files = session.forks.files("f")
        files.write("small", "kept")
        session.forks.flush("f")
        files.write("large", os.urandom(4_000_000))
        with pytest.raises((OSError, MudroomError), match="No space left"):
            session.forks.flush("f")
        assert files.read("small") == b"kept"
        assert len(files.read("large")) == 4_000_000, "the buffer still has it"
        files.delete("large")
        session.forks.checkpoint("f", "after")
        assert {change.path for change in session.changes.of("f").changes} == {b"small"}
        session.close()
    finally:
        place.close()
        subprocess.run(["umount", "-l", str(place.state)], check=True)


def test_what_a_newer_mudroom_has_written_is_not_to_be_removed(place: Place) -> None:
    session = place.session()
    session.run([b"sh", b"-c", b"echo two >> file"], fork="bad")
    damage(place, "FORK/state", b"mudroom-fork 9\nend\n")
    with pytest.raises(MudroomError) as caught:
        place.session().changes.of("bad")
    assert caught.value.hint == "upgrade mudroom"
