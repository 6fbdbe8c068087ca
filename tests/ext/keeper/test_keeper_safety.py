"""A keeper serves only its own user, and a client gives its environment to no other."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from kept import LEFT, Kept, kept

from test_kept_equal import planted

__all__ = ["kept"]  # a fixture

pytestmark = [pytest.mark.both_users, pytest.mark.root]


def client(kept: Kept) -> subprocess.CompletedProcess[str]:
    return kept.run([kept.program, "status"], KEPT="keeper", SECRET="hunter2")


def test_the_modes(kept: Kept) -> None:
    kept.start()
    directory = Path(os.fsdecode(kept.directory))
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()} == {0o600}


def test_a_directory_that_is_open_to_others_is_not_used(kept: Kept) -> None:
    kept.start()
    for mode, told in ((0o755, LEFT), (0o770, LEFT), (0o701, LEFT), (0o700, b"")):
        os.chmod(kept.directory, mode)
        assert client(kept).stderr == told.decode(), oct(mode)


def test_a_link_in_place_of_the_directory_is_not_followed(kept: Kept) -> None:
    kept.start()
    directory = Path(os.fsdecode(kept.directory))
    directory.rename(directory.with_name("elsewhere"))
    directory.symlink_to("elsewhere")
    assert client(kept).stderr == LEFT.decode()


def test_a_socket_of_somebody_else_gets_nothing(kept: Kept) -> None:
    """Root plants one in the user's directory: even that is seen before a byte is sent."""
    if os.geteuid() != 0:
        pytest.skip("only root can be somebody else")
    directory = Path(os.fsdecode(kept.directory))
    directory.mkdir(parents=True, mode=0o700)
    program = (
        "import os, socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); os.setuid(65534); s.listen();"
        "print('listening', flush=True); c, _ = s.accept(); print(c.recv(65536))"
    )
    words = [sys.executable, "-c", program, kept.names()[-1]]
    with subprocess.Popen(words, cwd=directory, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline() == b"listening\n"
        assert client(kept).stderr == LEFT.decode()
        assert other.stdout.read() == b"b''\n"


def test_a_process_that_says_nothing_is_not_waited_for(kept: Kept) -> None:
    directory = Path(os.fsdecode(kept.directory))
    directory.mkdir(parents=True, mode=0o700)
    with planted(directory, kept.names()[-1]):
        assert client(kept).stderr == LEFT.decode()


def test_one_that_greets_and_ends_has_not_run_the_command(kept: Kept) -> None:
    directory = Path(os.fsdecode(kept.directory))
    directory.mkdir(parents=True, mode=0o700)
    with planted(directory, kept.names()[-1]) as listener:

        def serve() -> None:
            connection, _address = listener.accept()
            with connection:
                connection.send(b"g")
                connection.recv(4)

        thread = threading.Thread(target=serve)
        thread.start()
        assert client(kept).stderr == LEFT.decode()
        thread.join()


def test_another_user_is_refused(kept: Kept) -> None:
    """With a connection that was made by another user, as root could hand it over."""
    if os.geteuid() != 0:
        pytest.skip("only root can be somebody else")
    kept.start()
    program = (
        "import os, socket, sys; os.chdir(sys.argv[1]); os.seteuid(65534);"
        "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[2]); print(s.recv(1))"
    )
    os.chmod(kept.directory, 0o711)
    os.chmod(kept.directory + b"/" + kept.name.encode(), 0o666)
    done = subprocess.run(
        [sys.executable, "-c", program, os.fsdecode(kept.directory), kept.name], capture_output=True, check=False
    )
    assert done.stdout == b"b'r'\n", done.stderr


def test_a_descriptor_of_a_connection_is_no_pass(kept: Kept) -> None:
    """A confined process cannot speak for another one whose connection it has: the kernel says which process sends."""
    kept.start()
    program = """
import marshal, os, socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
assert connection.recv(1)
read, write = os.pipe()
child = os.fork()
if child == 0:
    request = marshal.dumps(([b"mudroom", b"status"], dict(os.environb)))
    socket.send_fds(connection, [len(request).to_bytes(4, "little")], [0, 1, 2, read])
    connection.sendall(request)
    os._exit(0)
os.waitpid(child, 0)
print(connection.recv(1))
"""
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, kept.name],
        cwd=kept.directory,
        env=kept.environment,
        capture_output=True,
        check=False,
    )
    assert done.stdout == b"b'r'\n", done.stderr


def test_nothing_is_written_or_removed_behind_a_link(kept: Kept) -> None:
    """Another user who may write to the state directory planted it; a keeper's start tidies lock files up."""
    elsewhere = kept.place.root / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    for stem in ("yarn", "poetry", "uv", "Cargo"):
        (elsewhere / f"{stem}.lock").write_text("")
        os.utime(elsewhere / f"{stem}.lock", (0, 0))
    before = sorted(elsewhere.iterdir())
    kept.place.state.mkdir()
    Path(os.fsdecode(kept.directory)).symlink_to(elsewhere)
    started = f"start(PROGRAM, os.environb, {kept.wanted()!r})"
    assert kept.ask(started) == "0"
    assert sorted(elsewhere.iterdir()) == before
    before[0].unlink()
    assert kept.ask(started) == "0"
    assert sorted(elsewhere.iterdir()) == before[1:]
