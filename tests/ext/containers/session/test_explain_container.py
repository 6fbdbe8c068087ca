"""``run --level 2 --explain`` tells of the container, and of the mode that a command would really have there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from conftest import Place
from engines import SOURCE, EngineHere
from mudroom.ext.containers.core.container import Engine
from mudroom.ext.containers.engine.engine import choose
from mudroom.ext.containers.engine.trial import keep, recall

pytestmark = [pytest.mark.both_users, pytest.mark.root]

INFO = {"ServerVersion": "28.1", "OSType": "linux", "KernelVersion": os.uname().release, "MemoryLimit": True}
LEVEL_2 = ("run", "--level", "2", "--explain")


class Fake:
    """A Docker that says what it is, and starts nothing."""

    def __init__(self, place: Place) -> None:
        self.place, self.bin = place, place.root / "bin"
        self.bin.mkdir()
        self.mark = place.root / "started"
        self.says(INFO)
        self.environ = {
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "HOME": str(place.home),
            "DOCKER_HOST": "unix:///nobody/is/here",
        }

    def says(self, info: dict[str, Any]) -> None:
        path = self.bin / "docker"
        path.write_text(f"#!/bin/sh\n[ \"$1\" = info ] && echo '{json.dumps(info)}' && exit\n: >{self.mark}; exit 1\n")
        path.chmod(0o755)

    def __call__(self, *words: str) -> str:
        more = {"MUDROOM_KEEPER": "0", "MUDROOM_STATE": str(self.place.state), "PYTHONPATH": str(SOURCE)}
        argv = [sys.executable, "-m", "mudroom", *words, "--", "true"]
        environ = {**self.environ, **more}
        done = subprocess.run(argv, cwd=self.place.project, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert not self.mark.exists(), "nothing is run"
        return done.stdout

    def tried(self, *, nested: bool) -> None:
        environ = {os.fsencode(key): os.fsencode(value) for key, value in self.environ.items()}
        engine = choose(environ, "docker")
        assert recall(engine, environ, os.fsencode(self.place.state)) is None
        keep(engine, engine._replace(nested=nested), environ, os.fsencode(self.place.state))
        known = recall(engine, environ, os.fsencode(self.place.state))
        assert isinstance(known, Engine)
        assert known.nested is nested


@pytest.fixture
def fake(place: Place) -> Fake:
    return Fake(place)


def test_it_begins_with_the_container(fake: Fake) -> None:
    first, inside, untried, namespaces, *_steps = fake(*LEVEL_2).splitlines()
    user = os.geteuid() or 65532
    assert first == (
        f"in a container of Docker 28.1, made from the host's own toolchain, as user {user}: no network but its own "
        "loopback, no capability, no way to gain one, a read-only root, /tmp, /run, /var/tmp in memory"
    )
    assert inside.endswith("with a staged view" if os.geteuid() else "with a staged copy of the project")
    assert untried.startswith("no container has been started with this engine yet")
    assert namespaces.startswith("namespaces: user, mount")


def test_what_was_tried_is_known(fake: Fake) -> None:
    fake.tried(nested=True)
    assert fake(*LEVEL_2).splitlines()[2].startswith("namespaces: user, mount")


def test_without_namespaces_in_containers(fake: Fake) -> None:
    fake.tried(nested=False)
    _first, inside, namespaces, *steps = fake(*LEVEL_2).splitlines()
    assert inside.startswith("in it, no namespaces of the command's own: a staged copy")
    assert namespaces == "namespaces: none"
    assert any(f"the container shows {fake.place.state}" in step for step in steps)


def test_as_json(fake: Fake) -> None:
    fake.tried(nested=False)
    found = json.loads(fake(*LEVEL_2, "--json"))
    assert (found["schema"], found["level"], found["mode"]) == ("mudroom.explain/1", 2, "plain")
    assert found["container"] == {
        "engine": "docker",
        "version": "28.1",
        "rootless": False,
        "image": None,
        "user": os.geteuid() or 65532,
        "tried": True,
    }
    assert found["lines"][0].startswith("in a container of Docker 28.1")
    level_1 = json.loads(fake("run", "--explain", "--json"))
    assert (level_1["level"], level_1["container"]) == (1, None)
    assert level_1["lines"][0].startswith("namespaces: ")


def test_with_an_engine(place: Place, engine: EngineHere) -> None:
    """It says beforehand what is done afterwards."""
    done = engine.mudroom(place, "run", "--no", "--level", "2", "--json", "--", "true")
    assert done.returncode == 0, done.stderr
    found = json.loads(engine.mudroom(place, *LEVEL_2, "--json", "--", "true").stdout)
    assert found["container"]["tried"]
    assert found["container"]["engine"] == engine.kind
    assert found["mode"] in ("overlay", "copy", "plain")
