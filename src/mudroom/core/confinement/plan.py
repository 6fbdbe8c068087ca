"""A plan: the exact steps with which a launcher confines a process, as data that can be printed.

A step is a tuple ``(op, *arguments)``; ``STEPS`` in ``src/native/launcher/step.c`` defines the ops. It is a plain tuple
because the launcher does not import ``core``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mudroom.core.tree.path import show
from mudroom.typing import Any, NamedTuple

Step = tuple[Any, ...]
Maps = tuple[bytes, bytes, bool] | tuple[bytes, bytes, bool, tuple[bytes, bytes]]

NAMESPACES = {
    "user": 0x10000000,
    "mount": 0x00020000,
    "pid": 0x20000000,
    "ipc": 0x08000000,
    "uts": 0x04000000,
    "cgroup": 0x02000000,
    "net": 0x40000000,
}
"""clone(2) flags, from include/uapi/linux/sched.h."""
OF_A_TEMPLATE = NAMESPACES["user"] | NAMESPACES["mount"] | NAMESPACES["uts"]
"""A template's namespaces. Each command gets a copy of its mount namespace. The user namespace and the machine's names
are shared: no command can change them (CAP_SYS_ADMIN; sethostname(2), user_namespaces(7))."""


def of_each(namespaces: int) -> int:
    """Return the flags in ``namespaces`` that each command from a template gets for itself."""
    return namespaces & ~(OF_A_TEMPLATE & ~NAMESPACES["mount"])


class Plan(NamedTuple):
    namespaces: int
    """CLONE_NEW* flags."""
    maps: Maps
    """uid_map, gid_map, and whether setgroups is denied first: user_namespaces(7). A map of subordinate numbers is
    written by newuidmap(1) and newgidmap(1), whose paths come last."""
    steps: tuple[Step, ...]
    shared: int = 0
    """Number of leading steps that are equal for all commands in a session, and are performed once for all of them."""
    ahead: int = 0
    """Number of following steps that can be performed before the command is known."""
    last: int = 0
    """Number of final steps that are equal for all commands in a session, but are performed for each."""
    mediation: tuple[bytes, dict[int, tuple[Any, ...]], tuple[bytes, ...]] | None = None
    """For use without a mount namespace: the filter that routes metadata calls, the meaning of each call, and the
    directories in which they are allowed (``sandbox/linux/metadata.py``)."""
    mounts: tuple[tuple[bytes, bytes, bool], ...] = ()
    """Mounts with which the container must be created, because the steps do not mount: source, path, writable. Later
    mounts cover earlier ones."""
    memory: tuple[bytes, ...] = ()
    """tmpfs directories with which the container must be created, below those mounts."""
    cwd: bytes = b""
    """Working directory for a command that the engine starts itself, in a container without a launcher."""
    gate: int = 0
    """Port on this machine's loopback to which such a container's proxy connections are forwarded; 0: none."""
    image: str = ""
    """The container image's identity; empty: the image with the host's own toolchain."""
    emptied: tuple[bytes, ...] = ()
    """Variables from that image that are set to empty for the container's first process."""


class TemplatePlan(NamedTuple):
    """The steps that all commands in a session share, for a process that performs them ahead."""

    namespaces: int
    maps: Maps
    shared: tuple[Step, ...]
    """Performed once."""
    ahead: tuple[Step, ...]
    """Performed for each command before it is known."""
    last: tuple[Step, ...]
    """Performed for each command after its own steps."""


def template_plan(plan: Plan) -> TemplatePlan:
    own, last = plan.shared + plan.ahead, len(plan.steps) - plan.last
    ahead = (("enter",), *plan.steps[plan.shared : own])
    return TemplatePlan(plan.namespaces, plan.maps, plan.steps[: plan.shared], ahead, plan.steps[last:])


class StandingPlan(NamedTuple):
    """A plan's steps, for a sandbox whose overlays stay mounted from one command in a fork to the next."""

    template: tuple[Step, ...]
    """Performed once. Each overlay is mounted over a directory on the host."""
    ahead: tuple[Step, ...]
    """Performed for each command before it is known, up to the loss of all privileges."""
    late: tuple[Step, ...]
    """Performed when the command is known."""
    mounts: tuple[bytes, ...]
    """Those host directories: the parents of the overlays' work directories."""
    namespaces: int
    maps: Maps

    @property
    def key(self) -> tuple[object, ...]:
        """The parts that do not depend on the command. A command with another key needs another sandbox."""
        return self._replace(late=())


_LATE = ("view", "left", "terminal", "hand_over", "cwd")
"""Steps that need the command, and no privilege."""


def standing_plan(plan: Plan) -> StandingPlan | None:
    """Return the plan for a standing sandbox that runs the same command, or None if there is none: without overlays or
    shared steps."""
    end = len(plan.steps) - plan.last
    own, mounts = plan.steps[plan.shared + plan.ahead : end], list[bytes]()
    template, late = list(plan.steps[: plan.shared]), list[Step]()
    ahead: list[Step] = [("enter",), *plan.steps[plan.shared : plan.shared + plan.ahead]]
    for step in own:
        if step[0] == "overlay":
            _op, path, lowers, upper, work, volatile = step
            place = work.rpartition(b"/")[0]
            template.append(("overlay", place, lowers, upper, work, volatile))
            ahead.append(("take", place, path))
            mounts.append(place)
        else:
            (late if step[0] in _LATE else ahead).append(step)
    if not (plan.shared and mounts):
        return None
    ahead += [*plan.steps[end:], ("enter",)]
    return StandingPlan(tuple(template), tuple(ahead), (*late, ("leave",)), tuple(mounts), plan.namespaces, plan.maps)


def _attributes(bits: int) -> str:
    words = [word for bit, word in ((1, "ro"), (2, "nosuid"), (4, "nodev"), (8, "noexec")) if bits & bit]
    return ",".join(words) or "rw"


_RLIMITS = {1: "bytes of a file", 2: "bytes of data", 4: "core dump", 6: "processes", 7: "open files"}
"""Names for setrlimit(2) resource numbers."""


def _at(path: bytes) -> str:
    return "/" + show(path)


_DESCRIPTIONS: dict[str, Callable[..., str]] = {
    "private": lambda: "stop mount events from passing between here and the host",
    "root": lambda _path, _options: "a new, empty root",
    "host": lambda _path, bits: f"the host's root, with all that is mounted there ({_attributes(bits)})",
    "image": lambda _path, bits: f"the image's root, with all that is mounted there ({_attributes(bits)})",
    "beneath": lambda path: f"make sure that {_at(path)} is not a link",
    "copy_root": lambda _path: "make a copy of the prepared root the new root",
    "engine": lambda path, _maps, _nested, _steps, _words, _variables: (
        f"an engine of containers in namespaces of its own, which listens at {_at(path)}"
    ),
    "nest": lambda _uids, _gids, _path: "a nested user namespace, of the user alone",
    "lend": lambda path: f"show the engine {_at(path)}, too",
    "lent": lambda path: f"show the command's {_at(path)}",
    "enter": lambda: "start from the session's prepared root",
    "take": lambda place, path: f"the overlay that stands at {show(place)}, at {_at(path)}",
    "leave": lambda: "close the root",
    "bind": lambda source, path, bits, _optional: f"show {show(source)} at {_at(path)} ({_attributes(bits)})",
    "mounted": lambda source, path, bits, _identity: (
        f"show the mounted fork {show(source)} at {_at(path)} ({_attributes(bits)})"
        if path
        else f"make sure that the fork is mounted at {show(source)}"
    ),
    "inside": lambda source, path, bits: (
        f"show {show(source)} at {_at(path)}, inside of what is there ({_attributes(bits)})"
    ),
    "spread": lambda path, places: f"bind {len(places)} directories of {_at(path)} to their own places",
    "tmpfs": lambda path, _options, bits: f"private tmpfs at {_at(path)} ({_attributes(bits)})",
    "proc": lambda path: f"fresh proc at {_at(path)}",
    "sysfs": lambda path: f"fresh sysfs at {_at(path)}",
    "devpts": lambda path: f"own pseudo-terminals at {_at(path)}",
    "terminal": lambda _path: "a pseudo-terminal of the command's own, if it is run on one",
    "overlay": lambda path, lowers, upper, _work, _volatile: (
        f"staged view at {_at(path)}: {' over '.join(show(layer) for layer in (upper, *lowers))}"
    ),
    "view": lambda path: f"hand {_at(path.lstrip(b'/'))} to mudroom's own file tools, if they asked for it",
    "left": lambda paths: f"hand {', '.join(map(_at, paths))} to mudroom, which tells what is left there",
    "directory": lambda path, mode: f"directory {_at(path)} ({mode:o})",
    "symlink": lambda target, path: f"link {_at(path)} -> {show(target)}",
    "file": lambda path, content, _mode: f"file {_at(path)} ({len(content)} bytes)",
    "seal": lambda path, bits: f"make {_at(path)} {_attributes(bits)}",
    "cover": lambda path: f"hide {_at(path)}",
    "freeze": lambda path: f"make {_at(path)} read-only",
    "pivot": lambda: "leave the host's root behind",
    "loopback": lambda: "bring the private loopback up",
    "routes": lambda _messages: "bring the private loopback up; every address leads to the gate, and nowhere else",
    "listen": lambda proxy, _redirected, ports, _messages: (
        f"listeners of the gate: proxy ({proxy}), DNS, all other ports by nftables, or "
        + ", ".join(str(port) for port in ports)
    ),
    "listen_on_loopback": lambda places: (
        "listeners of the gate for this machine's "
        + ", ".join(f"[{address}]:{port}" if ":" in address else f"{address}:{port}" for address, port in places)
    ),
    "hand_over": lambda: "hand the listeners to the gate, outside",
    "rlimit": lambda resource, soft, _hard: f"limit of each process: {_RLIMITS.get(resource, resource)} = {soft}",
    "counters": lambda limits: (
        "limits of all commands of a session together: "
        + ", ".join(f"{show(name)} = {number}" for name, number, _optional in limits)
    ),
    "umask": lambda mask: f"umask {mask:03o}",
    "cwd": lambda path: f"work in {show(path)}",
    "drop_bounding_set": lambda: "let no program gain a capability",
    "drop_capabilities": lambda: "drop every capability, and check",
    "no_new_privs": lambda: "no_new_privs: no set-uid program gains anything",
    "landlock": lambda _fs, _net, _scoped, rules, _flags, ports=(): (
        f"Landlock, {len(rules)} rule{'s' * (len(rules) != 1)}"
        + (f", TCP to port {', '.join(str(port) for port, _access in ports)} only" if ports else "")
    ),
    "seccomp": lambda program, telling=b"", _rows=None: (
        f"system call filter, {len(program) // 8} instructions" + (" and reports refusals" if telling else "")
    ),
    "windows": lambda spec, _limits: (
        ("AppContainer" if spec.around is None else "write-restricted token")
        + " in a job, compiled for each command, in a copy of the project"
        + ("; the gate by a named pipe, and a relay in the container" if spec.network == "gate" else "")
    ),
    "seatbelt": lambda _path, profile: f"Seatbelt profile, {len(profile)} bytes: of rules that fit, the last decides",
}


def describe(step: Step) -> str:
    """Return a one-line description. A test checks that every op has one."""
    return _DESCRIPTIONS[step[0]](*step[1:])


_PLACES = {"cover": 1, "bind": 2, "mounted": 2, "tmpfs": 1, "proc": 1, "sysfs": 1, "devpts": 1, "overlay": 1}
"""Steps that mount something, each with the index of its path argument, which is relative to the new root."""


def deciding_step(plan: Plan, path: bytes) -> Step | None:
    """Return the step that determines what a command sees at an absolute path: the last one that covers the path or a
    directory above it. Return None if only the empty root is there, or without namespaces, where no step covers a path.
    """
    deciding: Step | None = None
    for step in plan.steps:
        if step[0] in ("host", "image"):
            deciding = step
        place = b"/" + step[_PLACES[step[0]]] if step[0] in _PLACES else None
        if place is not None and (path == place or path.startswith(place + b"/")):
            deciding = step
    return deciding


def explain(plan: Plan) -> Iterator[str]:
    names = [name for name, bit in NAMESPACES.items() if plan.namespaces & bit]
    yield "namespaces: " + (", ".join(names) or "none")
    for number, step in enumerate(plan.steps, 1):
        yield f"{number:3}. {describe(step)}"
        if step[0] == "engine":
            yield from (f"     {describe(inner)}" for inner in step[4])
        if step[0] == "seatbelt":
            yield from (f"     {show(line)}" for line in step[2].splitlines())
    for source, place, writable in plan.mounts:
        yield f"  -  the container shows {show(source)} at {show(place)} ({'rw' if writable else 'ro'})"
    if plan.mediation is not None:
        _program, calls, roots = plan.mediation
        yield f"  +  mediate {len(calls)} metadata calls: only in " + ", ".join(show(root) for root in roots)
