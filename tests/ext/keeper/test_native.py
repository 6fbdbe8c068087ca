"""The native client does what the Python client does, and leaves to the script what it does not do."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import signal
import site
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kept import PATIENCE, children

from clocks import give_way
from conftest import tick
from mudroom.ext.agents.cli.hook_run import own_words
from mudroom.ext.keeper import client, start
from mudroom.ext.keeper.code import Code
from native import LEFT, SOURCES, NativeKept, both, program, unstarted
from native_init import COMPILERS, STRICT
from test_kept_equal import DIFFERENT, WORK, on_terminal, told

__all__ = ["both", "program", "unstarted"]  # fixtures

pytestmark = pytest.mark.both_users

SCENARIOS: tuple[tuple[str | bytes, ...], ...] = (
    ("run", "--yes", "--", "sh", "-c", "echo out; echo err >&2; exit 7"),
    ("run", "--no", "--", "sh", "-c", "echo new > new; rm f"),
    ("run", "--yes", "--", "sh", "-c", "kill -9 $$"),
    ("run", "--yes", "--", "no-such-program"),
    ("run", "--yes", "--", "sh", "-c", "umask; ulimit -a; pwd; env; cat"),
    (
        "run", "--yes", "--env", "SHOWN", "--", "sh", "-c", 'printf "%s." "$1" "$SHOWN" | od -c', b"sh",
        b"\xff\xfe\n\xe4\xb8 \xed\xa0\x80 \xf5\x80\xc3",
    ),
    ("run", "--yes", "--", "true", "0" * 100_000, *["1" * 1000] * 1900),
    ("run", "--yes", "--", "cat", "/proc/self/comm"),
    ("run",),
    ("run", "--nonsense"),
    ("exec", "--", "rm", "-rf", "/"),
    ("status",),
    ("ls", "--json"),
    ("diff", "no-such-fork"),
    ("undo",),
    ("policy", "show"),
)  # fmt: skip

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


def test_words_are_those_of_the_python_client(both: NativeKept) -> None:
    for words in SCENARIOS:
        first, second = (both.by(way, *words, more={"SHOWN": b"\xe4 \x80"}) for way in ("native", "client"))
        assert told(first) == told(second), words[:6]
        assert first.returncode != 99, words[:6]
        assert "in-process" not in second.stderr.decode(), words[:6]
    for words in LEFT_OVER:
        assert both.by("native", *words).stderr == LEFT, words


def test_json(both: NativeKept) -> None:
    rows = [json.loads(both.by(way, "exec", "--json", "--", "echo", "out").stdout) for way in ("native", "client")]
    assert rows[0].keys() == rows[1].keys()


VARIABLES: tuple[tuple[dict[str, str], bool], ...] = (
    ({"MUDROOM_KEEPER": "0"}, False),
    ({"MUDROOM_KEEPER": ""}, True),
    ({"LD_PRELOAD": "none.so"}, False),
    ({"LD_AUDIT": "none.so"}, False),
    ({"LD_PRELOAD": ""}, False),  # another keeper's
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


def test_variables(both: NativeKept) -> None:
    for more, is_kept in VARIABLES:
        done = both.by("native", "ls", more=more)
        assert (done.returncode, done.stderr.endswith(LEFT)) == (0 if is_kept else 99, not is_kept), list(more)[:3]


def test_a_variable_that_is_there_twice_or_is_none(both: NativeKept) -> None:
    """The interpreter takes the first, and leaves out one without a sign of equality; a list has both."""
    libc = ctypes.CDLL(None)
    usual = [f"{name}={value}".encode() for name, value in both.command("native")[1].items()]
    for more in ([b"TWICE=1", b"TWICE=2"], [b"NONE"], [b"=empty"]):
        words = (ctypes.c_char_p * 3)(both.native.encode(), b"ls", None)
        variables = (ctypes.c_char_p * (len(usual) + len(more) + 1))(*usual, *more, None)
        pid = os.fork()
        if pid == 0:
            os.chdir(both.place.project)
            os.dup2(os.open(os.devnull, os.O_RDWR), 2)
            libc.execve(words[0], words, variables)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 99, more


def test_the_name_of_the_keeper(unstarted: NativeKept) -> None:
    """A socket of the name that Python computes gets a connection: also with variables that are no text, and long."""
    directory = Path(os.fsdecode(unstarted.directory))
    directory.mkdir(parents=True, mode=0o700)
    for more in ({}, {"OPENSSL_X": "\udcff\udc80"}, {"LD_X": "z" * 100_000}, {"LD_A": "", "LANGUAGE": "b"}):
        unstarted.environment |= more
        name = unstarted.ask("name_of(os.environb)")
        with socket.socket(socket.AF_UNIX) as listener:
            os.chdir(directory)
            listener.bind(name)
            listener.listen()
            listener.settimeout(PATIENCE)
            with listing(unstarted) as process:
                connection, _address = listener.accept()
                connection.close()
                assert process.communicate(timeout=PATIENCE)[1] == LEFT, more


def listing(kept: NativeKept, way: str = "native") -> subprocess.Popen[bytes]:
    first, environment = kept.command(way)
    return subprocess.Popen([*first, "ls"], cwd=kept.place.project, env=environment, stderr=subprocess.PIPE)


def test_the_interpreters_variables_are_added(unstarted: NativeKept) -> None:
    """LC_CTYPE, where the locale is that of C (PEP 538); the native client has no interpreter that adds it."""
    del unstarted.environment["LC_ALL"]
    unstarted.start()
    words = ["run", "--yes", "--", "env"]
    shown = [unstarted.by(way, *words).stdout.splitlines() for way in ("native", "client", "in-process")]
    assert sorted(shown[0]) == sorted(shown[1]) == sorted(shown[2])
    assert b"LC_CTYPE=C.UTF-8" in shown[0]


@pytest.mark.parametrize("change", DIFFERENT)
def test_a_process_that_differs_is_not_kept(both: NativeKept, change: Callable[[], None]) -> None:
    assert both.by("native", "ls", preexec_fn=change).stderr == LEFT


def test_descriptors(both: NativeKept, tmp_path: Path) -> None:
    for number in range(3):
        done = both.by("native", "ls", preexec_fn=lambda number=number: os.close(number))
        assert done.returncode == 99, number
    directory = os.open(tmp_path, os.O_RDONLY)
    assert b"is a directory, cannot continue" in both.by("native", "ls", stdin=directory).stderr  # the script's
    os.close(directory)
    for words in (["ls"], ["run", "--yes", "--", "seq", "100000"]):
        results = []
        for way in ("native", "client"):
            reader, writer = os.pipe()
            os.close(reader)
            with open(writer, "wb") as stdout, open("/dev/full", "wb") as full:
                results.append(told(both.by(way, *words, stdout=stdout)))
                results.append(told(both.by(way, *words, stdout=full)))
        assert results[:2] == results[2:], words
    results = []
    for way in ("native", "client"):
        reader, writer = os.pipe()
        with open(reader, "rb") as stdin:
            os.write(writer, b"piped")
            os.close(writer)
            results.append(told(both.by(way, "run", "--yes", "--", "cat", stdin=stdin)))
    assert results[0] == results[1]
    assert results[0][1] == b"piped"


def test_a_terminal(both: NativeKept) -> None:
    shown = [on_terminal(both, [word], "ls", way=way) for word, way in ((both.native, ""), (both.script, "0"))]
    assert shown[0] == shown[1]
    both.environment["KEPT"] = "native"
    try:
        assert on_terminal(both, [both.native], "ls", way="") == shown[0]
        for words in (["run", "--yes", "--", "true"], ["undo"]):
            assert on_terminal(both, [both.native], *words, way="") == (99, LEFT.replace(b"\n", b"\r\n"))
    finally:
        del both.environment["KEPT"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_during_a_command(both: NativeKept, number: int) -> None:
    results = []
    for way in ("native", "client"):
        process = both.begin(way, "exec", "--", "sh", "-c", WORK, start_new_session=True)
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        os.killpg(process.pid, number)
        out, err = process.communicate(timeout=PATIENCE)
        results.append(told(subprocess.CompletedProcess([], process.returncode, out, err)))
    assert results[0] == results[1]
    assert results[0][0] == 128 + number


WAITS = ("exec", "--", "sh", "-c", "echo ready; read word; echo $word")


def test_an_ignored_signal_and_a_stop(both: NativeKept) -> None:
    """nohup(1), and Ctrl-Z with fg."""
    process = both.begin(
        "native", *WAITS, stdin=subprocess.PIPE, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)
    )
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGSTOP)  # as Ctrl-Z, which an orphaned process group ignores (signal(7))
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)
    process.send_signal(signal.SIGCONT)
    out, _err = process.communicate(b"word\n", timeout=PATIENCE)
    assert (process.returncode, out) == (0, b"word\n")


def test_the_client_is_killed(both: NativeKept) -> None:
    """The command ends as after a hang-up."""
    with both.begin("native", "exec", "--", "sh", "-c", WORK) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        process.kill()
        process.wait()
        assert process.stdout.read() == b""  # until the last holder of it has gone
    both.wait_for_end()


def test_the_process_of_the_command_is_killed(both: NativeKept) -> None:
    """It is not run again, and a signal that comes after that ends the client as it would have."""
    process = both.begin("native", "exec", "--", "sh", "-c", WORK)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    runners = [child for child in children(both.pid) if os.getsid(child) == child]
    for runner in runners:
        os.kill(runner, signal.SIGKILL)
    _out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 125
    assert err == b"mudroom: the process that ran the command was killed (the next mudroom collects its changes)\n"


def test_the_keeper_is_killed(unstarted: NativeKept) -> None:
    pid = unstarted.start()
    process = unstarted.begin("native", *WAITS, stdin=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    os.kill(pid, signal.SIGKILL)
    assert process.communicate(b"word\n", timeout=PATIENCE)[0] == b"word\n"  # commands go on
    first, environment = unstarted.command("native")
    done = subprocess.run(
        [*first, "ls"], cwd=unstarted.place.project, env=environment, capture_output=True, check=False
    )
    assert done.stderr == LEFT  # a stale socket


def test_a_directory_that_is_gone(both: NativeKept, tmp_path: Path) -> None:
    results = []
    for way in ("native", "client"):
        (tmp_path / "gone").mkdir()
        first, environment = both.command(way)
        both.wait()
        words = ["sh", "-c", 'rmdir "$PWD"; exec "$@"', "sh", *first, "status"]
        results.append(
            told(subprocess.run(words, cwd=tmp_path / "gone", env=environment, capture_output=True, check=False))
        )
    assert results[0] == results[1]
    assert results[0][0] == 125 and b"does not exist any more" in (results[0][2] or b"")


def test_the_first_word_means_nothing(both: NativeKept, tmp_path: Path) -> None:
    """A link from elsewhere, as pipx makes one; a name of the caller's; none at all."""
    (tmp_path / "mudroom").symlink_to(both.native)
    _first, environment = both.command("native")
    both.wait()
    for words, executable in (([str(tmp_path / "mudroom"), "ls"], None), (["/etc/passwd", "ls"], both.native)):
        both.wait()
        done = subprocess.run(words, executable=executable, cwd=both.place.project, env=environment, check=False)
        assert done.returncode == 0, words
    none = (ctypes.c_char_p * 1)(None)
    variables = (ctypes.c_char_p * 2)(b"KEPT=native", None)
    pid = os.fork()
    if pid == 0:
        os.dup2(os.open(os.devnull, os.O_RDWR), 2)
        ctypes.CDLL(None).execve(both.native.encode(), none, variables)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 99


@pytest.mark.root
def test_a_copy_with_more_rights_is_refused(both: NativeKept, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can be somebody else")
    copy = Path(shutil.copy(both.native, tmp_path))
    os.chown(copy, 65534, 65534)
    copy.chmod(0o4755)
    done = subprocess.run([copy, "--version"], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (125, b"")
    assert (
        done.stderr == b"mudroom: refuses to run with the rights of its file: chmod ug-s mudroom; setcap -r mudroom\n"
    )


def test_the_script_is_missing(both: NativeKept, tmp_path: Path) -> None:
    copy = shutil.copy(both.native, tmp_path)
    script = tmp_path / "mudroom-python"
    done = subprocess.run([copy, "ls"], capture_output=True, check=False, text=True)
    hint = "link to mudroom, do not copy it, or pip install --force-reinstall mudroom"
    assert (done.returncode, done.stderr) == (125, f"mudroom: {script} is missing: {hint}\n")
    script.write_text("#!/no/such/python3\n")
    script.chmod(0o755)
    done = subprocess.run([copy, "ls"], capture_output=True, check=False, text=True)
    hint = "pip install --force-reinstall mudroom"
    assert (done.returncode, done.stderr) == (125, f"mudroom: the interpreter of {script} is missing: {hint}\n")


def test_another_version_of_the_script_finds_no_keeper(both: NativeKept) -> None:
    """An installer writes it anew, so its stamp is another one."""
    os.utime(both.script)
    try:
        assert both.by("native", "ls").stderr == LEFT
    finally:
        both.stop()
        both.start()
    assert both.by("native", "ls").returncode == 0


@pytest.mark.parametrize("line", ["#!/bin/sh", "#! /bin/sh", "#!/bin/sh -e", "#!/bin/sh " + " " * 5000])
def test_a_first_line_that_is_not_an_interpreters(both: NativeKept, tmp_path: Path, line: str) -> None:
    """As an installer writes it where the interpreter's path is too long for the kernel."""
    copy = shutil.copy(both.native, tmp_path)
    script = tmp_path / "mudroom-python"
    script.write_text(f"{line}\necho $1 $2; exit 99\n")
    script.chmod(0o755)
    done = subprocess.run([copy, "ls", "--json"], cwd=both.place.project, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (99, b"ls --json\n")


# --- safety ---


@contextmanager
def keepers_socket(kept: NativeKept) -> Iterator[tuple[Path, socket.socket]]:
    """The directory of a keeper's socket, and this process as who listens there."""
    directory = Path(os.fsdecode(kept.directory))
    directory.mkdir(parents=True, mode=0o700)
    name = kept.ask("name_of(os.environb)")
    os.chdir(directory)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(name)
        listener.listen()
        yield directory, listener


def test_places_that_are_not_this_users_alone(unstarted: NativeKept) -> None:
    """Nobody there gets a connection."""
    with keepers_socket(unstarted) as (directory, listener):
        listener.setblocking(False)
        for mode in (0o755, 0o770, 0o701):
            directory.chmod(mode)
            with listing(unstarted) as process:
                assert process.communicate(timeout=PATIENCE)[1] == LEFT, oct(mode)
        directory.chmod(0o700)
        directory.rename(directory.with_name("elsewhere"))
        directory.symlink_to("elsewhere")
        with listing(unstarted) as process:
            assert process.communicate(timeout=PATIENCE)[1] == LEFT
        with pytest.raises(BlockingIOError):
            listener.accept()


@pytest.mark.root
def test_a_socket_of_somebody_else_gets_nothing(unstarted: NativeKept) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can be somebody else")
    directory = Path(os.fsdecode(unstarted.directory))
    directory.mkdir(parents=True, mode=0o700)
    program = (
        "import os, socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); os.setuid(65534); s.listen();"
        "print('listening', flush=True); c, _ = s.accept(); c.send(b'g'); print(c.recv(65536))"
    )
    words = [sys.executable, "-c", program, unstarted.ask("name_of(os.environb)")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=directory) as other:
        assert other.stdout is not None and other.stdout.readline() == b"listening\n"
        with listing(unstarted) as process:
            assert process.communicate(timeout=PATIENCE)[1] == LEFT
        assert other.communicate(timeout=PATIENCE)[0] in (b"b''\n", b"")


ANSWERS: tuple[tuple[bytes, bytes, bytes, int, bytes], ...] = (
    # greeting, answer to the request, and more; exit code, and whether the script was taken
    (b"", b"", b"", 99, LEFT),
    (b"g", b"", b"", 99, LEFT),
    (b"g", b"r", b"", 99, LEFT),
    (b"g", b"x", b"e\0", 99, LEFT),
    (b"g", b"s", b"", 125, b"was killed"),
    (b"g", b"s", b"e", 125, b"was killed"),
    (b"g", b"s", b"x\7", 125, b"was killed"),
    (b"g", b"s", b"e\7", 7, b""),
    (b"g", b"s", b"e\xff" + b"more" * 100, 255, b""),
)


def test_answers(unstarted: NativeKept) -> None:
    with keepers_socket(unstarted) as (_directory, listener):
        for greeting, answer, more, code, said in ANSWERS:
            with listing(unstarted) as process:
                converse(listener, greeting, answer, more)
                err = process.communicate(timeout=PATIENCE)[1]
            assert (process.returncode, said in err) == (code, True), (greeting, answer, more, err)


@contextmanager
def stopped_keeper(kept: NativeKept, way: str) -> Iterator[tuple[subprocess.Popen[bytes], socket.socket]]:
    """A client, and the connection to the keeper's process, which has its request and does not answer."""
    with keepers_socket(kept) as (_directory, listener), listing(kept, way) as process:
        connection, _address = listener.accept()
        with connection:
            connection.sendall(b"g")
            take_request(connection)
            yield process, connection


@pytest.mark.parametrize("way", ["native", "client"])
def test_a_keeper_that_does_not_start_a_command_cannot_start_it_later(unstarted: NativeKept, way: str) -> None:
    with stopped_keeper(unstarted, way) as (process, connection):
        assert connection.recv(1) == b""  # it is patient no longer
        with pytest.raises(BrokenPipeError):
            connection.sendall(b"s")
        err = process.communicate(timeout=PATIENCE)[1]
    assert err == (LEFT if way == "native" else b"in-process\n")


@pytest.mark.parametrize("way", ["native", "client"])
def test_a_second_signal_ends_who_waits_for_a_start(unstarted: NativeKept, way: str) -> None:
    with stopped_keeper(unstarted, way) as (process, connection):
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


# --- the other side ---


def test_the_tables_are_those_of_the_python_client() -> None:
    text = "".join(path.read_text() for path in (*SOURCES, SOURCES[0].with_name("native.h")))
    verbs = {
        name: (() if option == "NULL" else (option.strip('"'),), is_shown == "true")
        for name, option, is_shown in re.findall(r'\{"([a-z]+)", (NULL|"[^"]+"), (true|false)\}', text)
    }
    assert verbs == {name: (options, name in client.ON_TERMINAL) for name, options in client.VERBS.items()}

    def words(name: str) -> tuple[str, ...]:
        (body,) = re.findall(rf"{name}\[\] = \{{([^}}]*)\}};", text)
        return tuple(word.strip().strip('"') for word in body.split(",") if word.strip())

    def defined(name: str) -> str:
        (value,) = re.findall(rf"#define {name} +(\S+)", text)
        return str(value).strip('"')

    assert tuple(word.encode() for word in words("AT_START")) == client.AT_START
    assert words("OF_THE_PROCESS") == client.OF_THE_PROCESS
    assert words("OPTIONS") == client.OPTIONS
    assert tuple(getattr(signal, name) for name in words("RELAYED")) == client.RELAYED
    assert defined("PROTOCOL").encode() == client.PROTOCOL
    assert defined("SCRIPT") == client.SCRIPT
    assert defined("DIRECTORY").encode() == client.DIRECTORY
    assert int(defined("PATIENCE")) == client.PATIENCE
    assert int(defined("START_PATIENCE")) == client.START_PATIENCE
    assert (defined("STARTED"), defined("ENDED")) == (f"'{client.STARTED.decode()}'", f"'{client.ENDED.decode()}'")


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
    monkeypatch.setattr(start, "is_behind_native", lambda: True)
    monkeypatch.setattr(site, "ENABLE_USER_SITE", False)
    (tmp_path / "link").symlink_to(start.own_root())
    for own in (start.own_root(), start.own_root() + "/", str(tmp_path / "link")):
        monkeypatch.setattr(sys, "path", ["/nowhere", str(tmp_path), own, "/behind"])
        assert start._before() == ["/nowhere", str(tmp_path)], own
    monkeypatch.setattr(sys, "path", ["/nowhere", str(tmp_path)])  # an editable installation with a finder
    assert start._before() == sys.path


def test_a_hook_is_installed_with_the_native_client(both: NativeKept, monkeypatch: pytest.MonkeyPatch) -> None:
    """The words of an agent's settings start the program, also where the script runs the verb that writes them."""
    monkeypatch.setattr(sys, "argv", [both.script, "hook"])
    assert own_words() == (both.native,)


def test_compilers_have_nothing_to_say() -> None:
    for compiler in COMPILERS:
        words = [compiler, *STRICT, "-fsyntax-only", "-O2", *map(str, SOURCES)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
