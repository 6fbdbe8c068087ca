"""The conformance suite and daily work at level 2: the views in containers are the same views.

All cases of a mode share a session, each with a directory and forks of its own: what is tried is the view, and a
container is not started for each of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conformance.bypasses.outside import CONTAINED
from conftest import Place, full_listing, listing
from engines import EngineHere
from mudroom.core.settings import Settings
from mudroom.session import Session
from test_conformance import BASE, CASES, as_names
from test_property import PROGRAM, perform
from test_works_inside import WORKS, missing

Edits = list[tuple[Any, ...]]


def opened(place: Place, engine: EngineHere, mode: str) -> Session:
    session = engine.session(place, Settings(timeout=60.0))
    if mode == "plain":
        session.confinement.mode_contained = "plain"
    return session


def edit(session: Session, fork: str, directory: Path, edits: Edits) -> None:
    program = f"OPERATIONS = {as_names(edits)!r}\n{PROGRAM}"
    argv = [os.fsencode(sys.executable), b"-I", b"-S", b"-c", program.encode()]
    result = session.run(argv, fork=fork, cwd=os.fsencode(directory))
    assert (result.exit_code, result.level) == (0, 2), result


def verbs(session: Session, fork: str, directory: str) -> dict[str, str]:
    found = {change.path.decode("latin-1"): change.verb for change in session.changes(fork).changes}
    assert all(path.startswith(f"{directory}/") for path in found)
    return {path.removeprefix(f"{directory}/"): verb for path, verb in found.items()}


@pytest.mark.slow
@pytest.mark.parametrize("mode", CONTAINED)
def test_views_in_containers_give_the_same_changesets(place: Place, engine: EngineHere, mode: str) -> None:
    directories = {case: f"c{number}" for number, case in enumerate(CASES)}
    for directory in directories.values():
        (place.project / directory).mkdir()
        perform(as_names(BASE), place.project / directory)
    bare = place.root / "bare"
    subprocess.run(["cp", "-a", str(place.project), str(bare)], check=True)
    before = full_listing(place.project)
    session = opened(place, engine, mode)
    wrong = {}
    for case, (edits, expected) in CASES.items():
        directory, half = directories[case], len(edits) // 2
        perform(as_names(edits), bare / directory)
        edit(session, f"one-{directory}", place.project / directory, edits)
        found = [verbs(session, f"one-{directory}", directory)]
        if half:
            edit(session, f"two-{directory}", place.project / directory, edits[:half])
            session.checkpoint(f"two-{directory}", "between")
            edit(session, f"two-{directory}", place.project / directory, edits[half:])
            found.append(verbs(session, f"two-{directory}", directory))
        if any(one != expected for one in found):
            wrong[case] = found
    assert wrong == {}
    assert full_listing(place.project) == before
    for directory in directories.values():
        assert session.apply(f"one-{directory}").conflicts == ()
    assert listing(place.project) == listing(bare)


@pytest.mark.slow
@pytest.mark.parametrize("mode", CONTAINED)
def test_daily_work_goes_on_in_containers(place: Place, engine: EngineHere, mode: str) -> None:
    able = {name: work for name, work in WORKS.items() if not missing(work) and "cargo" not in work.programs}
    for number, work in enumerate(able.values()):
        for file, content in work.files:
            place.write(f"w{number}/{file}", content)
        (place.project / f"w{number}").mkdir(exist_ok=True)
    session = opened(place, engine, mode)
    wrong = {}
    for number, (name, work) in enumerate(able.items()):
        cwd = os.fsencode(place.project / f"w{number}")
        result = session.run([b"sh", b"-c", work.script.encode()], fork=f"f{number}", cwd=cwd)
        if (result.exit_code, result.stdout.decode().strip()[-len(work.says) :]) != (0, work.says):
            wrong[name] = (result.exit_code, result.stdout, result.stderr, result.notes)
    assert wrong == {}
    assert len(able) > len(WORKS) / 2
