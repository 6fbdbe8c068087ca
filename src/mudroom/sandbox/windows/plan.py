"""Windows: a ``SandboxSpec`` compiled to a ``WindowsPlan``. Pure; what it gives can be read and tested on any machine.

Two shapes, by level:

* 1: an AppContainer. Its processes open only what names the container (or all packages: the system and most installed
  programs do), so reading is by allowlist; without a capability there is no network, the host's loopback included.
* 0: a write-restricted token. Reading is the user's; writing needs a right for a SID that only this session has.

Nothing can be mounted over the project's own path without being administrator: commands work in the staged copy, at the
copy's path. Paths of the spec are bytes as os.fsencode gives them there.

Sources: Microsoft, "AppContainer isolation", "Launch an AppContainer", "Restricted Tokens", "Job Objects". Others have
found that the CLR (PowerShell) does not start with WRITE_RESTRICTED unless the logon SID and Everyone are among the
restricting ones; so what Everyone may write stays writable at level 0, and that is said. The user's own SID is never
among them: it would undo the restriction.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from mudroom.core.confinement.limit import NAMES, Limits, command_limits, show_limit, total_limits
from mudroom.core.confinement.spec import Bind, Copy, SandboxSpec
from mudroom.core.confinement.windows_command import environment_block, is_batch, join, quote, quote_batch
from mudroom.core.confinement.windows_plan import CAPABILITIES, CHANGE, EVERYONE, READ, Step, WindowsPlan
from mudroom.errors import Unsupported, UsageError
from mudroom.sandbox.windows import types as w

LOW = w.SECURITY_MANDATORY_LOW_RID
JOB_FLAGS = w.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE | w.JOB_OBJECT_LIMIT_DIE_ON_UNHANDLED_EXCEPTION
"""Neither of the two BREAKAWAY_OK: what a command starts stays in its job."""
UI_ALL = 0xFF
UI_BARE = (
    w.JOB_OBJECT_UILIMIT_EXITWINDOWS | w.JOB_OBJECT_UILIMIT_SYSTEMPARAMETERS | w.JOB_OBJECT_UILIMIT_DISPLAYSETTINGS
)
"""Level 0 is for programs that open windows and share the clipboard."""
MITIGATIONS = (
    w.PROCESS_CREATION_MITIGATION_POLICY_EXTENSION_POINT_DISABLE_ALWAYS_ON
    | w.PROCESS_CREATION_MITIGATION_POLICY_IMAGE_LOAD_NO_REMOTE_ALWAYS_ON
    | w.PROCESS_CREATION_MITIGATION_POLICY_IMAGE_LOAD_PREFER_SYSTEM32_ALWAYS_ON
)
"""No injected input methods and hooks, no code from a server, the system's libraries before those beside a program. Not
those against code that is made at run time or is not signed: compilers and interpreters are what runs here."""
_HOME = ("AppData", "AppData\\Local", "AppData\\Roaming", "Temp")
_SYSTEM = frozenset((
    "SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATH", "PATHEXT", "OS", "NUMBER_OF_PROCESSORS",
    "PROCESSOR_ARCHITECTURE", "PROCESSOR_IDENTIFIER", "PROCESSOR_LEVEL", "PROCESSOR_REVISION", "PROGRAMDATA",
    "PROGRAMFILES", "PROGRAMFILES(X86)", "PROGRAMW6432", "COMMONPROGRAMFILES", "COMMONPROGRAMFILES(X86)",
    "COMMONPROGRAMW6432", "ALLUSERSPROFILE", "USERNAME", "PSMODULEPATH",
))  # fmt: skip
"""Beside what ``core/confinement/environment.py`` lets through: without SystemRoot no socket can be made, nor the CRT
be found."""


class WindowsCommand(NamedTuple):
    program: str
    """Its whole path, as ``find_program`` found it."""
    words: tuple[str, ...]
    """The program's own name first."""
    variables: Mapping[str, str]
    """What ``core/confinement/environment.py`` chose, and the host's variables of the system (``system_variables``)."""
    terminal: tuple[int, int] | None = None
    """Columns and rows of a pseudo-console."""


class WindowsMachine(NamedTuple):
    processors: int = 1
    fewer_packages: bool = False
    """A less privileged AppContainer: what is for all packages (programs that were installed for all users) is not for
    this one. Most toolchains do not start in it."""
    in_job: bool = False
    """mudroom itself runs in a job, as under many terminals and runners. A job with restrictions of the desktop cannot
    be in another one ("Nested Jobs")."""
    appcontainer: bool = True
    """Windows 8 and later: userenv.dll has CreateAppContainerProfile."""


def compile_plan(
    spec: SandboxSpec, limits: Limits, command: WindowsCommand, machine: WindowsMachine, nonce: bytes
) -> WindowsPlan:
    """The steps for this command. ``nonce``: 16 bytes that no other session has. Raises Unsupported for what was asked
    for and cannot be given here, UsageError for a command that cannot be handed over."""
    if not isinstance(spec.view, Copy):
        raise Unsupported("an overlay view", "an overlay file system", "Windows, which has none", "set run.view: copy")
    if len(nonce) != 16:
        raise ValueError("a nonce has 16 bytes")
    contained = spec.around is None
    who = "@package" if contained else session_sid(nonce)
    _check(spec, machine, contained)
    limiting, notes = _limit(limits, machine)
    if machine.in_job:
        notes.append(_desktop(limits, contained))
    scratch = text(spec.scratch)
    steps: list[Step] = []
    if contained:
        steps.append(("profile", container_name(nonce), capabilities(spec)))
    steps += [("directory", join(scratch, "home"))]
    steps += [("directory", join(scratch, "home\\" + name)) for name in _HOME]
    steps += _access(spec, spec.view, who, contained)
    restricting = () if contained else (who, "@logon", EVERYONE)
    steps.append(
        ("token", w.DISABLE_MAX_PRIVILEGE | (0 if contained else w.LUA_TOKEN | w.WRITE_RESTRICTED), restricting)
    )
    if contained and _has_policy(spec):  # it names the user, whom the token tells
        steps.append(("protect", join(text(spec.view.work), ".mudroom"), "@user", who, READ))
    # pipes that a command makes for its children have no other rights than these; without, nothing can be captured
    steps.append(("default_dacl", ("@user", "@logon", who)))
    if contained:
        steps.append(("integrity", LOW))
    steps += limiting
    if not machine.in_job:
        steps.append(("ui", UI_ALL if contained else UI_BARE))
    steps.append(("messages",))
    steps.append(("terminal", *command.terminal) if command.terminal else ("stdio",))
    if contained:
        steps.append(("mitigate", MITIGATIONS))
    if contained and machine.fewer_packages:
        steps.append(("fewer_packages",))
    try:
        line = _command_line(command)
        block = environment_block({**_own(scratch, contained), **_without(command.variables, contained)})
    except ValueError as error:
        hint = "run the program that it starts" if is_batch(command.program) else ""
        raise UsageError(str(error), hint) from None
    program = _shell(command) if is_batch(command.program) else command.program
    steps += [("create", program, line, block, _cwd(spec, spec.view)), ("check", contained), ("resume",)]
    return WindowsPlan(1 if contained else 0, tuple(steps), (*notes, *_told(spec, contained)))


def _check(spec: SandboxSpec, machine: WindowsMachine, contained: bool) -> None:
    if contained and not machine.appcontainer:
        raise Unsupported("a sandbox", "AppContainers (Windows 8 or later)", "a Windows without them")
    if spec.network == "gate":
        found = "AppContainers without the host's loopback: only an administrator can exempt one, and then of all of it"
        raise Unsupported("the gate", "a way from the sandbox to it, and no other", found, "set the network to none")
    if spec.network == "none" and not contained:
        raise Unsupported(
            "no network at level 0", "an AppContainer", "a restricted token, which firewalls do not know", "use level 1"
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
    """A denial for the SID of an AppContainer is said to be without effect; and what lies in a directory that was given
    to the container can only be taken from it by changing the rights of the user's own files, which nobody has tried.
    (The project's own secrets are empty in the copy.)"""
    if spec.masks:
        found = "an AppContainer, which denials are said not to hold"
        hint = f"do not share the directory of {text(spec.masks[0])}"
        raise Unsupported("hiding files outside of the project", "a denial that holds the sandbox", found, hint)


def _desktop(limits: Limits, contained: bool) -> str:
    """What is said where the desktop cannot be closed. Raises Unsupported if that is not permitted."""
    what = "the clipboard and the desktop" if contained else "the desktop's settings"
    if contained and limits.missing == "refuse":
        found = "mudroom in a job of somebody else, in which a job that closes the desktop cannot be"
        hint = "start mudroom from a console of its own (conhost), or set limits.missing: degrade"
        raise Unsupported(f"closing {what}", "a job that is in no other one", found, hint)
    return f"{what} are not closed to the command: mudroom itself runs in a job"


def capabilities(spec: SandboxSpec) -> tuple[str, ...]:
    """What the container may do on the network: nothing, or all but the host's loopback."""
    return tuple(CAPABILITIES) if spec.network == "open" else ()


def _access(spec: SandboxSpec, view: Copy, who: str, contained: bool) -> Iterator[Step]:
    """What is granted and denied, in the order in which it counts: the copy, the scratch, what is bound. Every path is
    the copy's, not the project's."""
    for path in (text(view.work), text(spec.scratch)):
        yield ("grant", path, who, CHANGE)
        if contained:
            yield ("label", path, LOW)
    for bind in _binds(spec):
        if bind.writable:
            yield ("grant", text(bind.source), who, CHANGE)
        elif contained:
            yield ("grant", text(bind.source), who, READ)
    if not contained and _has_policy(spec):
        yield ("deny", join(text(view.work), ".mudroom"), who, CHANGE & ~READ)


def _has_policy(spec: SandboxSpec) -> bool:
    return any(bind.path == spec.project + b"\\.mudroom" for bind in spec.binds)


def _binds(spec: SandboxSpec) -> tuple[Bind, ...]:
    """What is shown beside the project. Raises UsageError for what would be the project itself, and writable: rights
    are given to the source, there is nothing between it and the command."""
    live = spec.around.live if spec.around else ()
    shown = tuple(bind for bind in (*spec.binds, *live) if not _is_in(text(bind.path), text(spec.project)))
    for bind in shown:
        if bind.writable and (
            _is_in(text(bind.source), text(spec.project)) or _is_in(text(spec.project), text(bind.source))
        ):
            raise UsageError(f"{text(bind.source)} cannot be writable: it is of the project, or the project is in it")
    return shown


def _is_in(path: str, directory: str) -> bool:
    """NTFS does not tell upper from lower case."""
    path, directory = path.lower().rstrip("\\"), directory.lower().rstrip("\\")
    return path == directory or path.startswith(directory + "\\")


def _in_copy(path: str, spec: SandboxSpec, view: Copy) -> str:
    """The same place in the copy, if it is in the project. NTFS does not tell upper from lower case."""
    project = text(spec.project).rstrip("\\")
    if not _is_in(path, project):
        return path
    rest = path[len(project) + 1 :]
    return join(text(view.work), rest) if rest else text(view.work)


def _cwd(spec: SandboxSpec, view: Copy) -> str:
    return _in_copy(text(spec.cwd), spec, view)


def _limit(limits: Limits, machine: WindowsMachine) -> tuple[list[Step], list[str]]:
    """Steps of the job, and what is said of limits that it does not know. Raises Unsupported for those, unless the
    policy permits that they are not enforced."""
    notes: list[str] = []
    flags, processes, memory = JOB_FLAGS, 0, 0
    steps: list[Step] = []
    lacking = [("total_" + kind, limit) for kind, limit in total_limits(limits)]
    lacking += [(kind, one) for kind in ("open_files", "file_size") if (one := getattr(limits, kind)) is not None]
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
            raise Unsupported(f"limit {shown}", "something that enforces it", "job objects, which know none", hint)
        notes.append(f"limit {shown}: not enforced")
    return [("job", flags, processes, memory), *steps], notes


def cpu_rate(cpus: float, processors: int) -> int:
    """CpuRate of JOBOBJECT_CPU_RATE_CONTROL_INFORMATION: hundredths of a percent of all processors, 1 to 10,000."""
    return min(10_000, max(1, round(cpus / processors * 10_000)))


def _command_line(command: WindowsCommand) -> str:
    words = (command.program, *command.words[1:])
    return quote_batch(_shell(command), words) if is_batch(command.program) else quote(words)


def _shell(command: WindowsCommand) -> str:
    """cmd.exe by SystemRoot, not by ComSpec, which anybody can set."""
    roots = [value for name, value in command.variables.items() if name.upper() == "SYSTEMROOT"]
    if not roots:
        raise UsageError(
            f"{command.program} is a batch file, and where cmd.exe is cannot be told: SystemRoot is not set"
        )
    return join(roots[0], "System32\\cmd.exe")


def _own(scratch: str, contained: bool) -> dict[str, str]:
    """Variables that are the sandbox's: its own home, and a search that does not begin in the current directory."""
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
    """Those of the host's variables that programs need on Windows, beside the allowlist of all platforms."""
    return {name: value for name, value in variables.items() if name.upper() in _SYSTEM}


def _told(spec: SandboxSpec, contained: bool) -> Sequence[str]:
    notes = ["the command works in a copy of the project, at another path"]
    if contained and spec.network == "open":
        notes.append("servers on this machine's loopback cannot be reached from inside")
    if not contained:
        notes.append("what Everyone may write can be written at level 0")
    return notes


def session_sid(nonce: bytes) -> str:
    """A SID that no account has: of the form of a domain's, from 16 random bytes."""
    return "S-1-5-21-" + "-".join(str(number) for number in struct.unpack("<4I", nonce))


def container_name(nonce: bytes) -> str:
    """At most 64 characters, as CreateAppContainerProfile wants it."""
    return "mudroom." + nonce.hex()


def text(path: bytes) -> str:
    return path.decode("utf-8", "surrogatepass")
