"""Interactive commands, in real pseudo-terminals: what a person types and sees, and what is left of it afterwards."""

from __future__ import annotations

import _thread
import os
import pty
import re
import shutil
import signal
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from clocks import give_way
from conftest import Place
from mudroom.errors import MudroomError
from mudroom.sandbox.client.terminal import RESTORED, raw, substitutes
from mudroom.session import Stdio
from screen import BASH, PATIENCE, PROGRESS, Screen, Shell
from tiers import each, pairs

MUDROOM = f"{sys.executable} -m mudroom"
pytestmark = pytest.mark.skipif(not BASH, reason="there is no bash")


@pytest.fixture
def screens() -> Iterator[list[Screen]]:
    opened: list[Screen] = []
    yield opened
    for screen in opened:
        os.close(screen.master)
        try:
            os.kill(screen.pid, signal.SIGKILL)
            screen.wait()
        except (ProcessLookupError, ChildProcessError):
            pass


@pytest.fixture
def outside(place: Place, screens: list[Screen]) -> Shell:
    shell = Shell(place)
    screens.append(shell)
    return shell


VIEWS = ["overlay", "copy"]


@pytest.mark.parametrize("view", VIEWS)
def test_a_terminal_of_its_own(outside: Shell, view: str) -> None:
    """It has a name inside, /dev/tty is it, and the size is that of the user's from the first moment on."""
    before = outside.modes()
    outside.resize(33, 111)
    outside.type(f"{MUDROOM} exec --view {view} -- sh -c 'tty; stty size; echo there > /dev/tty; ls /dev/pts'\n")
    outside.expect(r"\r\n/dev/pts/0\r\n33 111\r\nthere\r\n0\s+ptmx\r\n")
    outside.prompt()
    assert outside.modes() == before


HIDING = {
    "a string without an end": r"\033]0;",
    "half a sequence": r"\033[",
    "invisible text": r"\033[8m",
    "another character set": r"\033(0",
    "no wrap, no tab stops": r"\033[?7l\033[3g",
}


@pytest.mark.parametrize(("left", "stdin"), pairs(list(HIDING.values()), ["", " < /dev/null"]))
def test_a_command_does_not_hide_its_preview(outside: Shell, place: Place, left: str, stdin: str) -> None:
    """The display is restored between the command's last byte and the first one of the preview."""
    place.write("leave.sh", f"echo evil > Makefile; printf 'last{left}'\n")
    outside.type(f"{MUDROOM} run -- sh leave.sh{stdin}\n")
    sent = re.escape(left.replace("\\033", "\x1b"))
    outside.expect(f"last{sent}{re.escape(RESTORED.decode())}{PROGRESS}sh leave.sh would change")
    outside.expect("runs by itself later: .*Makefile")
    if not stdin:
        outside.type("c\n")
    outside.prompt()


def test_the_display_is_restored_after_nothing_else(outside: Shell) -> None:
    outside.type(f"{MUDROOM} run -- echo plain\n")
    outside.expect(rf"plain\r\nplain\r\n{PROGRESS}echo plain changed nothing\r\n")
    outside.prompt()


@pytest.mark.parametrize("stdin", ["", " < /dev/null"], ids=["terminal", "pipe"])
def test_a_terminal_that_shows_escape_sequences_gets_none(outside: Shell, stdin: str) -> None:
    outside.type(f"TERM=dumb {MUDROOM} run -- printf '\\033[1mdone\\n'{stdin}\n")
    outside.expect("\x1b\\[1mdone\r\nprintf")
    outside.prompt()


def test_a_python_prompt(outside: Shell) -> None:
    outside.type(f"{MUDROOM} exec -- {sys.executable} -I -q\n")
    outside.expect(">>> ")
    outside.type("6 * 7\n")
    outside.expect("42\r\n>>> ")
    outside.type("print('bu' + 'sy') or [None for _ in iter(int, 1)]\n")
    outside.expect("busy\r\n")
    outside.type("\x03")
    outside.expect("KeyboardInterrupt\r\n>>> ")
    outside.type("\x04")
    outside.prompt()


def test_ctrl_c_ends_the_program_inside_and_nothing_else(outside: Shell) -> None:
    outside.type(f"{MUDROOM} shell; echo result $?\n")
    outside.expect(r"\$ $|# $")
    outside.type("PS1='in''side> '\n")
    outside.expect("inside> ")
    outside.type("sh -c 'echo start''ed; exec sleep 1000'\n")
    outside.expect("started\r\n")
    outside.type("\x03")
    outside.expect("inside> ")
    outside.type("echo $?; exit 3\n")
    outside.expect("130\r\n")
    outside.expect("result 3\r\n")
    outside.prompt()


def test_job_control_inside(outside: Shell) -> None:
    outside.type(f"{MUDROOM} shell\n")
    outside.expect(r"\$ $|# $")
    outside.type("PS1='in''side> '\n")
    outside.expect("inside> ")
    outside.type("cat &\n")
    # bash may report "Stopped … cat" before its prompt, and echoes a line that came before the prompt a second time
    outside.expect(r"\[1\] \d+\r\n.*inside> ")
    outside.type("fg\n")
    outside.expect("fg\r\n.*cat\r\n")
    outside.type("word\n")
    outside.expect("word\r\nword\r\n")
    outside.type("\x1a")
    outside.expect("Stopped.*inside> ")
    outside.type("kill %1; fg; echo al'l done'\n")
    outside.expect("all done\r\n")
    outside.type("exit\n")
    outside.prompt()


@pytest.mark.parametrize("view", VIEWS)
def test_ctrl_z_stops_mudroom_and_fg_goes_on(outside: Shell, view: str) -> None:
    """A command without job control of its own: the shell outside has its terminal back as it was, each time."""
    before = outside.modes()
    outside.type(f"{MUDROOM} exec --view {view} -- cat\n")
    outside.until(lambda: not outside.modes()[3] & termios.ICANON)
    during = outside.modes()
    for number in range(3):
        outside.type(f"word{number}\n")
        outside.expect(f"word{number}\r\nword{number}\r\n")
        outside.type("\x1a")
        outside.expect("Stopped")
        outside.prompt()
        assert outside.modes() == before
        outside.type("echo shell{,}; fg\n")
        outside.expect("shell shell\r\n.*exec.*cat\r\n")
        outside.until(lambda: outside.modes() == during)
    outside.type("\x04")
    outside.expect("cat changed nothing\r\n")
    outside.prompt()
    assert outside.modes() == before
    outside.type("jobs; echo none\n")
    outside.expect("echo none\r\nnone\r\n")


def test_stopped_then_continued_in_the_background(outside: Shell, place: Place) -> None:
    """In the background its output comes, and the keys are the shell's; in the foreground they are its own again."""
    place.write("turn.sh", "echo ready; read word; echo got $word; sleep 0.1; read word; echo then $word\n")
    outside.type(f"{MUDROOM} exec -- sh turn.sh\n")
    outside.expect("ready\r\n")
    outside.type("\x1a")
    outside.expect("Stopped")
    outside.prompt()
    outside.type("bg\n")
    outside.expect("&\r\n")
    outside.type("echo ty'ped'\n")
    outside.expect("typed\r\n")
    outside.type("fg\n")
    outside.expect("turn.sh\r\n")
    outside.until(lambda: not outside.modes()[3] & termios.ICANON)
    outside.type("one\n")
    outside.expect("got one\r\n")
    outside.type("two\n")
    outside.expect("then two\r\n")
    outside.prompt()


def test_started_in_the_background(outside: Shell) -> None:
    before = outside.modes()
    outside.type(f"{MUDROOM} exec -- sh -c 'stty size; echo in the back''ground' &\n")
    outside.expect("24 80\r+\nin the background\r+\n")  # modes of two terminals, one of them the shell's
    outside.expect("changed nothing")
    assert outside.modes() == before


def until_size(outside: Shell, size: bytes) -> None:
    """A new size comes by way of a signal, so it may be there a moment after a key that was typed later."""
    found = b""
    while found != size:
        outside.type("\n")
        found = outside.expect(r"(\d+ \d+)\r\n").group(1)


def test_a_change_of_size(outside: Shell, place: Place) -> None:
    place.write("size.sh", "trap 'stty size' WINCH\necho ready\nwhile read word; do stty size; done\n")
    outside.type(f"{MUDROOM} exec -- bash size.sh\n")
    outside.expect("ready")
    outside.resize(50, 132)
    until_size(outside, b"50 132")
    outside.type("\x1a")
    outside.prompt()
    outside.resize(20, 60)
    outside.type("fg\n")
    outside.until(lambda: not outside.modes()[3] & termios.ICANON)
    until_size(outside, b"20 60")
    outside.type("\x04")
    outside.prompt()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=lambda one: one.name)
def test_the_terminal_is_restored_whoever_ends_mudroom(
    place: Place, screens: list[Screen], number: signal.Signals
) -> None:
    """A holder keeps the terminal open, so that its modes can be looked at afterwards; it does not mend them."""
    place.write("hold.py", "import os, subprocess, sys\nprint('code', subprocess.call(sys.argv[1:])); input()\n")
    command = [*MUDROOM.split(), "exec", "--", "sh", "-c", "echo ready; exec cat"]
    screen = Screen(place, sys.executable, "-I", "hold.py", *command)
    screens.append(screen)
    before = screen.modes()
    screen.expect("ready\r\n")
    assert screen.modes() != before
    os.kill(child_of(screen.pid), number)
    screen.expect(f"code {128 + number}\r\n")
    screen.until(lambda: screen.modes() == before)


def child_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def test_ctrl_z_without_a_shell_to_come_back_from(place: Place, screens: list[Screen]) -> None:
    """An orphaned group cannot be stopped by its terminal; neither can it here, and nothing hangs."""
    screen = Screen(place, *MUDROOM.split(), "exec", "--", "cat")
    screens.append(screen)
    screen.until(lambda: not screen.modes()[3] & termios.ICANON)
    screen.type("a\n\x1ab\n")
    screen.expect("b\r\nb\r\n")
    screen.type("\x04")
    screen.expect("cat changed nothing")
    assert screen.exit_code() == 0


def test_hang_up(place: Place, screens: list[Screen]) -> None:
    """The window is closed: mudroom ends, and so does all that ran inside."""
    place.write("wait.sh", "trap '' HUP; echo ready; while :; do sleep 0.1; done\n")
    screen = Screen(place, *MUDROOM.split(), "exec", "--", "sh", "wait.sh")
    screen.expect("ready")
    inside = descendants(screen.pid)
    assert inside
    os.close(screen.master)
    assert screen.wait() == 128 + signal.SIGHUP
    deadline = time.monotonic() + PATIENCE
    while any(os.path.exists(f"/proc/{pid}") for pid in inside):
        assert time.monotonic() < deadline
        give_way()


def descendants(pid: int) -> list[int]:
    try:
        children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []
    return children + [one for child in children for one in descendants(child)]


@pytest.mark.parametrize(
    ("redirection", "inside"),
    [("", "012"), ("2>err", "01"), (">out", ""), ("</dev/null", ""), ("| cat", ""), ("2>&1 >/dev/null </dev/null", "")],
)
def test_what_is_a_terminal_inside(outside: Shell, place: Place, redirection: str, inside: str) -> None:
    place.write("look.sh", "a=; for n in 0 1 2; do test -t $n && a=$a$n; done; echo $a > answer\n")
    outside.type(f"cd {place.root}; {MUDROOM} exec --project project --fork f -- sh look.sh {redirection}\n")
    outside.prompt()
    assert place.session().forks.files("f").read("answer").decode() == f"{inside}\n"


def test_pipes_in_the_place_of_a_terminal(outside: Shell, place: Place) -> None:
    """stdout is a file: what is typed comes in by a pipe, its end is Ctrl-D, and stderr is seen."""
    outside.type(f"{MUDROOM} exec -- sh -c 'echo ask >&2; cat; echo bye >&2' > {place.root}/out\n")
    outside.expect("ask\r\n")
    outside.type("typed\n\x04")
    outside.expect("bye\r\n")
    outside.prompt()
    assert (place.root / "out").read_text() == "typed\n"


def test_ctrl_c_and_ctrl_z_where_pipes_are_relayed(outside: Shell, place: Place) -> None:
    """Ctrl-Z pauses the whole sandbox: nothing goes on inside until fg. Ctrl-C is for the command's whole group."""
    place.write("count.sh", "n=0; echo 0 > n; echo ready >&2; while :; do n=$((n+1)); echo $n > n; sleep 0.01; done\n")
    outside.type(f"{MUDROOM} exec --fork f -- sh -c 'sh count.sh; echo not reached' | cat\n")
    outside.expect("ready\r\n")
    outside.type("\x1a")
    outside.expect("Stopped")
    outside.prompt()
    upper = place.state.glob("vaults/*/layers/*/tree/n")
    counted = next(iter(upper))
    seen = {counted.read_text() for _number in range(2000)}
    assert len(seen) == 1, "it is at rest"
    outside.type("fg\n")
    outside.until(lambda: counted.read_text() not in seen)
    outside.type("\x03")
    outside.expect("was ended by signal 2")
    outside.prompt()


def test_json_takes_its_input_from_the_terminal(outside: Shell) -> None:
    outside.type(f"{MUDROOM} exec --json -- sh -c 'read word; echo got $word'\n")
    outside.until(lambda: bool(descendants(outside.pid)))
    outside.type("typed\n")
    outside.expect(r'"stdout": "got typed\\n"')
    outside.prompt()


def test_the_command_has_no_descriptor_of_the_users_terminal(outside: Shell) -> None:
    name = os.ptsname(outside.master) if hasattr(os, "ptsname") else os.readlink(f"/proc/{outside.pid}/fd/0")
    outside.type(f"tty; {MUDROOM} exec -- sh -c 'readlink /proc/self/fd/*; ls {name}; echo e''nd'\n")
    outside.expect(f"{name}\r\n")
    shown = outside.expect("end\r\n").string.decode()
    inside = shown.partition("readlink")[2]
    assert f"\n{name}\r" not in inside or name == "/dev/pts/0"
    outside.prompt()


def test_nothing_of_the_output_is_lost(outside: Shell, place: Place) -> None:
    """All that a command wrote is on the terminal when it has ended, however much it is."""
    outside.type(f"stty -opost; {MUDROOM} exec -- seq 1 200000\n")
    outside.expect("seq 1 200000\r?\n")
    outside.expect("\n200000\r?\n")
    outside.prompt()


@pytest.mark.skipif(not shutil.which("less"), reason="less is not installed")
def test_less(outside: Shell, place: Place) -> None:
    place.write("long", "".join(f"line {number}\n" for number in range(1000)))
    outside.type(f"{MUDROOM} exec -- less long\n")
    outside.expect("line 22\r\n")
    outside.type("G")
    outside.expect("line 999")
    outside.type("q")
    outside.prompt()


VIM = shutil.which("vim") or shutil.which("vim.tiny") or ""


@pytest.mark.skipif(not VIM, reason="vim is not installed")
def test_vim(outside: Shell, place: Place) -> None:
    """Edited, stopped, gone on with, written: what it wrote is in the fork, and not in the project."""
    before = outside.modes()
    place.write("text", "old\n")
    outside.type(f"{MUDROOM} exec --fork f -- {VIM} -u NONE -n text\n")
    outside.expect("old")
    outside.type("ccnew\x1b")
    outside.expect("new")
    outside.type("\x1a")
    outside.expect("Stopped")
    outside.prompt()
    outside.type("fg\n")
    outside.expect("new")
    outside.type(":wq\r")
    outside.expect("exec|changed|would change")
    outside.prompt()
    assert outside.modes() == before
    assert place.session().forks.files("f").read("text") == b"new\n"
    assert (place.project / "text").read_text() == "old\n"


@pytest.mark.skipif(not shutil.which("tmux"), reason="tmux is not installed")
def test_tmux_inside(outside: Shell) -> None:
    outside.type(f"{MUDROOM} exec -- tmux -f /dev/null new-session 'tty; echo in\"\"side; read word; echo got $word'\n")
    outside.expect("inside")
    outside.type("typed\n")
    outside.expect(r"\[exited\]")
    outside.prompt()


def test_where_there_are_no_namespaces(place: Place, screens: list[Screen]) -> None:
    """Landlock alone: the pseudo-terminal is one of the host's, and no other of the host's can be opened."""
    from mudroom.sandbox.host.host import landlock_abi

    if not landlock_abi():
        pytest.skip("the kernel has no Landlock")
    other, name = pty.openpty()
    place.write(
        "go.py",
        "import os, sys\nsys.path[:0] = sys.argv[1].split(':')\nfrom mudroom.session import Session, Stdio\n"
        "from mudroom.policy.config import environment\n"
        "s = Session.open(os.getcwdb(), state=sys.argv[2].encode(), home=sys.argv[3].encode(), environ=environment())\n"
        "s.machine.confinement.mode = 'landlock'\n"
        "r = s.run([b'sh', b'-c', sys.argv[4].encode()], stdio=Stdio(0, 1, 2, terminal=True))\n"
        "print('code', r.exit_code, s.machine.confinement.mode)\n",
    )
    script = f"tty; stty size; read w; echo got $w; (: < {os.ttyname(name)}) 2>/dev/null || echo refused; cat"
    paths = (os.pathsep.join(sys.path), str(place.state), str(place.home))
    screen = Screen(place, sys.executable, "go.py", *paths, script)
    screens.append(screen)
    screen.expect("/dev/pts/\\d+\r\n24 80\r\n")
    screen.type("it\n")
    screen.expect("got it\r\nrefused\r\n")
    screen.type("word\n")
    screen.expect("word\r\nword\r\n")  # not before: a child of vfork(2) that is stopped holds up its parent
    screen.type("\x1a\x03")
    screen.expect("code 130 landlock")
    assert screen.exit_code() == 0
    os.close(other)
    os.close(name)


@each(
    ("terminals", "expected"),
    [
        ((True, True, True), ("terminal", "terminal", "terminal")),
        ((True, True, False), ("terminal", "terminal", "given")),
        ((True, False, True), ("pipe", "given", "pipe")),
        ((False, True, True), ("given", "pipe", "pipe")),
        ((True, False, False), ("pipe", "given", "given")),
        ((False, False, True), ("given", "given", "pipe")),
        ((False, False, False), ("given", "given", "given")),
    ],
)
def test_substitutes(terminals: tuple[bool, ...], expected: tuple[str, ...]) -> None:
    assert substitutes(terminals) == expected


def test_raw_is_what_cfmakeraw_makes() -> None:
    import tty

    master, slave = pty.openpty()
    before = termios.tcgetattr(slave)
    made = raw(before)
    assert before == termios.tcgetattr(slave), "it is a copy"
    termios.tcsetattr(slave, termios.TCSANOW, made)
    assert termios.tcgetattr(slave)[:4] == made[:4]
    tty.setraw(slave)
    assert termios.tcgetattr(slave)[3] == made[3]
    for descriptor in (master, slave):
        os.close(descriptor)


def test_a_session_without_a_terminal(place: Place) -> None:
    """Asked for, but none of the descriptors is one: they are given as they are."""
    read, write = os.pipe()
    result = place.session().run(
        [b"sh", b"-c", b"test -t 1 || echo none"], stdio=Stdio(None, write, None, terminal=True)
    )
    os.close(write)
    assert (result.exit_code, os.read(read, 100)) == (0, b"none\n")
    os.close(read)


def test_where_no_thread_can_be_started_it_ends_and_all_is_as_it_was(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_arguments: object) -> None:
        raise RuntimeError("can't start new thread")

    master, slave = pty.openpty()
    session, handler = place.session(), signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(_thread, "start_new_thread", refused)
    with pytest.raises(MudroomError, match="can't start new thread"):
        session.run([b"true"], stdio=Stdio(slave, slave, slave, terminal=True))
    assert (signal.getsignal(signal.SIGINT), signal.set_wakeup_fd(-1)) == (handler, -1)
    session.close()
    for descriptor in (master, slave):
        os.close(descriptor)
