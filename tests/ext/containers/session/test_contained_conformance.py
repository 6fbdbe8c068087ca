"""The conformance suite and daily work at level 2: the views in containers are the same views.

All cases of a mode share forks, each with a directory of its own: it is the view that is tried, and no container is
started for each of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from conformance.bypasses.outside import CONTAINED
from conftest import Place, full_listing, listing
from engines import NAMED, EngineHere
from mudroom.core.settings import Settings
from mudroom.session import Session
from test_conformance import BASE, CASES, as_names
from test_property import PROGRAM, perform
from test_works_inside import WORKS, missing

Edits = list[tuple[Any, ...]]


def opened(place: Place, engine: EngineHere, mode: str) -> Session:
    session = engine.session(place, Settings(timeout=60.0))
    if mode == "plain":
        session.machine.confinement.mode_contained = "plain"
    return session


def own(number: int, edits: Edits) -> Edits:
    """With contents that no other case has: a file that was renamed is found by them."""
    return [(one[0], one[1], f"{number} {one[2]}") if one[0] == "write" and one[2] else one for one in edits]


def edit(session: Session, fork: str, cases: dict[str, Edits]) -> None:
    """Each directory's edits there, by one command."""
    told = {directory: as_names(edits) for directory, edits in cases.items()}
    program = f"import os\nfor directory, OPERATIONS in {told!r}.items():\n"
    program += " os.chdir(directory)\n exec(PROGRAM)\n os.chdir('..')\n"
    argv = [os.fsencode(sys.executable), b"-I", b"-S", b"-c", f"PROGRAM = {PROGRAM!r}\n{program}".encode()]
    result = session.run(argv, fork=fork)
    assert (result.exit_code, result.level) == (0, 2), result


def wrong(session: Session, fork: str, directories: dict[str, str]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {directory: {} for directory in directories.values()}
    for change in session.changes.of(fork).changes:
        directory, _slash, path = change.path.decode("latin-1").partition("/")
        found[directory][path] = change.verb
    return {case: found[own] for case, own in directories.items() if found[own] != CASES[case][1]}


@pytest.mark.slow
@pytest.mark.parametrize("mode", CONTAINED)
def test_views_in_containers_give_the_same_changesets(place: Place, engine: EngineHere, mode: str) -> None:
    directories = {case: f"c{number}" for number, case in enumerate(CASES)}
    edits = {f"c{number}": own(number, one) for number, (one, _expected) in enumerate(CASES.values())}
    for number, directory in enumerate(edits):
        (place.project / directory).mkdir()
        perform(as_names(own(number, BASE)), place.project / directory)
    bare = place.root / "bare"
    subprocess.run(["cp", "-a", str(place.project), str(bare)], check=True)
    for directory, some in edits.items():
        perform(as_names(some), bare / directory)
    before = full_listing(place.project)
    session = opened(place, engine, mode)
    edit(session, "whole", edits)
    edit(session, "halves", {directory: some[: len(some) // 2] for directory, some in edits.items()})
    session.forks.checkpoint("halves", "between")
    edit(session, "halves", {directory: some[len(some) // 2 :] for directory, some in edits.items()})
    for fork in ("whole", "halves"):
        assert wrong(session, fork, directories) == {}, fork
    assert full_listing(place.project) == before
    assert session.changes.apply("halves").conflicts == ()
    assert listing(place.project) == listing(bare)


@pytest.mark.slow
@pytest.mark.parametrize("mode", CONTAINED)
def test_daily_work_goes_on_in_containers(place: Place, engine: EngineHere, mode: str) -> None:
    if mode != "nested" or engine.kind != NAMED[0]:
        pytest.skip(f"tried with {NAMED[0]}, nested: it is long, and the views are tried in every way")
    able = {name: work for name, work in WORKS.items() if not missing(work) and "cargo" not in work.programs}
    for number, work in enumerate(able.values()):
        for file, content in work.files:
            place.write(f"w{number}/{file}", content)
        (place.project / f"w{number}").mkdir(exist_ok=True)
    session = opened(place, engine, mode)
    failed = {}
    for number, (name, work) in enumerate(able.items()):
        cwd = os.fsencode(place.project / f"w{number}")
        result = session.run([b"sh", b"-c", work.script.encode()], fork="work", cwd=cwd)
        if (result.exit_code, result.stdout.decode().strip()[-len(work.says) :]) != (0, work.says):
            failed[name] = (result.exit_code, result.stdout, result.stderr, result.notes)
    assert failed == {}
    assert len(able) > len(WORKS) / 2
