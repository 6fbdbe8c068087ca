"""A stand-in for Windows that confines, on any system: access lists, tokens, jobs and handles as ``Calls``, against
which the deeds of certification run (``windows_program.py``).

It is arithmetic after Microsoft's documents, with real files below: an access that the lists grant is done, another is
refused with the error number of Windows. ``permit`` names refusals that a mutant forgets, ``forbid`` what it does not
give, ``silent`` the calls that report success and do nothing: by name, or ``restricts`` (a token), ``contains`` (a
process in its container), ``joins`` (a process its job), ``lists handles``.

Sources: "How AccessCheck Works" (order of entries), "Restricted Tokens" (a second check with the restricting SIDs; with
WRITE_RESTRICTED for writing alone), "Mandatory Integrity Control" (no write up), "AppContainer isolation" (a second
check with the SIDs of the package; network by capabilities, loopback never), "Job Objects", "Nested Jobs".
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from mudroom.errors import Unsupported
from mudroom.ext.windows.sandbox.calls import Accounting, Calls, Console, Creation, Process
from mudroom.ext.windows.win32 import types as w
from mudroom.ext.windows.win32.api import CallFailed, Luid
from mudroom.ext.windows.win32.pipe import PREFIX, access_list

USER, LOGON, EVERYONE, USERS, SYSTEM = "S-1-5-21-1-2-3-1001", "S-1-5-5-0-7", "S-1-1-0", "S-1-5-11", "S-1-5-18"
PACKAGES = "S-1-15-2-1"
"""ALL APPLICATION PACKAGES."""
READ, WRITE, DELETE, ATTRIBUTES, ALL = 0x120089, 0x116, 0x10000, 0x100, 0x1F01FF
_CHANGES = WRITE | DELETE
MEDIUM = 0x2000
PRIVILEGES: dict[str, Luid] = {"SeShutdownPrivilege": (19, 0), "SeIncreaseWorkingSetPrivilege": (33, 0)}
ACCESS_DENIED, INVALID_HANDLE = 5, 6
_RIGHTS = re.compile(r"^WANTED = (0x\w+)$", re.M)
"""In the text of the relay."""


class Ace(NamedTuple):
    allows: bool
    sid: str
    rights: int


class Token(NamedTuple):
    sids: frozenset[str] = frozenset((USER, EVERYONE, USERS, LOGON))
    privileges: frozenset[Luid] = frozenset(PRIVILEGES.values())
    restricting: frozenset[str] = frozenset()
    integrity: int = MEDIUM
    package: str = ""
    capabilities: tuple[str, ...] = ()


class Job:
    """Owner: the machine, within one row."""

    def __init__(self) -> None:
        self.flags = self.processes = self.memory = self.ui = 0
        self.members: list[Program] = []


class Program:
    """A process, or what a deed has started. Owner: the machine, within one row."""

    def __init__(self, token: Token, job: Job | None, handles: frozenset[int], above: Program | None = None) -> None:
        self.token, self.job, self.handles, self.above = token, job, handles, above
        self.is_nested = False
        self.is_over = False
        self.code = 0
        self.output = b""
        self.line = ""
        self.last_error = 0
        if job is not None:
            job.members.append(self)


class Machine:
    """Owner: one test."""

    def __init__(
        self,
        run: Callable[[Machine, Program], None],
        *,
        permit: frozenset[tuple[str, str]] = frozenset(),
        forbid: frozenset[str] = frozenset(),
        silent: frozenset[str] = frozenset(),
        shown: Sequence[str] = (),
        has_links: bool = True,
    ) -> None:
        """``run``: runs the deeds of a program that is resumed. ``shown``: directories that all packages may read.
        ``has_links``: developer mode."""
        self.run, self.permit, self.forbid, self.silent, self.has_links = run, permit, forbid, silent, has_links
        self.lists: dict[str, list[Ace]] = {"/": [Ace(True, USER, ALL), Ace(True, SYSTEM, ALL)]}
        for path in shown:
            self.lists[path] = [Ace(True, PACKAGES, READ)]
        self.protected: set[str] = set()
        self.labels: dict[str, int] = {}
        self.refused: list[tuple[str, str]] = []
        self.keys: set[str] = set()
        self.inheritable: set[int] = set()
        self.held: dict[str, Program] = {}
        self.clipboard = ""
        self.pipes: dict[str, list[Ace]] = {}
        self.relays: dict[str, int] = {}
        """Ports at which relays listen, by the package of their container."""
        self._objects: dict[int, Any] = {}
        self._numbers = itertools.count(0x1000, 4)
        parts: list[Any] = [_Silenced(part, silent) for part in (_Files(self), _Tokens(self), _Jobs(self))]
        parts += [_Consoles(), _Silenced(_Processes(self), silent), self._close, self._bridge]
        parts += [_nothing] * (len(Calls._fields) - len(parts))  # what no row needs
        self.calls = Calls(*parts)

    # --- handles ---

    def new(self, value: Any) -> int:
        number = next(self._numbers)
        self._objects[number] = value
        return number

    def at(self, handle: int) -> Any:
        return self._objects[handle]

    def _close(self, handle: int) -> None:
        value = self._objects.pop(handle)
        if isinstance(value, Job) and value.flags & w.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE and "close" not in self.silent:
            self.end(value)

    # --- the gate ---

    def make_pipe(self, name: str, sid: str) -> Callable[[], None]:
        """Make a pipe with the list that a bridge's has. Return a function that closes it."""
        if name in self.pipes:
            raise CallFailed("CreateNamedPipeW", ACCESS_DENIED)
        self.pipes[name] = _listed(access_list(USER, sid))

        def close() -> None:
            self.pipes.pop(name, None)

        return close

    def _bridge(self, name: str, sid: str, _admits: Callable[[int], bool]) -> _Bridge:
        return _Bridge(self, sid, self.make_pipe(name, sid))

    def may_open(self, token: Token, name: str, rights: int) -> bool:
        """Return whether the list of a pipe grants a token rights. Raise CallFailed if there is none."""
        if name not in self.pipes:
            raise CallFailed("CreateFileW", 2)
        entries = self.pipes[name]
        of_package = not token.package or _granted(entries, frozenset((token.package, PACKAGES)), rights)
        return of_package and _granted(entries, token.sids, rights)

    # --- decisions ---

    def ask(self, operation: str, name: str, is_allowed: bool) -> bool:
        """Return whether an operation is done, and note a refusal."""
        if operation in self.forbid:
            return False
        if is_allowed or (operation, name) in self.permit:
            return True
        self.refused.append((operation, name))
        return False

    def may(self, token: Token, path: str, rights: int) -> bool:
        """Return whether the lists grant a token rights in a path: "How AccessCheck Works"."""
        entries, writes = self._effective(path), rights & _CHANGES
        if not _granted(entries, token.sids, rights):
            return False
        if token.restricting and writes and not _granted(entries, token.restricting, writes):
            return False
        if token.package:
            of_package = frozenset((token.package, PACKAGES, *token.capabilities))
            if not _granted([entry for entry in entries if entry.allows], of_package, rights):
                return False
        return not writes or token.integrity >= self._label(path)

    def _effective(self, path: str) -> list[Ace]:
        """Return the entries of a path, then those that it inherits; of each those that deny first."""
        found: list[Ace] = []
        while True:
            found += sorted(self.lists.get(path, []), key=lambda entry: entry.allows)
            if path == "/" or path in self.protected:
                return found
            path = os.path.dirname(path)

    def _label(self, path: str) -> int:
        while path not in self.labels:
            if path == "/":
                return MEDIUM
            path = os.path.dirname(path)
        return self.labels[path]

    def end(self, job: Job) -> None:
        """End all processes of a job, with those of jobs within it."""
        for member in job.members:
            if member.is_nested and not member.is_over and self.ask("outlive", "a nested job", False):
                continue
            member.is_over = True


def _granted(entries: Sequence[Ace], sids: frozenset[str], rights: int) -> bool:
    left = rights
    for entry in entries:
        if entry.sid in sids:
            if not entry.allows and entry.rights & left:
                return False
            left &= ~entry.rights if entry.allows else -1
    return not left


class _Silenced:
    """Calls of which some report success and do nothing."""

    def __init__(self, part: Any, silent: frozenset[str]) -> None:
        self._part, self._silent = part, silent

    def __getattr__(self, name: str) -> Any:
        return _nothing if name in self._silent else getattr(self._part, name)


def _nothing(*_arguments: object) -> None:
    """Report success, and do nothing."""


def here(path: str) -> str:
    """Return a path of a plan as this system has it."""
    return os.path.realpath(path.replace("\\", "/"))


def _listed(text: str) -> list[Ace]:
    """Return the entries of a descriptor in SDDL, those that allow."""
    rows = re.findall(r"\(A;;(\w+);;;([^)]+)\)", text)
    return [Ace(True, sid, ALL if rights == "FA" else int(rights, 16)) for rights, sid in rows]


class _Bridge:
    """A bridge to a server of the host at ``GATE``, at the port that its relay has inside."""

    notes: Sequence[str] = ()

    def __init__(self, machine: Machine, package: str, close_pipe: Callable[[], None]) -> None:
        self._machine, self._package, self._close_pipe = machine, package, close_pipe

    def await_relay(self) -> None:
        if self._package not in self._machine.relays:
            raise Unsupported("the gate", "a relay in the container", "none")

    def serve(self, _target: tuple[str, int], _key: bytes = b"", /) -> None:
        raise AssertionError("a command of the model has ended by then")

    def close(self) -> None:
        self._machine.relays.pop(self._package, None)
        self._close_pipe()


class _Files:
    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def make_directory(self, path: str) -> None:
        os.makedirs(here(path), exist_ok=True)

    def _entries(self, path: str) -> list[Ace]:
        if not os.path.lexists(here(path)):
            raise CallFailed("CreateFileW", 2)
        return self._machine.lists.setdefault(here(path), [])

    def grant(self, path: str, sid: str, rights: int) -> None:
        self._entries(path).append(Ace(True, sid, rights))

    def deny(self, path: str, sid: str, rights: int) -> None:
        self._entries(path).append(Ace(False, sid, rights))

    def revoke(self, path: str, sid: str) -> None:
        entries = self._entries(path)
        entries[:] = [entry for entry in entries if entry.sid != sid]

    def protect(self, path: str, owners: Sequence[str], sid: str, rights: int) -> None:
        self._entries(path)[:] = [*(Ace(True, owner, ALL) for owner in owners), Ace(True, sid, rights)]
        self._machine.protected.add(here(path))

    def unprotect(self, path: str, sid: str) -> None:
        self.revoke(path, sid)
        self._machine.protected.discard(here(path))

    def label(self, path: str, integrity: int) -> None:
        self._machine.labels[here(path)] = integrity


class _Tokens:
    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def create_profile(self, name: str, _capabilities: Sequence[str]) -> str:
        return "S-1-15-2-" + "-".join(str(byte) for byte in name.encode()[-7:])

    def delete_profile(self, name: str) -> None: ...

    def own_token(self) -> int:
        return self._machine.new(Token())

    def process_token(self, process: int) -> int:
        return self._machine.new(self._machine.at(process).token)

    def _token(self, handle: int) -> Token:
        token: Token = self._machine.at(handle)
        return token

    def _change(self, handle: int, **values: Any) -> None:
        self._machine._objects[handle] = self._token(handle)._replace(**values)

    def privileges(self, token: int) -> tuple[Luid, ...]:
        return tuple(sorted(self._token(token).privileges))

    def restrict(self, token: int, flags: int, privileges: Sequence[Luid], sids: Sequence[str]) -> int:
        if "restricts" in self._machine.silent:
            return self._machine.new(self._token(token))
        left = self._token(token).privileges - set(privileges)
        if flags & w.DISABLE_MAX_PRIVILEGE:
            left = frozenset()
        return self._machine.new(self._token(token)._replace(privileges=left, restricting=frozenset(sids)))

    def set_default_dacl(self, token: int, sids: Sequence[str]) -> None: ...

    def set_integrity(self, token: int, level: int) -> None:
        self._change(token, integrity=level)

    def integrity(self, token: int) -> int:
        return self._token(token).integrity

    def restricting(self, token: int) -> tuple[str, ...]:
        return tuple(self._token(token).restricting)

    def user(self, _token: int) -> str:
        return USER

    def logon(self, _token: int) -> str:
        return LOGON

    def container(self, token: int) -> str:
        return self._token(token).package

    def capabilities(self, token: int) -> tuple[str, ...]:
        return self._token(token).capabilities


class _Jobs:
    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def _job(self, handle: int) -> Job:
        job: Job = self._machine.at(handle)
        return job

    def create_job(self) -> int:
        return self._machine.new(Job())

    def set_limits(self, job: int, flags: int, processes: int, memory: int) -> None:
        of_it = self._job(job)
        of_it.flags, of_it.processes, of_it.memory = flags, processes, memory

    def limit_flags(self, job: int) -> int:
        return self._job(job).flags

    def set_cpu_rate(self, job: int, rate: int) -> None: ...

    def set_ui(self, job: int, bits: int) -> None:
        self._job(job).ui = bits

    def create_port(self, _job: int) -> int:
        return self._machine.new("a port")

    def next_message(self, _port: int, _milliseconds: int) -> tuple[int, int] | None:
        return None

    def accounting(self, job: int) -> Accounting:
        members = self._job(job).members
        active = sum(not one.is_over and not one.is_nested for one in members)
        return Accounting(0.0, len(members), active, 0)

    def is_in_job(self, process: int, job: int) -> bool:
        return self._machine.at(process) in self._job(job).members

    def process_ids(self, _job: int) -> tuple[int, ...]:
        return ()

    def terminate_job(self, job: int, _code: int) -> None:
        self._machine.end(self._job(job))


class _Consoles:
    def create_console(self, _columns: int, _rows: int) -> Console:
        raise CallFailed("CreatePseudoConsole", 120)

    def resize_console(self, console: int, columns: int, rows: int) -> None: ...
    def close_console(self, console: int) -> None: ...


class _Processes:
    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def create_process(self, creation: Creation) -> Process:
        if "start" in self._machine.forbid:
            raise CallFailed("CreateProcessAsUserW", ACCESS_DENIED)
        token: Token = self._machine.at(creation.token)
        silent = self._machine.silent
        if creation.container and "contains" not in silent:
            token = token._replace(package=creation.container, capabilities=tuple(creation.capabilities))
        handles = frozenset(creation.stdio or ()) | (self._machine.inheritable if "lists handles" in silent else set())
        job = None if "joins" in silent else self._machine.at(creation.job)
        program = Program(token, job, handles)
        program.line = creation.line
        return Process(self._machine.new(program), self._machine.new(program), 4)

    def resume(self, thread: int) -> None:
        program = self._machine.at(thread)
        if PREFIX in program.line:
            self._relay(program)
            return
        self._machine.run(self._machine, program)
        program.is_over = True

    def _relay(self, program: Program) -> None:
        """Listen inside, if the pipe's list permits what the relay asks for."""
        name, port = program.line.partition(PREFIX)[2].split()
        rights = int(_RIGHTS.search(program.line)[1], 16)  # type: ignore[index]
        if self._machine.may_open(program.token, name, rights):
            self._machine.relays[program.token.package] = int(port)

    def wait(self, process: int, _milliseconds: int) -> bool:
        return bool(self._machine.at(process).is_over)

    def exit_code(self, process: int) -> int:
        return int(self._machine.at(process).code)

    def hold(self, pid: int) -> None: ...
    def release(self, pid: int) -> None: ...
