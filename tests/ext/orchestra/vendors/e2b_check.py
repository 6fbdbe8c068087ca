"""Run by test_vendors.py where e2b and e2b-code-interpreter are installed: the calls of e2b's documents."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from e2b import (
    CommandExitException,
    FileNotFoundException,
    FileType,
    InvalidArgumentException,
    NotFoundException,
    PtySize,
    SandboxException,
    SandboxNotFoundException,
    TimeoutException,
)
from vendor_project import run_of_page

from mudroom.ext.orchestra.e2b import AsyncSandbox, Sandbox


def test_the_first_page_of_the_documents(project: Path) -> None:
    with Sandbox.create(timeout=60, project=project, envs={"NAME": "e2b"}) as sandbox:
        assert sandbox.is_running()
        assert sandbox.commands.run("echo $NAME; pwd").stdout == f"e2b\n{project}\n"
        assert sandbox.files.write("d/answer", "42").path == f"{project}/d/answer"
        assert sandbox.files.read("d/answer") == "42"
        assert sandbox.run_code("x = 20").error is None
        assert sandbox.run_code("print('hi')\nx + 22").text == "42"
        failed = sandbox.run_code("1 / 0")
        assert failed.error.name == "ZeroDivisionError" and "<code>" in failed.error.traceback
        assert not (project / "d").exists()
        assert sandbox.workspace.apply().ok
    assert (project / "d/answer").read_text() == "42"
    assert not sandbox.is_running()


def test_a_sandbox_is_found_again_and_another_is_not(project: Path) -> None:
    first = Sandbox.create(project=project)
    first.files.write("kept", b"\xff")
    assert first.kill() and not first.kill()
    again = Sandbox.connect(first.sandbox_id, project=project)
    assert again.files.read("kept", format="bytes") == b"\xff"
    again.kill()
    with pytest.raises(SandboxNotFoundException):
        Sandbox.connect("nowhere", project=project)


def test_commands(project: Path) -> None:
    with Sandbox.create(project=project) as sandbox:
        heard: list[str] = []
        sandbox.commands.run("echo a; echo b >&2", on_stdout=heard.append, on_stderr=heard.append)
        assert sorted(heard) == ["a\n", "b\n"]
        with pytest.raises(CommandExitException) as caught:
            sandbox.commands.run("echo why >&2; exit 3", cwd="/tmp", envs={"A": "b"})
        assert (caught.value.exit_code, caught.value.stderr) == (3, "why\n")
        with pytest.raises(CommandExitException, match="refused"):
            sandbox.commands.run("sudo ls")
        with pytest.raises(TimeoutException):
            sandbox.commands.run("sleep 60 & sleep 61", timeout=0.5)
        with pytest.raises(InvalidArgumentException):
            sandbox.commands.run("true", user="root")
        server = sandbox.commands.run("echo up > /tmp/up; exec sleep 600", background=True)
        assert server.pid and sandbox.commands.run("until test -e /tmp/up; do :; done; cat /tmp/up").stdout == "up\n"
        assert server.kill() and not server.kill()


def test_files(project: Path) -> None:
    with Sandbox.create(project=project) as sandbox:
        files = sandbox.files
        files.write_files([{"path": "d/a", "data": "1"}, {"path": "/tmp/b", "data": b"2"}])
        assert b"".join(files.read("/tmp/b", format="stream")) == b"2"
        assert [(entry.name, entry.type, entry.size) for entry in files.list("d")] == [("a", FileType.FILE, 1)]
        assert files.rename("d/a", "d/c").path == f"{project}/d/c"
        assert files.exists("d/c") and not files.exists("d/a") and not files.exists("a.txt/x")
        assert files.make_dir("e/f") and not files.make_dir("e/f")
        assert files.get_info("e").type == FileType.DIR
        files.remove("e")
        with pytest.raises(FileNotFoundException):
            files.read("e/f")
        with pytest.raises(InvalidArgumentException):
            files.read("d")
        with pytest.raises(SandboxException):
            files.write("/etc/x", "")


def test_the_page(project: Path) -> None:
    assert "+print(42)" in run_of_page("e2b", project)["diff"]


def test_background_commands_are_found_again(project: Path) -> None:
    with Sandbox.create(project=project) as sandbox:
        sleeping = sandbox.commands.run("echo up; exec sleep 600", background=True, timeout=0.5)
        with pytest.raises(TimeoutException):
            sleeping.wait()
        assert [(info.pid, info.args[-1]) for info in sandbox.commands.list()] == [
            (sleeping.pid, "echo up; exec sleep 600")
        ]
        assert sandbox.commands.connect(sleeping.pid).stdout == "up\n"
        assert sandbox.commands.kill(sleeping.pid) and not sandbox.commands.kill(sleeping.pid)
        assert sandbox.commands.list() == [] and sleeping.exit_code == 143
        with pytest.raises(NotFoundException):
            sandbox.commands.connect(1)
        with pytest.raises(SandboxException, match="no stdin"):
            sandbox.commands.send_stdin(1, "x")


def test_a_terminal(project: Path) -> None:
    with Sandbox.create(project=project) as sandbox:
        terminal = sandbox.pty.create(PtySize(rows=24, cols=80), envs={"A": "b"}, timeout=60)
        sandbox.pty.resize(terminal.pid, PtySize(rows=30, cols=100))
        sandbox.pty.send_stdin(terminal.pid, b"stty size; echo $A $TERM; cat .env; exit 3\n")
        shown: list[bytes] = []
        with pytest.raises(CommandExitException) as caught:
            terminal.wait(on_pty=shown.append)
        text = b"".join(shown).decode()
        assert caught.value.exit_code == 3 and "30 100" in text and "b xterm-256color" in text and "TOKEN" not in text
        with pytest.raises(NotFoundException):
            sandbox.pty.send_stdin(terminal.pid, b"x")
        other = sandbox.pty.create(PtySize(rows=24, cols=80))
        assert sandbox.pty.connect(other.pid) is other
        sandbox.pty.send_stdin(other.pid, b"x" * 100_000)
        assert sandbox.pty.kill(other.pid)
        with pytest.raises(CommandExitException):
            other.wait()
        assert not sandbox.pty.kill(other.pid) and not sandbox.pty.kill(99)


def test_a_watch_and_what_is_absent(project: Path) -> None:
    with Sandbox.create(project=project) as sandbox:
        sandbox.files.make_dir("d/e")
        watch = sandbox.files.watch_dir("d", recursive=True)
        sandbox.files.write("d/e/new", "1")
        assert [(event.name, event.type.value) for event in watch.get_new_events()][-1] == ("e/new", "create")
        sandbox.commands.run("echo 22 > d/e/new; chmod 700 d")
        assert [(event.name, event.type.value) for event in watch.get_new_events()] == [("e/new", "write")]
        sandbox.files.remove("d/e/new")
        assert watch.get_new_events()[0].type.value == "remove"
        watch.stop()
        with pytest.raises(SandboxException):
            watch.get_new_events()
        with pytest.raises(FileNotFoundException):
            sandbox.files.watch_dir("nowhere")
        for name in ("get_host", "pause", "git", "create_snapshot", "get_metrics"):
            with pytest.raises(SandboxException, match=f"mudroom has no {name}: "):
                getattr(sandbox, name)
        assert not hasattr(sandbox, "no_such_call")


def test_forks_are_listed_and_a_timeout_kills(project: Path) -> None:
    sandbox = Sandbox.create(project=project, timeout=60)
    sandbox.files.write("kept", "1")
    paginator = Sandbox.list(project=project)
    pages = []
    while paginator.has_next:
        pages.append([info.sandbox_id for info in paginator.next_items()])
    assert pages == [[sandbox.sandbox_id]]
    assert sandbox.get_info().sandbox_id == sandbox.sandbox_id
    sandbox.set_timeout(0.2)
    assert sandbox._timer is not None
    sandbox._timer.join()
    assert not sandbox.is_running()


async def test_the_asynchronous_shape(project: Path) -> None:
    async with await AsyncSandbox.create(project=project) as sandbox:
        heard: list[str] = []

        async def hear(text: str) -> None:
            await asyncio.sleep(0)
            heard.append(text)

        await asyncio.gather(*(sandbox.commands.run(f"echo {n}", on_stdout=hear) for n in range(4)))
        assert sorted(heard) == ["0\n", "1\n", "2\n", "3\n"]
        await sandbox.files.write("d/a", "1")
        assert await sandbox.files.read("d/a") == "1" and sandbox.sandbox_id
        command = await sandbox.commands.run("exec sleep 600", background=True)
        assert await command.kill() and command.pid
        shown: list[bytes] = []
        terminal = await sandbox.pty.create(PtySize(rows=24, cols=80), on_data=shown.append)
        await sandbox.pty.send_stdin(terminal.pid, b"echo $((6 * 7)); exit\n")
        await terminal.wait()
        assert b"42" in b"".join(shown)
        assert (await sandbox.run_code("6 * 7")).text == "42"
        with pytest.raises(CommandExitException):
            await sandbox.commands.run("exit 3")
        running = asyncio.create_task(sandbox.commands.run("sleep 601"))
        while "sleep 601" not in (await sandbox.commands.run("ps ax")).stdout:
            pass
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert "sleep 601" not in (await sandbox.commands.run("ps ax | grep -v ps")).stdout
        name = sandbox.sandbox_id
    again = await AsyncSandbox.connect(name, project=project)
    assert await again.files.exists("d/a") and len(await AsyncSandbox.list(project=project).next_items()) == 1
    await again.kill()
