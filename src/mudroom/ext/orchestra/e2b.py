"""The calls of e2b's SDK that are in most programs, on a fork of a project: change one import.

    from mudroom.ext.orchestra.e2b import Sandbox

    with Sandbox.create(project="proj") as sandbox:
        sandbox.files.write("hello.py", "print('hi')")
        print(sandbox.commands.run("python3 hello.py").stdout)
        print(sandbox.workspace.diff())

Results and exceptions are e2b's own. ``kill`` and the block's end leave a fork that has changes, for ``mudroom diff``.
``template``, ``timeout``, ``metadata``, ``secure`` and ``lifecycle`` have no effect; internet access cannot be widened.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime

from mudroom.ext.orchestra.kernel import PythonKernel
from mudroom.ext.orchestra.vendor import translated, vendor
from mudroom.ext.orchestra.workspace import ForkWorkspace
from mudroom.typing import TYPE_CHECKING, Any, Literal

with vendor("e2b"):
    from e2b import (
        CommandExitException,
        CommandResult,
        EntryInfo,
        FileNotFoundException,
        FileType,
        InvalidArgumentException,
        SandboxException,
        SandboxNotFoundException,
        TimeoutException,
        WriteInfo,
    )

if TYPE_CHECKING:
    from mudroom.ext.orchestra.workspace import FoundEntry
    from mudroom.library.argument import Word
    from mudroom.library.background_handle import BackgroundHandle

ERRORS = (
    (FileNotFoundError, FileNotFoundException),
    (IsADirectoryError, InvalidArgumentException),
    (NotADirectoryError, InvalidArgumentException),
    (OSError, SandboxException),
)
WITHOUT_EFFECT = ("template", "timeout", "metadata", "secure", "lifecycle", "logger", "api_key", "request_timeout")


class E2bSandbox:
    """``e2b.Sandbox``, and ``run_code`` of ``e2b_code_interpreter.Sandbox``."""

    def __init__(self, workspace: ForkWorkspace) -> None:
        self.workspace = workspace
        self.sandbox_id = workspace.fork.name
        self.commands, self.files = E2bCommands(workspace), E2bFiles(workspace)
        self._kernel = PythonKernel(workspace)

    @classmethod
    def create(
        cls,
        template: str | None = None,
        *,
        project: Word = ".",
        envs: Mapping[str, str] | None = None,
        allow_internet_access: bool = True,
        **options: Any,
    ) -> E2bSandbox:
        """``options``: those of ``ForkWorkspace``. Without ``allow_internet_access`` there is none; with it the policy
        decides."""
        options = {"agent": "e2b", **{name: value for name, value in options.items() if name not in WITHOUT_EFFECT}}
        if not allow_internet_access:
            options["network"] = "none"
        return cls(ForkWorkspace(project, env=envs, **options))

    @classmethod
    def connect(cls, sandbox_id: str, **options: Any) -> E2bSandbox:
        """Open the fork of an earlier sandbox. Raise SandboxNotFoundException if there is none."""
        sandbox = cls.create(fork=sandbox_id, **options)
        if sandbox.workspace.is_new:
            sandbox.kill()
            raise SandboxNotFoundException(f"there is no fork named {sandbox_id}")
        return sandbox

    def __enter__(self) -> E2bSandbox:
        return self

    def __exit__(self, *_error: object) -> None:
        self.kill()

    def is_running(self, request_timeout: float | None = None) -> bool:
        return not self.workspace.room.is_closed

    def set_timeout(self, timeout: int, **_options: Any) -> None:
        """Do nothing: a sandbox ends with its program."""

    def kill(self, **_options: Any) -> bool:
        """End all commands. Return whether the sandbox was running."""
        was_running = self.is_running()
        self.workspace.close()
        return was_running

    def run_code(
        self,
        code: str,
        language: str | None = None,
        timeout: float | None = 300,
        **_options: Any,
    ) -> Any:
        """Run Python code, and return an ``Execution``. Names last from one call to the next."""
        with vendor("e2b-code-interpreter"):
            from e2b_code_interpreter.models import Execution, ExecutionError, Logs, Result
        if language not in (None, "python"):
            raise InvalidArgumentException(f"mudroom runs Python code only, not {language!r}")
        ended = self._kernel.run(code, timeout)
        error = ExecutionError(*ended.error) if ended.error is not None else None
        results = [] if ended.value is None else [Result(text=ended.value, is_main_result=True)]
        logs = Logs([ended.stdout] if ended.stdout else [], [ended.stderr] if ended.stderr else [])
        return Execution(results, logs, error)


Sandbox = E2bSandbox


class E2bCommands:
    def __init__(self, workspace: ForkWorkspace) -> None:
        self._workspace = workspace

    def run(
        self,
        cmd: str,
        background: bool | None = None,
        envs: Mapping[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        on_stdout: Callable[[str], object] | None = None,
        on_stderr: Callable[[str], object] | None = None,
        stdin: bool | None = None,
        timeout: float | None = 60,
        request_timeout: float | None = None,
        **_options: Any,
    ) -> Any:
        """Return a ``CommandResult``, or with ``background`` a handle. Raise CommandExitException if it fails,
        TimeoutException if it runs out of time."""
        if user or stdin:
            raise InvalidArgumentException("mudroom has no other users, and no stdin for a running command")
        line = ["bash", "-l", "-c", cmd]
        if background:
            return E2bCommand(self._workspace.start(line, cwd=cwd, env=envs))
        heard = {"stdout": on_stdout or str, "stderr": on_stderr or str}
        ended = self._workspace.run(
            line, cwd=cwd, env=envs, timeout=timeout, on_output=lambda stream, text: heard[stream](text)
        )
        if ended.timed_out:
            raise TimeoutException(f"the command ran out of time after {timeout} seconds")
        return _checked(
            ended.exit_code, ended.stdout.decode("utf-8", "replace"), ended.stderr.decode("utf-8", "replace")
        )


class E2bCommand:
    """A command in the background."""

    def __init__(self, handle: BackgroundHandle) -> None:
        self._handle = handle
        self.pid = int(handle.id, 16)

    @property
    def stdout(self) -> str:
        return self._handle.output()[0]

    @property
    def stderr(self) -> str:
        return self._handle.output()[1]

    def wait(self, **_options: Any) -> Any:
        """Return its ``CommandResult``, or raise CommandExitException."""
        ended = self._handle.wait()
        return _checked(ended.exit_code if ended is not None else 0, *self._handle.output())

    def kill(self) -> bool:
        was_running = self._handle.poll() is None
        self._handle.end(0.1)
        return was_running


def _checked(code: int, out: str, err: str) -> CommandResult:
    if code:
        raise CommandExitException(stderr=err, stdout=out, exit_code=code, error=f"exit status {code}")
    return CommandResult(stderr=err, stdout=out, exit_code=code, error=None)


class E2bFiles:
    """Paths are relative to the project, or absolute."""

    def __init__(self, workspace: ForkWorkspace) -> None:
        self._workspace = workspace

    def read(self, path: str, format: Literal["text", "bytes", "stream"] = "text", **_options: Any) -> Any:  # noqa: A002
        with translated(ERRORS):
            content = self._workspace.read(path)
        if format == "stream":
            return iter((content,))
        return content.decode("utf-8", "replace") if format == "text" else bytearray(content)

    def write(self, path: str, data: Any, **_options: Any) -> WriteInfo:
        """``data``: str, bytes, a file or an iterable of bytes."""
        if hasattr(data, "read"):
            data = data.read()
        elif not isinstance(data, (str, bytes)):
            data = b"".join(data)
        with translated(ERRORS):
            self._workspace.write(path, data)
        place = self._workspace.path(path)
        return WriteInfo(name=place.rpartition("/")[2], type=FileType.FILE, path=place)

    def write_files(self, files: Iterable[Mapping[str, Any]], **_options: Any) -> list[WriteInfo]:
        return [self.write(file["path"], file["data"]) for file in files]

    def list(self, path: str, depth: int | None = 1, **_options: Any) -> list[EntryInfo]:
        place = self._workspace.path(path).rstrip("/")
        with translated(ERRORS):
            return [_info(entry, f"{place}/{entry.path}") for entry in self._workspace.entries(path, depth or 1)]

    def exists(self, path: str, **_options: Any) -> bool:
        try:
            self._workspace.entry(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def get_info(self, path: str, **_options: Any) -> EntryInfo:
        with translated(ERRORS):
            return _info(self._workspace.entry(path), self._workspace.path(path))

    def remove(self, path: str, **_options: Any) -> None:
        with translated(ERRORS):
            self._workspace.remove(path, recursive=True)

    def rename(self, old_path: str, new_path: str, **_options: Any) -> EntryInfo:
        with translated(ERRORS):
            self._workspace.move(old_path, new_path)
        return self.get_info(new_path)

    def make_dir(self, path: str, **_options: Any) -> bool:
        """Return whether it was made; it may exist."""
        if self.exists(path):
            return False
        with translated(ERRORS):
            self._workspace.make_directory(path)
        return True


def _info(entry: FoundEntry, place: str) -> EntryInfo:
    return EntryInfo(
        name=place.rpartition("/")[2],
        type={"file": FileType.FILE, "directory": FileType.DIR, "link": FileType.SYMLINK}.get(entry.kind),
        path=place,
        size=entry.size,
        mode=entry.mode,
        permissions=stat.filemode(entry.mode)[1:],
        owner=entry.owner,
        group=entry.group,
        modified_time=datetime.fromtimestamp(entry.modified, UTC),
        symlink_target=entry.target or None,
    )
