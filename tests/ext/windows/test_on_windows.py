"""What only Windows can do: run by ``dev/wine`` with a Windows Python, and by anybody who has a Windows.

Wine has jobs, pipes, consoles and tokens whose privileges can be taken away; it has no AppContainer, and what it does
not do it often claims to have done. So these are also tests of whether that is noticed. Nothing here says that Windows
itself would do the same.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mudroom.core.confinement.limit import LimitReached, Limits
from mudroom.core.confinement.spec import Copy, SandboxSpec
from mudroom.errors import CommandNotStarted, Unsupported
from mudroom.ext.windows.core.windows_plan import WindowsPlan
from mudroom.ext.windows.win32 import types as w

if sys.platform != "win32":
    pytest.skip("needs Windows, or dev/wine", allow_module_level=True)

import msvcrt

from mudroom.ext.windows.sandbox.native import NativeJobs, native
from mudroom.ext.windows.sandbox.plan import JOB_FLAGS, WindowsCommand, WindowsMachine, compile_plan, system_variables
from mudroom.ext.windows.sandbox.run import KILLED, ConfinedProcess, start
from mudroom.ext.windows.win32.api import FUNCTIONS, CallFailed, Library

WINE = hasattr(ctypes.WinDLL("ntdll"), "wine_get_version")


class TrustingJobs(NativeJobs):
    """Wine holds a job's flags, but says 0 when it is asked for them: believed here, so that the rest can be tried."""

    def limit_flags(self, job: int) -> int:
        return super().limit_flags(job) or (JOB_FLAGS if WINE else 0)


LIBRARY = Library()
NATIVE = native(LIBRARY)._replace(jobs=TrustingJobs(LIBRARY))
ROOT = os.environ["SYSTEMROOT"]
SHELL = ROOT + "\\System32\\cmd.exe"
needs_real = pytest.mark.skipif(WINE, reason="Wine has no AppContainers, restricting SIDs and junctions")


class Box:
    """A job and a token, without what Wine lacks; output goes into a file."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.out = directory / "out.txt"
        self._file = self.out.open("wb")
        self._null = open(os.devnull, "rb")  # noqa: SIM115 - closed in close
        self.running: list[ConfinedProcess] = []

    def plan(self, line: str, program: str = SHELL, **changed: object) -> WindowsPlan:
        limits: Any = changed.get("job", (JOB_FLAGS, 0, 0))
        steps = (
            ("token", w.DISABLE_MAX_PRIVILEGE, ()),
            ("job", *limits),
            ("ui", 0xFF),
            ("messages",),
            changed.get("stdio", ("stdio",)),
            ("create", program, line, f"PATH={ROOT}\\System32\0SYSTEMROOT={ROOT}\0\0", str(self.directory)),
            ("check", False),
            ("resume",),
        )
        return WindowsPlan(1, steps)  # type: ignore[arg-type]

    @property
    def handles(self) -> tuple[int, int, int]:
        null, out = (msvcrt.get_osfhandle(one.fileno()) for one in (self._null, self._file))
        return null, out, out

    def start(self, line: str, **changed: object) -> ConfinedProcess:
        stdio = None if "stdio" in changed else self.handles
        running = start(NATIVE, self.plan(line, **changed), stdio)  # type: ignore[arg-type]
        self.running.append(running)
        return running

    def close(self) -> None:
        for running in self.running:
            assert running.close() == ()
        self._file.close()
        self._null.close()


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    made = Box(tmp_path)
    yield made
    made.close()


def shell(line: str) -> str:
    return f'"{SHELL}" /d /s /c "{line}"'


def test_every_function_is_there_but_those_of_wine() -> None:
    library = Library()
    lacking = {name for name in FUNCTIONS if not library.has(name)}
    missing = {"CreateAppContainerProfile", "DeleteAppContainerProfile"} if WINE else set()
    assert lacking == missing


def test_a_command_runs_in_its_job_and_without_privileges(box: Box) -> None:
    own = NATIVE.tokens.own_token()
    assert NATIVE.tokens.privileges(own)  # there was something to be taken away
    NATIVE.close(own)
    running = box.start(shell("echo hello& exit 7"))
    assert running.wait(60) == 7
    assert box.out.read_bytes().strip() == b"hello"
    assert running.accounting().processes >= 1


def test_all_that_a_command_leaves_behind_ends_with_it(box: Box) -> None:
    running = box.start(shell('start /b "" ping -n 600 127.0.0.1 >nul& start /b "" ping -n 600 127.0.0.1 >nul& exit 3'))
    assert running.wait(60) == 3
    assert running.accounting().processes >= 2
    assert running.accounting().active >= 1
    assert running.close() == ()


def test_a_timeout_ends_everything(box: Box) -> None:
    running = box.start(shell("ping -n 600 127.0.0.1 >nul"))
    assert running.wait(0.2) is None
    running.terminate()
    assert running.wait(60) == KILLED


def test_when_mudroom_is_killed_its_commands_are(tmp_path: Path) -> None:
    """Another Python starts a command and is killed; the job's last handle is gone with it."""
    marker = tmp_path / "running"
    program = tmp_path / "parent.py"
    places = [*sys.path, str(Path(__file__).parent)]
    program.write_text(
        f"import sys; sys.path[:0] = {places!r}\n"
        "import pathlib, test_on_windows as t\n"
        f"box = t.Box(pathlib.Path({str(tmp_path)!r}))\n"
        "made = box.start(t.shell('ping -n 600 127.0.0.1'))\n"
        f"pathlib.Path({str(marker)!r}).write_text(str(made.pid)); made.wait()\n"
    )
    parent = subprocess.Popen([sys.executable, str(program)], stdin=subprocess.DEVNULL)
    try:
        while not (marker.exists() and marker.read_text()):
            assert parent.poll() is None
    finally:
        parent.kill()
        parent.wait()
    kernel = ctypes.WinDLL("kernel32")
    kernel.OpenProcess.restype = ctypes.c_void_p
    handle = kernel.OpenProcess(0x100000, 0, int(marker.read_text()))  # SYNCHRONIZE
    assert not handle or NATIVE.processes.wait(handle, 30_000)


def test_nothing_breaks_away(box: Box, tmp_path: Path) -> None:
    """CREATE_BREAKAWAY_FROM_JOB is refused in a job that does not permit it."""
    program = tmp_path / "away.py"
    program.write_text(
        "import subprocess, sys\n"
        "try:\n"
        "    subprocess.Popen([sys.executable, '-c', ''], creationflags=0x1000000); print('away')\n"
        "except OSError as error:\n"
        "    print('refused', error.winerror)\n"
    )
    running = box.start(f'"{sys.executable}" "{program}"', program=sys.executable)
    assert running.wait(120) == 0
    if WINE:
        assert box.out.read_bytes().split()[0] in (b"refused", b"away")
        assert running.accounting().processes >= 1
    else:
        assert box.out.read_bytes().split() == [b"refused", b"5"]


def test_no_handle_but_three_is_inherited(box: Box, tmp_path: Path) -> None:
    with (tmp_path / "secret").open("wb") as secret:
        handle = msvcrt.get_osfhandle(secret.fileno())
        os.set_handle_inheritable(handle, True)
        program = tmp_path / "look.py"
        program.write_text(
            "import ctypes, sys\n"
            "k = ctypes.WinDLL('kernel32'); f = ctypes.c_uint()\n"
            "print(k.GetHandleInformation(ctypes.c_void_p(int(sys.argv[1])), ctypes.byref(f)) and\n"
            "      k.GetFileType(ctypes.c_void_p(int(sys.argv[1]))) == 1)\n"
        )
        running = box.start(f'"{sys.executable}" "{program}" {handle}', program=sys.executable)
        assert running.wait(120) == 0
    assert box.out.read_bytes().strip() in (b"0", b"False")


def test_quoted_words_arrive(box: Box, tmp_path: Path) -> None:
    from mudroom.ext.windows.core.windows_command import quote

    program = tmp_path / "words.py"
    program.write_text("import sys, json; print(json.dumps(sys.argv[1:]))")
    words = ["", "a b", 'say "hi"', "d\\", "d e\\", 'a\\\\"b', "&calc", "%PATH%", "^x", "\u00e4"]
    running = box.start(quote([sys.executable, str(program), *words]), program=sys.executable)
    assert running.wait(120) == 0
    import json

    assert json.loads(box.out.read_text()) == words


def test_a_batch_file_gets_words_and_nothing_else(box: Box, tmp_path: Path) -> None:
    from mudroom.ext.windows.core.windows_command import quote_batch

    batch = tmp_path / "show it.cmd"
    batch.write_text("@echo [%1] [%2] [%3]\r\n")
    line = quote_batch(SHELL, [str(batch), "a b", "x&echo injected", "c|d"])
    running = box.start(line)
    assert running.wait(60) == 0
    assert box.out.read_bytes().strip() == b'["a b"] ["x&echo injected"] ["c|d"]'


def test_whether_we_are_in_a_job_ourselves(box: Box, tmp_path: Path) -> None:
    program = tmp_path / "inside.py"
    program.write_text(
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        "from mudroom.ext.windows.win32.api import Library\n"
        "from mudroom.ext.windows.sandbox.native import NativeJobs\n"
        "print(NativeJobs(Library()).runs_in_job())\n"
    )
    running = box.start(f'"{sys.executable}" "{program}"', program=sys.executable)
    assert running.wait(120) == 0
    assert box.out.read_bytes().strip() == b"True"


def test_a_program_that_is_not_there(box: Box) -> None:
    with pytest.raises(CommandNotStarted) as raised:
        box.start('"C:\\nowhere.exe"', program="C:\\nowhere.exe")
    assert raised.value.exit_code == 127


def test_a_job_that_loses_its_limits_is_noticed(box: Box) -> None:
    wanted = JOB_FLAGS | w.JOB_OBJECT_LIMIT_ACTIVE_PROCESS | w.JOB_OBJECT_LIMIT_JOB_MEMORY
    if not WINE:
        assert box.start(shell("exit 0"), job=(wanted, 5, 1 << 28)).wait(60) == 0
        return
    with pytest.raises(Unsupported, match="limits of the job"):
        box.start(shell("echo x"), job=(wanted, 5, 1 << 28))
    with pytest.raises(Unsupported, match="limits of the job"):
        start(native(Library()), box.plan(shell("echo x")), box.handles)
    assert box.out.read_bytes() == b""


@needs_real
def test_the_number_of_processes_is_held(box: Box) -> None:
    flags = JOB_FLAGS | w.JOB_OBJECT_LIMIT_ACTIVE_PROCESS
    running = box.start(shell("cmd /c echo second"), job=(flags, 1, 0))
    assert running.wait(60) != 0
    assert b"second" not in box.out.read_bytes()
    assert running.reached(Limits(processes=1)) == (LimitReached("processes", "refused", 1, amount=1),)


def test_a_terminal_of_its_own(box: Box) -> None:
    running = box.start(shell("echo on a terminal& exit 4"), stdio=("terminal", 80, 25))
    assert running.wait(60) == 4
    assert running.console is not None
    try:
        running.resize(100, 40)
    except CallFailed as failed:
        assert WINE and failed.code == 0x80004001  # E_NOTIMPL


def spec(directory: Path) -> SandboxSpec:
    work, scratch, project = (os.fsencode(directory / name) for name in ("work", "scratch", "project"))
    for path in (work, scratch, project):
        os.makedirs(path, exist_ok=True)
    return SandboxSpec(project=project, view=Copy(work), cwd=project, home=b"C:\\", scratch=scratch)


def compiled(directory: Path, line: str, level: int) -> WindowsPlan:
    from mudroom.core.confinement.spec import HostView

    found = spec(directory)
    if level == 0:
        found = found._replace(around=HostView(), network="open")
    command = WindowsCommand(SHELL, ("cmd", "/d", "/c", line), system_variables(dict(os.environ)))
    return compile_plan(found, Limits(), command, WindowsMachine(), os.urandom(16))


@pytest.mark.parametrize("level", [0, 1])
def test_what_wine_cannot_give_is_refused_and_nothing_is_left(box: Box, level: int, tmp_path: Path) -> None:
    """On Windows both run; on Wine neither may, though all calls of level 0 succeed there."""
    plan = compiled(tmp_path, "echo x", level)
    if WINE:
        with pytest.raises(Unsupported) as raised:
            start(NATIVE, plan, box.handles)
        assert "left behind" not in raised.value.hint
        assert box.out.read_bytes() == b""
    else:
        running = start(NATIVE, plan, box.handles)
        assert running.wait(60) == 0
        assert running.close() == ()
        assert box.out.read_bytes().strip() == b"x"


@needs_real
def test_an_appcontainer_reads_and_writes_what_it_was_given(box: Box, tmp_path: Path) -> None:
    (tmp_path / "outside.txt").write_text("secret")
    plan = compiled(tmp_path, f"echo new> here.txt& type {tmp_path}\\outside.txt", 1)
    running = start(NATIVE, plan, box.handles)
    assert running.wait(60) != 0
    assert running.close() == ()
    assert (tmp_path / "work" / "here.txt").read_text().strip() == "new"
    assert b"secret" not in box.out.read_bytes()


def test_errors_carry_their_number() -> None:
    with pytest.raises(CallFailed) as raised:
        LIBRARY.ConvertStringSidToSidW("no SID", ctypes.byref(ctypes.c_void_p()))
    assert raised.value.code == 1337  # ERROR_INVALID_SID
    assert LIBRARY.sid_text(ctypes.addressof(LIBRARY.sid("S-1-5-21-1-2-3-4"))) == "S-1-5-21-1-2-3-4"


def test_rights_come_and_go(tmp_path: Path) -> None:
    sid = "S-1-5-21-9-9-9-9"
    NATIVE.files.grant(str(tmp_path), sid, 0x1200A9)
    NATIVE.files.revoke(str(tmp_path), sid)
    (tmp_path / "policy").write_text("a")
    NATIVE.files.grant(str(tmp_path), sid, 0x1301BF)
    token = NATIVE.tokens.own_token()
    NATIVE.files.protect(
        str(tmp_path / "policy"), (NATIVE.tokens.user(token), "S-1-5-18", "S-1-5-32-544"), sid, 0x1200A9
    )
    NATIVE.close(token)
    (tmp_path / "policy").write_text("still ours")
    NATIVE.files.unprotect(str(tmp_path / "policy"), sid)
    with pytest.raises(CallFailed) as raised:
        NATIVE.files.protect(str(tmp_path / "nothing"), (), sid, 1)
    assert raised.value.code in (2, 3)
    with pytest.raises(CallFailed) as raised:
        NATIVE.files.grant(str(tmp_path / "nothing"), sid, 1)
    assert raised.value.code in (2, 3)


@needs_real
def test_a_junction_is_given_nothing(tmp_path: Path) -> None:
    target, junction = tmp_path / "target", tmp_path / "junction"
    target.mkdir()
    subprocess.run([SHELL, "/d", "/c", "mklink", "/J", str(junction), str(target)], check=True)
    with pytest.raises(CallFailed) as raised:
        NATIVE.files.grant(str(junction), "S-1-5-21-9-9-9-9", 1)
    assert raised.value.code == w.ERROR_CANT_RESOLVE_FILENAME


def test_quoting_against_windows_own_parser() -> None:
    import random

    from mudroom.ext.windows.core.windows_command import quote

    shell32, kernel32 = ctypes.WinDLL("shell32"), ctypes.WinDLL("kernel32")
    shell32.CommandLineToArgvW.restype = ctypes.POINTER(ctypes.c_wchar_p)
    shell32.CommandLineToArgvW.argtypes = [ctypes.c_wchar_p, ctypes.POINTER(ctypes.c_int)]
    kernel32.LocalFree.argtypes = [ctypes.c_void_p]
    chosen = random.Random(8)
    for _ in range(2000):
        words = [
            "".join(chosen.choices('ab \\"\t&%^\u00e4', k=chosen.randrange(9))) for _ in range(chosen.randrange(5))
        ]
        count = ctypes.c_int()
        found = shell32.CommandLineToArgvW(quote(["C:\\a b\\c.exe", *words]), ctypes.byref(count))
        assert [found[i] for i in range(count.value)] == ["C:\\a b\\c.exe", *words]
        kernel32.LocalFree(ctypes.cast(found, ctypes.c_void_p))


@pytest.mark.parametrize(
    "name", [b"a", b"console", b"com10", b"a b", b"x" * 200, "ä😀".encode(), b"~1a", b".a", b"a.b"]
)
def test_names_that_may_land_are_made_as_they_are(tmp_path: Path, name: bytes) -> None:
    from mudroom.core.tree.windows_name import why_no_name

    assert why_no_name(name) is None
    (tmp_path / os.fsdecode(name)).write_bytes(b"")
    assert os.listdir(os.fsencode(tmp_path)) == [name]


@pytest.mark.parametrize("name", ["nul", "NUL", "a.", "a ", "a:b", "a?", "a|b", "a*"])
def test_names_that_may_not_are_not(tmp_path: Path, name: str) -> None:
    from mudroom.core.tree.windows_name import why_no_name

    assert why_no_name(name.encode())
    try:
        with open(f"{tmp_path}\\{name}", "wb"):
            pass
    except OSError:
        return
    assert name not in os.listdir(tmp_path) or (WINE and ":" in name)  # it has no streams


def test_two_names_that_are_one_there(tmp_path: Path) -> None:
    from mudroom.core.tree.windows_name import fold

    for lower, upper in (("a", "A"), ("\u00e4", "\u00c4"), ("\u0436", "\u0416"), ("\u03c9", "\u03a9")):
        (tmp_path / lower).write_bytes(b"lower")
        assert fold(lower.encode()) == fold(upper.encode())
        assert (tmp_path / upper).read_bytes() == b"lower"
