"""Level 2 as with an engine whose containers run in a virtual machine: sessions, with an engine that is near."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import Place
from engines import EngineHere
from mudroom.core.settings import Settings
from mudroom.errors import Unsupported, UsageError
from mudroom.ext.containers.engine.engine import current
from mudroom.ext.containers.engine.owner import this_process
from mudroom.ext.containers.session import containers
from mudroom.session import Session

BUSYBOX = Path("/bin/busybox")
IMAGE = "mudroom-test-remote:1"


def image_of_busybox() -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name in ("bin", "tmp", "etc"):
            made = tarfile.TarInfo(name)
            made.type, made.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            archive.addfile(made)
        archive.add(BUSYBOX, "bin/busybox")
        for name in ("sh", "cat", "echo", "id", "ls", "rm", "sleep", "env", "tty"):
            made = tarfile.TarInfo(f"bin/{name}")
            made.type, made.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(made)
    return stream.getvalue()


@pytest.fixture
def far(engine: EngineHere, monkeypatch: pytest.MonkeyPatch) -> Iterator[EngineHere]:
    if not BUSYBOX.exists():
        pytest.skip("not installed: busybox-static")
    words = [engine.kind, "import", "-", IMAGE]
    subprocess.run(words, input=image_of_busybox(), env=engine.environ, check=True, capture_output=True)
    monkeypatch.setattr(containers, "current", lambda *words: current(*words)._replace(remote=True))
    yield engine
    engine.ask("rmi", "--force", IMAGE)


@pytest.fixture
def session(far: EngineHere, place: Place) -> Session:
    place.write("kept", "kept\n")
    made = far.session(place, Settings(network="none", image=IMAGE))
    made.forks.new("f")
    return made


def test_what_a_crash_has_left_is_looked_for(session: Session, far: EngineHere) -> None:
    owner = str(this_process()._replace(started=1))
    labels = ("--label=mudroom=0.1.0", f"--label=mudroom.owner={owner}")
    left = far.ask("create", "--network=none", *labels, IMAGE, "sh").strip()
    session.run([b"true"], fork="f")
    session.close()
    assert left not in far.ask("ps", "--all", "--quiet", "--no-trunc").split()


def test_a_command_in_a_copy_at_the_projects_own_path(session: Session, place: Place, far: EngineHere) -> None:
    result = session.run([b"sh", b"-c", b"cat kept; echo x > new; rm kept; echo $HOME; exit 3"], fork="f")
    assert (result.exit_code, result.stderr) == (3, b"")
    assert result.stdout == b"kept\n" + os.fsencode(place.home) + b"\n"
    assert {change.path for change in result.changeset.changes} == {b"kept", b"new"}
    assert far.left(place.root) == []
    assert session.run([b"cat", b"new"], fork="f").stdout == b"x\n"
    session.changes.apply("f")
    assert (place.project / "new").read_text() == "x\n" and not (place.project / "kept").exists()


def test_a_time_limit_ends_all_of_it(session: Session, place: Place, far: EngineHere) -> None:
    result = session.run([b"sh", b"-c", b"sleep 1000 & echo x > made; sleep 1000"], fork="f", timeout=2.0)
    assert result.timed_out
    assert {change.path for change in result.changeset.changes} == {b"made"}
    assert far.left(place.root) == []


def test_what_is_not_there_is_said_by_the_engine(session: Session) -> None:
    result = session.run([b"nosuchprogram"], fork="f")
    assert result.exit_code in (126, 127)  # Docker before 23 says 126
    assert b"nosuchprogram" in result.stdout + result.stderr


def test_nothing_of_the_host_is_in_it(session: Session, place: Place) -> None:
    result = session.run([b"sh", b"-c", b"ls /usr /etc/passwd /.mudroom; ls /; ls /bin/cat"], fork="f")
    assert b"/bin/cat" in result.stdout
    assert b"root:" not in result.stdout
    assert result.stderr.count(b"No such file") >= 2


def test_the_host_itself_cannot_be_shown_there(far: EngineHere, place: Place) -> None:
    session = far.session(place, Settings(network="none"))
    with pytest.raises(Unsupported, match="level 2 without an image"):
        session.run([b"true"])


def test_it_stays_in_the_foreground(session: Session) -> None:
    with pytest.raises((Unsupported, UsageError), match="background"):
        session.start([b"sleep", b"1000"], fork="f")
