"""Protections of this Windows machine, tested by probes that run a command and check the result."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from contextlib import suppress

from mudroom.core.confinement.limit import Limits
from mudroom.core.confinement.protection import Finding
from mudroom.core.confinement.spec import Copy, HostView, SandboxSpec
from mudroom.errors import MudroomError
from mudroom.ext.windows.core.windows_command import join
from mudroom.ext.windows.sandbox.calls import Calls
from mudroom.ext.windows.sandbox.native import NativeJobs, native
from mudroom.ext.windows.sandbox.plan import WindowsCommand, WindowsMachine, compile_plan, system_variables
from mudroom.ext.windows.sandbox.run import start
from mudroom.ext.windows.win32.api import CallFailed, Library
from mudroom.typing import Any, Literal, NamedTuple


class CmdTrial(NamedTuple):
    """The result of a line run in cmd.exe."""

    code: int | None = None
    """None: the command did not start, or did not end in time."""
    out: bytes = b""
    error: str = ""


class ProbeRequest(NamedTuple):
    line: str
    level: int = 1
    limits: Limits = Limits()
    network: Literal["none", "gate", "open"] = "none"
    terminal: tuple[int, int] | None = None


Runner = Callable[[ProbeRequest], CmdTrial]
_SECRET = b"secret"
_NO_CONTAINER = "Windows 10 or later, its firewall's services (BFE, mpssvc) running"


def diagnose(run: Runner, outside: str) -> list[Finding]:
    """Run all probes. ``outside``: a user's file in a directory that no command has access to. It contains ``_SECRET``,
    and is checked after each probe."""
    return [
        _sandbox(run),
        _files(run, outside),
        _job(run),
        _network(run),
        _gate(run),
        _terminal(run),
        _bare(run, outside),
        *(_limit(run, *limit) for limit in _LIMITS),
    ]


def _sandbox(run: Runner) -> Finding:
    trial = run(ProbeRequest("echo in"))
    if trial.out.strip() == b"in":
        return Finding("a sandbox", "strict", "an AppContainer, no privileges, low integrity, a job object")
    return Finding("a sandbox", "missing", trial.error or "the probe did not run as it should have", _NO_CONTAINER)


def _files(run: Runner, outside: str) -> Finding:
    name = "nothing of the host in sight"
    trial = run(ProbeRequest(f'echo in& type "{outside}"& echo x>> "{outside}"'))
    if _changed(outside):
        return Finding(name, "missing", "a file of the user's was written")
    if not trial.out.startswith(b"in"):
        return _not_probed(name, trial)
    if _SECRET in trial.out:
        return Finding(name, "missing", "a file of the user's can be read")
    return Finding(name, "strict", "only files whose ACL names the sandbox, or all packages, can be opened")


def _changed(outside: str) -> bool:
    """Return whether a probe has changed the file; restore it for the next probe."""
    with suppress(FileNotFoundError), open(outside, "rb") as stream:
        if stream.read() == _SECRET:
            return False
    with open(outside, "wb") as stream:
        stream.write(_SECRET)
    return True


def _job(run: Runner) -> Finding:
    name = "all that a command started ends with it"
    trial = run(ProbeRequest("echo in& start /b cmd /d /c for /l %i in (0,0,1) do @rem"))
    if not trial.out.startswith(b"in"):
        return _not_probed(name, trial)
    if trial.error:
        return Finding(name, "missing", trial.error)
    return Finding(name, "strict", "a job object that ends when mudroom does, and lets nothing break away")


def _network(run: Runner) -> Finding:
    name = "no network"
    trial = run(ProbeRequest("echo in"))
    if not trial.out.startswith(b"in"):
        return _not_probed(name, trial)
    reason = "an AppContainer with no capability; the firewall that enforces it is not tried: it would be traffic"
    return Finding(name, "degraded", reason, "try it: curl in mudroom run")


def _gate(run: Runner) -> Finding:
    trial = run(ProbeRequest("echo in", network="gate"))
    return Finding("the gate", "missing" if trial.error else "strict", trial.error or "reached from inside")


def _terminal(run: Runner) -> Finding:
    trial = run(ProbeRequest("exit 7", terminal=(80, 25)))
    if trial.code == 7:
        return Finding("a terminal of its own", "strict", "a pseudo-console")
    return Finding("a terminal of its own", "missing", trial.error or "none that works", "Windows 10 1809 or later")


def _bare(run: Runner, outside: str) -> Finding:
    name = "level 0: writing only in the fork"
    trial = run(ProbeRequest(f'echo in& echo x>> "{outside}"', level=0, network="open"))
    if _changed(outside):
        return Finding(name, "missing", "a file of the user's was written")
    if not trial.out.startswith(b"in"):
        return Finding(name, "missing", trial.error or "the probe did not run as it should have")
    return Finding(name, "degraded", "a write-restricted token; files that Everyone may write are writable")


_LIMITS = (
    ("memory", Limits(memory=1 << 30)),
    ("processes", Limits(processes=50)),
    ("cpus", Limits(cpus=0.5)),
    ("io", Limits(io=1 << 30)),
)


def _limit(run: Runner, kind: str, limits: Limits) -> Finding:
    trial = run(ProbeRequest("exit 7", limits=limits))
    if trial.code == 7:
        return Finding(f"limit: {kind}", "strict", "held by the job object")
    return Finding(f"limit: {kind}", "missing", trial.error or "the probe did not run as it should have")


def _not_probed(name: str, trial: CmdTrial) -> Finding:
    return Finding(name, "not probed", trial.error or "the probe did not run as it should have")


def examine(directory: bytes, variables: Mapping[str, str]) -> list[Finding]:
    """Run all probes in ``directory``, which is empty. Raise OSError if this is not Windows."""
    library = Library()
    calls = native(library)
    machine = WindowsMachine(
        os.cpu_count() or 1,
        in_job=NativeJobs(library).runs_in_job(),
        appcontainer=library.has("CreateAppContainerProfile"),
    )
    outside = os.path.join(directory, b"outside.txt")
    with open(outside, "wb") as stream:
        stream.write(_SECRET)
    variables = system_variables(variables)
    numbers = iter(range(1000))

    def run(request: ProbeRequest) -> CmdTrial:
        return _run(calls, machine, variables, directory + b"\\%d" % next(numbers), request)

    return diagnose(run, os.fsdecode(outside))


def examine_here(directory: bytes, variables: Mapping[str, str]) -> tuple[list[Finding], bool]:
    """Return the rows from ``examine`` with the certificate's rows, and whether the platform is open. Raise OSError,
    MudroomError."""
    rows = examine(directory, variables)  # first: it says if this is not Windows, where the session's modules fail
    from mudroom.cli.doctor.probe import certified
    from mudroom.policy.config import environment, places

    findings, is_open = certified(places(environment()).state)
    return [*rows, *findings], is_open


def _run(
    calls: Calls, machine: WindowsMachine, variables: Mapping[str, str], place: bytes, request: ProbeRequest
) -> CmdTrial:
    """Run a line in cmd.exe, with its own fork and scratch directory, for at most a minute."""
    work, scratch = place + b"\\work", place + b"\\scratch"
    for path in (work, scratch):
        os.makedirs(path)
    around = None if request.level else HostView()
    spec = SandboxSpec(work, Copy(work), work, work, scratch, network=request.network, around=around)
    roots = [value for name, value in variables.items() if name.upper() == "SYSTEMROOT"]
    shell = join(roots[0] if roots else "C:\\Windows", "System32\\cmd.exe")
    # the line is in the shell's own language, so it is not quoted as a word
    command = WindowsCommand(shell, ("cmd", "/d", "/c", "@LINE@"), variables, request.terminal)
    output = place + b"\\out.txt"
    with open(os.devnull, "rb") as null, open(output, "wb") as out:
        try:
            plan = compile_plan(spec, request.limits, command, machine, os.urandom(16))
            steps = tuple(_with_line(step, request.line) for step in plan.steps)
            handles = (
                None if request.terminal else (_handle(null.fileno()), _handle(out.fileno()), _handle(out.fileno()))
            )
            running = start(calls, plan._replace(steps=steps), handles)
        except MudroomError as error:
            return CmdTrial(error=error.message)
        try:
            code = running.wait(60)
            error_text = ""
        except CallFailed as failed:
            code, error_text = None, str(failed)
        left = "; ".join(running.close())
    with open(output, "rb") as stream:
        return CmdTrial(code, stream.read(), left or error_text)


def _with_line(step: tuple[object, ...], line: str) -> tuple[object, ...]:
    if step[0] != "create":
        return step
    return (*step[:2], str(step[2]).replace("@LINE@", f'"{line}"'), *step[3:])


def _handle(descriptor: int) -> int:
    msvcrt: Any = importlib.import_module("msvcrt")
    return int(msvcrt.get_osfhandle(descriptor))
