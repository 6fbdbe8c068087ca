"""Certification values: a row, its verdict, a certificate, and the parts that it closes. Pure.

Rules of this file:
1. Only ``held`` opens. A row that fell, that was not shown, or that is missing closes the same.
2. A row declares which part it closes; that is never computed from a text.
3. A certificate counts only for the table that it was made from: a row that it lacks is not shown, and a row that the
   table lacks makes it invalid (``record.py``).
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping, Sequence

from mudroom.typing import Literal, NamedTuple

Verdict = Literal["held", "fell", "not shown"]
VERDICTS: tuple[Verdict, ...] = ("held", "fell", "not shown")
Closes = Literal[
    "platform", "network", "gate", "level 0", "names", "limits", "leftovers", "tools", "addresses", "clones", "renames",
    "flush",
]  # fmt: skip
CLOSED: Mapping[Closes, str] = {
    "platform": "no command runs",
    "network": "commands run with network: open alone",
    "gate": "network: gate is refused",
    "level 0": "level 0 is refused",
    "names": "paths that are not ASCII are refused",
    "limits": "limits of a command may not hold",
    "tools": "some tools do not start in a sandbox",
    "leftovers": "processes may outlive their command, in its sandbox",
    "addresses": "the port of the gate is reached at each address of this machine",
    "clones": "files are copied whole, which takes time and space",
    "renames": "an apply changes a file in several steps, between which it may be missing",
    "flush": "a power failure may take back the last apply",
}
CanaryKind = Literal[
    "tree", "secret", "connection", "death", "root", "claim", "process", "reading", "works", "service", "terminal",
    "arguments", "resolver", "key", "handle", "bridge", "listener", "pipe", "caller",
]  # fmt: skip
"""How a deed's effect is found out, from outside. ``tree``: a directory has changed; ``secret``: a secret's content
came out; ``connection``: a server was reached; ``death``: a process has ended; ``root``: a directory has another name;
``claim``: a call that must be refused was not; ``process``: a process is still there; ``reading``: which reading of the
profile's language decides; ``works``: the deed is permitted, and has to work; ``service``: a host service answered;
``terminal``: a host terminal got a text; ``arguments``: a process's arguments came out; ``resolver``: the name resolver
answered; ``key``: a registry key was made; ``handle``: a file was written through a mudroom handle; ``bridge``: a
server was reached by a container's relay, and answered; ``listener``: such a server's listener was reached directly;
``pipe``: another container's pipe was opened; ``caller``: a program of the host was served from inside."""
Way = Literal["level 1", "gate", "level 0", "language", "vault"]
"""The sandbox; ``vault``: none, the calls are mudroom's own (``volume.py``)."""
Where = Literal["outside", "project", "policy", "mask", "store", "copy", "container", "users"]
"""The directory that a deed is aimed at. ``copy``: a directory in the copy; in the class ``language`` the profile has
further rules about it. ``container``: another container may read it; ``users``: all users may write it."""


class TrialRow(NamedTuple):
    name: str
    kind: str
    """The class, by which the report groups rows."""
    tries: str
    deed: str
    """Name in ``deed.py`` or ``windows_deed.py``; in the class ``vault`` in ``volume.py``."""
    canary: CanaryKind
    closes: Closes = "platform"
    where: Where = "outside"
    way: Way = "level 1"
    twin: str = ""
    """The permitted twin's deed, in the copy; the same deed unless it is refused everywhere."""
    service: str = ""
    """A host service's name, for the canary of that kind."""
    has_port_of_gate: bool = False
    """Whether the server at this machine's other address has the gate's port number."""
    errors: tuple[int, ...] = (errno.EPERM, errno.EACCES)
    """Error numbers by which the deed is refused."""
    nobody: tuple[int, ...] = ()
    """Error numbers by which a control shows that no program of this user can do it here. The sandbox has to refuse it
    all the same."""


class RowResult(NamedTuple):
    name: str
    verdict: Verdict
    found: str = ""
    """The reason, in mudroom's words: no path and no name from this machine."""
    errno: int = 0
    milliseconds: int = 0


class Certificate(NamedTuple):
    platform: str
    """As in ``sys.platform``."""
    system: str
    """The operating system's product and build."""
    machine: str
    """Architecture."""
    made: int
    """Seconds since the epoch."""
    rows: tuple[RowResult, ...] = ()


def missing(row: TrialRow) -> RowResult:
    return RowResult(row.name, "not shown", "it was not tried")


def results(table: Sequence[TrialRow], certificate: Certificate | None) -> tuple[RowResult, ...]:
    """Return the result for each row in the table."""
    made = {result.name: result for result in certificate.rows} if certificate is not None else {}
    return tuple(made.get(row.name, missing(row)) for row in table)


def closed(table: Sequence[TrialRow], certificate: Certificate | None) -> dict[Closes, tuple[RowResult, ...]]:
    """Return the closed parts, with the rows that close them, in the order of ``CLOSED``."""
    rows = {row.name: row for row in table}
    failed = [result for result in results(table, certificate) if result.verdict != "held"]
    by = {part: tuple(result for result in failed if rows[result.name].closes == part) for part in CLOSED}
    return {part: closing for part, closing in by.items() if closing}


def opens(table: Sequence[TrialRow], certificate: Certificate | None) -> bool:
    return certificate is not None and bool(table) and "platform" not in closed(table, certificate)


def sentence(part: Closes, closing: Iterable[RowResult]) -> str:
    """Return one line: the closed part's effect, and the rows that close it."""
    words = [f"{result.name} {result.verdict}" for result in closing]
    more = f" and {len(words) - 3} more" if len(words) > 3 else ""
    return f"{CLOSED[part]}: {', '.join(words[:3])}{more}"
