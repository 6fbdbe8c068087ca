"""Perform a ``WindowsPlan``: the result is a confined process, or none at all.

Rules of this file
1. Every created object is pushed on a stack with its undo action. The stack is emptied from the top when a step fails,
   and when the command is over. An undo action that fails does not keep the others from running.
2. The process is created suspended and already in its job (PROC_THREAD_ATTRIBUTE_JOB_LIST: there is no moment outside
   it, even if mudroom is killed meanwhile). It is resumed only after its confinement has been read back.
3. Windows is not trusted: a call that succeeds without effect (an emulation, a policy) is found by rule 2.
4. This process has the job's only handle. When mudroom ends, in any way, so does the job (KILL_ON_JOB_CLOSE).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mudroom.core.confinement.limit import LimitReached, Limits
from mudroom.errors import CommandNotStarted, MudroomError, Unsupported
from mudroom.ext.windows.core.windows_plan import CAPABILITIES, WindowsPlan, describe
from mudroom.ext.windows.sandbox.calls import Accounting, BridgeCalls, Calls, Console, Creation, Process, TokenCalls
from mudroom.ext.windows.win32 import types as w
from mudroom.ext.windows.win32.api import CallFailed
from mudroom.typing import Any, NamedTuple, NoReturn

KILLED = 137
"""The exit code for processes killed by mudroom, as on platforms with signals: 128 and 9."""
_MAX_WAIT = 0x7FFFFFFE
_EMPTY_TIMEOUT = 5_000
"""Milliseconds to wait until the job is empty, after its processes were terminated."""
NOT_RUN = "no command was run; mudroom doctor tries the sandbox"
_NOT_FOUND = (2, 3)
"""ERROR_FILE_NOT_FOUND, ERROR_PATH_NOT_FOUND."""
_NOT_STARTED = {2: 127, 3: 127, 193: 126, 216: 126, 740: 126}
"""Exit code by those CreateProcess errors (GetLastError) that concern the program: not found; not executable, for
another machine, requires elevation. ERROR_ACCESS_DENIED is left out: it may as well concern the job or the token."""
_LIMIT_MESSAGES = {
    w.JOB_OBJECT_MSG_ACTIVE_PROCESS_LIMIT: "processes",
    w.JOB_OBJECT_MSG_JOB_MEMORY_LIMIT: "memory",
    w.JOB_OBJECT_MSG_PROCESS_MEMORY_LIMIT: "memory",
}


_CONSOLE_ENDS = ("its input", "its output")
"""Labels for a pseudo-console's pipes."""


class Undo(NamedTuple):
    what: str
    how: Callable[[], object]


class ConfinedProcess:
    """A confined process. ``close`` has to be called in every case."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._undo: list[Undo] = []
        self.job = self.port = self.pid = 0
        self.console: Console | None = None
        self.bridge: BridgeCalls | None = None
        """The command's way to the gate, if its plan has one."""
        self.refused: dict[str, int] = {}
        """How often each limit had an effect."""
        self._process = Process(0, 0, 0)

    def wait(self, seconds: float | None = None) -> int | None:
        """Return the exit code, or None if the process runs longer than ``seconds``."""
        milliseconds = _MAX_WAIT if seconds is None else min(_MAX_WAIT, max(0, round(seconds * 1000)))
        if not self._calls.processes.wait(self._process.process, milliseconds):
            return None
        return self._calls.processes.exit_code(self._process.process)

    def terminate(self, code: int = KILLED) -> None:
        """Terminate all processes in the job at once, with this exit code."""
        if self.job:
            self._calls.jobs.terminate_job(self.job, code)

    def accounting(self) -> Accounting:
        return self._calls.jobs.accounting(self.job)

    def reached(self, limits: Limits) -> tuple[LimitReached, ...]:
        """Return the limits that had an effect, from the job's messages so far."""
        self._read_messages(0)
        limit_of = {"processes": limits.processes, "memory": limits.memory}
        return tuple(
            LimitReached(kind, "refused", limit_of[kind], amount=times)
            for kind, times in sorted(self.refused.items())
            if limit_of[kind] is not None
        )

    def take_console(self) -> Console:
        """Return the command's console. Its pipes are the caller's to close from now on; its handle is not."""
        assert self.console is not None
        self._undo = [undo for undo in self._undo if undo.what not in _CONSOLE_ENDS]
        return self.console

    def resize(self, columns: int, rows: int) -> None:
        if self.console is not None:
            self._calls.consoles.resize_console(self.console.handle, columns, rows)

    def close(self) -> tuple[str, ...]:
        """Terminate the remaining processes, wait until they are gone, and undo the setup. Return a line for each undo
        action that failed."""
        return tuple(self._take_back())

    # The rest is for ``start`` alone.

    def _read_messages(self, milliseconds: int) -> bool:
        """Read the job's messages. Return True when no process runs in it any more."""
        while self.port and (message := self._calls.jobs.next_message(self.port, milliseconds)) is not None:
            if message[0] == w.JOB_OBJECT_MSG_ACTIVE_PROCESS_ZERO:
                return True
            if message[0] in _LIMIT_MESSAGES:
                kind = _LIMIT_MESSAGES[message[0]]
                self.refused[kind] = self.refused.get(kind, 0) + 1
        return False

    def _empty_job(self) -> None:
        """Terminate all processes, and wait until the job is empty. Done before rights are revoked: an open handle
        keeps the rights that it was opened with."""
        self._calls.jobs.terminate_job(self.job, KILLED)
        if self._calls.jobs.accounting(self.job).active:
            self._read_messages(_EMPTY_TIMEOUT)
        if self._calls.jobs.accounting(self.job).active:
            raise CallFailed("TerminateJobObject", w.WAIT_TIMEOUT)

    def _take_back(self) -> Iterator[str]:
        if self.job:
            self._undo.append(Undo("what runs in the job", self._empty_job))
        while self._undo:
            label, undo = self._undo.pop()
            try:
                undo()
            except CallFailed as failed:
                yield f"{label}: {failed}"
        self.job = self.port = 0


def start(calls: Calls, plan: WindowsPlan, stdio: tuple[int, int, int] | None = None) -> ConfinedProcess:
    """Perform the plan. ``stdio``: three handles for the command's standard streams; they stay the caller's.

    Raise Unsupported if a protection is unavailable, CommandNotStarted if the program cannot be executed. Then no
    process runs, and the setup is undone; failed undo actions are in the error's hint.
    """
    running = ConfinedProcess(calls)
    performing = _Performing(calls, running, stdio)
    for step in plan.steps:
        try:
            performing.perform(step)
        except BaseException as error:
            left = "; ".join(running.close())
            if isinstance(error, CallFailed):
                _explain(step, error, left)
            if left and isinstance(error, MudroomError):
                error.hint = "; ".join(filter(None, (error.hint, "left behind: " + left)))
            raise
    return running


def _explain(step: tuple[Any, ...], failed: CallFailed, left: str) -> NoReturn:
    hint = f"left behind: {left}" if left else ""
    if step[0] == "create" and failed.function == "CreateProcessAsUserW" and failed.code in _NOT_STARTED:
        why = "not found" if _NOT_STARTED[failed.code] == 127 else f"cannot be executed (error {failed.code})"
        raise CommandNotStarted(f"{step[1]}: {why}", _NOT_STARTED[failed.code], hint) from failed
    raise Unsupported(describe(step), failed.function, f"error {failed.code}", hint) from failed


_ADMINISTRATION = ("S-1-5-18", "S-1-5-32-544")
"""SYSTEM and Administrators: "Well-known SIDs"."""


class _Expected:
    """The confinement that the plan's steps specify, and that is read back from a process before it runs (rule 2)."""

    def __init__(self) -> None:
        self.flags = 0
        """The job's limit flags."""
        self.restricting: frozenset[str] = frozenset()
        self.integrity: int | None = None

    def require(self, calls: Calls, job: int, process: int, container: tuple[str, tuple[str, ...]] | None) -> None:
        """Raise Unsupported unless the process is confined so. ``container``: its AppContainer's SID, and the SIDs of
        the capabilities that it has there."""
        if not calls.jobs.is_in_job(process, job):
            raise Unsupported("the job object", "a process that is in it", "one that is not", NOT_RUN)
        if calls.jobs.limit_flags(job) != self.flags:
            raise Unsupported(
                "holding the limits of the job", "a job that keeps them", "one that has lost some", NOT_RUN
            )
        token = calls.tokens.process_token(process)
        try:
            self._require_token(calls.tokens, token, container)
        finally:
            calls.close(token)

    def _require_token(self, tokens: TokenCalls, token: int, container: tuple[str, tuple[str, ...]] | None) -> None:
        if tokens.privileges(token):
            raise Unsupported("a command without privileges", "a token without any", "one that still has some", NOT_RUN)
        if self.restricting and frozenset(tokens.restricting(token)) != self.restricting:
            raise Unsupported(
                "writing only where it is meant to", "a write-restricted token", "one that is not", NOT_RUN
            )
        if self.integrity is not None and tokens.integrity(token) > self.integrity:
            raise Unsupported("low integrity", "a token of that level", "one of a higher level", NOT_RUN)
        if container is not None and tokens.container(token) != container[0]:
            raise Unsupported("a sandbox", "a process in its AppContainer", "one that is not in it", NOT_RUN)
        if container is not None and frozenset(tokens.capabilities(token)) != frozenset(container[1]):
            needs = "an AppContainer with no more capabilities than asked for"
            raise Unsupported("a closed network", needs, "one with others", NOT_RUN)


class _Performing:
    """State while a plan is performed; a method for each op in ``ext/windows/core/windows_plan.py``."""

    def __init__(self, calls: Calls, running: ConfinedProcess, stdio: tuple[int, int, int] | None) -> None:
        self._calls = calls
        self._running = running
        self._stdio: tuple[int, int, int] | None = None
        self._caller_stdio = stdio
        self._sids: dict[str, str] = {}
        self._capabilities: tuple[str, ...] = ()
        self._token = 0
        self._expected = _Expected()
        self._mitigations = 0
        self._checked = False

    def perform(self, step: tuple[Any, ...]) -> None:
        getattr(self, step[0])(*step[1:])

    def _push(self, label: str, undo: Callable[[], object]) -> None:
        self._running._undo.append(Undo(label, undo))

    def _push_close(self, label: str, handle: int) -> int:
        self._push(label, lambda: self._calls.close(handle))
        return handle

    def _sid_of(self, who: str) -> str:
        if who.startswith("@") and who not in self._sids:
            raise ValueError(f"a plan that names {who} before it is known")
        return self._sids.get(who, who)

    def profile(self, name: str, capabilities: tuple[str, ...]) -> None:
        self._capabilities = tuple(CAPABILITIES[capability] for capability in capabilities)
        self._sids["@package"] = self._calls.tokens.create_profile(name, self._capabilities)
        self._push(f"AppContainer {name}", lambda: self._calls.tokens.delete_profile(name))

    def directory(self, path: str) -> None:
        self._calls.files.make_directory(path)

    def grant(self, path: str, who: str, rights: int) -> None:
        self._access(path, who, lambda sid: self._calls.files.grant(path, sid, rights))

    def deny(self, path: str, who: str, rights: int) -> None:
        try:
            self._access(path, who, lambda sid: self._calls.files.deny(path, sid, rights))
        except CallFailed as failed:
            if failed.code not in _NOT_FOUND:
                raise
            self._running._undo.pop()  # the path does not exist, so there is no entry to revoke

    def protect(self, path: str, user: str, who: str, rights: int) -> None:
        sid, owners = self._sid_of(who), (self._sid_of(user), *_ADMINISTRATION)
        self._push(f"rights of {who} in {path}", lambda: self._calls.files.unprotect(path, sid))
        try:
            self._calls.files.protect(path, owners, sid, rights)
        except CallFailed as failed:
            if failed.code not in _NOT_FOUND:
                raise
            self._running._undo.pop()

    def _access(self, path: str, who: str, how: Callable[[str], None]) -> None:
        sid = self._sid_of(who)
        # Undo first: a call that fails may have changed a part of the tree (inheritance is carried down).
        self._push(f"rights of {who} in {path}", lambda: self._calls.files.revoke(path, sid))
        how(sid)

    def label(self, path: str, integrity: int) -> None:
        self._calls.files.label(path, integrity)  # on the vault's own directories: the label stays

    def token(self, flags: int, restricting: tuple[str, ...]) -> None:
        own = self._calls.tokens.own_token()
        try:
            self._sids["@user"] = self._calls.tokens.user(own)
            self._sids["@logon"] = self._calls.tokens.logon(own)
            sids = tuple(self._sid_of(trustee) for trustee in restricting)
            self._expected.restricting = frozenset(sids)
            # Listed in addition to DISABLE_MAX_PRIVILEGE, for systems that ignore the flag.
            self._token = self._push_close(
                "the token", self._calls.tokens.restrict(own, flags, self._calls.tokens.privileges(own), sids)
            )
        finally:
            self._calls.close(own)

    def default_dacl(self, who: tuple[str, ...]) -> None:
        self._calls.tokens.set_default_dacl(self._token, tuple(self._sid_of(trustee) for trustee in who))

    def integrity(self, level: int) -> None:
        self._expected.integrity = level
        self._calls.tokens.set_integrity(self._token, level)

    def job(self, flags: int, processes: int, memory: int) -> None:
        self._running.job = self._push_close("the job", self._calls.jobs.create_job())
        self._expected.flags = flags
        self._calls.jobs.set_limits(self._running.job, flags, processes, memory)

    def cpu(self, rate: int) -> None:
        self._calls.jobs.set_cpu_rate(self._running.job, rate)

    def ui(self, bits: int) -> None:
        self._calls.jobs.set_ui(self._running.job, bits)

    def messages(self) -> None:
        self._running.port = self._push_close("the completion port", self._calls.jobs.create_port(self._running.job))

    def terminal(self, columns: int, rows: int) -> None:
        console = self._calls.consoles.create_console(columns, rows)
        self._running.console = console
        # Closed after its pipes: it waits for a reader of its remaining output, and there is none.
        self._push("the pseudo-console", lambda: self._calls.consoles.close_console(console.handle))
        for label, handle in zip(_CONSOLE_ENDS, (console.input, console.output), strict=True):
            self._push_close(label, handle)

    def stdio(self) -> None:
        if self._caller_stdio is None:
            raise CallFailed("SetHandleInformation", w.ERROR_INVALID_PARAMETER)
        self._stdio = self._caller_stdio

    def mitigate(self, bits: int) -> None:
        self._mitigations = bits

    def bridge(self, name: str, who: str) -> None:
        """Make the pipe. It is for processes in the job alone, whose handle is known by the time a process connects."""
        running, jobs = self._running, self._calls.jobs
        made = self._calls.bridge(name, self._sid_of(who), lambda pid: pid in jobs.process_ids(running.job))
        running.bridge = made
        self._push("the gate's pipe", made.close)

    def relay(self, program: str, line: str, environment: str, cwd: str, contained: bool) -> None:
        """Start the container's first process, confined as the command, and wait until it serves."""
        if self._running.bridge is None:
            raise ValueError("a plan that starts a relay without a bridge")
        process = self._create((program, line, environment, cwd), None, 0)  # it does not get the command's streams
        self._require_confined(process, contained)
        self._calls.processes.resume(process.thread)
        self._running.bridge.await_relay()

    def create(self, program: str, line: str, environment: str, cwd: str) -> None:
        console = self._running.console
        process = self._create((program, line, environment, cwd), self._stdio, console.handle if console else 0)
        self._running._process, self._running.pid = process, process.pid

    def _create(self, words: tuple[str, str, str, str], stdio: tuple[int, int, int] | None, console: int) -> Process:
        """Create a process, suspended. ``words``: its program, command line, environment and directory."""
        if not (self._token and self._running.job):
            raise ValueError("a plan that makes a process without a token and a job of its own")
        creation = Creation(
            self._token, self._running.job, *words, stdio, console, self._sids.get("@package", ""),
            self._capabilities, self._mitigations,
        )  # fmt: skip
        process = self._calls.processes.create_process(creation)
        self._push_close("the process", process.process)
        self._push_close("its first thread", process.thread)
        return process

    def check(self, contained: bool) -> None:
        self._require_confined(self._running._process, contained)
        self._checked = True

    def _require_confined(self, process: Process, contained: bool) -> None:
        container = (self._sids["@package"], self._capabilities) if contained else None
        self._expected.require(self._calls, self._running.job, process.process, container)

    def resume(self) -> None:
        if not self._checked:
            raise ValueError("a plan that lets a process run before it was looked at")
        self._calls.processes.resume(self._running._process.thread)
