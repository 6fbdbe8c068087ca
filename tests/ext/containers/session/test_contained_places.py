"""Projects at paths that command lines and comma-separated values do not love, in real containers; what an engine does
not hold; and one whose containers permit no namespaces."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from conftest import Place
from engines import EngineHere
from mudroom.core.confinement.limit import Limits
from mudroom.core.settings import Settings
from mudroom.errors import Unsupported

NAMES = [
    b"a b", b"x,readonly=false", b'say "so"', b"one\ntwo", b"a:b:ro", "ü—é".encode(), b"-rf", b" lead and trail ",
    b"\\n'$HOME`id`",
]  # fmt: skip


@pytest.fixture
def moved(place: Place, request: pytest.FixtureRequest) -> Place:
    """The same, with the project at a path of that name."""
    path = Path(os.fsdecode(os.fsencode(place.root) + b"/" + request.param))
    place.project.rename(path)
    place.project = path
    place.write("f", "one\n")
    return place


@pytest.mark.parametrize("moved", NAMES, indirect=True, ids=repr)
def test_a_project_at_such_a_path(moved: Place, engine: EngineHere) -> None:
    session = engine.session(moved)
    result = session.run([b"sh", b"-c", b"pwd; echo two >>f; echo new >'g,h=\"i'"])
    assert (result.exit_code, result.level) == (0, 2), result.stderr
    assert result.stdout == os.fsencode(moved.project) + b"\n"
    assert sorted(change.path for change in result.changeset.changes) == [b"f", b'g,h="i']
    session.changes.apply(result.fork)
    assert (moved.project / "f").read_text() == "one\ntwo\n"


def test_what_is_written_outside_the_project_is_told(place: Place, engine: EngineHere) -> None:
    session = engine.session(place)
    result = session.run([b"sh", b"-c", b"echo made > ~/report; echo x > /tmp/x; echo y > y"])
    home = os.fsencode(place.home)
    assert sorted(file.path for file in result.left) == sorted([home + b"/report", b"/tmp/x"])
    assert any("written outside the project and not kept: ~/report, /tmp/x" in note for note in result.notes)


@pytest.mark.parametrize("moved", [b"\xff", b"a\r\nb"], indirect=True, ids=repr)
def test_one_that_no_engine_can_be_told(moved: Place, engine: EngineHere) -> None:
    session = engine.session(moved)
    if not os.geteuid():  # works in a copy, which lies where mudroom's state is: the engine is not told the path
        assert session.run([b"true"]).exit_code == 0
        return
    with pytest.raises(Unsupported) as caught:
        session.run([b"true"])
    assert "its name" in caught.value.found
    assert "\n" not in str(caught.value)


def test_a_limit_that_the_engine_does_not_hold(place: Place, engine: EngineHere) -> None:
    with pytest.raises(Unsupported, match="io"):
        engine.session(place, Settings(limits=Limits(io=1 << 20))).run([b"true"])
    session = engine.session(place, Settings(limits=Limits(io=1 << 20, missing="degrade")))
    result = session.run([b"true"])
    assert result.exit_code == 0
    assert any("io" in note for note in result.notes)


def test_an_engine_whose_containers_permit_no_namespaces(place: Place, engine: EngineHere) -> None:
    """A program in front of it that leaves out the option by which /proc can be mounted: mount_too_revealing()."""
    program = place.root / "bin" / engine.kind
    program.parent.mkdir()
    real = next(path for path in os.environ["PATH"].split(":") if os.access(f"{path}/{engine.kind}", os.X_OK))
    program.write_text(
        "#!/bin/bash\n"
        "for word; do case $word in --security-opt=systempaths=*|--security-opt=unmask=*) continue;; esac\n"
        'a+=("$word"); done\n'
        f'exec {real}/{engine.kind} "${{a[@]}}"\n'
    )
    program.chmod(0o755)
    engine.environ["PATH"] = f"{program.parent}:{engine.environ['PATH']}"
    place.write("f", "one\n")
    result = engine.session(place).run([b"sh", b"-c", b"echo two >>f; grep -c nothing /proc/self/status"])
    assert (result.exit_code, result.level) == (1, 2)
    assert [change.path for change in result.changeset.changes] == [b"f"]
    assert any("permits no user namespaces" in note for note in result.notes)
    assert any('"nested": false' in one.read_text() for one in place.state.glob("engines/*"))
