"""The program of a sandbox's processes until their exec: a copy in memory, of which no command can change anything."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from box import ENVIRONMENT, HELD_KINDS, Box, Conversation, if_namespaces, tree
from mudroom.core.system.launcher import LAUNCHER
from mudroom.errors import CommandNotStarted
from mudroom.sandbox.client import launcher_client
from mudroom.sandbox.client.capture import CapturedOutput, attend
from mudroom.sandbox.client.held import HeldSandbox, hold
from mudroom.sandbox.client.invocation import Invocation
from mudroom.sandbox.client.launcher_client import LauncherClient, SpawnedLauncher
from mudroom.sandbox.client.report import StepFailed
from native_init import PROTOCOL, RawLauncher, message

pytestmark = [pytest.mark.both_users, pytest.mark.root]

GET_SEALS, SEALS, SEAL_OF_MODE = 1034, 0x0F, 0x20
"""fcntl(2). The last: Linux 6.3."""


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    client = LauncherClient(SpawnedLauncher())
    client.start()
    yield Box(tmp_path, client)
    client.close()


def seals_of(path: str) -> int:
    opened = os.open(path, os.O_RDONLY)
    try:
        return fcntl.fcntl(opened, GET_SEALS)
    finally:
        os.close(opened)


@pytest.mark.parametrize("kind", [*HELD_KINDS, *(("overlay standing",) if len(HELD_KINDS) > 1 else ())])
def test_every_process_of_a_sandbox_has_the_sealed_program(box: Box, kind: str) -> None:
    """Inits and spares are not dumpable, so root alone sees their programs. All are clones of those that are seen."""
    talk = Conversation(box, kind, "echo up; read word")
    assert talk.hear() == "up"
    launcher = box.client.launcher.require_pid()
    own = os.stat(f"/proc/{launcher}/exe")
    seen = 0
    for pid in tree(launcher):
        name = Path(f"/proc/{pid}/comm").read_text().strip()
        try:
            status = os.stat(f"/proc/{pid}/exe")
        except PermissionError:
            assert os.geteuid() != 0
            continue
        if name == "mudroom-init":
            assert (status.st_dev, status.st_ino) == (own.st_dev, own.st_ino)
            assert seals_of(f"/proc/{pid}/exe") & SEALS == SEALS
            seen += 1
    assert seen >= (2 if os.geteuid() == 0 else 1)
    assert talk.end() == 0


def test_neither_content_nor_right_to_execute_can_be_changed() -> None:
    """Not even by this process, which has made it."""
    program = launcher_client.sealed_program()
    path = f"/proc/self/fd/{program}"
    assert Path(path).read_bytes() == Path(os.fsdecode(LAUNCHER)).read_bytes()
    if fcntl.fcntl(program, GET_SEALS) & SEAL_OF_MODE:
        with pytest.raises(PermissionError):
            os.fchmod(program, 0)
    with pytest.raises(PermissionError):
        os.truncate(path, 0)
    with open(path, "r+b", buffering=0) as stream, pytest.raises(PermissionError):
        stream.write(b"x")
    os.close(program)


NONE_FOR_ANYBODY = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", tag, 0, -1) for tag in (1, 4, 0x20))
"""acl(5): owner, group and others may do nothing."""


def test_a_launcher_whose_program_was_made_useless_is_the_last_of_it(box: Box) -> None:
    """No seal prevents a change of the mode by an access control list."""
    plan = (lambda: None) if len(HELD_KINDS) > 1 else box.bare
    assert box.run("true", plan())[0].status == 0
    launcher = box.client.launcher.require_pid()
    try:
        os.setxattr(f"/proc/{launcher}/exe", "system.posix_acl_access", NONE_FOR_ANYBODY)
    except OSError as error:
        assert error.errno == errno.EOPNOTSUPP  # of a kernel without such lists
    for _number in range(3):
        assert box.run("true", plan())[0].status == 0
    other = LauncherClient(SpawnedLauncher())
    other.start()
    assert Box(box.root / "other", other).run("true", plan())[0].status == 0
    other.close()


def test_the_launcher_holds_no_file_of_the_host(box: Box) -> None:
    """An open one would keep its file system busy."""
    assert box.run("true", None if len(HELD_KINDS) > 1 else box.bare())[0].status == 0
    launcher = box.client.launcher.require_pid()
    links = [os.readlink(entry.path) for entry in os.scandir(f"/proc/{launcher}/fd") if int(entry.name) > 2]
    assert not [link for link in links if link.startswith("/")], links


def test_a_launcher_that_is_not_sealed_starts_no_sandbox_with_mounts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = tmp_path / "launcher"
    shutil.copy(os.fsdecode(LAUNCHER), plain)
    monkeypatch.setattr(launcher_client, "_sealed", lambda _content: os.open(plain, os.O_RDONLY))
    client = LauncherClient(SpawnedLauncher())
    client.start()
    box = Box(tmp_path, client)
    for kind in {kind.partition(" ")[0] for kind in HELD_KINDS} - {"bare"}:
        with pytest.raises(StepFailed, match="it is not sealed") as caught:
            box.run("true", box.prepared(kind))
        assert caught.value.op == "program"
    if "bare" in HELD_KINDS:
        assert box.run("true", box.bare())[0].status == 0
    client.close()


def test_a_launcher_that_was_started_by_hand_says_so() -> None:
    for words in ([], ["x"], ["2"], ["99"], ["3", "4"], ["-1"], ["9" * 30], ["connect"], ["3x"]):
        reader, writer = os.pipe()
        actions = [(os.POSIX_SPAWN_DUP2, writer, 2)]
        child = os.posix_spawn(os.fsdecode(LAUNCHER), [PROTOCOL, *words], {}, file_actions=actions)
        os.close(writer)
        with open(reader) as said:
            assert "mudroom starts this program itself" in said.read(), words
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 125


def test_in_a_container_it_seals_itself(tmp_path: Path) -> None:
    """There it is started by its path, and connects to the host."""
    plain = tmp_path / "launcher"
    shutil.copy(os.fsdecode(LAUNCHER), plain)
    for more in ([], ["unreadable"]):
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(tmp_path / f"door{len(more)}"))
            listening.listen()
            words = [PROTOCOL, "connect", str(tmp_path / f"door{len(more)}"), *more]
            child = os.posix_spawn(str(plain), words, {})
            control, _address = listening.accept()
        with control:
            control.sendall(message({"op": "signal", "id": 5, "signal": 0}))
            if not more or os.geteuid() == 0:
                assert seals_of(f"/proc/{child}/exe") & SEALS == SEALS
                assert os.readlink(f"/proc/{child}/exe").startswith("/memfd:")
            else:
                with pytest.raises(PermissionError):
                    os.readlink(f"/proc/{child}/exe")
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    gone = os.posix_spawn(str(plain), [PROTOCOL, "connect", str(tmp_path / "nowhere")], {})
    assert os.waitstatus_to_exitcode(os.waitpid(gone, 0)[1]) == 125


def test_a_launcher_leaves_no_descriptor_of_its_host_open() -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    launcher = RawLauncher()
    os.close(writer)
    assert os.read(reader, 1) == b""
    os.close(reader)
    assert launcher.end() == 0


# --- no command runs it ---


@pytest.mark.parametrize("kind", HELD_KINDS)
def test_no_program_is_init_s_own(box: Box, kind: str) -> None:
    """Until its exec a command's process has the launcher's program in /proc/self/exe (compare CVE-2019-5736)."""
    place = box.project if kind.startswith("overlay") else box.copy
    write_scripts(place, "swap")
    for name, content, mode in (("unreadable", "#!/proc/self/exe try\n", 0o111), ("second", "#! \tscript.sh\n", 0o755)):
        (place / name).write_text(content)
        (place / name).chmod(mode)
    (place / "link").symlink_to("/proc/self/exe")
    sandbox = hold(box.client, box.prepared(kind))
    try:
        where = os.fsencode(place if kind == "bare" else box.project)
        links = [b"/proc/self/exe", b"/proc/thread-self/exe", b"./link", *([b"/proc/1/exe"] if kind != "bare" else [])]
        for word in (*links, b"./script.sh", b"./second", b"./unreadable"):
            assert joined(sandbox, where, [word, b"try"]) == "refused to start", word
    finally:
        sandbox.end()


PAY = (
    f"NONE = {NONE_FOR_ANYBODY!r}"
    + """
import os, socket, struct, sys
door = socket.socket(socket.AF_UNIX)
door.bind("door")
door.listen()
door.setblocking(False)
print("up", flush=True)
def pay():
    try:
        caught = door.accept()[0]
    except BlockingIOError:
        return
    pid = struct.unpack("3i", caught.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
    exe = f"/proc/{pid}/exe"
    for act in (
        lambda: os.truncate(exe, 0),
        lambda: os.write(os.open(exe, os.O_WRONLY), b"x"),
        lambda: os.chmod(exe, 0),
        lambda: os.setxattr(exe, "system.posix_acl_access", NONE),
    ):
        try:
            act()
        except OSError:
            pass
    print("caught", flush=True)
while True:
    pay()
"""
)
SWAP = """
    os.symlink("/proc/self/exe", "new")
    os.rename("new", "script.sh")
    os.link("good.sh", "new")
    os.rename("new", "script.sh")
"""
CHAIN = """
    os.link("bad.sh", "new")
    os.rename("new", "second.sh")
    os.link("good.sh", "new")
    os.rename("new", "second.sh")
"""
WAYS = {"swap": SWAP, "script of script": CHAIN}
"""What a command in the background does, while another one is started again and again."""


def write_scripts(place: Path, way: str) -> None:
    for name, text in (
        ("beside.py", PAY + WAYS[way]),
        ("bad.sh", "#!/proc/self/exe connect\n"),
        ("good.sh", "#!/bin/true\n"),
        ("second.sh", "#!/bin/true\n"),
        ("script.sh", "#!./second.sh\n" if way == "script of script" else "#!/proc/self/exe connect\n"),
    ):
        (place / name).write_text(text)
        (place / name).chmod(0o755)


def joined(sandbox: HeldSandbox, where: bytes, words: list[bytes]) -> str:
    """Return the output of a command that joins, or that it was not started."""
    with CapturedOutput(None, None, None, 1 << 20) as output:
        running = sandbox.run(Invocation(words, ENVIRONMENT, output.descriptors), where)
        for stream in output.streams:
            stream.close_theirs()
        try:
            attend(running, output, 2.0, lambda: None)  # one that has won the race serves the other
        except CommandNotStarted as refused:
            assert refused.exit_code == 126
            return "refused to start"
        running.wait_gone()
        return "".join(stream.data.decode() for stream in output.streams)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", [kind for kind in HELD_KINDS if kind != "bare"])
def test_a_command_that_wins_the_race_changes_nothing(box: Box, kind: str, way: str) -> None:
    """No look at a path before the exec prevents that another process exchanges the file. The launcher's program then
    runs as the command, and another command sees it in /proc."""
    place = box.project if kind.startswith("overlay") else box.copy
    where = os.fsencode(place if kind == "bare" else box.project)
    write_scripts(place, way)
    content = Path(os.fsdecode(LAUNCHER)).read_bytes()
    sandbox = hold(box.client, box.prepared(kind))
    try:
        with CapturedOutput(None, None, None, 1 << 20) as output:
            words = [b"/usr/bin/python3", b"-IS", b"beside.py"]
            beside = sandbox.run(Invocation(words, ENVIRONMENT, output.descriptors), where)
            for stream in output.streams:
                stream.close_theirs()
            assert os.read(output.streams[0].read, 3) == b"up\n"
            for _number in range(25):
                joined(sandbox, where, [b"./script.sh", b"connect", b"door"])
            beside.close()
    finally:
        sandbox.end()
    own = f"/proc/{box.client.launcher.require_pid()}/exe"
    assert Path(os.fsdecode(LAUNCHER)).read_bytes() == content
    if os.stat(own).st_mode & 0o777:
        assert Path(own).read_bytes() == content
    assert box.run("exit 3", box.prepared(kind))[0].status == 3 << 8
    other = LauncherClient(SpawnedLauncher())
    other.start()
    assert Box(box.root / "other", other).run("exit 4")[0].status == 4 << 8
    other.close()


@if_namespaces
def test_a_program_in_the_view_is_not_taken_for_it(box: Box) -> None:
    (box.project / "other").symlink_to("/bin/echo")
    sandbox = hold(box.client, box.plan())
    assert joined(sandbox, os.fsencode(box.project), [b"./other", b"ran"]) == "ran\n"
    sandbox.end()
