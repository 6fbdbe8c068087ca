"""A plan for Windows: the exact steps that confine a process, as data that can be printed. Pure.

A step is a tuple ``(op, *arguments)``; ``ext/windows/sandbox/run.py`` performs each op. SIDs are text. Three are known
only when the plan is performed and have placeholders: ``@package`` (the AppContainer's), ``@logon`` (the user's logon
session's), ``@user``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mudroom.typing import Any, NamedTuple

Step = tuple[Any, ...]

JOB = (
    "a job object counts and ends processes; it hides no file, closes no network, and does not hold what others start "
    "for a command (services, Task Scheduler, WMI, COM servers)"
)
"""A job object's limitations, in one line."""

EVERYONE = "S-1-1-0"
CAPABILITIES = {"internetClient": "S-1-15-3-1", "internetClientServer": "S-1-15-3-2", "privateNetwork": "S-1-15-3-3"}
"""Well-known capability SIDs: winnt.h, SECURITY_CAPABILITY_*."""

READ = 0x1200A9
"""FILE_GENERIC_READ | FILE_GENERIC_EXECUTE in winnt.h."""
CHANGE = 0x1301BF
"""FILE_GENERIC_READ, WRITE, EXECUTE and DELETE, without WRITE_DAC: a command must not pass its access on."""
EVERYTHING = 0x1F01FF
"""FILE_ALL_ACCESS."""


class WindowsPlan(NamedTuple):
    level: int
    steps: tuple[Step, ...]
    notes: tuple[str, ...] = ()
    """Differences from Linux, for the result."""


_RIGHTS = {READ: "read and execute", CHANGE: "read, execute, write, delete", EVERYTHING: "anything"}
_INTEGRITY = {0x1000: "low", 0x2000: "medium"}


def _limits(_flags: int, processes: int, memory: int) -> str:
    limits = [f"{processes} processes"] * bool(processes) + [f"{memory} bytes of memory"] * bool(memory)
    return ", ".join(["ends with mudroom", "no breaking away", *limits])


_DESCRIPTIONS: dict[str, Callable[..., str]] = {
    "profile": lambda name, capabilities: (
        f"AppContainer {name}, {'no capability' if not capabilities else 'capabilities ' + ', '.join(capabilities)}"
    ),
    "directory": lambda path: f"directory {path}",
    "grant": lambda path, trustee, rights: f"let {trustee} {_RIGHTS.get(rights, hex(rights))}: {path}",
    "deny": lambda path, trustee, rights: f"deny {trustee} {_RIGHTS.get(rights, hex(rights))}: {path}",
    "protect": lambda path, user, trustee, rights: (
        f"only for {user}, the system and administrators; let {trustee} {_RIGHTS.get(rights, hex(rights))}: {path}"
    ),
    "label": lambda path, integrity: f"integrity label {_INTEGRITY[integrity]}: {path}",
    "token": lambda _flags, restricting: (
        "the user's token without its privileges"
        + (f", and writing only where one of these may: {', '.join(restricting)}" if restricting else "")
    ),
    "default_dacl": lambda trustee: f"objects that it creates without an ACL also give access to {', '.join(trustee)}",
    "integrity": lambda level: f"integrity of the token: {_INTEGRITY[level]}",
    "job": lambda *limits: f"job object: {_limits(*limits)}",
    "cpu": lambda rate: f"processor time, of all processors together: at most {rate / 100:g} %",
    "ui": lambda bits: f"restrictions of the desktop: {bits:#04x}",
    "messages": lambda: "a completion port that is told what the job's limits do",
    "terminal": lambda columns, rows: f"a pseudo-console of its own, {columns} x {rows}",
    "stdio": lambda: "inherits its three standard handles, and no other",
    "mitigate": lambda bits: f"mitigations of the process: {bits:#x}",
    "bridge": lambda name, trustee: (
        f"the gate's pipe {name}: for {trustee}, of processes in the job alone, none of another machine"
    ),
    "relay": lambda _program, _line, _environment, _cwd, _contained: (
        "start a relay in the job, confined and checked as the command, which listens on 127.0.0.1 in there and leads "
        "to that pipe; wait until it serves"
    ),
    "create": lambda _program, line, _environment, cwd: f"create the process, suspended, in the job: {line}, in {cwd}",
    "check": lambda contained: (
        "check that all of that is in force: job, token" + (", AppContainer" if contained else "") + "; else end it"
    ),
    "resume": lambda: "let it run",
}


def describe(step: Step) -> str:
    """Return a step's description in one line. A test checks that every op has one."""
    return _DESCRIPTIONS[step[0]](*step[1:])


OPS = frozenset(_DESCRIPTIONS)


def explain(plan: WindowsPlan) -> Iterator[str]:
    yield "AppContainer" if plan.level else "write-restricted token"
    for number, step in enumerate(plan.steps, 1):
        yield f"{number:3}. {describe(step)}"
    yield f"  +  {JOB}"
    for note in plan.notes:
        yield f"  +  {note}"
