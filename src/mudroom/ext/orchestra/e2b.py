"""The calls of e2b's SDK that are in most programs, on a fork of a project: change one import.

    from mudroom.ext.orchestra.e2b import Sandbox

    with Sandbox.create(project="proj") as sandbox:
        sandbox.files.write("hello.py", "print('hi')")
        print(sandbox.commands.run("python3 hello.py").stdout)
        print(sandbox.workspace.diff())

``AsyncSandbox`` has the same calls as coroutines. Results and exceptions are e2b's own. ``kill`` and the block's end
leave a fork that has changes, for ``mudroom diff``; so does the end of ``timeout``, if one is given. ``template``,
``metadata``, ``secure`` and ``lifecycle`` have no effect; internet access cannot be widened.
"""

from __future__ import annotations

import itertools
import stat
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime

import mudroom
from mudroom.ext.orchestra.async_view import AsyncView
from mudroom.ext.orchestra.kernel import PythonKernel
from mudroom.ext.orchestra.terminal import WorkspaceTerminal
from mudroom.ext.orchestra.vendor import translated, vendor
from mudroom.ext.orchestra.workspace import ForkWorkspace, aside
from mudroom.typing import TYPE_CHECKING, Any, Literal

with vendor("e2b"):
    from e2b import (
        CommandExitException,
        CommandResult,
        EntryInfo,
        FileNotFoundException,
        FilesystemEvent,
        FilesystemEventType,
        FileType,
        InvalidArgumentException,
        NotFoundException,
        ProcessInfo,
        SandboxException,
        SandboxInfo,
        SandboxNotFoundException,
        SandboxState,
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
WITHOUT_EFFECT = ("template", "metadata", "secure", "lifecycle", "logger", "api_key", "request_timeout")
NO_ADDRESS = "a sandbox has no address of its own: its servers are reached by its commands alone"
ABSENT = {
    **dict.fromkeys(("get_host", "upload_url", "download_url", "get_mcp_url", "get_mcp_token"), NO_ADDRESS),
    **dict.fromkeys(("pause", "beta_pause"), "processes cannot be frozen; kill it, and connect to its fork later"),
    **dict.fromkeys(("create_snapshot", "list_snapshots", "fork"), "use workspace.fork, which has checkpoints"),
    **dict.fromkeys(("get_metrics", "update_network"), "the policy has the limits and the network"),
    "git": "run git as a command",
}
"""Why a call cannot be given."""


class E2bSandbox:
    """``e2b.Sandbox``, and ``run_code`` of ``e2b_code_interpreter.Sandbox``. ``_timer`` is the caller's."""

    def __init__(self, workspace: ForkWorkspace) -> None:
        self.workspace = workspace
        self.sandbox_id = workspace.fork.name
        self.commands, self.files, self.pty = E2bCommands(workspace), E2bFiles(workspace), E2bPty(workspace)
        self._kernel = PythonKernel(workspace)
        self._timer: threading.Timer | None = None

    def __getattr__(self, name: str) -> Any:
        if name in ABSENT:
            raise SandboxException(f"mudroom has no {name}: {ABSENT[name]}")
        raise AttributeError(name)

    @classmethod
    def create(
        cls,
        template: str | None = None,
        *,
        project: Word = ".",
        envs: Mapping[str, str] | None = None,
        allow_internet_access: bool = True,
        timeout: float | None = None,
        **options: Any,
    ) -> E2bSandbox:
        """``options``: those of ``ForkWorkspace``. Without ``allow_internet_access`` there is none; with it the policy
        decides."""
        options = {"agent": "e2b", **{name: value for name, value in options.items() if name not in WITHOUT_EFFECT}}
        if not allow_internet_access:
            options["network"] = "none"
        sandbox = cls(ForkWorkspace(project, env=envs, **options))
        if timeout:
            sandbox.set_timeout(timeout)
        return sandbox

    @classmethod
    def list(cls, *_query: Any, project: Word = ".", **_options: Any) -> E2bForks:
        """Return a paginator with one page: the project's forks."""
        with mudroom.open(project) as room:
            return E2bForks([_sandbox_info(fork.name, fork.created) for fork in room.forks()])

    def get_info(self, **_options: Any) -> SandboxInfo:
        (created,) = (fork.created for fork in self.workspace.room.forks() if fork.name == self.sandbox_id)
        return _sandbox_info(self.sandbox_id, created)

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

    def set_timeout(self, timeout: float, **_options: Any) -> None:
        """Kill the sandbox after so many seconds from now."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = threading.Timer(timeout, self.workspace.close)
        self._timer.daemon = True
        self._timer.start()

    def kill(self, **_options: Any) -> bool:
        """End all commands. Return whether the sandbox was running."""
        was_running = self.is_running()
        if self._timer is not None:
            self._timer.cancel()
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


def _sandbox_info(name: str, created: float) -> SandboxInfo:
    begun = datetime.fromtimestamp(created, UTC)
    return SandboxInfo(
        sandbox_id=name, sandbox_domain=None, template_id="mudroom", name=None, metadata={}, started_at=begun,
        end_at=datetime.max.replace(tzinfo=UTC), state=SandboxState.RUNNING, cpu_count=0, memory_mb=0, envd_version="0",
    )  # fmt: skip


class E2bForks:
    """A paginator."""

    next_token = None

    def __init__(self, items: list[SandboxInfo]) -> None:
        self._pages = [items]

    @property
    def has_next(self) -> bool:
        return bool(self._pages)

    def next_items(self, **_options: Any) -> list[SandboxInfo]:
        return self._pages.pop()


Sandbox = E2bSandbox


class E2bCommands:
    def __init__(self, workspace: ForkWorkspace) -> None:
        self._workspace = workspace
        self._started: dict[int, E2bCommand] = {}

    def list(self, **_options: Any) -> list[ProcessInfo]:
        """Return the background commands that run."""
        running = [command for command in self._started.values() if command.is_running]
        return [
            ProcessInfo(command.pid, None, command.argv[0], list(command.argv[1:]), {}, None) for command in running
        ]

    def connect(self, pid: int, **_options: Any) -> E2bCommand:
        if pid not in self._started:
            raise NotFoundException(f"no background command of this sandbox has the pid {pid}")
        return self._started[pid]

    def kill(self, pid: int, **_options: Any) -> bool:
        return pid in self._started and self._started[pid].kill()

    def send_stdin(self, *_words: Any, **_options: Any) -> None:
        raise SandboxException("mudroom has no stdin for a running command: use pty, or a file as its input")

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
            command = E2bCommand(self._workspace.start(line, cwd=cwd, env=envs), timeout)
            self._started[command.pid] = command
            return command
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

    def __init__(self, handle: BackgroundHandle, timeout: float | None) -> None:
        """``timeout``: seconds that ``wait`` waits. The command goes on."""
        self._handle, self._timeout = handle, timeout
        self.pid = int(handle.id, 16)
        self.argv = handle.command

    @property
    def is_running(self) -> bool:
        return self._handle.poll() is None

    @property
    def exit_code(self) -> int | None:
        ended = self._handle.poll()
        return ended.exit_code if ended is not None else None

    @property
    def stdout(self) -> str:
        return self._handle.output()[0]

    @property
    def stderr(self) -> str:
        return self._handle.output()[1]

    def wait(self, **_options: Any) -> Any:
        """Return its ``CommandResult``, or raise CommandExitException."""
        ended = self._handle.wait(self._timeout or None)
        if ended is None:
            raise TimeoutException(f"the command has not ended after {self._timeout} seconds")
        return _checked(ended.exit_code, *self._handle.output())

    def disconnect(self) -> None:
        """Do nothing: the command goes on, and ``commands.connect`` returns this again."""

    def kill(self) -> bool:
        was_running = self.is_running
        self._handle.end(0.1)
        return was_running


def _checked(code: int, out: str, err: str) -> CommandResult:
    if code:
        raise CommandExitException(stderr=err, stdout=out, exit_code=code, error=f"exit status {code}")
    return CommandResult(stderr=err, stdout=out, exit_code=code, error=None)


class E2bPty:
    def __init__(self, workspace: ForkWorkspace) -> None:
        self._workspace = workspace
        self._terminals: dict[int, E2bTerminal] = {}
        self._pids = itertools.count(1)

    def create(
        self,
        size: Any,
        on_data: Callable[[bytes], object] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        envs: Mapping[str, str] | None = None,
        timeout: float | None = 60,
        **_options: Any,
    ) -> E2bTerminal:
        if user:
            raise InvalidArgumentException("mudroom has no other users")
        where: Any = {"cwd": cwd, "env": envs, "timeout": timeout}
        shell = E2bTerminal(self._workspace, size.rows, size.cols, on_output=on_data, **where)
        shell.pid = next(self._pids)
        self._terminals[shell.pid] = shell
        return shell

    def connect(self, pid: int, **_options: Any) -> E2bTerminal:
        if pid not in self._terminals:
            raise NotFoundException(f"no terminal of this sandbox has the pid {pid}")
        return self._terminals[pid]

    def send_stdin(self, pid: int, data: bytes, **_options: Any) -> None:
        if not self.connect(pid).send(data):
            raise NotFoundException(f"the terminal {pid} has ended")

    def resize(self, pid: int, size: Any, **_options: Any) -> None:
        self.connect(pid).set_size(size.rows, size.cols)

    def kill(self, pid: int, **_options: Any) -> bool:
        return pid in self._terminals and self._terminals[pid].kill()


class E2bTerminal(WorkspaceTerminal):
    """A handle. ``pid``: its number in this sandbox."""

    pid = 0

    def wait(self, on_pty: Callable[[bytes], object] | None = None, **_options: Any) -> Any:
        for chunk in self.chunks():
            if on_pty is not None:
                on_pty(chunk)
        return _checked(self.ended_after() or 0, "", "")

    def disconnect(self) -> None:
        """Do nothing: the shell goes on, and ``pty.connect`` returns this again."""


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

    def watch_dir(self, path: str, recursive: bool = False, **_options: Any) -> E2bWatch:
        self.list(path)  # FileNotFoundException if it is absent
        return E2bWatch(self._workspace, path, 64 if recursive else 1)


class E2bWatch:
    """A directory whose changes are found by listing it again, by one caller at a time."""

    def __init__(self, workspace: ForkWorkspace, path: str, depth: int) -> None:
        self._workspace, self._path, self._depth = workspace, path, depth
        self._seen, self._is_stopped = self._look(), False

    def _look(self) -> dict[str, FoundEntry]:
        return {entry.path: entry for entry in self._workspace.entries(self._path, self._depth)}

    def get_new_events(self, **_options: Any) -> list[FilesystemEvent]:
        """Return what has changed since the last call. A file that is renamed is removed and created."""
        if self._is_stopped:
            raise SandboxException("the watch is stopped")
        before, self._seen = self._seen, self._look()
        kinds = FilesystemEventType
        events = [FilesystemEvent(name, kinds.REMOVE) for name in sorted(before.keys() - self._seen.keys())]
        for name, entry in self._seen.items():
            old = before.get(name)
            if old is None:
                events.append(FilesystemEvent(name, kinds.CREATE))
            elif (old.size, old.modified) != (entry.size, entry.modified):
                events.append(FilesystemEvent(name, kinds.WRITE))
            elif old.mode != entry.mode:
                events.append(FilesystemEvent(name, kinds.CHMOD))
        return events

    def stop(self, **_options: Any) -> None:
        self._is_stopped = True


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


VIEWED = (E2bCommands, E2bCommand, E2bPty, E2bTerminal, E2bFiles, E2bWatch, E2bForks)


class AsyncSandbox(AsyncView):
    """``e2b.AsyncSandbox``."""

    @classmethod
    async def create(cls, *words: Any, **options: Any) -> AsyncSandbox:
        return cls(await aside(E2bSandbox.create, *words, **options), VIEWED)

    @classmethod
    async def connect(cls, sandbox_id: str, **options: Any) -> AsyncSandbox:
        return cls(await aside(E2bSandbox.connect, sandbox_id, **options), VIEWED)

    @classmethod
    def list(cls, *query: Any, **options: Any) -> AsyncView:
        return AsyncView(E2bSandbox.list(*query, **options), VIEWED)
