"""From a record to a platform: which parts are open here, and what each other part needs."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence

from mudroom.core.confinement.plan import Plan
from mudroom.core.confinement.spec import SandboxSpec
from mudroom.errors import MudroomError, Unsupported
from mudroom.ext.certify.identity import Identity, identity, tool_of
from mudroom.ext.certify.record import NEVER, exists, load, save
from mudroom.ext.certify.row import Certificate, Closes, RowResult, closed, opens, sentence
from mudroom.ext.certify.shipped import load as load_shipped
from mudroom.ext.certify.table import TABLES
from mudroom.ext.certify.trial import Progress, Trial, certify
from mudroom.sandbox.platform import Platform
from mudroom.typing import NamedTuple

HINT = "mudroom doctor --certify tries it, in less than a minute"
_NAMES = {"network": "a closed network", "gate": "the gate"}


class PlatformOpening(NamedTuple):
    certificate: Certificate | None
    why: str
    """Why there is no certificate."""
    closed: Mapping[Closes, tuple[RowResult, ...]]
    is_open: bool
    is_shipped: bool = False
    """Whether the rows held on another machine like this one (``shipped.py``), and were not tried here."""


def look(platform: str, state: bytes, tool: bytes) -> PlatformOpening:
    """Return the parts that this machine's record opens. ``tool``: the confining program."""
    table = TABLES[platform]
    is_shipped = False
    try:
        here = identity(platform, _existing(state), tool)
        certificate, why = load(state, here, table) if os.path.isdir(state) else (None, NEVER)
        if certificate is None and not exists(state, here):
            certificate = load_shipped(here, table)
            why, is_shipped = ("", True) if certificate else (why, False)
    except OSError as error:
        certificate, why = None, f"the facts that a certificate is for cannot be found out: {error.strerror}"
    return PlatformOpening(certificate, why, closed(table, certificate), opens(table, certificate), is_shipped)


def _existing(state: bytes) -> bytes:
    """Return the state directory, or the directory that it will be made in, which is on the same volume."""
    while not os.path.isdir(state) and os.path.dirname(state) != state:
        state = os.path.dirname(state)
    return state


def open_here(platform: Platform, state: bytes) -> Platform:
    """Do as ``open_platform``, with the platform's own confining program."""
    return open_platform(platform, state, tool_of(platform.name))


def open_platform(platform: Platform, state: bytes, tool: bytes) -> Platform:
    """Return the platform with its certified parts. Raise Unsupported if it is not open."""
    opening = look(platform.name, state, tool)
    if opening.certificate is None:
        raise Unsupported("mudroom", "a certificate of this machine", opening.why, HINT)
    if not opening.is_open:
        found = sentence("platform", opening.closed["platform"])
        raise Unsupported("mudroom", "a sandbox that holds here", found, "mudroom doctor --certify tries it again")
    return restrict(platform, reasons(opening.closed))


def reasons(parts: Mapping[Closes, tuple[RowResult, ...]]) -> dict[str, str]:
    """Return why each part is closed, by its rows."""
    return {part: sentence(part, rows) for part, rows in parts.items()}


def restrict(platform: Platform, closed: Mapping[str, str]) -> Platform:
    """Return the platform with a compiler that refuses specs for closed parts."""

    def compile_open(spec: SandboxSpec, machine: str) -> Plan:
        for part in _parts(spec):
            if part in closed:
                raise Unsupported(_NAMES.get(part, part), "a certificate of it", closed[part], HINT)
        plan = platform.compile(spec, machine)
        if "names" in closed and not all(part.isascii() for step in plan.steps for part in step if type(part) is bytes):
            raise Unsupported("a path that is not ASCII", "a certificate of it", closed["names"], HINT)
        return plan

    return platform._replace(compile=compile_open, closed=closed) if closed else platform


def _parts(spec: SandboxSpec) -> Sequence[Closes]:
    parts: list[Closes] = ["network"] if spec.network != "open" else []
    if spec.network == "gate":
        parts.append("gate")
    if spec.around is not None:
        parts.append("level 0")
    return parts


def make(
    platform: str,
    state: bytes,
    tool: bytes,
    trial: Trial,
    directory: bytes,
    *,
    progress: Progress = lambda _number, _count, _name: None,
) -> Certificate:
    """Try every row in ``directory``, which is empty, store the certificate and return it. Raise MudroomError."""
    try:
        before = identity(platform, state, tool)
        facts = Certificate(platform, before.system, before.machine, int(time.time()))
        made = certify(TABLES[platform], trial, os.fsdecode(os.path.realpath(directory)), facts, progress=progress)
        _store(state, before, identity(platform, state, tool), made)
    except OSError as error:
        name = f"{os.fsdecode(error.filename)}: " if error.filename else ""
        raise MudroomError(f"no certificate was made: {name}{error.strerror}", "run the command again") from error
    return made


def _store(state: bytes, before: Identity, after: Identity, made: Certificate) -> None:
    if before != after:
        raise MudroomError("no certificate was made: the system changed meanwhile", "run the command again")
    save(state, after, made)
