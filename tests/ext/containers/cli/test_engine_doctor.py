"""What the doctor says of containers follows what an engine and a container of it have said."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from mudroom.cli.doctor.probe import ENGINE
from mudroom.core.settings import EngineChoice
from mudroom.ext.containers.cli.engine import (
    GATE,
    INSIDE,
    LIMITS,
    WALLS,
    examine_engines,
    inside,
    limits,
    walls,
)
from mudroom.ext.containers.core.container import Engine
from mudroom.ext.containers.engine.engine import current
from mudroom.ext.containers.engine.trial import ContainerTrial
from tiers import each

WELL = ContainerTrial(1000, True, "boot", 0, True, True, ("lo",))
DOCKER = Engine("docker", b"/usr/bin/docker", version="28")
INFO = {"ServerVersion": "28", "OSType": "linux", "KernelVersion": os.uname().release, "MemoryLimit": True}


@each(
    ("trial", "says"),
    [
        (WELL._replace(user=0), "its user is root"),
        (WELL._replace(capabilities=1), "capabilities are left"),
        (WELL._replace(gains_none=False), "privileges can be gained"),
        (WELL._replace(filtered=False), "no system call filter"),
        (WELL._replace(interfaces=("lo", "eth0")), "interfaces besides loopback"),
        (WELL._replace(interfaces=()), "interfaces besides loopback"),
    ],
)
def test_a_wall_that_is_not_there(trial: ContainerTrial, says: str) -> None:
    assert walls(WELL).state == "strict"
    row = walls(trial)
    assert (row.state, row.found) == ("missing", says)
    assert row.fix


def test_namespaces_in_containers() -> None:
    assert inside(DOCKER).state == "strict"
    row = inside(DOCKER._replace(nested=False))
    assert row.state == "degraded"
    assert "in a copy" in row.found
    assert "sysctl" in row.fix


@pytest.mark.parametrize(
    ("held", "state", "says"),
    [
        (("memory", "processes", "cpus"), "strict", "memory, processes, cpus: by its control groups"),
        (("memory",), "degraded", "memory held; processes, cpus not"),
        ((), "missing", "none held; memory, processes, cpus not"),
    ],
)
def test_limits(held: tuple[str, ...], state: str, says: str) -> None:
    row = limits(DOCKER._replace(limits=held))
    assert row.state == state
    assert says in row.found


def _environ(root: Path, **programs: str) -> dict[bytes, bytes]:
    for name, script in programs.items():
        (root / name).write_text(f"#!/bin/sh\n{script}\n")
        (root / name).chmod(0o755)
    return {b"PATH": os.fsencode(root), b"DOCKER_HOST": b"unix:///nobody/is/here"}


def _no_gate() -> tuple[str, str, str]:
    raise AssertionError("there is no container to ask")


def _rows(root: Path, environ: dict[bytes, bytes], wanted: EngineChoice = "auto") -> dict[str, tuple[str, str, str]]:
    state = root / "state"
    state.mkdir()
    found = examine_engines(os.fsencode(state), environ, _no_gate, wanted)  # type: ignore[arg-type]
    assert [row.protection for row in found] == [ENGINE, WALLS, INSIDE, GATE, LIMITS]
    return {row.protection: row[1:] for row in found}


def test_no_engine(tmp_path: Path) -> None:
    rows = _rows(tmp_path, _environ(tmp_path))
    assert rows[ENGINE][:2] == ("missing", "none is installed")
    assert "apt install podman" in rows[ENGINE][2]
    assert {rows[name][0] for name in (WALLS, INSIDE, GATE, LIMITS)} == {"not probed"}


def test_engines_that_do_not_answer(tmp_path: Path) -> None:
    rows = _rows(tmp_path, _environ(tmp_path, docker="exit 1", podman="echo no"))
    state, found, fix = rows[ENGINE]
    assert state == "missing"
    assert found == "no daemon of docker listens at /nobody/is/here; podman prints no where it should print JSON"
    assert fix.startswith("start it: sudo systemctl start docker; or is ")


def test_one_that_hangs_keeps_nobody_from_looking_at_the_next(tmp_path: Path) -> None:
    """The first one answers when the second one has been asked."""
    mark = tmp_path / "asked"
    environ = _environ(tmp_path, docker=f"until [ -e {mark} ]; do :; done; exit 1", podman=f": >{mark}; exit 1")
    assert "no daemon of docker listens" in _rows(tmp_path, environ)[ENGINE][1]


def test_an_engine_in_a_virtual_machine(tmp_path: Path) -> None:
    info = json.dumps({**INFO, "OperatingSystem": "Docker Desktop"})
    rows = _rows(tmp_path, _environ(tmp_path, docker=f"echo '{info}'"))
    assert rows[ENGINE][0] == "degraded"
    assert "in a virtual machine" in rows[ENGINE][1]


def test_an_engine_that_starts_nothing(tmp_path: Path) -> None:
    said = f"[ $1 = info ] && echo '{json.dumps(INFO)}' && exit; [ $1 = images ] && echo there && exit"
    script = f"{said}; echo no >&2; exit 1"
    rows = _rows(tmp_path, _environ(tmp_path, docker=script))
    assert rows[ENGINE][0] == "missing"
    assert rows[ENGINE][1] == "level 2 needs Docker 28 to start a container; found: docker: no"
    assert rows[GATE] == ("not probed", "no container could be started", "an engine first")


def test_an_engine_is_asked_once_for_the_rows_and_the_command_behind_them(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    environ = _environ(tmp_path, docker=f"[ $1 = info ] && echo >>{asked} && echo '{json.dumps(INFO)}' && exit; exit 1")
    _rows(tmp_path, environ)
    assert current(environ).kind == "docker"
    assert asked.read_text() == "\n"


def test_only_the_engine_of_the_policy_counts(tmp_path: Path) -> None:
    mark = tmp_path / "asked"
    environ = _environ(tmp_path, docker="exit 1", podman=f": >{mark}; exit 1")
    state, found, fix = _rows(tmp_path, environ, "docker")[ENGINE]
    assert state == "missing"
    assert found == "no daemon of docker listens at /nobody/is/here; container.engine is docker"
    assert fix == "start it: sudo systemctl start docker; or container.engine: auto"
    assert not mark.exists()


def test_an_engine_of_the_policy_that_is_not_installed(tmp_path: Path) -> None:
    _state, found, fix = _rows(tmp_path, _environ(tmp_path, docker="exit 1"), "podman")[ENGINE]
    assert found == "no podman on PATH; container.engine is podman"
    assert fix.endswith("apt install podman uidmap; or container.engine: auto")
