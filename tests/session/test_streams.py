"""Standard streams: no descriptor of the caller gets into a sandbox, and every byte arrives as if it had."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from background_command import heard
from conftest import Place
from mudroom.core.settings import Settings, ViewChoice
from mudroom.errors import MudroomError
from mudroom.sandbox.client.stream import is_same
from mudroom.session import Session, Stdio

pytestmark = pytest.mark.both_users

SH = (b"sh", b"-c")
ATTACK = b"""
echo said
chmod 4777 /proc/self/fd/1 /proc/self/fd/2 /proc/self/fd/0 2>/dev/null
truncate -s 0 /proc/self/fd/1 2>/dev/null
(exec 3<>/proc/self/fd/0 && echo planted >&3) 2>/dev/null
readlink /proc/$$/fd/0 /proc/$$/fd/1 /proc/$$/fd/2 | sed 's/:.*//' | sort -u > inside
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "build.log"
    path.write_text("before\n")
    path.chmod(0o640)
    return path


@pytest.fixture
def given(log: Path) -> Iterator[int]:
    descriptor = os.open(log, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
    yield descriptor
    os.close(descriptor)


def inside(session: Session) -> set[str]:
    return set(session.forks.files("f").read(b"inside").decode().split())


def attacked(session: Session, log: Path, given: int) -> None:
    result = session.run([*SH, ATTACK], fork="f", stdio=Stdio(given, given, given))
    assert result.exit_code == 0
    assert stat.S_IMODE(log.stat().st_mode) == 0o640
    assert log.read_text() == "before\nsaid\n"
    assert inside(session) == {"pipe"}


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("view", ["overlay", "copy"])
def test_a_file_of_the_caller_is_out_of_reach(
    place: Place, log: Path, given: int, view: ViewChoice, level: int
) -> None:
    attacked(place.session(Settings(view=view), level=level), log, given)


def test_beside_a_command_in_the_background(place: Place, log: Path, given: int) -> None:
    session = place.session()
    server = session.start([*SH, b"echo up; while :; do sleep 0.02; done"], fork="f")
    heard(server, b"up")
    attacked(session, log, given)


def test_nothing_of_the_caller_gets_in(place: Place, tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    read, write = os.pipe()
    directory = os.open(tmp_path, os.O_RDONLY)
    null = os.open(os.devnull, os.O_RDWR)
    session = place.session()
    script = b"readlink /proc/$$/fd/0 /proc/$$/fd/1 /proc/$$/fd/2 | sed 's/:.*//' | sort -u > inside"
    for stdio, seen in (
        ((theirs.fileno(), theirs.fileno(), theirs.fileno()), {"pipe"}),
        ((read, write, write), {"pipe"}),
        ((null, null, null), {"/dev/null"}),
    ):
        session.run([*SH, script], fork="f", stdio=Stdio(*stdio))
        assert inside(session) == seen
    with pytest.raises(MudroomError, match="stdin: Is a directory"):
        session.run([b"cat"], fork="f", stdio=Stdio(directory))
    ours.close()
    theirs.close()
    for descriptor in (read, write, directory, null):
        os.close(descriptor)


@pytest.mark.parametrize("view", ["overlay", "copy"])
@pytest.mark.parametrize("level", [0, 1])
def test_the_devices_of_the_host_keep_their_modes(place: Place, view: ViewChoice, level: int) -> None:
    """Also for root, who owns them."""
    null = os.open(os.devnull, os.O_RDWR)
    before = [os.stat(f"/dev/{name}").st_mode for name in ("null", "zero", "tty")]
    session = place.session(Settings(view=view), level=level)
    change = (
        b"for f in /dev/null /dev/zero /dev/tty /proc/self/fd/0 /proc/self/fd/1; do chmod 666 $f && echo $f >&2; done"
    )
    result = session.run([*SH, change], stdio=Stdio(null, null))
    os.close(null)
    assert not [line for line in result.stderr.decode().splitlines() if not line.startswith("chmod: ")]
    assert [os.stat(f"/dev/{name}").st_mode for name in ("null", "zero", "tty")] == before


def test_the_order_of_both_streams_in_one_file(place: Place, given: int, log: Path) -> None:
    script = b"for i in 1 2 3 4 5 6 7 8 9; do echo out $i; echo err $i >&2; done"
    place.session().run([*SH, script], stdio=Stdio(None, given, given))
    expected = [f"{name} {number}" for number in range(1, 10) for name in ("out", "err")]
    assert log.read_text().splitlines() == ["before", *expected]


def test_two_open_files_of_one_path_write_over_each_other(place: Place, log: Path) -> None:
    """As without mudroom: each has a position of its own."""
    one, two = os.open(log, os.O_WRONLY), os.open(log, os.O_WRONLY)
    place.session().run([*SH, b"echo first; sleep 0.05; echo 2nd >&2"], stdio=Stdio(None, one, two))
    os.close(one)
    os.close(two)
    assert sorted(log.read_text()) == sorted("2nd\nt\ne\n") or log.read_text().startswith("2nd\n")


def test_which_descriptors_are_the_same(log: Path) -> None:
    one, again = os.open(log, os.O_WRONLY), os.open(log, os.O_WRONLY)
    dup = os.dup(one)
    read, write = os.pipe()
    assert is_same(one, dup)
    assert not is_same(one, again)
    assert is_same(read, write)
    assert not is_same(one, write)
    for descriptor in (one, again, dup, read, write):
        os.close(descriptor)


def test_the_position_is_shared_with_the_caller(place: Place, log: Path) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_TRUNC)
    os.write(descriptor, b"a\n")
    place.session().run([b"echo", b"b"], stdio=Stdio(None, descriptor))
    os.write(descriptor, b"c\n")
    os.close(descriptor)
    assert log.read_text() == "a\nb\nc\n"


@pytest.mark.parametrize("script", [b"true", b"dd bs=2 count=1 status=none", b"exec <&-", b"cat"])
@pytest.mark.parametrize("kind", ["file", "pipe"])
def test_input_that_is_not_read_stays_the_callers(place: Place, tmp_path: Path, kind: str, script: bytes) -> None:
    data = b"abcdefgh"
    if kind == "file":
        path = tmp_path / "input"
        path.write_bytes(data)
        source = os.open(path, os.O_RDONLY)
    else:
        source, write = os.pipe()
        os.write(write, data)
        os.close(write)
    result = place.session().run([*SH, script], stdio=Stdio(source))
    rest = os.read(source, 100)
    os.close(source)
    assert result.stdout + rest == data
    assert result.stdout == {b"cat": data, b"true": b"", b"exec <&-": b""}.get(script, b"ab")


def test_a_command_cannot_set_back_the_callers_position_by_writing_into_its_input(place: Place, tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"before" + b"rest")
    source = os.open(path, os.O_RDONLY)
    os.lseek(source, 6, os.SEEK_SET)
    place.session().run([*SH, b"echo a long line of its own > /proc/self/fd/0"], stdio=Stdio(source))
    assert os.lseek(source, 0, os.SEEK_CUR) == 6
    os.close(source)


def test_much_input_and_a_slow_reader(place: Place) -> None:
    data = os.urandom(3_000_000)
    source, fill = os.pipe()
    drain, target = os.pipe()
    found: list[bytes] = []

    def feed() -> None:
        with os.fdopen(fill, "wb") as stream:
            stream.write(data)

    def read() -> None:
        while chunk := os.read(drain, 5000):
            found.append(chunk)

    threads = [threading.Thread(target=feed), threading.Thread(target=read)]
    for thread in threads:
        thread.start()
    flags = [fcntl.fcntl(descriptor, fcntl.F_GETFL) for descriptor in (source, target)]
    result = place.session().run([b"cat"], stdio=Stdio(source, target))
    assert [fcntl.fcntl(descriptor, fcntl.F_GETFL) for descriptor in (source, target)] == flags
    os.close(target)
    for thread in threads:
        thread.join()
    os.close(source)
    os.close(drain)
    assert result.exit_code == 0
    assert b"".join(found) == data


def test_a_reader_that_goes_away_ends_the_command(place: Place) -> None:
    read, write = os.pipe()
    os.close(read)
    result = place.session().run([b"yes"], stdio=Stdio(None, write))
    os.close(write)
    assert result.signal == 13


def test_a_full_disk_is_an_error_and_changes_are_kept(place: Place) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    session = place.session()
    with pytest.raises(MudroomError, match="stdout: No space left on device"):
        session.run([*SH, b"echo kept > made; echo lost"], fork="f", stdio=Stdio(None, full))
    os.close(full)
    assert session.forks.files("f").read(b"made") == b"kept\n"


def test_a_socket_of_the_caller(place: Place) -> None:
    ours, theirs = socket.socketpair()
    ours.sendall(b"to the command")
    ours.shutdown(socket.SHUT_WR)
    result = place.session().run([b"cat"], stdio=Stdio(theirs.fileno(), theirs.fileno()))
    theirs.close()
    assert result.exit_code == 0
    assert ours.recv(100) == b"to the command"
    ours.close()


def test_no_descriptor_is_left_open(place: Place, given: int) -> None:
    session = place.session()
    for _number in range(3):  # the session prepares its sandboxes from the second command on
        session.run([b"true"], fork="f", stdio=Stdio(given, given, given))
    before = len(os.listdir("/proc/self/fd"))
    for _number in range(3):
        session.run([b"cat"], fork="f", stdio=Stdio(given, given, given))
        with pytest.raises(MudroomError, match="not found"):
            session.run([b"no-such-program"], fork="f", stdio=Stdio(given, given, given))
    assert len(os.listdir("/proc/self/fd")) == before
