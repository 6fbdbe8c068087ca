"""What containers give on this machine: every engine is looked for, and the one that would be used starts two."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, NamedTuple

from mudroom.core.confinement.container import KINDS, Engine, EngineKind
from mudroom.core.confinement.limit import NAMES
from mudroom.errors import MudroomError
from mudroom.sandbox.container.engine import ANY, FoundEngine, install, survey
from mudroom.sandbox.container.image import provide_host_image
from mudroom.sandbox.container.trial import ContainerTrial, attempt, keep
from mudroom.session.confinement.containers import provide_profile

State = Literal["strict", "degraded", "missing", "not probed"]
ENGINE, WALLS, INSIDE, GATE, LIMITS = (
    "a container engine",
    "containers: walls",
    "containers: namespaces in them",
    "containers: the gate",
    "containers: limits",
)
_KINDS = ("memory", "processes", "cpus")


class EngineRow(NamedTuple):
    protection: str
    state: State
    found: str
    fix: str = ""


Gate = Callable[[], tuple[State, str, str]]
"""Runs a command at level 2 and says what it sees of the gate."""


def examine_engines(
    directory: bytes, environ: Mapping[bytes, bytes], gate: Gate, wanted: EngineKind | None = None
) -> list[EngineRow]:
    """``directory``: mudroom's state for as long as this runs. ``wanted``: the engine of the policy, the only one that
    commands would get; None: the first that can be used."""
    kinds = KINDS if wanted is None else (wanted,)
    with ThreadPoolExecutor(len(kinds)) as pool:  # one that hangs makes nobody wait for the next one that does
        looked = list(pool.map(lambda kind: next(survey(environ, (kind,))), kinds))
    founds = [found for found in looked if found.is_installed or wanted is not None]
    here = [found.engine for found in founds if found.engine is not None and not found.engine.remote]
    if not here:
        return [_by_the_policy(_none(founds, wanted), wanted), *_not_probed("no container can be started")]
    engine = here[0]
    try:
        tried, trial = _try(engine, directory, environ)
    except MudroomError as error:
        none = EngineRow(ENGINE, "missing", error.message, error.hint)
        return [_by_the_policy(none, wanted), *_not_probed("no container could be started")]
    return [
        _by_the_policy(_engine(tried, founds), wanted),
        walls(trial),
        inside(tried),
        EngineRow(GATE, *gate()),
        limits(tried),
    ]


def _by_the_policy(row: EngineRow, wanted: EngineKind | None) -> EngineRow:
    """With the setting that keeps every other engine out of it."""
    if wanted is None:
        return row
    fix = f"{row.fix}; or {ANY}" if row.fix else ""
    return row._replace(found=f"{row.found}; container.engine is {wanted}", fix=fix)


def _try(engine: Engine, directory: bytes, environ: Mapping[bytes, bytes]) -> tuple[Engine, ContainerTrial]:
    image = provide_host_image(engine, environ)
    profile = provide_profile(directory, nested=True)
    tried, trial = attempt(engine, image, environ, directory, profile)
    keep(engine, tried, environ, directory)
    return tried, trial


def _none(founds: list[FoundEngine], wanted: EngineKind | None) -> EngineRow:
    far = next((found.engine for found in founds if found.engine is not None), None)
    if far is not None:
        found = f"{far.title}, in a virtual machine: commands in a copy, a container for each"
        return EngineRow(ENGINE, "degraded", found, "an engine of this machine itself")
    problems = "; ".join(found.problem for found in founds) or "none is installed"
    return EngineRow(
        ENGINE, "missing", problems, "; or ".join(found.hint for found in founds if found.hint) or install(wanted)
    )


def _not_probed(why: str) -> list[EngineRow]:
    return [EngineRow(name, "not probed", why, "an engine first") for name in (WALLS, INSIDE, GATE, LIMITS)]


def _engine(engine: Engine, founds: list[FoundEngine]) -> EngineRow:
    """The first counts; the others are told, with what is in their way."""
    by = f" by {' '.join(engine.options)}" if engine.options else ""
    others = [found for found in founds if found.kind != engine.kind]
    usable = [found.engine.title for found in others if found.engine is not None]
    more = f"; container.engine chooses another: {', '.join(usable)}" if usable else ""
    broken = "".join(f"; not usable: {found.problem}" for found in others if found.engine is None)
    return EngineRow(ENGINE, "strict", f"{engine.title}{by}{more}{broken}")


def walls(trial: ContainerTrial) -> EngineRow:
    lost = [
        what
        for what, holds in (
            ("its user is root", trial.user != 0),
            ("capabilities are left", not trial.capabilities),
            ("privileges can be gained", trial.gains_none),
            ("no system call filter", trial.filtered),
            ("interfaces besides loopback", trial.interfaces == ("lo",)),
        )
        if not holds
    ]
    if lost:
        return EngineRow(
            WALLS, "missing", ", ".join(lost), "the engine does not do what it was told: another one, or level 1"
        )
    found = f"user {trial.user}, no capability, no_new_privs, our filter, no network but its own loopback"
    return EngineRow(WALLS, "strict", found)


def inside(engine: Engine) -> EngineRow:
    if engine.nested:
        return EngineRow(INSIDE, "strict", "what a command has at level 1, it has in the container, too")
    found = (
        "none: commands share a container per fork, in a copy, and programs that ignore proxy settings have no network"
    )
    return EngineRow(INSIDE, "degraded", found, _permit())


_PERMITTING = {"kernel/apparmor_restrict_unprivileged_userns": "0", "kernel/unprivileged_userns_clone": "1"}


def _permit() -> str:
    """What most often forbids it: AppArmor's restriction of user namespaces, or Debian's."""
    for name, wanted in _PERMITTING.items():
        path = f"/proc/sys/{name}"
        if os.path.exists(path):
            with open(path, encoding="ascii", errors="replace") as stream:
                if stream.read().strip() != wanted:
                    return f"sudo sysctl {name.replace('/', '.')}={wanted}"
    return "permit user namespaces in containers: sudo sysctl user.max_user_namespaces=15000"


def limits(engine: Engine) -> EngineRow:
    held = [NAMES[kind] for kind in _KINDS if kind in engine.limits]
    lost = [NAMES[kind] for kind in _KINDS if kind not in engine.limits]
    if not lost:
        return EngineRow(LIMITS, "strict", f"{', '.join(held)}: by its control groups; io and totals are not held")
    fix = "control groups of version 2, delegated to you: Delegate=cpu memory pids in user@.service"
    found = f"{', '.join(held) or 'none'} held; {', '.join(lost)} not, so commands that ask for them are refused"
    return EngineRow(LIMITS, "degraded" if held else "missing", found, fix)
