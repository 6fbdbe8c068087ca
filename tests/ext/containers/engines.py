"""Container engines for tests: which there are, and a place where sessions run their commands in their containers.

``dev/engines`` starts engines of its own and names them in MUDROOM_TEST_ENGINES (``docker podman``); without that
variable tests that take the fixture ``engine`` are skipped, with this reason. A test that takes it is run with each of
them, and afterwards there must be no container left that shows anything of the test's directory.

    def test_it(engine: EngineHere, place: Place) -> None:
        session = engine.session(place)                       # at level 2
        done = engine.mudroom(place, "run", "--no", "--level", "2", "--", "true")
        name = engine.containers(place.root)[0]               # running or not
        engine.ask("exec", name, "ls")                        # the engine's own command line
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import forked
from mudroom.ext.containers.core.container import EngineKind

if TYPE_CHECKING:
    from conftest import Place
    from mudroom.core.settings import Settings
    from mudroom.session import Session

SOURCE = Path(__file__).parents[3] / "src"
NAMED = tuple(os.environ.get("MUDROOM_TEST_ENGINES", "").split())
PATIENCE = 40.0
"""Seconds that an engine has to remove what has ended."""
WITHOUT = "no container engine for tests: dev/engines starts one"


def environment(kind: str) -> dict[str, str]:
    """Of a process that finds this engine and no other: Docker is looked for first."""
    return {**os.environ, **({"DOCKER_HOST": "unix:///nobody/is/here"} if kind != "docker" else {})}


def require_one_of(kind: str, mode: str) -> None:
    """Skip a long suite where only the container holds, but with the first engine: it holds the same with the others,
    as ``tests/ext/containers/session/test_contained_walls.py`` tells of all."""
    if mode == "plain" and kind != NAMED[0]:
        pytest.skip(f"tried with {NAMED[0]}: what is plain is long, and the same container")


def mudroom(place: Place, *words: str, environ: Mapping[str, str], **options: Any) -> subprocess.CompletedProcess[str]:
    """The command line, in the project, with these variables and those of the place."""
    named = {"HOME": place.home, "MUDROOM_STATE": place.state, "PYTHONPATH": SOURCE}
    fixed = {"MUDROOM_KEEPER": "0", "LC_ALL": "C.UTF-8", **{name: str(path) for name, path in named.items()}}
    return forked.run(words, cwd=place.project, env={**environ, **fixed}, **options)


class EngineHere(NamedTuple):
    kind: EngineKind
    environ: dict[str, str]

    def session(self, place: Place, settings: Settings | None = None, **options: Any) -> Session:
        """One at level 2, whose containers are this engine's."""
        session = place.session(settings, level=2, **options)
        named = {os.fsencode(key): os.fsencode(value) for key, value in self.environ.items()}
        session.machine.confinement.variables = {**session.machine.confinement.variables, **named}
        return session

    def mudroom(self, place: Place, *argv: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """The command line, in the project."""
        return mudroom(place, *argv, environ=self.environ, **options)

    def ask(self, *words: str, check: bool = True, **options: Any) -> str:
        """What the engine's command line prints."""
        done: subprocess.CompletedProcess[str] = subprocess.run(
            [self.kind, *words], env=self.environ, capture_output=True, text=True, check=False, timeout=60, **options
        )
        if check and done.returncode:
            raise AssertionError(f"{self.kind} {' '.join(words)}: {done.stderr}")
        return done.stdout

    def inspect(self, container: str) -> dict[str, Any]:
        found: list[dict[str, Any]] = json.loads(self.ask("inspect", container))
        return found[0]

    def containers(self, root: Path) -> list[str]:
        """The ids of mudroom's containers that show anything below a directory, in any state."""
        listed = self.ask("ps", "--all", "--quiet", "--no-trunc", "--filter=label=mudroom").split()
        found = json.loads(self.ask("inspect", "--type=container", *listed, check=False) or "[]") if listed else []
        return [one["Id"] for one in found if any(str(root) in place["Source"] for place in one["Mounts"])]

    def left(self, root: Path) -> list[str]:
        """The same, once the engine has had the time to remove what has ended."""
        end = time.monotonic() + PATIENCE
        while (found := self.containers(root)) and time.monotonic() < end:
            threading.Event().wait(0.2)  # who asks without pause is in the engine's way
        return found


ENGINES = [pytest.param(name, id=name) for name in NAMED] or [
    pytest.param("", id="no engine", marks=pytest.mark.skip(reason=WITHOUT))
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "engine" in getattr(item, "fixturenames", ()):
            item.add_marker("engine")


@pytest.fixture(scope="session")
def known_of_engines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What mudroom keeps of engines, for the state directory of every test: it is found out once, in seconds."""
    return tmp_path_factory.mktemp("engines")


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, place: Place, known_of_engines: Path) -> Iterator[EngineHere]:
    """Each container engine of ``dev/engines``; nothing of the test's place is left in it afterwards."""
    found = EngineHere(request.param, environment(request.param))
    for kept in known_of_engines.iterdir():
        shutil.copytree(kept, place.state / kept.name)
    yield found
    place.close()
    for name in ("runtime", "engines"):
        if (place.state / name).is_dir() and not (known_of_engines / name / request.param).exists():
            shutil.copytree(place.state / name, known_of_engines / name, dirs_exist_ok=True)
            (known_of_engines / f"{name}/{request.param}").touch()
    left = found.left(place.root)
    for name in left:
        found.ask("rm", "--force", name, check=False)
    assert left == [], "containers are left"
