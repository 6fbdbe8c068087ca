"""Run by test_vendors.py where e2b and e2b-code-interpreter are installed: the calls of e2b's documents."""

from __future__ import annotations

from pathlib import Path

import pytest
from e2b import (
    CommandExitException,
    FileNotFoundException,
    FileType,
    InvalidArgumentException,
    SandboxException,
    SandboxNotFoundException,
    TimeoutException,
)
from vendor_project import run_of_page

from mudroom.ext.orchestra.e2b import Sandbox


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
