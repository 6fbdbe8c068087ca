"""A ``WindowsPlan`` performed: a process that runs confined, or none at all.

Rules of this file
1. Whatever is made is put on a stack with what takes it back; the stack is emptied from the top when anything fails,
   and when the command is over. One that cannot be taken back does not keep the others from it.
2. The process is made suspended and already in its job (PROC_THREAD_ATTRIBUTE_JOB_LIST: there is no moment outside of
   it, also if we are killed in the middle). It is resumed after what it was to be has been read back, not before.
3. Windows is not believed: a call that succeeds without doing anything (an emulation, a policy) is found by rule 2.
4. The job's handle is ours alone, and its last one: when mudroom ends, however it does, so does the job
   (KILL_ON_JOB_CLOSE).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, NoReturn

from mudroom.core.confinement.limit import LimitReached, Limits
from mudroom.core.confinement.windows_plan import CAPABILITIES, WindowsPlan, describe
from mudroom.errors import CommandNotStarted, MudroomError, Unsupported
from mudroom.sandbox.windows import types as w
from mudroom.sandbox.windows.calls import Accounting, CallFailed, Calls, Console, Creation, Process

KILLED = 137
"""The exit code of what is ended by us, as where signals are: 128 and 9."""
_MOST = 0x7FFFFFFE
_GONE = 5_000
"""Milliseconds. So long is waited for a job to be empty, after all in it were ended."""
_NOT_FOUND = (2, 3)
"""ERROR_FILE_NOT_FOUND, ERROR_PATH_NOT_FOUND."""
_NOT_STARTED = {2: 127, 3: 127, 193: 126, 216: 126, 740: 126}
"""GetLastError of CreateProcess that is about the program, by exit code: not found; not an executable, for another
machine, wants to be elevated. Not ERROR_ACCESS_DENIED: that may as well be the job or the token that cannot be had."""
_TOLD = {
    w.JOB_OBJECT_MSG_ACTIVE_PROCESS_LIMIT: "processes",
    w.JOB_OBJECT_MSG_JOB_MEMORY_LIMIT: "memory",
    w.JOB_OBJECT_MSG_PROCESS_MEMORY_LIMIT: "memory",
}


class Undo(NamedTuple):
    what: str
    how: Callable[[], None]


class ConfinedProcess:
    """A confined process. ``close`` has to be called, whatever happens."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._undo: list[Undo] = []
        self.job = self.port = self.pid = 0
        self.console: Console | None = None
        self.refused: dict[str, int] = {}
        """How often each limit was in the way."""
        self._process = Process(0, 0, 0)

    def wait(self, seconds: float | None = None) -> int | None:
        """The exit code; None: not over after this time."""
        milliseconds = _MOST if seconds is None else min(_MOST, max(0, round(seconds * 1000)))
        if not self._calls.wait(self._process.process, milliseconds):
            return None
        return self._calls.exit_code(self._process.process)

    def terminate(self) -> None:
        """All that is in the job, at once."""
        self._calls.terminate_job(self.job, KILLED)

    def accounting(self) -> Accounting:
        return self._calls.accounting(self.job)

    def reached(self, limits: Limits) -> tuple[LimitReached, ...]:
        """Limits that did something, as the job has told by now."""
        self._listen(0)
        asked = {"processes": limits.processes, "memory": limits.memory}
        return tuple(
            LimitReached(kind, "refused", asked[kind], amount=times)
            for kind, times in sorted(self.refused.items())
            if asked[kind] is not None
        )

    def resize(self, columns: int, rows: int) -> None:
        if self.console is not None:
            self._calls.resize_console(self.console.handle, columns, rows)

    def close(self) -> tuple[str, ...]:
        """End all that is left, wait until it is gone, and take back what was made for it. What could not be taken
        back: a line for each."""
        return tuple(self._take_back())

    # what follows is for ``start`` alone

    def _listen(self, milliseconds: int) -> bool:
        """Hear what the job has to say; True: nothing runs in it any more."""
        while self.port and (message := self._calls.next_message(self.port, milliseconds)) is not None:
            if message[0] == w.JOB_OBJECT_MSG_ACTIVE_PROCESS_ZERO:
                return True
            if message[0] in _TOLD:
                kind = _TOLD[message[0]]
                self.refused[kind] = self.refused.get(kind, 0) + 1
        return False

    def _empty(self) -> None:
        """Nothing of the job may live when its rights are taken back: a handle that is open keeps what it was given."""
        self._calls.terminate_job(self.job, KILLED)
        if self._calls.accounting(self.job).active:
            self._listen(_GONE)
        if self._calls.accounting(self.job).active:
            raise CallFailed("TerminateJobObject", w.WAIT_TIMEOUT)

    def _take_back(self) -> Iterator[str]:
        if self.job:
            self._undo.append(Undo("what runs in the job", self._empty))
        while self._undo:
            what, how = self._undo.pop()
            try:
                how()
            except CallFailed as failed:
                yield f"{what}: {failed}"
        self.job = self.port = 0


def start(calls: Calls, plan: WindowsPlan, stdio: tuple[int, int, int] | None = None) -> ConfinedProcess:
    """Perform the plan. ``stdio``: three handles for the command's standard ones; they stay the caller's.

    Raises Unsupported if a protection cannot be had, CommandNotStarted if the program cannot be executed. Then no
    process runs, and nothing of what was made is left; what could not be taken back is in the error's hint.
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


class _Performing:
    """State while a plan is performed; one method for each op of ``core/confinement/windows_plan.py``."""

    def __init__(self, calls: Calls, running: ConfinedProcess, stdio: tuple[int, int, int] | None) -> None:
        self._calls = calls
        self._running = running
        self._stdio: tuple[int, int, int] | None = None
        self._given = stdio
        self._who: dict[str, str] = {}
        self._capabilities: tuple[str, ...] = ()
        self._token = 0
        self._wanted: dict[str, Any] = {}
        self._mitigations = 0
        self._fewer_packages = False
        self._checked = False

    def perform(self, step: tuple[Any, ...]) -> None:
        getattr(self, step[0])(*step[1:])

    def _push(self, what: str, how: Callable[[], None]) -> None:
        self._running._undo.append(Undo(what, how))

    def _own(self, what: str, handle: int) -> int:
        self._push(what, lambda: self._calls.close(handle))
        return handle

    def _name(self, who: str) -> str:
        if who.startswith("@") and who not in self._who:
            raise ValueError(f"a plan that names {who} before it is known")
        return self._who.get(who, who)

    def profile(self, name: str, capabilities: tuple[str, ...]) -> None:
        self._capabilities = tuple(CAPABILITIES[one] for one in capabilities)
        self._who["@package"] = self._calls.create_profile(name, self._capabilities)
        self._push(f"AppContainer {name}", lambda: self._calls.delete_profile(name))

    def directory(self, path: str) -> None:
        self._calls.make_directory(path)

    def grant(self, path: str, who: str, rights: int) -> None:
        self._access(path, who, lambda sid: self._calls.grant(path, sid, rights))

    def deny(self, path: str, who: str, rights: int) -> None:
        try:
            self._access(path, who, lambda sid: self._calls.deny(path, sid, rights))
        except CallFailed as failed:
            if failed.code not in _NOT_FOUND:
                raise
            self._running._undo.pop()  # nothing is there to be hidden, nor to be shown again

    def protect(self, path: str, user: str, who: str, rights: int) -> None:
        sid, owners = self._name(who), (self._name(user), *_ADMINISTRATION)
        self._push(f"rights of {who} in {path}", lambda: self._calls.unprotect(path, sid))
        try:
            self._calls.protect(path, owners, sid, rights)
        except CallFailed as failed:
            if failed.code not in _NOT_FOUND:
                raise
            self._running._undo.pop()

    def _access(self, path: str, who: str, how: Callable[[str], None]) -> None:
        sid = self._name(who)
        # first the way back: a call that fails may have changed a part of the tree (inheritance is carried down)
        self._push(f"rights of {who} in {path}", lambda: self._calls.revoke(path, sid))
        how(sid)

    def label(self, path: str, integrity: int) -> None:
        self._calls.label(path, integrity)  # of directories that are the vault's: the label stays

    def _identify(self, token: int) -> None:
        self._who["@user"] = self._calls.user(token)
        self._who["@logon"] = self._calls.logon(token)

    def token(self, flags: int, restricting: tuple[str, ...]) -> None:
        own = self._calls.own_token()
        try:
            self._identify(own)
            sids = tuple(self._name(one) for one in restricting)
            self._wanted["restricting"] = frozenset(sids)
            # named one by one beside DISABLE_MAX_PRIVILEGE: what does not heed the flag heeds the list
            self._token = self._own("the token", self._calls.restrict(own, flags, self._calls.privileges(own), sids))
        finally:
            self._calls.close(own)

    def default_dacl(self, who: tuple[str, ...]) -> None:
        self._calls.set_default_dacl(self._token, tuple(self._name(one) for one in who))

    def integrity(self, level: int) -> None:
        self._wanted["integrity"] = level
        self._calls.set_integrity(self._token, level)

    def job(self, flags: int, processes: int, memory: int) -> None:
        self._running.job = self._own("the job", self._calls.create_job())
        self._wanted["flags"] = flags
        self._calls.set_limits(self._running.job, flags, processes, memory)

    def cpu(self, rate: int) -> None:
        self._calls.set_cpu_rate(self._running.job, rate)

    def ui(self, bits: int) -> None:
        self._calls.set_ui(self._running.job, bits)

    def messages(self) -> None:
        self._running.port = self._own("the completion port", self._calls.create_port(self._running.job))

    def terminal(self, columns: int, rows: int) -> None:
        console = self._calls.create_console(columns, rows)
        self._running.console = console
        # closed after its pipes: it waits for somebody to read the rest of its output, and nobody does
        self._push("the pseudo-console", lambda: self._calls.close_console(console.handle))
        for what, handle in (("its input", console.input), ("its output", console.output)):
            self._own(what, handle)

    def stdio(self) -> None:
        if self._given is None:
            raise CallFailed("SetHandleInformation", w.ERROR_INVALID_PARAMETER)
        self._stdio = self._given

    def mitigate(self, bits: int) -> None:
        self._mitigations = bits

    def fewer_packages(self) -> None:
        self._fewer_packages = True

    def create(self, program: str, line: str, environment: str, cwd: str) -> None:
        if not (self._token and self._running.job):
            raise ValueError("a plan that makes a process without a token and a job of its own")
        console = self._running.console
        creation = Creation(
            self._token, self._running.job, program, line, environment, cwd, self._stdio,
            console.handle if console else 0, self._who.get("@package", ""), self._capabilities, self._mitigations,
            self._fewer_packages,
        )  # fmt: skip
        made = self._calls.create_process(creation)
        self._own("the process", made.process)
        self._own("its first thread", made.thread)
        self._running._process, self._running.pid = made, made.pid

    def check(self, contained: bool) -> None:
        process, job = self._running._process.process, self._running.job
        if not self._calls.is_in_job(process, job):
            raise Unsupported("the job object", "a process that is in it", "one that is not")
        if self._calls.limit_flags(job) != self._wanted["flags"]:
            raise Unsupported("limits of the job", "a job that keeps them", "one that has lost some")
        token = self._calls.process_token(process)
        try:
            self._check_token(token, contained)
        finally:
            self._calls.close(token)
        self._checked = True

    def _check_token(self, token: int, contained: bool) -> None:
        if self._calls.privileges(token):
            raise Unsupported("no privileges", "a token without any", "one that still has some")
        wanted = self._wanted["restricting"]
        if wanted and frozenset(self._calls.restricting(token)) != wanted:
            raise Unsupported("writing only where it is meant to", "a write-restricted token", "one that is not")
        if "integrity" in self._wanted and self._calls.integrity(token) > self._wanted["integrity"]:
            raise Unsupported("low integrity", "a token of that level", "one of a higher level")
        if contained and self._calls.container(token) != self._who["@package"]:
            raise Unsupported("a sandbox", "a process in its AppContainer", "one that is not in it")
        if contained and frozenset(self._calls.capabilities(token)) != frozenset(self._capabilities):
            raise Unsupported("no network", "an AppContainer with no more capabilities than asked for", "others")

    def resume(self) -> None:
        if not self._checked:
            raise ValueError("a plan that lets a process run before it was looked at")
        self._calls.resume(self._running._process.thread)
