# ruff: noqa: ARG002 - the interface has arguments that a record does not need
"""A Windows that records the calls, and tracks the objects that exist in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mudroom.ext.windows.core.windows_plan import CAPABILITIES
from mudroom.ext.windows.sandbox.calls import Accounting, Calls, Console, Creation, Process
from mudroom.ext.windows.win32 import types as w
from mudroom.ext.windows.win32.api import CallFailed, Luid

PACKAGE = "S-1-15-2-1-2-3-4-5-6-7"


PID = 77
RELAY = "C:\\py\\python.exe"


class FakeBridge:
    """``admits`` is asked about a process of the job and about another one when the relay is waited for."""

    def __init__(self, fake: Fake, admits: Callable[[int], bool]) -> None:
        self._fake, self._admits = fake, admits
        self.handle = fake._open("bridge")
        self.notes: list[str] = []

    def await_relay(self) -> None:
        self._fake._call("await_relay", self._admits(PID), self._admits(PID + 1))

    def serve(self, target: tuple[str, int], key: bytes = b"") -> None:
        raise AssertionError((target, key))

    def close(self) -> None:
        self._fake.close(self.handle)


class Fake:
    """``fail_at``: the number of the call that fails. ``lies``: names of protections that are given in word only."""

    def __init__(self, fail_at: int = -1, *, always: bool = False, code: int = 5, lies: frozenset[str] = frozenset()):
        self.log: list[str] = []
        self.fail_at, self.always, self.code, self.lies = fail_at, always, code, lies
        self.failing = ""
        self.handles: dict[int, str] = {}
        self.profiles: set[str] = set()
        self.entries: set[tuple[str, str]] = set()
        self.consoles: set[int] = set()
        self.alive = self.ran = False
        self.messages: list[tuple[int, int]] = []
        self.made: list[Creation] = []
        self._next = 100
        self._flags = 0
        self._integrity = 0x2000
        self._restricting: tuple[str, ...] = ()

    @property
    def calls(self) -> Calls:
        return Calls(self, self, self, self, self, self.close, self.bridge)

    def _call(self, name: str, *arguments: object) -> None:
        self.log.append(name + ("" if not arguments else " " + " ".join(map(str, arguments))))
        if len(self.log) - 1 == self.fail_at:
            self.failing = name
        if name == self.failing and (self.always or len(self.log) - 1 == self.fail_at):
            raise CallFailed(name, self.code)

    def bridge(self, name: str, sid: str, admits: Callable[[int], bool]) -> FakeBridge:
        self._call("bridge", name, sid)
        return FakeBridge(self, admits)

    def _open(self, what: str) -> int:
        self._next += 4
        self.handles[self._next] = what
        return self._next

    def make_directory(self, path: str) -> None:
        self._call("make_directory", path)

    def close(self, handle: int) -> None:
        self._call("close", self.handles.get(handle, "?"))
        del self.handles[handle]  # a KeyError is a handle closed twice

    def create_profile(self, name: str, capabilities: Sequence[str]) -> str:
        self._call("create_profile", name, *capabilities)
        self.profiles.add(name)
        return PACKAGE

    def delete_profile(self, name: str) -> None:
        self._call("delete_profile", name)
        self.profiles.remove(name)

    def grant(self, path: str, sid: str, rights: int) -> None:
        self.entries.add((path, sid))  # also where it fails: a part of the tree may have been changed
        self._call("grant", path, sid, hex(rights))

    def deny(self, path: str, sid: str, rights: int) -> None:
        if path == "gone":
            raise CallFailed("GetNamedSecurityInfoW", 2)
        self.entries.add((path, sid))
        self._call("deny", path, sid, hex(rights))

    def revoke(self, path: str, sid: str) -> None:
        self._call("revoke", path, sid)
        self.entries.discard((path, sid))

    def protect(self, path: str, owners: Sequence[str], sid: str, rights: int) -> None:
        if path == "gone":
            raise CallFailed("CreateFileW", 2)
        self.entries.add((path, sid))
        self._call("protect", path, *owners, sid, hex(rights))

    def unprotect(self, path: str, sid: str) -> None:
        self._call("unprotect", path, sid)
        self.entries.discard((path, sid))

    def label(self, path: str, integrity: int) -> None:
        self._call("label", path, hex(integrity))

    def own_token(self) -> int:
        self._call("own_token")
        return self._open("own token")

    def process_token(self, process: int) -> int:
        self._call("process_token", self.handles[process])
        return self._open("process token")

    def privileges(self, token: int) -> tuple[Luid, ...]:
        self._call("privileges", self.handles[token])
        return ((20, 0), (19, 0)) if self.handles[token] == "own token" or "privileges" in self.lies else ()

    def restrict(self, token: int, flags: int, privileges: Sequence[Luid], sids: Sequence[str]) -> int:
        self._call("restrict", self.handles[token], hex(flags), list(privileges), *sids)
        self._restricting = () if "restricting" in self.lies else tuple(sids)
        return self._open("token")

    def set_default_dacl(self, token: int, sids: Sequence[str]) -> None:
        self._call("set_default_dacl", self.handles[token], *sids)

    def set_integrity(self, token: int, level: int) -> None:
        self._call("set_integrity", self.handles[token], hex(level))
        self._integrity = self._integrity if "integrity" in self.lies else level

    def integrity(self, token: int) -> int:
        self._call("integrity", self.handles[token])
        return self._integrity

    def restricting(self, token: int) -> tuple[str, ...]:
        self._call("restricting", self.handles[token])
        return self._restricting

    def user(self, token: int) -> str:
        self._call("user", self.handles[token])
        return "S-1-5-21-1-1-1-1000"

    def logon(self, token: int) -> str:
        self._call("logon", self.handles[token])
        return "S-1-5-5-0-7"

    def container(self, token: int) -> str:
        self._call("container", self.handles[token])
        return "" if "container" in self.lies else self.made[-1].container

    def capabilities(self, token: int) -> tuple[str, ...]:
        self._call("capabilities", self.handles[token])
        more = (CAPABILITIES["internetClient"],) if "capabilities" in self.lies else ()
        return (*self.made[-1].capabilities, *more)

    def create_job(self) -> int:
        self._call("create_job")
        return self._open("job")

    def set_limits(self, job: int, flags: int, processes: int, memory: int) -> None:
        self._call("set_limits", hex(flags), processes, memory)
        self._flags = 0 if "limits" in self.lies else flags

    def limit_flags(self, job: int) -> int:
        self._call("limit_flags", self.handles[job])
        return self._flags

    def set_cpu_rate(self, job: int, rate: int) -> None:
        self._call("set_cpu_rate", rate)

    def set_ui(self, job: int, bits: int) -> None:
        self._call("set_ui", hex(bits))

    def create_port(self, job: int) -> int:
        self._call("create_port")
        return self._open("port")

    def next_message(self, port: int, milliseconds: int) -> tuple[int, int] | None:
        assert self.handles[port] == "port"
        return self.messages.pop(0) if self.messages else None

    def accounting(self, job: int) -> Accounting:
        assert self.handles[job] == "job"
        return Accounting(1.5, 3, int(self.alive), 4096)

    def is_in_job(self, process: int, job: int) -> bool:
        self._call("is_in_job")
        return "job" not in self.lies

    def process_ids(self, job: int) -> tuple[int, ...]:
        self._call("process_ids")
        return (77,) if self.alive else ()

    def terminate_job(self, job: int, code: int) -> None:
        self._call("terminate_job", self.handles[job], code)
        self.alive = False
        self.messages.append((w.JOB_OBJECT_MSG_ACTIVE_PROCESS_ZERO, 0))

    def create_console(self, columns: int, rows: int) -> Console:
        self._call("create_console", columns, rows)
        self.consoles.add(7)
        return Console(7, self._open("input"), self._open("output"))

    def resize_console(self, console: int, columns: int, rows: int) -> None:
        self._call("resize_console", columns, rows)

    def close_console(self, console: int) -> None:
        self._call("close_console")
        self.consoles.remove(console)

    def create_process(self, creation: Creation) -> Process:
        assert self.handles[creation.job] == "job" and self.handles[creation.token] == "token"
        self._call("create_process", creation.program)
        self.made.append(creation)
        self.alive = True
        return Process(self._open("process"), self._open("thread"), 42)

    def resume(self, thread: int) -> None:
        self._call("resume", self.handles[thread])
        self.ran = self.made[-1].program != RELAY  # which is no command

    def wait(self, process: int, milliseconds: int) -> bool:
        self._call("wait", milliseconds)
        return milliseconds > 1000

    def exit_code(self, process: int) -> int:
        self._call("exit_code")
        return 3

    def hold(self, pid: int) -> None:
        self._call("hold", pid)

    def release(self, pid: int) -> None:
        self._call("release", pid)

    @property
    def left(self) -> list[object]:
        """Return the objects that still exist: empty when everything was undone."""
        return [*self.handles.values(), *self.profiles, *self.entries, *self.consoles, *(["process"] * self.alive)]
