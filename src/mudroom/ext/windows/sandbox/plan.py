"""Windows: compile a ``SandboxSpec`` to a ``WindowsPlan``. Pure; the plan can be read and tested on any machine.

There are two shapes, by level:

* 1: an AppContainer. Its processes open only files whose rights name the container (or all packages, as in the system
  and most installed programs), so reading is by allowlist. Without a capability there is no network, the host's
  loopback included.
* 0: a write-restricted token. It reads all that the user can; writing needs a right for a SID that only this session
  has.

Only an administrator can mount over the project's own path: commands work in the staged copy, at the copy's path. The
spec's paths are bytes as os.fsencode gives them on Windows.

Sources: Microsoft, "AppContainer isolation", "Launch an AppContainer", "Restricted Tokens", "Job Objects". Others have
found that the CLR (PowerShell) does not start with WRITE_RESTRICTED unless the logon SID and Everyone are among the
restricting SIDs. So files that Everyone may write stay writable at level 0, and a note reports that. The user's own SID
is never among them: it would undo the restriction.
"""

from __future__ import annotations

import struct
from _blake2 import blake2b
from collections.abc import Iterator, Mapping, Sequence

from mudroom.core.confinement.limit import NAMES, Limits, command_limits, show_limit, total_limits
from mudroom.core.confinement.spec import Bind, Copy, SandboxSpec
from mudroom.errors import Unsupported, UsageError
from mudroom.ext.windows.core.windows_command import (
    environment_block,
    is_batch,
    is_shell_line,
    join,
    quote,
    quote_batch,
    quote_shell_line,
)
from mudroom.ext.windows.core.windows_plan import CAPABILITIES, CHANGE, EVERYONE, READ, Step, WindowsPlan
from mudroom.ext.windows.win32 import types as w
from mudroom.ext.windows.win32.pipe import PREFIX
from mudroom.sandbox.platform import no_gate_at_level_0
from mudroom.typing import NamedTuple

LOW = w.SECURITY_MANDATORY_LOW_RID
JOB_FLAGS = w.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE | w.JOB_OBJECT_LIMIT_DIE_ON_UNHANDLED_EXCEPTION
"""Neither BREAKAWAY_OK flag: processes that a command starts stay in its job."""
UI_ALL = 0xFF
UI_BARE = (
    w.JOB_OBJECT_UILIMIT_EXITWINDOWS | w.JOB_OBJECT_UILIMIT_SYSTEMPARAMETERS | w.JOB_OBJECT_UILIMIT_DISPLAYSETTINGS
)
"""Level 0 is for programs that open windows and use the clipboard."""
MITIGATIONS = (
    w.PROCESS_CREATION_MITIGATION_POLICY_EXTENSION_POINT_DISABLE_ALWAYS_ON
    | w.PROCESS_CREATION_MITIGATION_POLICY_IMAGE_LOAD_NO_REMOTE_ALWAYS_ON
    | w.PROCESS_CREATION_MITIGATION_POLICY_IMAGE_LOAD_PREFER_SYSTEM32_ALWAYS_ON
)
"""No injected input methods and hooks, no code from a server, the system's libraries before those beside a program. The
mitigations against generated or unsigned code are left out: compilers and interpreters run here."""
_HOME = ("AppData", "AppData\\Local", "AppData\\Roaming", "Temp")
_SYSTEM = frozenset((
    "SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATH", "PATHEXT", "OS", "NUMBER_OF_PROCESSORS",
    "PROCESSOR_ARCHITECTURE", "PROCESSOR_IDENTIFIER", "PROCESSOR_LEVEL", "PROCESSOR_REVISION", "PROGRAMDATA",
    "PROGRAMFILES", "PROGRAMFILES(X86)", "PROGRAMW6432", "COMMONPROGRAMFILES", "COMMONPROGRAMFILES(X86)",
    "COMMONPROGRAMW6432", "ALLUSERSPROFILE", "USERNAME", "PSMODULEPATH",
))  # fmt: skip
"""Added to the variables that ``core/confinement/environment.py`` allows: without SystemRoot, sockets cannot be created
and the CRT is not found."""


class WindowsCommand(NamedTuple):
    program: str
    """Its absolute path, as ``find_program`` found it."""
    words: tuple[str, ...]
    """The program's own name first."""
    variables: Mapping[str, str]
    """The variables that ``core/confinement/environment.py`` chose, and the host's system variables
    (``system_variables``)."""
    terminal: tuple[int, int] | None = None
    """A pseudo-console's columns and rows."""


class WindowsMachine(NamedTuple):
    processors: int = 1
    in_job: bool = False
    """mudroom itself runs in a job, as under many terminals and runners. A job with desktop restrictions cannot be
    inside another job ("Nested Jobs")."""
    python: str = ""
    """The interpreter that runs the relay to the gate."""
    relay: str = ""
    """The relay's program text (``relay.py``)."""


def compile_plan(
    spec: SandboxSpec, limits: Limits, command: WindowsCommand, machine: WindowsMachine, nonce: bytes
) -> WindowsPlan:
    """Compile the steps for this command. ``nonce`` has 16 bytes, unique to the session. Raise Unsupported for a
    request that Windows cannot fulfil, UsageError for a command that cannot be passed on."""
    if not isinstance(spec.view, Copy):
        raise Unsupported("an overlay view", "an overlay file system", "Windows, which has none", "set run.view: copy")
    if len(nonce) != 16:
        raise ValueError("a nonce has 16 bytes")
    contained = spec.around is None
    trustee = "@package" if contained else session_sid(nonce)
    require(spec)
    job_steps, notes = _limit(limits, machine)
    if machine.in_job:
        notes.append(_note_open_desktop(limits, contained))
    scratch = text(spec.scratch)
    steps: list[Step] = []
    if contained:
        steps.append(("profile", container_name(nonce), capabilities(spec)))
    steps += [("directory", join(scratch, "home"))]
    steps += [("directory", join(scratch, "home\\" + name)) for name in _HOME]
    steps += _access(spec, spec.view, trustee, contained)
    restricting = () if contained else (trustee, "@logon", EVERYONE)
    steps.append(
        ("token", w.DISABLE_MAX_PRIVILEGE | (0 if contained else w.LUA_TOKEN | w.WRITE_RESTRICTED), restricting)
    )
    if contained and _has_policy(spec):  # it names the user, which the token provides
        steps.append(("protect", join(text(spec.view.work), ".mudroom"), "@user", trustee, READ))
    # Pipes that a command makes for its children have only these rights; without them, output cannot be captured.
    steps.append(("default_dacl", ("@user", "@logon", trustee)))
    if contained:
        steps.append(("integrity", LOW))
    steps += job_steps
    if not machine.in_job:
        steps.append(("ui", UI_ALL if contained else UI_BARE))
    steps.append(("messages",))
    steps.append(("terminal", *command.terminal) if command.terminal else ("stdio",))
    if contained:
        steps.append(("mitigate", MITIGATIONS))
    try:
        line = _command_line(command)
        block = environment_block({**_own(scratch, contained), **_without(command.variables, contained)})
    except ValueError as error:
        hint = "run the program that it starts" if is_batch(command.program) else ""
        raise UsageError(str(error), hint) from None
    program = _shell(command) if is_batch(command.program) else command.program
    if spec.network == "gate":
        steps += _gate_steps(spec, command, machine, trustee, nonce)
    steps += [("create", program, line, block, _cwd(spec, spec.view)), ("check", contained), ("resume",)]
    return WindowsPlan(1 if contained else 0, tuple(steps), (*notes, *_notes(spec, contained)))


def _gate_steps(
    spec: SandboxSpec, command: WindowsCommand, machine: WindowsMachine, trustee: str, nonce: bytes
) -> Iterator[Step]:
    """Yield the steps that lead to the gate. Other programs cannot guess the pipe's name; in the container it is no
    secret."""
    if not machine.python or not machine.relay:
        raise Unsupported("the gate", "a Python that runs in the container", "none", "--net none")
    name = "mudroom-" + blake2b(nonce, digest_size=16, person=b"gate's pipe").hexdigest()
    words = (machine.python, "-I", "-S", "-c", machine.relay, PREFIX + name, str(spec.proxy))
    own = {**_own(text(spec.scratch), contained=True), **system_variables(command.variables)}
    yield ("bridge", name, trustee)
    yield ("relay", machine.python, quote(words), environment_block(own), join(text(spec.scratch), "home"), True)


def require(spec: SandboxSpec) -> None:
    """Raise Unsupported for a spec that no machine fulfils, whatever the command is."""
    contained = spec.around is None
    if spec.network == "gate" and not contained:
        raise no_gate_at_level_0()
    if spec.network == "none" and not contained:
        raise Unsupported(
            "no network at level 0", "an AppContainer", "a restricted token, which no firewall knows", "use level 1"
        )
    if not contained and (spec.masks or (spec.around and (spec.around.covered or spec.around.hidden))):
        raise Unsupported(
            "hiding files at level 0",
            "a token that may read less than its user",
            "a write-restricted one, which reads all that the user can",
            "use level 1",
        )
    _check_masks(spec)


def _check_masks(spec: SandboxSpec) -> None:
    """Refuse masks outside the project. Denials for an AppContainer's SID are reported to have no effect. A file in a
    directory that was granted to the container could only be removed from it by changing the rights on the user's own
    files, which is untested. (The project's own secrets are empty in the copy.)"""
    if spec.masks:
        found = "an AppContainer, to which denials reportedly do not apply"
        hint = f"do not share the directory of {text(spec.masks[0])}"
        raise Unsupported("hiding files outside of the project", "a denial that applies to the sandbox", found, hint)


def _note_open_desktop(limits: Limits, contained: bool) -> str:
    """Return the note for a host where the desktop cannot be closed. Raise Unsupported if the limits do not permit
    that."""
    subject = "the clipboard and the desktop" if contained else "the desktop's settings"
    if contained and limits.missing == "refuse":
        found = "mudroom in another job, inside which no job can close the desktop"
        hint = "start mudroom from a console of its own (conhost), or set limits.missing: degrade"
        raise Unsupported(f"closing {subject}", "a job that is in no other one", found, hint)
    return f"{subject} are not closed to the command: mudroom itself runs in a job"


def capabilities(spec: SandboxSpec) -> tuple[str, ...]:
    """Return the container's network capabilities: none, or all except the host's loopback."""
    return tuple(CAPABILITIES) if spec.network == "open" else ()


def _access(spec: SandboxSpec, view: Copy, trustee: str, contained: bool) -> Iterator[Step]:
    """Yield grants and denials, in the order in which they apply: the copy, the scratch, the binds. Every path is in
    the copy, not in the project."""
    for path in (text(view.work), text(spec.scratch)):
        yield ("grant", path, trustee, CHANGE)
        if contained:
            yield ("label", path, LOW)
    for bind in _binds(spec):
        if bind.writable:
            yield ("grant", text(bind.source), trustee, CHANGE)
        elif contained:
            yield ("grant", text(bind.source), trustee, READ)
    if not contained and _has_policy(spec):
        yield ("deny", join(text(view.work), ".mudroom"), trustee, CHANGE & ~READ)


def _has_policy(spec: SandboxSpec) -> bool:
    return any(text(bind.path) == join(text(spec.project), ".mudroom") for bind in spec.binds)


def _binds(spec: SandboxSpec) -> tuple[Bind, ...]:
    """Return the binds outside the project. Raise UsageError for a writable bind that contains the project or is in it:
    rights are granted on the source, so the command would reach the project directly."""
    live = spec.around.live if spec.around else ()
    shown = tuple(bind for bind in (*spec.binds, *live) if not _is_in(text(bind.path), text(spec.project)))
    for bind in shown:
        if bind.writable and (
            _is_in(text(bind.source), text(spec.project)) or _is_in(text(spec.project), text(bind.source))
        ):
            raise UsageError(
                f"{text(bind.source)} cannot be writable: it is in the project, or contains it",
                "name a directory beside it",
            )
    return shown


def _is_in(path: str, directory: str) -> bool:
    """Compare without case, as NTFS does."""
    path, directory = path.lower().rstrip("\\"), directory.lower().rstrip("\\")
    return path == directory or path.startswith(directory + "\\")


def _in_copy(path: str, spec: SandboxSpec, view: Copy) -> str:
    """Return the path's counterpart in the copy, if it is in the project. NTFS ignores case."""
    project = text(spec.project).rstrip("\\")
    if not _is_in(path, project):
        return path
    rest = path[len(project) + 1 :]
    return join(text(view.work), rest) if rest else text(view.work)


def _cwd(spec: SandboxSpec, view: Copy) -> str:
    return _in_copy(text(spec.cwd), spec, view)


def _limit(limits: Limits, machine: WindowsMachine) -> tuple[list[Step], list[str]]:
    """Return the job's steps, and notes on limits that jobs lack. Raise Unsupported for those, unless the policy
    permits running without them."""
    notes: list[str] = []
    flags, processes, memory = JOB_FLAGS, 0, 0
    steps: list[Step] = []
    lacking = [("total_" + kind, limit) for kind, limit in total_limits(limits)]
    lacking += [(kind, limit) for kind in ("open_files", "file_size") if (limit := getattr(limits, kind)) is not None]
    for kind, limit in command_limits(limits):
        if kind == "memory":
            flags, memory = flags | w.JOB_OBJECT_LIMIT_JOB_MEMORY, int(limit)
        elif kind == "processes":
            flags, processes = flags | w.JOB_OBJECT_LIMIT_ACTIVE_PROCESS, int(limit)
            notes.append("limit processes: threads do not count on Windows")
        elif kind == "cpus":
            if limit < machine.processors:
                steps.append(("cpu", cpu_rate(limit, machine.processors)))
        else:
            lacking.append((kind, limit))
    for kind, limit in lacking:
        plain = kind.removeprefix("total_")
        shown = f"{NAMES[plain]}, {show_limit(plain, limit)}" + (" for all commands" if kind != plain else "")
        if limits.missing == "refuse":
            hint = "leave it out, or set limits.missing: degrade"
            raise Unsupported(
                f"limit {shown}", "a mechanism that enforces it", "job objects, which have no such limit", hint
            )
        notes.append(f"limit {shown}: not enforced")
    return [("job", flags, processes, memory), *steps], notes


def cpu_rate(cpus: float, processors: int) -> int:
    """Return CpuRate in JOBOBJECT_CPU_RATE_CONTROL_INFORMATION: hundredths of a percent over all processors, 1 to
    10,000."""
    return min(10_000, max(1, round(cpus / processors * 10_000)))


def _command_line(command: WindowsCommand) -> str:
    words = (command.program, *command.words[1:])
    if is_shell_line(command.program, words):
        return quote_shell_line(command.program, words)
    return quote_batch(_shell(command), words) if is_batch(command.program) else quote(words)


def _shell(command: WindowsCommand) -> str:
    """Return the path to cmd.exe by SystemRoot, not by ComSpec, which any program can set."""
    roots = [value for name, value in command.variables.items() if name.upper() == "SYSTEMROOT"]
    if not roots:
        why = f"{command.program} is a batch file, and cmd.exe cannot be found: SystemRoot is not set"
        raise UsageError(why, "set SystemRoot=C:\\Windows")
    return join(roots[0], "System32\\cmd.exe")


def _own(scratch: str, contained: bool) -> dict[str, str]:
    """Return the sandbox's own variables: its home, and a search that does not begin in the current directory."""
    own = {"MUDROOM": "1", "NoDefaultCurrentDirectoryInExePath": "1"}
    temporary = join(scratch, "home\\Temp")
    own |= {"TEMP": temporary, "TMP": temporary}
    if contained:
        home = join(scratch, "home")
        own |= {"USERPROFILE": home, "HOME": home, "HOMEDRIVE": home[:2], "HOMEPATH": home[2:]}
        own |= {"APPDATA": join(home, "AppData\\Roaming"), "LOCALAPPDATA": join(home, "AppData\\Local")}
    return own


def _without(variables: Mapping[str, str], contained: bool) -> dict[str, str]:
    own = {name.upper() for name in _own("C:\\", contained)} | {"TMPDIR", "PWD"}
    return {name: value for name, value in variables.items() if name.upper() not in own}


def system_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the host's variables that programs need on Windows, in addition to the allowlist for all platforms."""
    return {name: value for name, value in variables.items() if name.upper() in _SYSTEM}


def _notes(spec: SandboxSpec, contained: bool) -> Sequence[str]:
    notes = ["the command works in a copy of the project, at another path"]
    if contained and spec.network == "gate":
        notes.append("the gate is reached by a named pipe and a relay in the container")
    if contained and spec.network == "open":
        notes.append("servers on this machine's loopback cannot be reached from inside")
    if not contained:
        notes.append("files that Everyone may write are writable at level 0, and all that you can read is readable")
    return notes


def session_sid(nonce: bytes) -> str:
    """Return a SID that no account has: in the form of a domain SID, from 16 random bytes."""
    return "S-1-5-21-" + "-".join(str(number) for number in struct.unpack("<4I", nonce))


def container_name(nonce: bytes) -> str:
    """Return a name with at most 64 characters, CreateAppContainerProfile's limit."""
    return "mudroom." + nonce.hex()


def text(path: bytes) -> str:
    """Return a spec's path as Windows programs have it, with ``\\``: inside, names are divided by ``/``."""
    return path.decode("utf-8", "surrogatepass").replace("/", "\\")
