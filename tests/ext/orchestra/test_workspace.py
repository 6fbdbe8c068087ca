"""A workspace: what all modules for other frameworks are made of."""

from __future__ import annotations

import asyncio
import errno
import gc
import json
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest

import mudroom
from conftest import Place
from mudroom.ext.orchestra import workspace as module
from mudroom.ext.orchestra.workspace import ForkWorkspace, aside
from rooms import LONG, environ_of, policy, processes_with, until

pytestmark = pytest.mark.slow


@pytest.fixture
def workspace(place: Place) -> Iterator[ForkWorkspace]:
    place.write("a.txt", "hello\n")
    place.write(".env", "TOKEN=secret\n")
    with opened(place) as workspace:
        yield workspace


def opened(place: Place, fork: str | None = None) -> ForkWorkspace:
    return ForkWorkspace(place.project, fork=fork, environ=environ_of(place))


def test_nothing_lands_before_apply(place: Place, workspace: ForkWorkspace) -> None:
    workspace.write("d/new", "1")
    assert workspace.run("cat d/new a.txt .env; echo 2 > made").stdout == b"1hello\n"
    assert not Path(place.project, "made").exists()
    assert workspace.changes().paths == ["d/new", "made"]
    assert "+2" in workspace.diff("made")
    applied = workspace.apply()
    assert applied.ok and Path(place.project, "made").read_text() == "2\n"
    assert workspace.run("cat made; touch again").exit_code == 0, "it goes on after an apply"


def test_commands_share_a_sandbox_until_they_rest(workspace: ForkWorkspace) -> None:
    workspace.write("/tmp/kept", b"\xff\0")
    assert workspace.read("/tmp/kept") == b"\xff\0"
    server = workspace.start("echo $A > /tmp/up; exec sleep 600", env={"A": "up"})
    assert workspace.run("until test -s /tmp/up; do :; done; cat /tmp/up").text == "up\n"
    workspace.rest()
    assert server.poll() is not None
    assert workspace.run("ls /tmp/up /tmp/kept").stdout == b""


def test_without_the_command_that_waits_each_has_its_own_sandbox(place: Place) -> None:
    policy(place, "commands: {rules: [{pattern: sleep, action: deny, reason: no waiting}]}\n")
    with opened(place) as workspace:
        assert workspace.run("echo 1 > /tmp/x; echo 2 > kept").exit_code == 0
        assert workspace.run("ls /tmp/x; cat kept").stdout == b"2\n"


def test_how_a_command_ends(workspace: ForkWorkspace) -> None:
    ended = workspace.run(["sh", "-c", "echo $A; printf '\\377' >&2; exit 3"], env={"A": "b c"})
    assert ended == (3, b"b c\n", b"\xff", ended.output, False, False, True, False)
    assert workspace.run(["no-such-program"])[:3] == (127, b"", b"no-such-program: command not found\n")
    assert workspace.run(["/etc/passwd"]).exit_code == 126
    refused = workspace.run("sudo ls")
    assert (refused.exit_code, refused.started, refused.refused) == (126, False, True)
    assert refused.stderr.startswith(b"mudroom: refused: sudo ls: becomes another user")
    assert workspace.run("cat", input="yes").stdout == b"yes"
    assert workspace.run("true\0").exit_code == 125, "a model's mistake is a result"


def test_where_a_command_works(workspace: ForkWorkspace) -> None:
    workspace.make_directory("d")
    assert workspace.run("pwd").text == f"{workspace.root}\n"
    assert workspace.run("pwd", cwd="d").text == f"{workspace.root}/d\n"
    assert workspace.run("pwd; echo $A", cwd="/usr/bin", env={"A": "b"}).text == "/usr/bin\nb\n"
    assert workspace.run("pwd", cwd="d/../../..").exit_code == 0
    for absent in ("absent", "/absent"):
        ended = workspace.run("pwd", cwd=absent)
        assert ended.exit_code == 125 and b"No such file or directory" in ended.stderr


def test_a_time_limit_ends_all_processes(workspace: ForkWorkspace) -> None:
    ended = workspace.run(f"echo begun; (setsid sleep {LONG} &); sleep {LONG}", timeout=0.5)
    assert (ended.exit_code, ended.timed_out, ended.stdout) == (124, True, b"begun\n")
    until(lambda: not processes_with(LONG))
    assert workspace.run("echo on").stdout == b"on\n"


def test_output_is_kept_up_to_a_limit(workspace: ForkWorkspace) -> None:
    heard: list[str] = []
    ended = workspace.run("echo 1; echo 2 >&2; echo 345", limit=4, on_output=lambda _name, text: heard.append(text))
    assert (ended.stdout, ended.stderr, ended.truncated) == (b"1\n34", b"2\n", True)
    assert sorted("".join(heard).split()) == ["1", "2", "345"]
    big = workspace.run("head -c 12000000 /dev/zero; echo end >&2")
    assert (len(big.stdout), big.stderr, big.truncated) == (10 << 20, b"end\n", True)


ERRORS = [
    ("absent", errno.ENOENT, "No such file"),
    (".", errno.EISDIR, "Is a directory"),
    ("a.txt/x", errno.ENOTDIR, "Not a directory"),
    ("/root/.ssh/id_rsa", errno.EACCES, "names a credential file"),
    ("loop", errno.ELOOP, "Too many levels"),
    ("x" * 300, errno.ENAMETOOLONG, "File name too long"),
]


@pytest.mark.parametrize(("path", "number", "why"), ERRORS, ids=[row[0][:9] for row in ERRORS])
def test_why_a_file_cannot_be_read(workspace: ForkWorkspace, path: str, number: int, why: str) -> None:
    workspace.run("ln -s loop loop")
    with pytest.raises(OSError, match=why) as raised:
        workspace.read(path)
    assert raised.value.errno == number and isinstance(raised.value, mudroom.MudroomError)


def test_a_file_is_what_it_is_in_the_sandbox(
    place: Place, workspace: ForkWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Links, fifos and places outside the project lead nowhere that a command would not reach."""
    outside = Path(place.project).parent / "outside"
    outside.write_text("of the host")
    workspace.run(f"ln -s {outside} out; ln -s ../.. up; ln -s a.txt in; mkfifo fifo")
    assert workspace.read("in") == b"hello\n"
    places = ("out", "up/outside", "../outside", str(outside))
    for path in places:
        with pytest.raises(OSError):
            workspace.read(path)
    for path in places:
        with suppress(OSError):  # in the sandbox's own /tmp it may be made
            workspace.write(path, "of the sandbox")
    with pytest.raises(PermissionError, match="outside the project"):
        workspace.write("/etc/mudroom", "")
    assert outside.read_text() == "of the host"
    monkeypatch.setattr(module, "FILE_TIME", 0.3)
    with pytest.raises(TimeoutError):
        workspace.read("fifo")
    with pytest.raises(OSError, match="larger than 3 bytes") as raised:
        workspace.read("a.txt", limit=3)
    assert raised.value.errno == errno.EFBIG
    assert workspace.read("a.txt", limit=6) == b"hello\n"


def test_entries(workspace: ForkWorkspace) -> None:
    workspace.run(
        "mkdir -p d/e; ln -s to d/link; printf 123 > \"$(printf 'd/a\\nb\\377')\"; chmod 640 d/a*; touch d/e/f"
    )
    found = workspace.entries("d", depth=2)
    assert [(entry.path, entry.kind) for entry in found] == [
        ("a\nb\udcff", "file"), ("e", "directory"), ("e/f", "file"), ("link", "link"),
    ]  # fmt: skip
    assert (found[0].size, found[0].mode, found[3].target) == (3, 0o640, "to")
    assert workspace.entry("d/link").path == "link"
    with pytest.raises(NotADirectoryError):
        workspace.entries("a.txt")
    workspace.move("d/e/f", "g")
    with pytest.raises(OSError, match="Directory not empty"):
        workspace.remove("d")
    workspace.remove("d", recursive=True)
    assert {entry.path for entry in workspace.entries(".")} == {".env", ".git", "a.txt", "g"} - (
        set() if Path(workspace.root, ".git").exists() else {".git"}
    )


def test_what_the_gate_has_refused_is_said(workspace: ForkWorkspace) -> None:
    ended = workspace.run("python3 -c \"import urllib.request as r; r.urlopen('http://example.invalid')\"")
    assert ended.exit_code and b"mudroom: network: example.invalid:80" in ended.stderr


def test_many_at_once(workspace: ForkWorkspace) -> None:
    def work(number: int) -> bytes:
        workspace.write(f"f{number}", str(number))
        return workspace.run(f"cat f{number}").stdout

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == [str(number).encode() for number in range(8)]


def test_cancelling_ends_a_command_and_the_loop_is_free(workspace: ForkWorkspace) -> None:
    async def cancelled() -> int:
        task = asyncio.create_task(aside(workspace.run, f"sleep {LONG}"))
        turns = 0
        while not processes_with(LONG):
            await asyncio.sleep(0)
            turns += 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return turns

    assert asyncio.run(cancelled()) > 1
    until(lambda: not processes_with(LONG))


def test_closing_ends_a_command_of_another_thread(place: Place) -> None:
    workspace = opened(place)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(workspace.run, f"sleep {LONG}")
        until(lambda: processes_with(LONG))
        workspace.close()
        assert running.result().exit_code == 128 + 15
    until(lambda: not processes_with(LONG))


def test_which_forks_stay(place: Place) -> None:
    for name in (None, "named"):
        with opened(place, name) as unused:
            unused.run("true")
        unused.close()
    changed = opened(place)
    changed.write("new", "")
    changed.close()
    dropped = opened(place)
    dropped.write("new", "")
    dropped.discard()
    with mudroom.open(place.project, environ=environ_of(place)) as room:
        assert [fork.name for fork in room.forks()] == [changed.fork.name]
    with opened(place, changed.fork.name) as again:
        assert not again.is_new and again.entry("new").size == 0
    with pytest.raises(mudroom.UsageError, match="is closed"):
        again.run("true")


def test_the_journal_keeps_names_of_variables_and_no_values(place: Place, workspace: ForkWorkspace) -> None:
    values = {"OPENAI_API_KEY": "sk-proj-4f9a8b7c6d5e4f3a2b1c", "MODE": "value 2; x", "X": "value3"}
    workspace.run("sudo ls; X=shown", env=values)
    workspace.run(["sh", "-c", "test $MODE"], env=values, cwd="/tmp")
    workspace.start(f"sleep {LONG}", env=values)
    until(lambda: processes_with(LONG))
    (journal,) = place.state.rglob("journal.db")
    with closing(sqlite3.connect(journal)) as database:
        rows = [json.loads(text) for (text,) in database.execute("SELECT data FROM event ORDER BY number")]
    commands = [row["command"] for row in rows if row.get("command", ["env"])[0] == "env" and "command" in row]
    assert len(commands) >= 3
    assert {word for command in commands for word in command if word.startswith("MODE")} == {"MODE=[redacted]"}
    assert "sudo ls; X=shown" in commands[0]
    holding = {
        (value, "approvals" in file.parts)
        for file in place.state.rglob("*")
        if file.is_file()
        for value in values.values()
        if value.encode() in file.read_bytes()
    }
    assert holding <= {("value 2; x", True), ("value3", True)}, "a question shows people what may act, and no key"
    assert workspace.run("true", env={"-i A": "b", "=C": "d"}).exit_code == 125, "a name that is none"


def test_a_variable_changes_no_verdict(workspace: ForkWorkspace) -> None:
    for line in ("ls", "sudo ls", "rm -rf /"):
        plain, given = (workspace.run(line, env=env, cwd="/tmp") for env in (None, {"A": "b"}))
        assert plain.refused == given.refused
        assert plain.stderr.partition(b" (waiting")[0] == given.stderr.partition(b" (waiting")[0]


def test_a_listing_of_a_false_find_is_an_error(place: Place) -> None:
    place.write("bin/find", '#!/bin/sh\nprintf "$SAID"\n')
    Path(place.project, "bin/find").chmod(0o755)
    for said in ("", "x", r"a\\0a\\0f\\0many\\0644\\01\\0u\\0g\\0\\0", r"a\\0a\\0f\\01\\0644\\0nan\\0u\\0g\\0\\0"):
        variables = {"PATH": f"{place.project}/bin:/usr/bin:/bin", "SAID": said}
        with ForkWorkspace(place.project, environ=environ_of(place), env=variables) as workspace:
            with pytest.raises(OSError, match="not a listing") as raised:
                workspace.entry("bin")
            assert raised.value.errno == errno.EIO


def test_a_forgotten_workspace_leaves_no_fork_without_changes(place: Place) -> None:
    for content in (None, "1"):
        forgotten = opened(place)
        forgotten.run(f"sleep {LONG} &")
        if content:
            forgotten.write("new", content)
        kept = forgotten.fork.name
        del forgotten
        gc.collect()
        until(lambda: not processes_with(LONG))
    with mudroom.open(place.project, environ=environ_of(place)) as room:
        until(lambda: [fork.name for fork in room.forks()] == [kept])
    until(lambda: all(thread.name != "mudroom forgotten" for thread in threading.enumerate()))


def test_a_program_that_ends_without_closing_leaves_no_fork(place: Place) -> None:
    program = f"""
import os, threading
from mudroom.ext.orchestra.workspace import ForkWorkspace
workspace = ForkWorkspace({str(place.project)!r})
workspace.run("true")
if not os.fork():
    raise SystemExit  # a child's end is not the program's
os.wait()
print(workspace.run("echo $A", env={{"A": "on"}}).text)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], env=environ_of(place), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "on\n\n", "")
    with mudroom.open(place.project, environ=environ_of(place)) as room:
        assert not room.forks()


def test_two_threads_close(place: Place) -> None:
    for _number in range(3):
        workspace = opened(place)
        workspace.run("true")
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: workspace.close(), range(4)))  # noqa: B023 - ends here
    with mudroom.open(place.project, environ=environ_of(place)) as room:
        assert not room.forks()
