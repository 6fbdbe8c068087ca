"""Examine this machine's container protections. All engines are searched; the engine that commands would use starts two
containers."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from mudroom.cli.doctor.probe import ENGINE
from mudroom.core.confinement.limit import NAMES
from mudroom.core.confinement.protection import Finding, State
from mudroom.core.settings import EngineChoice
from mudroom.errors import MudroomError
from mudroom.ext.containers.core.container import KINDS, Engine
from mudroom.ext.containers.engine.engine import ANY, FoundEngine, install, keep_current, survey
from mudroom.ext.containers.engine.image import provide_host_image
from mudroom.ext.containers.engine.trial import ContainerTrial, attempt, keep
from mudroom.ext.containers.session.containers import provide_profile

# --- The process that rootless Podman leaves behind ---
# The first command of rootless Podman starts a process that holds the user's namespaces, and leaves it running
# (podman-system-migrate(1): the "pause process"). ``mudroom doctor`` only looks, so it ends the one that its own look
# has started. While it looks, this process adopts the orphans of its commands (PR_SET_CHILD_SUBREAPER, prctl(2)): a
# pause process among its children is its own, and one that was there before is not. Podman starts another when it needs
# one.


_SET_CHILD_SUBREAPER, _GET_CHILD_SUBREAPER = 36, 37
"""prctl(2), linux/prctl.h."""
_NAMES = (b"podman pause", b"catatonit")
"""Names of the process: Podman's own, and the program that newer versions run (``catatonit -P``)."""


@contextmanager
def left_as_found() -> Iterator[None]:
    """End the pause processes that are started in the context."""
    if sys.platform != "linux":
        yield
        return
    import ctypes

    libc = ctypes.CDLL(None)
    was = ctypes.c_int()
    libc.prctl(_GET_CHILD_SUBREAPER, ctypes.byref(was), 0, 0, 0)
    libc.prctl(_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0)
    before = set(_pause_processes())
    try:
        yield
    finally:
        for pid in set(_pause_processes()) - before:
            os.kill(pid, signal.SIGKILL)  # a child that is not waited for keeps its pid
            os.waitpid(pid, 0)
        libc.prctl(_SET_CHILD_SUBREAPER, ctypes.c_ulong(was.value), 0, 0, 0)


def _pause_processes() -> Iterator[int]:
    """Yield the pause processes among this process's children."""
    parent = b"%d" % os.getpid()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as stream:
                head, _bracket, rest = stream.read().rpartition(b")")
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
        if head.partition(b"(")[2] in _NAMES and rest.split()[1] == parent:
            yield int(name)


WALLS, INSIDE, GATE, LIMITS = (
    "containers: walls",
    "containers: namespaces in them",
    "containers: the gate",
    "containers: limits",
)
_KINDS = ("memory", "processes", "cpus")


Gate = Callable[[], tuple[State, str, str]]
"""Run a command at level 2 and return the gate's state as seen inside."""


def examine_engines(
    directory: bytes, environ: Mapping[bytes, bytes], gate: Gate, wanted: EngineChoice = "auto"
) -> list[Finding]:
    """Return the rows for containers. ``directory``: mudroom's state directory during the examination. ``wanted``: the
    policy's engine, the only one that commands could use; ``auto``: the first that works. No process of an engine is
    left running."""
    with left_as_found():
        return _examined(directory, environ, gate, wanted)


def _examined(directory: bytes, environ: Mapping[bytes, bytes], gate: Gate, wanted: EngineChoice) -> list[Finding]:
    kinds = KINDS if wanted == "auto" else (wanted,)
    with ThreadPoolExecutor(len(kinds)) as pool:  # engines in parallel, so that one that hangs does not delay the next
        surveyed = list(pool.map(lambda kind: next(survey(environ, (kind,))), kinds))
    candidates = [found for found in surveyed if found.is_installed or wanted != "auto"]
    local = [found.engine for found in candidates if found.engine is not None and not found.engine.remote]
    if not local:
        return [_by_the_policy(_none(candidates, wanted), wanted), *_not_probed("no container can be started")]
    engine = local[0]
    keep_current(engine, environ, wanted)  # for the command behind the row of the gate
    try:
        tried, trial = _try(engine, directory, environ)
    except MudroomError as error:
        row = Finding(ENGINE, "missing", error.message, error.hint)
        return [_by_the_policy(row, wanted), *_not_probed("no container could be started")]
    return [
        _by_the_policy(_engine(tried, candidates), wanted),
        walls(trial),
        inside(tried),
        Finding(GATE, *gate()),
        limits(tried),
    ]


def _by_the_policy(row: Finding, wanted: EngineChoice) -> Finding:
    """Add the setting that excludes all other engines."""
    if wanted == "auto":
        return row
    fix = f"{row.fix}; or {ANY}" if row.fix else ""
    return row._replace(found=f"{row.found}; container.engine is {wanted}", fix=fix)


def _try(engine: Engine, directory: bytes, environ: Mapping[bytes, bytes]) -> tuple[Engine, ContainerTrial]:
    image = provide_host_image(engine, environ)
    profile = provide_profile(directory, nested=True)
    tried, trial = attempt(engine, image, environ, directory, profile)
    keep(engine, tried, environ, directory)
    return tried, trial


def _none(candidates: list[FoundEngine], wanted: EngineChoice) -> Finding:
    remote = next((found.engine for found in candidates if found.engine is not None), None)
    if remote is not None:
        found = f"{remote.title}, in a virtual machine: commands in a copy, a container for each"
        return Finding(ENGINE, "degraded", found, "an engine of this machine itself")
    problems = "; ".join(found.problem for found in candidates) or "none is installed"
    return Finding(
        ENGINE, "missing", problems, "; or ".join(found.hint for found in candidates if found.hint) or install(wanted)
    )


def _not_probed(why: str) -> list[Finding]:
    return [Finding(name, "not probed", why, "an engine first") for name in (WALLS, INSIDE, GATE, LIMITS)]


def _engine(engine: Engine, candidates: list[FoundEngine]) -> Finding:
    """Return the row for the first engine; the others are listed, with their problems."""
    by = f" by {' '.join(engine.options)}" if engine.options else ""
    others = [found for found in candidates if found.kind != engine.kind]
    usable = [found.engine.title for found in others if found.engine is not None]
    more = f"; container.engine chooses another: {', '.join(usable)}" if usable else ""
    broken = "".join(f"; not usable: {found.problem}" for found in others if found.engine is None)
    return Finding(ENGINE, "strict", f"{engine.title}{by}{more}{broken}")


def walls(trial: ContainerTrial) -> Finding:
    lost = [
        problem
        for problem, holds in (
            ("its user is root", trial.user != 0),
            ("capabilities are left", not trial.capabilities),
            ("privileges can be gained", trial.gains_none),
            ("no system call filter", trial.filtered),
            ("interfaces besides loopback", trial.interfaces == ("lo",)),
        )
        if not holds
    ]
    if lost:
        return Finding(
            WALLS, "missing", ", ".join(lost), "the engine ignores its options: use another engine, or level 1"
        )
    found = f"user {trial.user}, no capability, no_new_privs, our filter, no network but its own loopback"
    return Finding(WALLS, "strict", found)


def inside(engine: Engine) -> Finding:
    if engine.nested:
        return Finding(INSIDE, "strict", "commands in the container have the namespaces of level 1")
    found = (
        "none: commands share a container per fork, in a copy, and programs that ignore proxy settings have no network"
    )
    return Finding(INSIDE, "degraded", found, _permit())


_PERMITTING = {"kernel/apparmor_restrict_unprivileged_userns": "0", "kernel/unprivileged_userns_clone": "1"}


def _permit() -> str:
    """Return a fix for the usual cause: AppArmor or Debian restricts user namespaces."""
    for name, permitting in _PERMITTING.items():
        path = f"/proc/sys/{name}"
        if os.path.exists(path):
            with open(path, encoding="ascii", errors="replace") as stream:
                if stream.read().strip() != permitting:
                    return f"sudo sysctl {name.replace('/', '.')}={permitting}"
    return "permit user namespaces in containers: sudo sysctl user.max_user_namespaces=15000"


def limits(engine: Engine) -> Finding:
    held = [NAMES[kind] for kind in _KINDS if kind in engine.limits]
    lost = [NAMES[kind] for kind in _KINDS if kind not in engine.limits]
    if not lost:
        return Finding(LIMITS, "strict", f"{', '.join(held)}: by its control groups; io and totals are not held")
    fix = "control groups of version 2, delegated to you: Delegate=cpu memory pids in user@.service"
    found = f"{', '.join(held) or 'none'} held; {', '.join(lost)} not, so commands that ask for them are refused"
    return Finding(LIMITS, "degraded" if held else "missing", found, fix)
