"""The program leaves to the script what no keeper can do, and a command starts once."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import site
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kept import LEFT, PATIENCE, SOURCES, Kept, kept, shared

from clocks import give_way
from conftest import tick
from mudroom.ext.agents.cli.hook_run import own_words
from mudroom.ext.keeper import start
from mudroom.ext.keeper.cli.keeper_process import VERBS
from mudroom.ext.keeper.code import Code
from native_init import COMPILERS, STRICT
from test_keeper_life import gone
from test_kept_equal import planted, told

__all__ = ["kept", "shared"]  # fixtures

pytestmark = pytest.mark.both_users

LEFT_OVER: tuple[tuple[str, ...], ...] = (
    (),
    ("--version",),
    ("doctor",),
    ("run", "--help"),
    ("status", "-h"),
    ("run", "--he", "--", "true"),
    ("exec", "--background", "--", "true"),
    ("log", "--follow"),
    ("exec", "--card", "/dev/fd/63", "--", "true"),
    ("log", "export", "--output=/proc/self/fd/5"),
)


def test_verbs_that_a_keeper_runs(shared: Kept) -> None:
    for verb in VERBS:
        assert shared(verb, "--none").stderr != LEFT, verb
    for words in LEFT_OVER:
        assert shared(*words).stderr == LEFT, words


def test_long_words(shared: Kept) -> None:
    words = ["run", "--yes", "--", "true", "0" * 100_000, *["1" * 1000] * 1900]
    assert told(shared(*words)) == told(shared(*words, kept=False))


VARIABLES: tuple[tuple[dict[str, str], bool], ...] = (
    ({"MUDROOM_KEEPER": "0"}, False),
    ({"MUDROOM_KEEPER": ""}, True),
    ({"LD_PRELOAD": "none.so"}, False),
    ({"LD_AUDIT": "none.so"}, False),
    ({"LD_PRELOAD": ""}, True),
    ({"LD_X": "1"}, False),  # another keeper's
    ({"PYTHONPATH": "src"}, False),
    ({"PYTHONPATH": ""}, False),
    ({"PYTHONDEVMODE": "1"}, False),
    ({"PYTHONNEW": "1"}, False),
    ({"LANG": "C"}, True),
    ({"LC_ALL": "", "LC_CTYPE": "xx_XX.ISO-8859-1"}, True),  # that is not installed
    ({"HOME": "/"}, False),
    ({"MUDROOM_STATE": "relative"}, False),
    ({"MUDROOM_STATE": "/nowhere"}, False),
    ({f"VARIABLE_{number}": "x" * 30 for number in range(10_000)}, True),
)


def test_variables(shared: Kept) -> None:
    for more, is_kept in VARIABLES:
        done = shared("ls", more=more)
        assert (done.returncode, done.stderr.endswith(LEFT)) == (0 if is_kept else 99, not is_kept), list(more)[:3]


def test_a_variable_that_is_there_twice_or_is_none(shared: Kept) -> None:
    """The interpreter takes the first, and leaves out one without a sign of equality; a list has both."""
    libc = ctypes.CDLL(None)
    usual = [f"{name}={value}".encode() for name, value in shared.way(True)[1].items()]
    for more in ([b"TWICE=1", b"TWICE=2"], [b"NONE"], [b"=empty"]):
        words = (ctypes.c_char_p * 3)(shared.program.encode(), b"ls", None)
        variables = (ctypes.c_char_p * (len(usual) + len(more) + 1))(*usual, *more, None)
        pid = os.fork()
        if pid == 0:
            os.chdir(shared.place.project)
            os.dup2(os.open(os.devnull, os.O_RDWR), 2)
            libc.execve(words[0], words, variables)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 99, more


def test_the_name_of_the_keeper(kept: Kept) -> None:
    """It has what an interpreter reads at its start: also where that is no text, or long."""
    names, of_all = set(), set()
    for more in ({}, {"OPENSSL_X": "\udcff\udc80"}, {"LD_X": "z" * 100_000}, {"LD_A": ""}, {"PYTHONUTF8": "1"}):
        before = dict(kept.environment)
        kept.environment |= more
        names.add(kept.names()[2])
        kept.environment["LANGUAGE"] = "b"
        answer, *own = kept.names()
        names.add(own[1])
        of_all.add(own[2])
        assert (answer, [len(name) for name in own]) == ("none", [32, 32, 32]) and own[0] != own[1]
        assert (own[1] == own[2]) == (more == {})
        kept.environment = before
    assert (len(names), len(of_all)) == (5, 1)
    assert kept.run([kept.program, "doctor"], MUDROOM_KEEPER="only").stdout.split() == ["excluded"]


def listing(kept: Kept) -> subprocess.Popen[bytes]:
    first, environment = kept.way(True)
    return subprocess.Popen([first, "ls"], cwd=kept.place.project, env=environment, stderr=subprocess.PIPE)


def test_the_interpreters_variables_are_added(kept: Kept) -> None:
    """LC_CTYPE, where the locale is that of C (PEP 538); the native client has no interpreter that adds it."""
    del kept.environment["LC_ALL"]
    kept.start()
    words = ["run", "--yes", "--", "env"]
    shown = [kept(*words, kept=way).stdout.splitlines() for way in (True, False)]
    assert sorted(shown[0]) == sorted(shown[1])
    assert b"LC_CTYPE=C.UTF-8" in shown[0]


def test_descriptors(shared: Kept, tmp_path: Path) -> None:
    directory = os.open(tmp_path, os.O_RDONLY)
    assert b"is a directory, cannot continue" in shared("ls", stdin=directory).stderr  # the script's
    os.close(directory)


WAITS = ("exec", "--", "sh", "-c", "echo ready; read word; echo $word")


def test_an_ignored_signal_and_a_stop(shared: Kept) -> None:
    """nohup(1), and Ctrl-Z with fg."""
    process = shared.popen(
        *WAITS, stdin=subprocess.PIPE, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)
    )
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGSTOP)  # as Ctrl-Z, which an orphaned process group ignores (signal(7))
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)
    process.send_signal(signal.SIGCONT)
    out, _err = process.communicate(b"word\n", timeout=PATIENCE)
    assert (process.returncode, out) == (0, b"word\n")


def test_the_keeper_is_killed(kept: Kept) -> None:
    pid = kept.start()
    process = kept.popen(*WAITS, stdin=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    os.kill(pid, signal.SIGKILL)
    gone(pid)  # it gives its memory back before it closes its sockets: until then it may serve one more
    assert process.communicate(b"word\n", timeout=PATIENCE)[0] == b"word\n"  # commands go on
    with listing(kept) as listed:
        assert listed.communicate(timeout=PATIENCE)[1] == LEFT  # a stale socket


def test_the_first_word_means_nothing(shared: Kept, tmp_path: Path) -> None:
    """A link from elsewhere, as pipx makes one; a name of the caller's; none at all."""
    (tmp_path / "mudroom").symlink_to(shared.program)
    _first, environment = shared.way(True)
    shared.wait()
    for words, executable in (([str(tmp_path / "mudroom"), "ls"], None), (["/etc/passwd", "ls"], shared.program)):
        shared.wait()
        done = subprocess.run(words, executable=executable, cwd=shared.place.project, env=environment, check=False)
        assert done.returncode == 0, words
    none = (ctypes.c_char_p * 1)(None)
    variables = (ctypes.c_char_p * 2)(b"KEPT=keeper", None)
    pid = os.fork()
    if pid == 0:
        os.dup2(os.open(os.devnull, os.O_RDWR), 2)
        ctypes.CDLL(None).execve(shared.program.encode(), none, variables)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 99


@pytest.mark.root
def test_a_copy_with_more_rights_is_refused(shared: Kept, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can be somebody else")
    copy = Path(shutil.copy(shared.program, tmp_path))
    os.chown(copy, 65534, 65534)
    copy.chmod(0o4755)
    done = subprocess.run([copy, "--version"], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (125, b"")
    assert (
        done.stderr == b"mudroom: refuses to run with the rights of its file: chmod ug-s mudroom; setcap -r mudroom\n"
    )


def test_the_script_is_missing(shared: Kept, tmp_path: Path) -> None:
    copy = shutil.copy(shared.program, tmp_path)
    script = tmp_path / "mudroom-python"
    done = subprocess.run([copy, "ls"], capture_output=True, check=False, text=True)
    hint = "link to mudroom, do not copy it, or pip install --force-reinstall mudroom"
    assert (done.returncode, done.stderr) == (125, f"mudroom: {script} is missing: {hint}\n")
    script.write_text("#!/no/such/python3\n")
    script.chmod(0o755)
    done = subprocess.run([copy, "ls"], capture_output=True, check=False, text=True)
    hint = "pip install --force-reinstall mudroom"
    assert (done.returncode, done.stderr) == (125, f"mudroom: the interpreter of {script} is missing: {hint}\n")


def test_another_version_of_the_script_finds_no_keeper(shared: Kept) -> None:
    """An installer writes it anew, so its stamp is another one."""
    os.utime(shared.script)
    try:
        assert shared("ls").stderr == LEFT
    finally:
        shared.stop()
        shared.start()
    assert shared("ls").returncode == 0


@pytest.mark.parametrize("line", ["#!/bin/sh", "#! /bin/sh", "#!/bin/sh -e", "#!/bin/sh " + " " * 5000])
def test_a_first_line_that_is_not_an_interpreters(shared: Kept, tmp_path: Path, line: str) -> None:
    """As an installer writes it where the interpreter's path is too long for the kernel."""
    copy = shutil.copy(shared.program, tmp_path)
    script = tmp_path / "mudroom-python"
    script.write_text(f"{line}\necho $1 $2; exit 99\n")
    script.chmod(0o755)
    done = subprocess.run([copy, "ls", "--json"], cwd=shared.place.project, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (99, b"ls --json\n")


ANSWERS: tuple[tuple[bytes, bytes, bytes, int, bytes], ...] = (
    # greeting, answer to the request, and more; exit code, and whether the script was taken
    (b"", b"", b"", 99, LEFT),
    (b"g", b"", b"", 99, LEFT),
    (b"g", b"r", b"", 99, LEFT),
    (b"g", b"a", b"", 99, LEFT),
    (b"g", b"x", b"e\0", 99, LEFT),
    (b"g", b"s", b"", 125, b"was killed"),
    (b"g", b"s", b"e", 125, b"was killed"),
    (b"g", b"s", b"x\7", 125, b"was killed"),
    (b"g", b"s", b"e\7", 7, b""),
    (b"g", b"s", b"e\xff" + b"more" * 100, 255, b""),
)


def test_answers(kept: Kept) -> None:
    with keepers_socket(kept) as listener:
        for greeting, answer, more, code, said in ANSWERS:
            with listing(kept) as process:
                converse(listener, greeting, answer, more)
                err = process.communicate(timeout=PATIENCE)[1]
            assert (process.returncode, said in err) == (code, True), (greeting, answer, more, err)


@contextmanager
def keepers_socket(kept: Kept) -> Iterator[socket.socket]:
    """A keeper's socket, where this process listens."""
    directory = Path(os.fsdecode(kept.directory))
    directory.mkdir(parents=True, mode=0o700)
    with planted(directory, kept.names()[-1]) as listener:
        yield listener


@contextmanager
def stopped_keeper(kept: Kept) -> Iterator[tuple[subprocess.Popen[bytes], socket.socket]]:
    """A client, and the connection to the keeper's process, which has its request and does not answer."""
    with keepers_socket(kept) as listener, listing(kept) as process:
        connection, _address = listener.accept()
        with connection:
            connection.sendall(b"g")
            take_request(connection)
            yield process, connection


def test_a_keeper_that_does_not_start_a_command_cannot_start_it_later(kept: Kept) -> None:
    with stopped_keeper(kept) as (process, connection):
        assert connection.recv(1) == b""  # it is patient no longer
        with pytest.raises(BrokenPipeError):
            connection.sendall(b"s")
        err = process.communicate(timeout=PATIENCE)[1]
    assert err == LEFT


def test_a_second_signal_ends_who_waits_for_a_start(kept: Kept) -> None:
    with stopped_keeper(kept) as (process, connection):
        while process.poll() is None:  # signals that come at once are one
            process.send_signal(signal.SIGINT)
            give_way()
        with pytest.raises(BrokenPipeError):
            connection.sendall(b"s")
    assert process.returncode == -signal.SIGINT


def converse(listener: socket.socket, greeting: bytes, answer: bytes, more: bytes) -> None:
    """Be a keeper's process with these answers."""
    connection, _address = listener.accept()
    with connection:
        connection.sendall(greeting)
        if greeting:
            take_request(connection)
            connection.sendall(answer + more)


def take_request(connection: socket.socket) -> None:
    head, rights, _flags, _from = socket.recv_fds(connection, 4, 4)
    left = int.from_bytes(head, "little")
    while left > 0 and (piece := connection.recv(left)):
        left -= len(piece)
    for descriptor in rights:
        os.close(descriptor)
    assert len(rights) == 4


def test_another_mudroom_that_would_be_loaded(tmp_path: Path) -> None:
    """The user's own, installed beside that of the machine while a keeper lives."""
    code = Code(0, [str(tmp_path / "user"), str(tmp_path)])
    assert code.looks_current()
    (tmp_path / "user/mudroom").mkdir(parents=True)
    assert code.looks_current()  # no package
    (tmp_path / "user/mudroom/__init__.py").write_text("")
    assert not code.looks_current() and not code.is_current()


def test_a_path_file_that_may_add_another_mudroom(tmp_path: Path) -> None:
    """As of an editable installation among the user's own packages."""
    users, files = tmp_path / "site-packages", tmp_path / "site-packages/dev.pth"

    def install() -> None:
        users.mkdir()
        files.write_text("/elsewhere\n")

    def edit() -> None:
        files.write_text("/elsewhere/src\n")

    def link() -> None:
        files.symlink_to("nowhere")

    for change in (install, edit, files.unlink, link):
        code = Code(0, [str(users), str(tmp_path)])
        assert code.looks_current()
        (tmp_path / "other.pth").touch()  # where no interpreter looks for one
        assert code.looks_current()
        tick()
        change()
        assert not code.looks_current() and not code.is_current(), change


def test_the_directories_before_this_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also where PYTHONPATH has this one with a slash at its end, or through a link."""
    monkeypatch.setattr(site, "ENABLE_USER_SITE", False)
    (tmp_path / "link").symlink_to(start.own_root())
    for own in (start.own_root(), start.own_root() + "/", str(tmp_path / "link")):
        monkeypatch.setattr(sys, "path", ["/nowhere", str(tmp_path), own, "/behind"])
        assert start._before() == ["/nowhere", str(tmp_path)], own
    monkeypatch.setattr(sys, "path", ["/nowhere", str(tmp_path)])  # an editable installation with a finder
    assert start._before() == sys.path


def test_a_hook_is_installed_with_the_native_client(shared: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """The words of an agent's settings start the program, also where the script runs the verb that writes them."""
    monkeypatch.setattr(sys, "argv", [shared.script, "hook"])
    assert own_words() == (shared.program,)


def test_compilers_have_nothing_to_say() -> None:
    for compiler in COMPILERS:
        words = [compiler, *STRICT, "-fsyntax-only", "-O2", *map(str, SOURCES)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
