"""Run by test_vendors.py where daytona is installed: the calls of its documents."""

from __future__ import annotations

from pathlib import Path

import pytest
from daytona import (
    CodeRunParams,
    CreateSandboxFromSnapshotParams,
    DaytonaError,
    DaytonaFileAccessDeniedError,
    DaytonaFileNotFoundError,
    DaytonaInvalidFilePathError,
    DaytonaNotFoundError,
    DaytonaTimeoutError,
    FileUpload,
    PtySize,
    SessionExecuteRequest,
)
from vendor_project import run_of_page

from mudroom.ext.orchestra.daytona import AsyncDaytona, Daytona


def test_the_first_page_of_the_documents(project: Path) -> None:
    daytona = Daytona(project=project)
    sandbox = daytona.create(CreateSandboxFromSnapshotParams(language="python", env_vars={"NAME": "day"}))
    assert (
        sandbox.process.code_run("import sys; print('hi', sys.argv[1])", CodeRunParams(argv=["x"])).result == "hi x\n"
    )
    response = sandbox.process.exec("echo $NAME $A; pwd; exit 3", cwd="/tmp", env={"A": "b"})
    assert (response.exit_code, response.result, response.artifacts.stdout) == (3, "day b\n/tmp\n", "day b\n/tmp\n")
    assert sandbox.process.exec("sudo ls").exit_code == 126
    with pytest.raises(DaytonaTimeoutError):
        sandbox.process.exec("sleep 60 & sleep 61", timeout=1)
    sandbox.fs.upload_file(b"42", "d/answer")
    assert not (project / "d").exists()
    daytona.delete(sandbox)
    again = daytona.get(sandbox.id)
    assert again.workspace.apply().ok
    again.delete()
    assert (project / "d/answer").read_text() == "42"
    with pytest.raises(DaytonaNotFoundError):
        daytona.get("nowhere")


def test_files(project: Path, tmp_path: Path) -> None:
    sandbox = Daytona(project=project).create()
    files = sandbox.fs
    (tmp_path / "mine").write_bytes(b"\xff")
    files.upload_files([FileUpload(b"1", "d/a"), FileUpload(str(tmp_path / "mine"), "/tmp/b")])
    assert files.download_file("/tmp/b") == b"\xff"
    assert files.download_file("d/a", str(tmp_path / "theirs")) is None
    assert (tmp_path / "theirs").read_bytes() == b"1"
    files.create_folder("d/e", "700")
    assert next((info.name, info.is_dir, info.size) for info in files.list_files("d")) == ("a", False, 1)
    assert files.get_file_info("d/e").mode == "drwx------"
    files.move_files("d/a", "d/c")
    files.delete_file("d/c")
    for error, path in (
        (DaytonaFileNotFoundError, "d/c"),
        (DaytonaInvalidFilePathError, "d"),
        (DaytonaFileAccessDeniedError, "/etc/shadow"),
    ):
        with pytest.raises(error):
            files.download_file(path)
    sandbox.stop()
    sandbox.delete()


def test_the_page(project: Path) -> None:
    assert "+print(42)" in run_of_page("Daytona", project)["diff"]


def test_sessions_keep_directory_and_variables(project: Path) -> None:
    sandbox = Daytona(project=project).create()
    process = sandbox.process
    with pytest.raises(DaytonaNotFoundError):
        process.execute_session_command("mine", SessionExecuteRequest(command="true"))
    process.create_session("mine")
    for command in ('mkdir -p "a \' b"; cd "a \' b"; export A=1', "false; exit 4"):
        last = process.execute_session_command("mine", SessionExecuteRequest(command=command))
    assert last.exit_code == 4
    ended = process.execute_session_command("mine", SessionExecuteRequest(command='pwd; echo "$A" >&2'))
    assert (ended.exit_code, ended.stdout, ended.stderr) == (0, f"{project}/a ' b\n", "1\n")
    assert process.get_session_command_logs("mine", ended.cmd_id).stderr == "1\n"
    started = process.execute_session_command("mine", SessionExecuteRequest(command="echo up; sleep 9", run_async=True))
    while process.get_session_command_logs("mine", started.cmd_id).stdout != "up\n":
        pass
    process.delete_session("mine")
    sandbox.delete()


def test_a_terminal_and_what_is_absent(project: Path) -> None:
    daytona = Daytona(project=project)
    sandbox = daytona.create()
    terminal = sandbox.process.create_pty_session("t", envs={"A": "b"}, pty_size=PtySize(rows=24, cols=80))
    terminal.wait_for_connection()
    sandbox.process.resize_pty_session("t", PtySize(rows=30, cols=100))
    assert sandbox.process.connect_pty_session("t") is terminal
    terminal.send_input("stty size; echo $A; exit 3\n")
    shown = b"".join(terminal)
    assert b"30 100" in shown and terminal.wait(timeout=9).exit_code == 3
    with pytest.raises(DaytonaError, match="has ended"):
        terminal.send_input("x")
    for name in ("get_preview_link", "fork", "git", "pause"):
        with pytest.raises(DaytonaError, match=f"mudroom has no {name}: "):
            getattr(sandbox, name)
    sandbox.fs.upload_file(b"1", "kept")
    sandbox.delete()
    assert [other.id for other in daytona.list()] == [sandbox.id]


async def test_the_asynchronous_shape(project: Path) -> None:
    async with AsyncDaytona(project=project) as daytona:
        sandbox = await daytona.create(CreateSandboxFromSnapshotParams(env_vars={"NAME": "day"}))
        assert (await sandbox.process.exec("echo $NAME")).result == "day\n"
        await sandbox.fs.upload_file(b"1", "d/a")
        assert await sandbox.fs.download_file("d/a") == b"1" and sandbox.id
        shown: list[bytes] = []

        async def hear(data: bytes) -> None:
            shown.append(data)

        terminal = await sandbox.process.create_pty_session("t", on_data=hear)
        await terminal.send_input("echo $((6 * 7)); exit\n")
        assert (await terminal.wait()).exit_code == 0 and b"42" in b"".join(shown)
        await daytona.delete(sandbox)
        again = await daytona.get(sandbox.id)
        assert [other.id async for other in daytona.list()] == [again.id]
        await again.delete()
        with pytest.raises(DaytonaNotFoundError):
            await daytona.get("nowhere")
