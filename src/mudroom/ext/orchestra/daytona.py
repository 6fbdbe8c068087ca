"""The calls of Daytona's SDK that are in most programs, on a fork of a project: change one import.

    from mudroom.ext.orchestra.daytona import Daytona

    sandbox = Daytona(project="proj").create()
    sandbox.fs.upload_file(b"print('hi')", "hello.py")
    print(sandbox.process.exec("python3 hello.py").result)
    print(sandbox.workspace.diff())
    sandbox.delete()

``AsyncDaytona`` has the same calls as coroutines. Results and exceptions are Daytona's own. ``delete`` leaves a fork
that has changes, for ``mudroom diff``. Of the parameters of a sandbox ``env_vars`` and
``network_block_all`` have an effect.
"""

from __future__ import annotations

import hashlib
import itertools
import shlex
import stat
from datetime import UTC, datetime
from pathlib import Path

import mudroom
from mudroom.ext.orchestra.async_view import AsyncView
from mudroom.ext.orchestra.terminal import WorkspaceTerminal
from mudroom.ext.orchestra.vendor import translated, vendor
from mudroom.ext.orchestra.workspace import ForkWorkspace, aside
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
        PtySize,
    )
    from daytona.common.process import SessionCommandLogsResponse, SessionExecuteResponse
    from daytona.common.pty import PtyResult
    from daytona_toolbox_api_client import FileInfo

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence

    from mudroom.ext.orchestra.workspace import FoundEntry, WorkspaceOptions
    from mudroom.library.argument import Word
    from mudroom.library.background_handle import BackgroundHandle

ERRORS = (
    (FileNotFoundError, DaytonaFileNotFoundError),
    (PermissionError, DaytonaFileAccessDeniedError),
    (IsADirectoryError, DaytonaInvalidFilePathError),
    (NotADirectoryError, DaytonaInvalidFilePathError),
    (OSError, DaytonaError),
)


NO_ADDRESS = "a sandbox has no address of its own: its servers are reached by its commands alone"
ABSENT = {
    **dict.fromkeys(("get_preview_link", "create_signed_preview_url", "create_ssh_access"), NO_ADDRESS),
    **dict.fromkeys(("fork", "create_snapshot", "archive"), "use workspace.fork, which has checkpoints"),
    **dict.fromkeys(("pause", "resize"), "processes cannot be frozen, and the policy has the limits"),
    **dict.fromkeys(("git", "computer_use", "create_lsp_server"), "run the program as a command"),
}
"""Why a call cannot be given."""


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

    def list(self, *_query: Any, **_options: Any) -> Iterator[DaytonaSandbox]:
        """Yield the project's forks, each opened."""
        with mudroom.open(self._project) as room:
            names = [fork.name for fork in room.forks()]
        yield from map(self.get, names)

    def delete(self, sandbox: DaytonaSandbox, **_options: Any) -> None:
        sandbox.delete()

    def close(self) -> None:
        """Do nothing: a sandbox is deleted, or ends with its program."""

    def __exit__(self, *_error: object) -> None:
        self.close()


class DaytonaSandbox:
    def __init__(self, workspace: ForkWorkspace) -> None:
        self.workspace = workspace
        self.id = self.name = workspace.fork.name
        self.process, self.fs = DaytonaProcess(workspace), DaytonaFiles(workspace)

    def __getattr__(self, name: str) -> Any:
        if name in ABSENT:
            raise DaytonaError(f"mudroom has no {name}: {ABSENT[name]}")
        raise AttributeError(name)

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
        self._started: dict[str, BackgroundHandle] = {}
        self._ended: dict[str, tuple[str, str]] = {}
        self._numbers = itertools.count(1)
        self._terminals: dict[str, DaytonaTerminal] = {}

    def create_session(self, session_id: str, **_options: Any) -> None:
        """Begin a session, whose commands keep directory and variables from one to the next."""
        self._workspace.write(_state(session_id), "")

    def execute_session_command(self, session_id: str, req: Any, timeout: int | None = None) -> SessionExecuteResponse:
        place = shlex.quote(_state(session_id))
        if self._workspace.run(["test", "-e", _state(session_id)]).exit_code:
            raise DaytonaNotFoundError(f"there is no session {session_id}")
        save = shlex.quote(f"{{ export -p; printf 'cd %q\\n' \"$PWD\"; }} > {place}")
        kept = f"trap {save} EXIT; . {place}"
        argv, number = ["bash", "-c", f"{kept}\n{req.command}"], str(next(self._numbers))
        if req.run_async:
            self._started[number] = self._workspace.start(argv)
            return SessionExecuteResponse(cmd_id=number)
        ended = self._workspace.run(argv, timeout=timeout)
        out, err = (stream.decode("utf-8", "replace") for stream in (ended.stdout, ended.stderr))
        self._ended[number], code = (out, err), ended.exit_code
        return SessionExecuteResponse(cmd_id=number, output=ended.text, stdout=out, stderr=err, exit_code=code)

    def get_session_command_logs(self, _session: str, command_id: str, **_options: Any) -> SessionCommandLogsResponse:
        handle = self._started.get(command_id)
        if handle is None and command_id not in self._ended:
            raise DaytonaNotFoundError(f"there is no command {command_id}")
        out, err = handle.output() if handle is not None else self._ended[command_id]
        return SessionCommandLogsResponse(output=out + err, stdout=out, stderr=err)

    def delete_session(self, session_id: str, **_options: Any) -> None:
        self._workspace.remove(_state(session_id))

    def create_pty_session(
        self,
        id: str,  # noqa: A002
        on_data: Callable[[bytes], object] | None = None,
        cwd: str | None = None,
        envs: Mapping[str, str] | None = None,
        pty_size: Any = None,
    ) -> DaytonaTerminal:
        size = pty_size or PtySize(rows=24, cols=80)
        shell = DaytonaTerminal(self._workspace, size.rows, size.cols, cwd=cwd, env=envs, on_output=on_data)
        shell.session_id, self._terminals[id] = id, shell
        return shell

    def connect_pty_session(self, session_id: str, **_options: Any) -> DaytonaTerminal:
        if session_id not in self._terminals:
            raise DaytonaNotFoundError(f"there is no terminal {session_id}")
        return self._terminals[session_id]

    def resize_pty_session(self, session_id: str, pty_size: Any, **_options: Any) -> None:
        self.connect_pty_session(session_id).resize(pty_size)

    def kill_pty_session(self, session_id: str, **_options: Any) -> None:
        self.connect_pty_session(session_id).kill()

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


def _state(session: str) -> str:
    return f"/tmp/mudroom-session-{hashlib.sha256(session.encode()).hexdigest()}"


class DaytonaTerminal(WorkspaceTerminal):
    session_id = ""

    def send_input(self, data: str | bytes) -> None:
        if not self.send(data):
            raise DaytonaError(f"the terminal {self.session_id} has ended")

    def resize(self, pty_size: Any) -> bool:
        return self.set_size(pty_size.rows, pty_size.cols)

    def wait(self, on_data: Callable[[bytes], object] | None = None, timeout: float | None = None) -> PtyResult:
        for chunk in () if timeout else self.chunks():
            if on_data is not None:
                on_data(chunk)
        return PtyResult(exit_code=self.ended_after(timeout), error=None)

    def __iter__(self) -> Iterator[bytes]:
        return self.chunks()

    def wait_for_connection(self, *_time: Any, **_options: Any) -> None:
        """Do nothing: the shell runs."""

    def disconnect(self) -> None:
        """Do nothing: the shell goes on."""


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


VIEWED = (Daytona, DaytonaSandbox, DaytonaProcess, DaytonaFiles, DaytonaTerminal)


class AsyncDaytona(AsyncView):
    """``daytona.AsyncDaytona``."""

    def __init__(self, *words: Any, **options: Any) -> None:
        super().__init__(Daytona(*words, **options), VIEWED)

    async def delete(self, sandbox: AsyncView, **_options: Any) -> None:
        await sandbox.delete()

    async def list(self, *_query: Any, **_options: Any) -> AsyncIterator[AsyncView]:
        for sandbox in await aside(lambda: [*self._inner.list()]):
            yield AsyncView(sandbox, VIEWED)
