"""Files copied out of an image, by engines that give more than they should, or unreadable data."""

from __future__ import annotations

import os
import stat
import sys
import tarfile
from pathlib import Path

import pytest

from mudroom.errors import MudroomError, Unsupported
from mudroom.ext.containers.core.container import Engine
from mudroom.ext.containers.core.image import Image, User
from mudroom.ext.containers.engine import image_file, runtime, trial
from mudroom.ext.containers.engine.orphans import OWNER
from mudroom.ext.containers.engine.owner import this_process

ENVIRON = {b"PATH": os.fsencode(os.defpath)}
_ENGINE = """\
import os, signal, sys
path = sys.argv[2].partition(":")[2]
if sys.argv[1] != "cp" or path != "/etc/passwd":
    with open({log!r}, "a") as stream:
        print(*sys.argv[1:], file=stream)
    if sys.argv[1] == "create":
        print("made")
    sys.exit(0 if sys.argv[1] != "cp" else 1)
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
sys.stdout.buffer.write({begin!r})
sys.stdout.flush()
while {endless!r}:
    os.write(1, bytes(1 << 16))
"""


def fake(directory: Path, begin: bytes, *, endless: bool = False) -> Engine:
    """An engine from which only /etc/passwd can be copied: it comes as an archive that begins so."""
    program, log = directory / "docker", str(directory / "log")
    program.write_text(f"#!{sys.executable}\n" + _ENGINE.format(begin=begin, endless=endless, log=log))
    program.chmod(0o755)
    return Engine("docker", os.fsencode(program))


def header(size: int) -> bytes:
    info = tarfile.TarInfo("passwd")
    info.size = size
    return info.tobuf()


def test_a_file_without_an_end_is_not_read(tmp_path: Path) -> None:
    engine = fake(tmp_path, header(1 << 40), endless=True)
    assert image_file._read(engine, b"c", b"/etc/passwd", ENVIRON) == b""


def test_no_more_is_read_than_the_file(tmp_path: Path) -> None:
    engine = fake(tmp_path, header(3) + b"a:b".ljust(512, b"\0"), endless=True)
    assert image_file._read(engine, b"c", b"/etc/passwd", ENVIRON) == b"a:b"
    assert image_file._read(engine, b"c", b"/etc/group", ENVIRON) == b""


@pytest.mark.parametrize("begin", [b"x", b"x" * 2000, header(3), header(3)[:100], header(3) + b"a"])
def test_what_is_no_archive(tmp_path: Path, begin: bytes) -> None:
    with pytest.raises(MudroomError, match="copied /etc/passwd as an invalid archive: "):
        image_file._read(fake(tmp_path, begin), b"c", b"/etc/passwd", ENVIRON)


def test_whose_the_containers_are_that_nobody_starts(tmp_path: Path) -> None:
    engine = fake(tmp_path, header(0))
    image_file._files(engine, Image("x", "sha256:0"), User("u", 1000, 1000, b"/home/u"), ENVIRON)
    assert f"--label {OWNER}={this_process()}" in (tmp_path / "log").read_text()


def test_whose_a_trial_is(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="to start a container"):
        trial.attempt(fake(tmp_path, b""), "x", ENVIRON, os.fsencode(tmp_path))
    assert f"--label {OWNER}={this_process()}" in (tmp_path / "log").read_text()


def test_the_program_needs_no_file_of_the_image(tmp_path: Path) -> None:
    """Nor a file of an image by which its programs would be loaded: /etc/ld.so.preload."""
    made = runtime.provide(os.fsencode(tmp_path))
    assert os.listdir(made) == [b"mudroom-launcher"]
    assert not runtime.is_dynamic(Path(os.fsdecode(made), "mudroom-launcher").read_bytes())
    with open("/bin/sh", "rb") as stream:
        assert runtime.is_dynamic(stream.read())


def test_a_program_that_needs_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "LAUNCHER", b"/bin/sh")
    with pytest.raises(MudroomError) as caught:
        runtime.provide(os.fsencode(tmp_path))
    hint = "install mudroom again with a compiler for static programs: musl-gcc"
    assert str(caught.value) == f"the launcher is not static, as one for containers is: /bin/sh ({hint})"


def test_where_the_files_of_images_are_is_closed_to_others(tmp_path: Path) -> None:
    place = tmp_path / "images/abc"
    image_file._store(bytes(place), {b"passwd": b"x"})
    assert (place / "passwd").read_bytes() == b"x"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (place.parent, place)] == [0o700, 0o700]
