"""The calls of Daytona's SDK that are in most programs, on a fork of a project: change one import.

    from mudroom.ext.orchestra.daytona import Daytona

    sandbox = Daytona(project="proj").create()
    sandbox.fs.upload_file(b"print('hi')", "hello.py")
    print(sandbox.process.exec("python3 hello.py").result)
    print(sandbox.workspace.diff())
    sandbox.delete()

Results and exceptions are Daytona's own. ``delete`` leaves a fork that has changes, for ``mudroom diff``. Of the
parameters of a sandbox ``env_vars`` and ``network_block_all`` have an effect.
"""

from __future__ import annotations

import stat
from datetime import UTC, datetime
from pathlib import Path

from mudroom.ext.orchestra.vendor import translated, vendor
from mudroom.ext.orchestra.workspace import ForkWorkspace
from mudroom.typing import TYPE_CHECKING, Any, Unpack

with vendor("daytona"):
    from daytona import (
        DaytonaError,
        DaytonaFileAccessDeniedError,
        DaytonaFileNotFoundError,
        DaytonaInvalidFilePathError,
        DaytonaNotFoundError,
        DaytonaProcessExecutionTimeoutError,
        ExecuteResponse,
        ExecutionArtifacts,
    )
    from daytona_toolbox_api_client import FileInfo

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mudroom.ext.orchestra.workspace import FoundEntry, WorkspaceOptions
    from mudroom.library.argument import Word

ERRORS = (
    (FileNotFoundError, DaytonaFileNotFoundError),
    (PermissionError, DaytonaFileAccessDeniedError),
    (IsADirectoryError, DaytonaInvalidFilePathError),
    (NotADirectoryError, DaytonaInvalidFilePathError),
    (OSError, DaytonaError),
)


class Daytona:
    """``options``: those of ``ForkWorkspace``. A configuration, with its key and its address, has no effect."""

    def __init__(self, config: Any = None, *, project: Word = ".", **options: Unpack[WorkspaceOptions]) -> None:
        options.setdefault("agent", "daytona")
        self._project, self._options = project, options

    def create(self, params: Any = None, **_options: Any) -> DaytonaSandbox:
        options = self._options.copy()
        options["env"] = {**(options.get("env") or {}), **(getattr(params, "env_vars", None) or {})}
        if getattr(params, "network_block_all", None):
            options["network"] = "none"
        return DaytonaSandbox(ForkWorkspace(self._project, **options))

    def get(self, sandbox_id_or_name: str, **_options: Any) -> DaytonaSandbox:
        """Open the fork of an earlier sandbox. Raise DaytonaNotFoundError if there is none."""
        options = self._options.copy()
        options["fork"] = sandbox_id_or_name
        sandbox = DaytonaSandbox(ForkWorkspace(self._project, **options))
        if sandbox.workspace.is_new:
            sandbox.delete()
            raise DaytonaNotFoundError(f"there is no fork named {sandbox_id_or_name}")
        return sandbox

    def delete(self, sandbox: DaytonaSandbox, **_options: Any) -> None:
        sandbox.delete()


class DaytonaSandbox:
    def __init__(self, workspace: ForkWorkspace) -> None:
        self.workspace = workspace
        self.id = self.name = workspace.fork.name
        self.process, self.fs = DaytonaProcess(workspace), DaytonaFiles(workspace)

    def get_work_dir(self) -> str:
        return self.workspace.cwd

    def stop(self, **_options: Any) -> None:
        """End all commands. The next one begins a new sandbox."""
        self.workspace.rest()

    def delete(self, **_options: Any) -> None:
        self.workspace.close()


class DaytonaProcess:
    def __init__(self, workspace: ForkWorkspace) -> None:
        self._workspace = workspace

    def exec(
        self, command: str, cwd: str | None = None, env: Mapping[str, str] | None = None, timeout: int | None = None
    ) -> ExecuteResponse:
        """``result`` is stdout and stderr. Raise DaytonaProcessExecutionTimeoutError if it runs out of time."""
        return self._run(["bash", "-c", command], cwd, env, timeout)

    def code_run(self, code: str, params: Any = None, timeout: int | None = None) -> ExecuteResponse:
        """Run a Python program."""
        argv = ["python3", "-c", code, *(getattr(params, "argv", None) or ())]
        return self._run(argv, None, getattr(params, "env", None), timeout)

    def _run(
        self, argv: Sequence[str], cwd: str | None, env: Mapping[str, str] | None, timeout: int | None
    ) -> ExecuteResponse:
        ended = self._workspace.run(argv, cwd=cwd, env=env, timeout=timeout)
        if ended.timed_out:
            raise DaytonaProcessExecutionTimeoutError(f"the command ran out of time after {timeout} seconds")
        artifacts = ExecutionArtifacts(stdout=ended.text, charts=[])
        return ExecuteResponse(exit_code=ended.exit_code, result=ended.text, artifacts=artifacts)


class DaytonaFiles:
    """Paths are relative to the project, or absolute."""

    def __init__(self, workspace: ForkWorkspace) -> None:
        self._workspace = workspace

    def upload_file(self, src: str | bytes, dst: str, timeout: int = 0) -> None:
        """``src``: the content, or the path of a file of this machine."""
        with translated(ERRORS):
            self._workspace.write(dst, src if isinstance(src, bytes) else Path(src).read_bytes())

    def upload_files(self, files: Sequence[Any], timeout: int = 0) -> None:
        for file in files:
            self.upload_file(file.source, file.destination)

    def download_file(self, remote_path: str, local_path: str | int | None = None, timeout: int = 0) -> bytes | None:
        """Return the content, or write it to ``local_path``."""
        with translated(ERRORS):
            content = self._workspace.read(remote_path)
        if not isinstance(local_path, str):
            return content
        Path(local_path).write_bytes(content)
        return None

    def list_files(self, path: str, depth: int | None = None, **_options: Any) -> list[FileInfo]:
        with translated(ERRORS):
            return [_info(entry) for entry in self._workspace.entries(path, depth or 1)]

    def get_file_info(self, path: str, **_options: Any) -> FileInfo:
        with translated(ERRORS):
            return _info(self._workspace.entry(path))

    def create_folder(self, path: str, mode: str = "755", **_options: Any) -> None:
        with translated(ERRORS):
            self._workspace.make_directory(path)
        self._workspace.run(["chmod", mode, self._workspace.path(path)])

    def delete_file(self, path: str, recursive: bool = False, **_options: Any) -> None:
        with translated(ERRORS):
            self._workspace.remove(path, recursive=recursive)

    def move_files(self, source: str, destination: str, **_options: Any) -> None:
        with translated(ERRORS):
            self._workspace.move(source, destination)


def _info(entry: FoundEntry) -> FileInfo:
    kind = {"directory": stat.S_IFDIR, "link": stat.S_IFLNK}.get(entry.kind, stat.S_IFREG)
    time = datetime.fromtimestamp(entry.modified, UTC).isoformat()
    return FileInfo(
        name=entry.path,
        is_dir=entry.kind == "directory",
        size=entry.size,
        mode=stat.filemode(kind | entry.mode),
        permissions=f"{entry.mode:04o}",
        mod_time=time,
        modified_at=time,
        owner=entry.owner,
        group=entry.group,
    )
