"""The program of a sandbox's first process: no command changes the file of the host through /proc/self/exe."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from box import ENVIRONMENT, HELD_KINDS, Box, Conversation, if_namespaces
from mudroom.errors import CommandNotStarted
from mudroom.sandbox.client import launcher_client
from mudroom.sandbox.client.capture import CapturedOutput, attend
from mudroom.sandbox.client.held import HeldSandbox, hold
from mudroom.sandbox.client.invocation import Invocation
from mudroom.sandbox.client.launcher_client import LauncherClient, SpawnedLauncher
from mudroom.sandbox.client.report import StepFailed
from native_init import COMPILERS
from own_program import MODE, init_program, is_on_a_read_only_mount, program

__all__ = ["init_program", "program"]  # fixtures

pytestmark = [pytest.mark.both_users, if_namespaces]

KINDS = [kind for kind in HELD_KINDS if kind != "bare"]
"""Without namespaces the host's interpreter is in sight by its path, and the mediator answers chmod(2)."""


@pytest.fixture
def box(tmp_path: Path, program: Path) -> Iterator[Box]:
    del program
    client = LauncherClient(SpawnedLauncher())
    client.start()
    yield Box(tmp_path, client)
    client.close()


PAY = """\
import os
try:
    os.chmod("/proc/self/exe", 0o777)
except OSError as error:
    print("refused", error.errno, flush=True)
else:
    print("changed", flush=True)
"""
LEASE = """\
import fcntl, os, select, signal
held = os.open("script.sh", os.O_RDONLY)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGIO])
fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("up", flush=True)
signal.sigwait([signal.SIGIO])
select.select([], [], [], 0.2)
fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_UNLCK)
signal.pause()
"""
SWAP = """\
import os
print("up", flush=True)
while True:
    os.symlink("/proc/self/exe", "new")
    os.rename("new", "script.sh")
    os.link("good.sh", "new")
    os.rename("new", "script.sh")
"""
CHAIN = """\
import os
print("up", flush=True)
while True:
    os.link("bad.sh", "new")
    os.rename("new", "second.sh")
    os.link("good.sh", "new")
    os.rename("new", "second.sh")
"""
WAYS = {"lease": (LEASE, 1), "swap": (SWAP, 25), "script of script": (CHAIN, 25)}
"""What the background command does, and how often the other command is tried meanwhile."""


def write_scripts(place: Path, way: str) -> None:
    for name, text in (
        ("pay.py", PAY),
        ("beside.py", WAYS[way][0]),
        ("bad.sh", "#!/proc/self/exe pay.py\n"),
        ("good.sh", "#!/bin/true\n"),
        ("second.sh", "#!/bin/true\n"),
        ("script.sh", "#!./second.sh\n" if way == "script of script" else "#!/proc/self/exe pay.py\n"),
    ):
        (place / name).write_text(text)
        (place / name).chmod(0o755)


def joined(sandbox: HeldSandbox, where: bytes, words: list[bytes]) -> str:
    """Return the output of a command that joins, or the error for which it was not started."""
    with CapturedOutput(None, None, None, 1 << 20) as output:
        running = sandbox.run(Invocation(words, ENVIRONMENT, output.descriptors), where)
        for stream in output.streams:
            stream.close_theirs()
        try:
            attend(running, output, None, lambda: None)
        except CommandNotStarted as refused:
            assert refused.exit_code == 126
            return "refused to start"
        running.wait_gone()
        return "".join(stream.data.decode() for stream in output.streams)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", HELD_KINDS)
def test_no_command_reaches_the_interpreter_of_the_host(box: Box, program: Path, kind: str, way: str) -> None:
    place = box.project if kind.startswith("overlay") else box.copy
    where = os.fsencode(place if kind == "bare" else box.project)
    write_scripts(place, way)
    count = WAYS[way][1]
    sandbox = hold(box.client, box.prepared(kind))
    try:
        with CapturedOutput(None, None, None, 1 << 20) as output:
            words = [b"/usr/bin/python3", b"-IS", b"beside.py"]
            other = sandbox.run(Invocation(words, ENVIRONMENT, output.descriptors), where)
            for stream in output.streams:
                stream.close_theirs()
            assert os.read(output.streams[0].read, 3) == b"up\n"
            said = {joined(sandbox, where, [b"./script.sh", b"pay.py"]) for _number in range(count)}
            other.close()
    finally:
        sandbox.end()
    assert oct(program.stat().st_mode & 0o7777) == oct(MODE), said
    assert "changed\n" not in said


def processes_below(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(other for child in children for other in processes_below(int(child)))]


@pytest.mark.parametrize("kind", [*KINDS, "overlay standing"])
def test_every_process_of_a_sandbox_has_a_program_on_a_read_only_mount(box: Box, program: Path, kind: str) -> None:
    """Inits and spares are not dumpable, so root alone sees their programs. All are clones of those that are seen."""
    talk = Conversation(box, kind, "echo up; read word")
    assert talk.hear() == "up"
    launcher = box.client.launcher.require_pid()
    assert is_on_a_read_only_mount(launcher)
    assert os.path.samefile(f"/proc/{launcher}/exe", program)
    seen = 1
    for pid in processes_below(launcher)[1:]:
        try:
            assert is_on_a_read_only_mount(pid), Path(f"/proc/{pid}/comm").read_text()
            seen += 1
        except PermissionError:
            assert os.geteuid() != 0
    assert seen > 2 or os.geteuid() != 0
    assert talk.end() == 0


def test_the_launcher_holds_no_copy_of_the_mounts(box: Box) -> None:
    """An open copy would keep a file system of the host busy."""
    assert box.run("true")[0].status == 0
    launcher = box.client.launcher.require_pid()
    links = [os.readlink(entry.path) for entry in os.scandir(f"/proc/{launcher}/fd") if int(entry.name) > 2]
    assert not [link for link in links if link.startswith("/")], links


REFUSED = """\
from mudroom.sandbox.launcher import program
program.is_changeable = lambda path: True
program._copy_mounts = lambda: program.syscall(-1)
"""


@pytest.mark.parametrize("program", ["python"], indirect=True)
def test_a_launcher_whose_program_stays_on_the_host_s_mount_starts_no_sandbox_with_mounts(
    tmp_path: Path, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = launcher_client._BEGIN.partition("from mudroom")
    monkeypatch.setattr(launcher_client, "_BEGIN", f"{begin[0]}exec({REFUSED!r}); {begin[1]}{begin[2]}")
    client = LauncherClient(SpawnedLauncher())
    client.start()
    box = Box(tmp_path, client)
    for kind in ("overlay", "copy"):
        with pytest.raises(StepFailed, match=f"{program} cannot be mounted read-only"):
            box.run("true", box.prepared(kind))
    if "bare" in HELD_KINDS:
        assert box.run("true", box.bare())[0].status == 0
    client.close()


@pytest.mark.parametrize("place", ["shared memory", "linked"])
def test_a_library_beside_a_program_is_found(tmp_path: Path, init_program: bytes, place: str) -> None:
    """Interpreters of uv and conda name theirs by $ORIGIN (ld.so(8)), also on a mount below another one."""
    if not init_program:
        pytest.skip("no C compiler")
    shared = Path("/dev/shm")
    is_there = place == "shared memory" and not os.statvfs(shared).f_flag & os.ST_NOEXEC
    with tempfile.TemporaryDirectory(dir=shared if is_there else tmp_path) as directory:
        root = Path(directory)
        (root / "bin").mkdir()
        (root / "value.c").write_text("int value(void) { return 42; }\n")
        (root / "main.c").write_text("int value(void);\nint main(void) { return value(); }\n")
        compiler: list[str | Path] = [COMPILERS[0], "-o"]
        subprocess.run([*compiler, root / "libvalue.so", "-shared", "-fPIC", root / "value.c"], check=True)
        words: list[str | Path] = [root / "bin/main", root / "main.c", f"-L{root}", "-lvalue", "-Wl,-rpath,$ORIGIN/.."]
        subprocess.run([*compiler, *words], check=True)
        (tmp_path / "link").symlink_to(root / "bin/main")
        started = tmp_path / "link" if place == "linked" else root / "bin/main"
        assert subprocess.run([os.fsdecode(init_program), started], check=False).returncode == 42
