"""Run by test_vendors.py where daytona is installed: the calls of its documents."""

from __future__ import annotations

from pathlib import Path

import pytest
from daytona import (
    CodeRunParams,
    CreateSandboxFromSnapshotParams,
    DaytonaFileAccessDeniedError,
    DaytonaFileNotFoundError,
    DaytonaInvalidFilePathError,
    DaytonaNotFoundError,
    DaytonaTimeoutError,
    FileUpload,
)
from vendor_project import run_of_page

from mudroom.ext.orchestra.daytona import Daytona


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
