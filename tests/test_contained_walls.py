"""Level 2 from inside and from the engine's side: what the container is."""

from __future__ import annotations

from conftest import Place
from engines import EngineHere


def test_a_command_runs_in_a_container(place: Place, engine: EngineHere) -> None:
    session = engine.session(place)
    result = session.run([b"sh", b"-c", b"echo new > f"])
    assert (result.exit_code, result.level) == (0, 2)
    assert [change.path for change in result.changeset.changes] == [b"f"]
    (name,) = engine.containers(place.root)
    assert engine.inspect(name)["HostConfig"]["NetworkMode"] == "none"


def test_the_command_line_leaves_no_container(place: Place, engine: EngineHere) -> None:
    done = engine.mudroom(place, "run", "--no", "--level", "2", "--", "echo", "inside")
    assert (done.returncode, done.stdout) == (0, "inside\n"), done.stderr
    assert engine.left(place.root) == []
