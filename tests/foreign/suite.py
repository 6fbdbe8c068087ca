"""What the foreign suites share: where their sources are, the modes that they run in, and their expected differences.

A foreign suite was written by others for something else: for a kernel's file system, for Python, for git. Its sources
are no part of this repository. ``dev/foreign --fetch`` brings those that package registries have to ``.foreign``; a
variable names a checkout or a program of each one. A suite that is absent is skipped by name.

A suite is run natively and inside, as the same user, and gives outcomes by test. A test that is not ``ok`` inside, and
something else natively, must match an entry of the suite's table in ``expected/NAME.toml``, and each pattern of each
entry must still come true:

    [[differs]]
    tests = ["test.test_os.LinkTests.*"]      # fnmatch patterns, or names
    inside = "fail"                           # the outcome inside
    said = "PermissionError.*"                # a regular expression for all of what it says then; default: anything
    modes = ["no namespaces"]                 # default: all
    users = ["root"]                          # "root", "user"; default: both
    reason = "why it is so"

    [[left_out]]                              # not run, neither here nor there
    tests = [...]
    reason = "..."
"""

from __future__ import annotations

import os
import re
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import pytest

from conftest import Place
from mudroom.core.confinement.limit import Limits
from mudroom.core.result import Result
from mudroom.core.settings import Settings, ViewChoice
from mudroom.sandbox.client.client import Client
from mudroom.sandbox.host.host import landlock_abi
from mudroom.session import Session

ROOT = Path(__file__).resolve().parent.parent.parent
FETCHED = Path(os.environ.get("MUDROOM_FOREIGN") or ROOT / ".foreign")
TABLES = Path(__file__).with_name("expected")
USER = "user" if os.geteuid() else "root"
Outcomes = Mapping[str, str]
"""By test."""


class Source(NamedTuple):
    """Where a suite is looked for."""

    title: str
    variable: str
    """Names a checkout or a program."""
    fetched: str = ""
    """Its place below ``FETCHED``; empty: no package registry has it."""


SOURCES = {
    "cpython": Source("CPython's own tests", "MUDROOM_CPYTHON_TESTS", "cpython"),
    "universal_pathlib": Source("universal_pathlib's tests", "MUDROOM_UPATH_SOURCE", "universal_pathlib"),
    "httpx": Source("httpx's tests", "MUDROOM_HTTPX_SOURCE", "httpx"),
    "git": Source("git's sources", "MUDROOM_GIT_SOURCE", "git"),
    "pjdfstest": Source("a built checkout of pjdfstest", "MUDROOM_PJDFSTEST"),
    "fsx": Source("the program fsx", "MUDROOM_FSX"),
    "fsstress": Source("the program fsstress", "MUDROOM_FSSTRESS"),
}


def source(name: str) -> Path:
    """Return where a suite is, or skip the test."""
    wanted = SOURCES[name]
    given = os.environ.get(wanted.variable)
    if given:
        return Path(given)
    if wanted.fetched and (FETCHED / wanted.fetched).exists():
        return FETCHED / wanted.fetched
    how = " or dev/foreign --fetch" if wanted.fetched else ""
    pytest.skip(f"foreign suite absent: {wanted.title} ({wanted.variable}{how})")


class Mode(NamedTuple):
    """How commands are confined, and how the project is staged."""

    level: int = 1
    view: ViewChoice = "auto"
    namespaces: bool = True


MODES = {"overlay": Mode(view="overlay"), "copy": Mode(view="copy"), "no namespaces": Mode(namespaces=False)}
"""And ``level 2``, with each container engine of ``dev/engines``: see the fixture ``engine``."""
LEVEL_2 = "level 2"
ABSENT = "absent"


@contextmanager
def short_place(client: Client) -> Iterator[Place]:
    """Yield a place with a short path: addresses of unix sockets have at most 108 bytes (unix(7))."""
    with tempfile.TemporaryDirectory(prefix="mrf", dir="/tmp", ignore_cleanup_errors=True) as root:
        place = Place(Path(root), client)
        yield place
        place.close()


def open_mode(place: Place, mode: str, *readable: Path) -> Session:
    """Return a session whose commands run in one of ``MODES``; they may read ``readable``. Skip where it cannot be
    had."""
    chosen = MODES[mode]
    if not chosen.namespaces and not landlock_abi():
        pytest.skip("this kernel has no Landlock")
    session = place.session(settings(*readable, view=chosen.view), level=chosen.level)
    if not chosen.namespaces:
        session.machine.confinement.mode = "landlock"
    return session


def settings(*readable: Path, view: ViewChoice = "auto") -> Settings:
    return Settings(view=view, read=tuple(os.fsencode(path) for path in readable), limits=Limits())


def run_in(session: Session, place: Place, script: str, mode: str, timeout: float = 600.0) -> Result:
    """Run a shell script in the project, in a fork ``f``. The mode is certain afterwards."""
    result = session.run([b"sh", b"-c", script.encode()], fork="f", timeout=timeout)
    assert not result.timed_out, result.stderr[-2000:].decode(errors="replace")
    assert (result.level == 2) is mode.startswith(LEVEL_2)
    return result


def staged(session: Session, name: str) -> bytes:
    """Return the content of a file of the fork ``f``."""
    return bytes(session.forks.files("f").read(os.fsencode(name)))


class Entry(NamedTuple):
    tests: tuple[str, ...]
    reason: str
    inside: str = ""
    said: str = ".*"
    modes: tuple[str, ...] = (*MODES, LEVEL_2)
    users: tuple[str, ...] = ("root", "user")

    def applies(self, mode: str) -> bool:
        """``level 2`` in a table stands for every engine, ``level 2, docker`` for one."""
        return bool({mode, mode.partition(",")[0]} & set(self.modes)) and USER in self.users


class Table(NamedTuple):
    name: str
    version: str
    """Of the suite for which it was made; empty: any."""
    differs: tuple[Entry, ...]
    left_out: tuple[Entry, ...] = ()


class TableError(ValueError):
    pass


def read_table(path: Path) -> Table:
    """Return a suite's table. Raise TableError if a key is unknown, a reason is missing, or a mode or user is none."""
    written = tomllib.loads(path.read_text())
    if unknown := written.keys() - {"version", "differs", "left_out"}:
        raise TableError(f"{path.name}: unknown: {', '.join(sorted(unknown))}")
    rows = {kind: tuple(_entry(path, row) for row in written.get(kind, ())) for kind in ("differs", "left_out")}
    if any(not row.inside for row in rows["differs"]):
        raise TableError(f"{path.name}: an entry does not tell the outcome inside")
    return Table(path.stem, written.get("version", ""), **rows)


def _entry(path: Path, row: dict[str, Any]) -> Entry:
    fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
    try:
        entry = Entry(**fields)
    except TypeError as error:
        raise TableError(f"{path.name}: {error}") from error
    known = set(entry.modes) <= {*MODES, LEVEL_2, f"{LEVEL_2}, docker", f"{LEVEL_2}, podman"} and set(entry.users) <= {
        "root",
        "user",
    }
    if not (known and entry.tests and entry.reason.strip()):
        raise TableError(f"{path.name}: a mode or user that is none, no tests, or no reason: {row}")
    return entry


def table(name: str) -> Table:
    return read_table(TABLES / f"{name}.toml")


class Ran(NamedTuple):
    """A suite that was run once."""

    outcomes: Outcomes
    details: Outcomes = {}  # noqa: RUF012 - never changed
    """By test, what it said."""

    def matches(self, test: str, entry: Entry) -> bool:
        said = re.fullmatch(entry.said, self.details.get(test, ""), re.DOTALL) is not None
        return said and self.outcomes.get(test, ABSENT) == entry.inside

    def lost(self) -> tuple[str, ...]:
        """Return the beginnings of the names of tests that a dead module does not tell of."""
        return tuple(f"{test}." for test, outcome in self.outcomes.items() if outcome == "died")


def read_results(path: Path) -> Ran:
    """Return the outcome of each test in pytest's JUnit report, and what a failed one said. Its name has its module, if
    the report does."""
    outcomes, details = {}, {}
    for case in ElementTree.parse(path).iter("testcase"):
        said = [child for child in case if child.tag in ("failure", "error", "skipped")]
        name = f"{case.get('classname', '')}.{case.get('name', '')}"
        outcomes[name] = "ok" if not said else "skip" if said[0].tag == "skipped" else "fail"
        details[name] = said[0].get("message", "")[:200] if said else ""
    return Ran(outcomes, details)


def surprises(native: Outcomes, inside: Ran, expected: Table, mode: str, *, whole: bool = True) -> list[str]:
    """Return a line for each difference that no entry expects, and for each entry that does not come true.

    ``whole`` False: only a part of the suite was run, so an entry whose pattern matches no test says nothing."""
    lines, differing = [], 0
    entries = [entry for entry in expected.differs if entry.applies(mode)]
    lost = inside.lost()
    where = f"here ({mode}, {USER})"
    tests = sorted(native.keys() | inside.outcomes.keys())
    for test in tests:
        there, here = native.get(test, ABSENT), inside.outcomes.get(test, ABSENT)
        if here in (there, "ok") or (here == ABSENT and test.startswith(lost)):
            continue
        differing += 1
        if not any(matches(test, entry.tests) and inside.matches(test, entry) for entry in entries):
            lines.append(f"unexpected: {test}: {there} natively, {here} {where} {inside.details.get(test, '')}")
    for entry in entries:
        for pattern in entry.tests:
            found = [test for test in tests if fnmatchcase(test, pattern)]
            if not any(inside.matches(test, entry) for test in found) and (found or whole):
                others = ", ".join(sorted({inside.outcomes.get(test, ABSENT) for test in found})) or "no such test"
                lines.append(f"no longer so: {pattern}: {others}, not {entry.inside} {where}")
    tell(expected.name, mode, len(native), differing, len(lines))
    return lines


def tell(name: str, mode: str, tests: int, differing: int, wrong: int) -> None:
    """Append a row of the table that ``dev/foreign`` prints."""
    if figures := os.environ.get("MUDROOM_FOREIGN_FIGURES"):
        with open(figures, "a") as file:
            file.write(f"{name}\t{mode}\t{USER}\t{tests}\t{differing}\t{wrong}\n")


def matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
