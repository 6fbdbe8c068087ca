"""The world of a deed in ``windows_model.py``: the modules that it imports, of which each call asks the model first."""

from __future__ import annotations

import builtins
import ctypes
import io
import os
import socket
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from certify.windows_model import (
    ACCESS_DENIED,
    ATTRIBUTES,
    DELETE,
    INVALID_HANDLE,
    MEDIUM,
    PRIVILEGES,
    READ,
    WRITE,
    Machine,
    Program,
)
from mudroom.ext.certify.deed import GATE
from mudroom.ext.certify.deed_program import text_of
from mudroom.ext.windows.core.windows_plan import CAPABILITIES
from mudroom.ext.windows.win32 import types as w
from mudroom.ext.windows.win32.pipe import PREFIX

TEXT = compile(text_of("deed", "windows_deed"), "deeds", "exec")
WSAEACCES = 10013
NO_PID = 99_999_999
"""Above the highest number of a process: kill(2) finds none."""
_READS_CLIPBOARD = 2
"""JOB_OBJECT_UILIMIT_READCLIPBOARD."""


def run(machine: Machine, program: Program, words: str) -> bytes:
    """Run deeds as a process of the model. Return what it wrote."""
    out, before = io.StringIO(), os.getcwd()
    world = _World(machine, program, out)
    namespace: dict[str, Any] = {"__name__": "__main__", "__builtins__": world.builtins()}
    exec(TEXT, namespace)
    namespace |= {"_made": world.made, "_method": lambda *_arguments: lambda *_more: 0}
    try:
        namespace["main"]([words])
    finally:
        os.chdir(before)
    return out.getvalue().encode()


class _World:
    def __init__(self, machine: Machine, program: Program, out: io.StringIO) -> None:
        self._machine, self._program, self._token = machine, program, program.token
        self._modules: dict[str, Any] = {
            "os": _with(os, self._os()),
            "socket": _with(socket, {"socket": _socket_of(self)}),
            "ctypes": _with(ctypes, {"WinDLL": self._load, "get_last_error": lambda: program.last_error}),
            "sys": SimpleNamespace(stdout=out, platform="win32", executable="python"),
            "nt": SimpleNamespace(_getfinalpathname=lambda _path: self.need("the path of a handle", "", True)),
            "winreg": SimpleNamespace(HKEY_CURRENT_USER=1, CreateKey=self._create_key, CloseKey=lambda _key: None),
            "subprocess": SimpleNamespace(PIPE=-1, DEVNULL=-3, Popen=self._popen),
        }

    def builtins(self) -> dict[str, Any]:
        changed = {"open": self._open_text, "__import__": self._import, "bytearray": self._commit}
        return {**vars(builtins), **changed}

    def _import(self, name: str, *arguments: Any) -> Any:
        return self._modules.get(name) or builtins.__import__(name, *arguments)

    # --- asking ---

    def may(self, operation: str, name: str, is_allowed: bool) -> bool:
        return self._machine.ask(operation, name, is_allowed)

    def need(self, operation: str, name: str, is_allowed: bool, error: int = 13) -> None:
        """Raise OSError if an operation is refused."""
        if not self.may(operation, name, is_allowed):
            raise OSError(error, "refused")

    @property
    def is_free(self) -> bool:
        """Whether the process is in no container."""
        return not self._token.package

    @property
    def relay_port(self) -> int | None:
        """The port of the relay in this process's container, if it has one."""
        return self._machine.relays.get(self._token.package)

    @property
    def has_network(self) -> bool:
        return bool(set(self._token.capabilities) & set(CAPABILITIES.values()))

    def need_file(self, operation: str, path: str, rights: int) -> None:
        checked = os.path.realpath(path.partition(":")[0])
        self.need(operation, os.path.abspath(path), self._machine.may(self._token, checked, rights))

    def _need_new(self, path: str) -> None:
        self.need_file("create", os.path.join(os.path.realpath(os.path.dirname(path) or "."), os.path.basename(path)),
                        WRITE)  # fmt: skip

    # --- files ---

    def _os(self) -> dict[str, Any]:
        need, real = self.need_file, os

        def act(name: str, *checks: tuple[str, int, int]) -> Callable[..., Any]:
            def call(*arguments: Any, **options: Any) -> Any:
                for operation, number, rights in checks:
                    if number < 0:
                        self._need_new(arguments[-number])
                    else:
                        need(operation, arguments[number], rights)
                return getattr(real, name)(*arguments, **options)

            return call

        def symlink(target: str, path: str, **_options: Any) -> None:
            self._need_new(path)
            if not self._machine.has_links:
                raise _privilege_not_held()
            os.symlink(target, path)

        def mkdir(path: str, mode: int = 0o777) -> None:
            self._need_new(path)
            os.mkdir(path, mode)

        return {
            "name": "nt", "open": self._open, "truncate": act("truncate", ("write", 0, WRITE)),
            "unlink": act("unlink", ("delete", 0, DELETE)), "rmdir": act("rmdir", ("delete", 0, DELETE)),
            "mkdir": mkdir, "makedirs": mkdir, "symlink": symlink, "listdir": act("listdir", ("list", 0, READ)),
            "rename": act("rename", ("delete", 0, DELETE), ("create", -1, WRITE)),
            "link": act("link", ("write attributes", 0, ATTRIBUTES), ("create", -1, WRITE)),
            "kill": self._kill, "system": self._system, "getpid": lambda: 4,
        }  # fmt: skip

    def _open(self, path: str, flags: int, mode: int = 0o777) -> int:
        if path == os.devnull:
            self.need("NUL", "", True)
        elif path.startswith("\\\\"):
            self.need("a server", path, self.is_free)
            return os.open(os.devnull, flags)
        elif flags & (os.O_WRONLY | os.O_RDWR):
            self.need_file("write", path, WRITE)
        else:
            self.need_file("read", path, READ)
        return os.open(path, flags, mode)

    def _open_text(self, path: str, mode: str = "r") -> Any:
        if "w" in mode and os.path.exists(path.partition(":")[0]):
            self.need_file("write", path, WRITE)
        elif "w" in mode:
            self._need_new(path)
        else:
            self.need_file("read", path, READ)
        return open(path, mode)

    def _kill(self, pid: int, number: int) -> None:
        self.need("end a process", "", self.is_free)
        os.kill(pid, number)

    def _system(self, _line: str) -> int:
        self.need("cmd.exe", "", True)
        return 7

    # --- memory, processes, registry, COM ---

    def _commit(self, size: int) -> Any:
        job = self._program.job
        if not self.may("commit memory", "", job is None or not job.memory or size <= job.memory):
            raise MemoryError
        return range(size)  # as long, and no memory

    def _popen(self, words: list[str], creationflags: int = 0, **_options: Any) -> Any:
        job, leaves = self._program.job, bool(creationflags & 0x01000000)
        if leaves:
            allowed = job is None or bool(job.flags & w.JOB_OBJECT_LIMIT_BREAKAWAY_OK)
            self.need("break away", "", allowed)
            job = None
        elif not creationflags and len(words) < 6 and (job is None or not job.processes):
            self.need("start a process", "", True)
        elif job is not None and job.processes:
            active = sum(not member.is_over for member in job.members)
            self.need("one process more", "", active < job.processes, 12)
        child = Program(self._token, job, frozenset(), self._program)
        if len(words) > 5:
            with open(words[5], "w", encoding="ascii") as stream:
                stream.write(str(NO_PID))
            self._machine.held[words[5]] = child
        handle = self._machine.new(child)

        def communicate() -> None:
            child.is_over = True

        return SimpleNamespace(_handle=handle, communicate=communicate, poll=lambda: None)

    def _create_key(self, _root: int, name: str) -> int:
        self.need("write the registry", "", self.is_free)
        self._machine.keys.add(name)
        return 1

    def made(self, kind: str, _interface: str, context: int) -> Any:
        """A server in this process is made; what it connects to refuses a container."""
        if not self.may("a server of COM" if context == 4 else "a service", kind, self.is_free):
            raise PermissionError(13, "refused")
        return kind

    # --- libraries ---

    def _load(self, _name: str, **_options: Any) -> _Loaded:
        return _Loaded(_Library(self._machine, self._program, self), self._program)


class _Call:
    """A function of a library; callers set its types."""

    def __init__(self, function: Callable[..., int], program: Program) -> None:
        self._function, self._program = function, program

    def __call__(self, *values: Any) -> int:
        self._program.last_error = 0
        return self._function(*values)


class _Loaded:
    """A library. A function of it is the same object each time."""

    def __init__(self, library: _Library, program: Program) -> None:
        self._library, self._program = library, program

    def __getattr__(self, name: str) -> _Call:
        call = _Call(getattr(self._library, name), self._program)
        setattr(self, name, call)
        return call


def _number(value: Any) -> int:
    return int(getattr(value, "value", value) or 0)


def _succeed(*_arguments: Any) -> int:
    return 1


class _Library:
    """Functions of kernel32, advapi32, user32 and oleaut32 by name, as a process calls them."""

    def __init__(self, machine: Machine, program: Program, world: _World) -> None:
        self._machine, self._program, self._world = machine, program, world
        self.CloseHandle = self.OpenProcessToken = self.ConvertStringSidToSidW = self.SysAllocString = _succeed
        self.OpenClipboard = self.CloseClipboard = _succeed

    def _fail(self, number: int) -> int:
        self._program.last_error = number
        return 0

    def CreateFileW(self, path: str, access: int, *_more: Any) -> int:  # noqa: N802
        if path.startswith(PREFIX):
            may = self._machine.may_open(self._program.token, path.removeprefix(PREFIX), access)
            return self._machine.new(path) if self._world.may("open a pipe", "", may) else self._fail(ACCESS_DENIED)
        self._world.need_file("write attributes", path, ATTRIBUTES)
        return self._machine.new(os.path.abspath(path))

    def DeviceIoControl(self, file: Any, code: int, data: bytes, *_more: Any) -> int:  # noqa: N802
        assert (code, data[:4]) == (0x000900A4, b"\x03\x00\x00\xa0")
        start, size = (int.from_bytes(data[at : at + 2], "little") for at in (12, 14))
        shown = data[16 + start : 16 + start + size].decode("utf-16-le")
        # As in new builds: a container makes no junction.
        self._world.need("a junction", "", self._world.is_free or self._machine.has_links)
        path = self._machine.at(_number(file))
        os.rmdir(path)
        os.symlink(shown.replace("\\", "/"), path)
        return 1

    def WriteFile(self, handle: Any, data: bytes, *_more: Any) -> int:  # noqa: N802
        if not self._world.may("write to a handle", "", _number(handle) in self._program.handles):
            return self._fail(INVALID_HANDLE)
        return os.write(_number(handle), data)

    def LookupPrivilegeValueW(self, _system: None, name: str, luid: Any) -> int:  # noqa: N802
        luid._obj.value = PRIVILEGES[name][0]
        return 1

    def AdjustTokenPrivileges(self, _token: Any, _all: int, wanted: Any, *_more: Any) -> int:  # noqa: N802
        has = (wanted._obj[1], wanted._obj[2]) in self._program.token.privileges
        if not self._world.may("enable a privilege", "", has):
            self._program.last_error = 1300
        return 1

    def SetTokenInformation(self, *_more: Any) -> int:  # noqa: N802
        is_medium = self._program.token.integrity >= MEDIUM
        return 1 if self._world.may("raise the integrity", "", is_medium) else self._fail(1314)

    def GetTokenInformation(self, _token: Any, kind: int, value: Any, *_more: Any) -> int:  # noqa: N802
        assert kind == 29
        value._obj.value = int(not self._world.may("be in no container", "", self._world.is_free))
        return 1

    def EnumClipboardFormats(self, _before: int) -> int:  # noqa: N802
        return 13 if self._machine.clipboard else 0

    def GetClipboardData(self, _kind: int) -> int:  # noqa: N802
        job = self._program.job
        may = job is None or not job.ui & _READS_CLIPBOARD
        return 1 if self._world.may("read the clipboard", "", may) else self._fail(ACCESS_DENIED)

    def CreateNamedPipeW(self, name: str, *_more: Any) -> int:  # noqa: N802
        is_local = name.startswith("\\\\.\\pipe\\LOCAL\\")
        if self._world.may("a pipe of its own" if is_local else "a pipe of all", "", is_local or self._world.is_free):
            return self._machine.new(name)
        return self._fail(ACCESS_DENIED)

    def IsProcessInJob(self, process: Any, _job: Any, is_in: Any) -> int:  # noqa: N802
        is_in._obj.value = int(self._machine.at(_number(process)).job is not None)
        return 1

    def CreateJobObjectW(self, *_more: Any) -> int:  # noqa: N802
        return self._machine.new("a job within")

    def AssignProcessToJobObject(self, _job: Any, process: Any) -> int:  # noqa: N802
        self._machine.at(_number(process)).is_nested = True
        return 1


def _privilege_not_held() -> OSError:
    error = OSError(22, "a privilege")
    error.winerror = 1314  # type: ignore[attr-defined,unused-ignore]
    return error


def _with(module: Any, changed: dict[str, Any]) -> Any:
    return SimpleNamespace(**{**vars(module), **changed})


def _socket_of(world: _World) -> type[socket.socket]:
    """Return sockets of a process. An AppContainer without a capability has no network; what it sends to the host's
    loopback, and what the host sends to it there, is dropped where it arrives."""

    class Socket(socket.socket):
        def _may(self, operation: str, address: Any) -> bool:
            has_relay = world.relay_port is not None
            is_local = address[0] in ("127.0.0.1", "::1", *([GATE] if has_relay else []))
            name = "the gate" if address[0] == GATE else "beside the bridge"
            if not has_relay:
                name = "loopback" if is_local else "another address"
            return world.may(operation, name, ((world.is_free or world.has_network) and not is_local) or world.is_free)

        def connect(self, address: Any) -> None:
            if address == ("127.0.0.1", world.relay_port):
                super().connect((GATE, address[1]))
                return
            if not self._may("connect", address):
                is_local = address[0] in ("127.0.0.1", "::1", GATE)
                raise TimeoutError("timed out") if is_local else OSError(WSAEACCES, "refused")
            super().connect(address)

        def sendto(self, data: Any, address: Any) -> int:  # type: ignore[override]
            return super().sendto(data, address) if self._may("send", address) else len(data)

        def listen(self, _backlog: int = 0) -> None:
            self.is_reached = world.may("serve the host", "", world.is_free)
            if self.is_reached:
                super().listen()

        def accept(self) -> Any:
            if not self.is_reached:
                raise TimeoutError("timed out")
            return super().accept()

    return Socket
