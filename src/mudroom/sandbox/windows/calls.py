"""The calls to Windows, as an interface: ``api.py`` makes them, a test can record them.

Handles are numbers, SIDs text. Every call raises ``CallFailed`` if Windows reports a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mudroom.typing import NamedTuple, Protocol

Luid = tuple[int, int]


class CallFailed(Exception):
    """``code`` is GetLastError's, or the lower half of an HRESULT of Win32."""

    def __init__(self, function: str, code: int) -> None:
        super().__init__(f"{function}: error {code}")
        self.function = function
        self.code = code


class Console(NamedTuple):
    handle: int
    input: int
    """Data written here is typed input."""
    output: int


class Process(NamedTuple):
    process: int
    thread: int
    pid: int


class Accounting(NamedTuple):
    """JOBOBJECT_BASIC_ACCOUNTING_INFORMATION, and the peak of the extended limits."""

    seconds: float
    """Processor time, user and kernel; not every system includes the kernel's own time."""
    processes: int
    """All processes that were ever in the job."""
    active: int
    peak_memory: int
    """Committed bytes, of all processes together."""


class Creation(NamedTuple):
    """Arguments of CreateProcessAsUserW."""

    token: int
    job: int
    program: str
    line: str
    environment: str
    cwd: str
    stdio: tuple[int, int, int] | None = None
    """None: with a console of its own."""
    console: int = 0
    container: str = ""
    """SID of the AppContainer."""
    capabilities: tuple[str, ...] = ()
    mitigations: int = 0
    fewer_packages: bool = False


class FileCalls(Protocol):
    """Directories, and the rights of SIDs in files."""

    def make_directory(self, path: str) -> None: ...
    def grant(self, path: str, sid: str, rights: int) -> None: ...
    def deny(self, path: str, sid: str, rights: int) -> None: ...
    def revoke(self, path: str, sid: str) -> None: ...
    def protect(self, path: str, owners: Sequence[str], sid: str, rights: int) -> None: ...
    def unprotect(self, path: str, sid: str) -> None: ...
    def label(self, path: str, integrity: int) -> None: ...


class TokenCalls(Protocol):
    """Access tokens, and the AppContainers whose SIDs they have."""

    def create_profile(self, name: str, capabilities: Sequence[str]) -> str: ...
    def delete_profile(self, name: str) -> None: ...
    def own_token(self) -> int: ...
    def process_token(self, process: int) -> int: ...
    def privileges(self, token: int) -> tuple[Luid, ...]: ...
    def restrict(self, token: int, flags: int, privileges: Sequence[Luid], sids: Sequence[str]) -> int: ...
    def set_default_dacl(self, token: int, sids: Sequence[str]) -> None: ...
    def set_integrity(self, token: int, level: int) -> None: ...
    def integrity(self, token: int) -> int: ...
    def restricting(self, token: int) -> tuple[str, ...]: ...
    def user(self, token: int) -> str: ...
    def logon(self, token: int) -> str: ...
    def container(self, token: int) -> str: ...
    def capabilities(self, token: int) -> tuple[str, ...]: ...


class JobCalls(Protocol):
    """Job objects, and the completion ports that report on them."""

    def create_job(self) -> int: ...
    def set_limits(self, job: int, flags: int, processes: int, memory: int) -> None: ...
    def limit_flags(self, job: int) -> int: ...
    def set_cpu_rate(self, job: int, rate: int) -> None: ...
    def set_ui(self, job: int, bits: int) -> None: ...
    def create_port(self, job: int) -> int: ...
    def next_message(self, port: int, milliseconds: int) -> tuple[int, int] | None: ...
    def accounting(self, job: int) -> Accounting: ...
    def is_in_job(self, process: int, job: int) -> bool: ...
    def terminate_job(self, job: int, code: int) -> None: ...


class ConsoleCalls(Protocol):
    """Pseudo-consoles."""

    def create_console(self, columns: int, rows: int) -> Console: ...
    def resize_console(self, console: int, columns: int, rows: int) -> None: ...
    def close_console(self, console: int) -> None: ...


class ProcessCalls(Protocol):
    def create_process(self, creation: Creation) -> Process: ...
    def resume(self, thread: int) -> None: ...
    def wait(self, process: int, milliseconds: int) -> bool: ...
    def exit_code(self, process: int) -> int: ...


class Calls(NamedTuple):
    files: FileCalls
    tokens: TokenCalls
    jobs: JobCalls
    consoles: ConsoleCalls
    processes: ProcessCalls
    close: Callable[[int], object]
    """Closes a handle of any kind."""
