"""Level 2 where there is no engine: said before anything is made, in one line, and looked for by nobody else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from conftest import Place
from engines import SOURCE, mudroom
from mudroom.core.settings import Settings
from mudroom.errors import Unsupported
from mudroom.ext.containers.engine import engine
from whole_text import whole

CARD = {"agentId": "worker", "sandboxLevel": 2}


class Alone:
    """The command line on a PATH without engines."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.bin = place.root / "bin"
        self.bin.mkdir()
        for name in ("sh", "true", "git"):
            (self.bin / name).symlink_to(f"/usr/bin/{name}")
        place.write("f", "1\n")

    def mudroom(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return mudroom(self.place, *argv, environ={"PATH": str(self.bin)})

    def engine(self, name: str, script: str) -> None:
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)


@pytest.fixture
def alone(place: Place) -> Alone:
    return Alone(place)


def test_a_command(alone: Alone) -> None:
    done = alone.mudroom("run", "--level", "2", "--", "true")
    assert done.returncode == 125
    assert done.stderr == (
        "mudroom: level 2 of this command needs a container engine: Docker, Podman or Apple container; found: "
        "no docker on PATH; no podman on PATH; Apple container is for macOS "
        "(install Podman, which needs no daemon and no root: apt install podman uidmap)\n"
    )
    assert done.stdout == ""
    assert "run-" not in alone.mudroom("ls").stdout, "no fork is left"


def test_a_command_where_the_policy_names_an_engine(alone: Alone) -> None:
    """The other ones are not what it needs, and not what is in the way."""
    config = alone.place.home / ".config/mudroom"
    config.mkdir(parents=True)
    (config / "policy.yaml").write_text("container:\n  engine: docker\n")
    done = alone.mudroom("run", "--level", "2", "--", "true")
    assert done.returncode == 125
    assert done.stderr == (
        "mudroom: level 2 of this command needs the engine of the policy, Docker; found: no docker on PATH "
        "(install Docker; or container.engine: auto)\n"
    )


def test_a_command_in_a_sandbox_of_ours(alone: Alone) -> None:
    """What is in the way of each engine there is not what its user could mend."""
    program = alone.place.project / "look"
    code = "from mudroom.ext.containers.engine.engine import choose; choose({b'PATH': b'/nowhere'})"
    program.write_text(f"import sys; sys.path.insert(0, {str(SOURCE)!r})\n{code}\n")
    alone.place.home.mkdir(exist_ok=True)
    done = alone.mudroom("run", "--no", "--read", str(SOURCE), "--read", sys.prefix, "--", sys.executable, "look")
    assert (
        "mudroom.errors.Unsupported: level 2 needs a container engine: Docker, Podman or Apple container; found: a "
        "command in a sandbox of mudroom, where no engine is visible (outside of the sandbox: mudroom run --level 2)"
    ) in done.stderr


@pytest.mark.parametrize("first", ["systemd\n", "mudroom\n", None])
def test_a_process_that_is_in_no_sandbox_of_mudroom(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, first: str | None
) -> None:
    if first is not None:
        (tmp_path / "comm").write_text(first)
    monkeypatch.setattr(engine, "_FIRST", str(tmp_path / "comm"))
    assert not engine.is_sandboxed()


def test_an_agent(alone: Alone) -> None:
    card = alone.place.root / "card.json"
    card.write_text(json.dumps(CARD))
    checked = alone.mudroom("agent", "check", "--json", str(card))
    told = json.loads(checked.stdout)
    assert "no docker on PATH" in json.dumps(told)
    ran = alone.mudroom("agent", "run", str(card), "--", "true")
    assert ran.returncode == 125
    assert ran.stderr.startswith("mudroom: level 2 of the agent worker needs a container engine: Docker, Podman")
    assert ran.stderr.count("\n") == 1
    assert "worker" not in alone.mudroom("ls").stdout


def test_a_state_whose_path_engines_cannot_be_told(alone: Alone) -> None:
    info = json.dumps({**_INFO, "OperatingSystem": "Docker Desktop"})
    alone.engine("docker", f"case $1 in context) echo unix:///nobody/is/here;; info) echo '{info}';; esac")
    alone.place.state = alone.place.root / os.fsdecode(b"st\xff")
    done = alone.mudroom("run", "--level", "2", "--image", "x", "--", "true")
    told = (
        f"mudroom: level 2 needs paths that Docker can be told; found: {alone.place.root}/st\\xff: "
        "its name is not UTF-8, and engines are told names as text (rename it, or level 1)\n"
    )
    assert (done.returncode, done.stderr) == (125, told)


def test_the_network_of_the_host_is_not_for_containers(place: Place) -> None:
    session = place.session()
    settings, hint = Settings(network="open"), "mudroom net allow HOST opens what is needed; or --level 1"
    told = "the host's network needs level 1; found: level 2, whose containers have none"
    lent = session.machine.containers.lend(cast(Any, None), settings, "f", lambda: place._client)
    with pytest.raises(Unsupported, match=whole(f"{told} ({hint})")), lent:
        pass


@pytest.mark.parametrize("level", ["0", "1"])
def test_nobody_else_asks_for_one(alone: Alone, level: str) -> None:
    mark = alone.place.root / "asked"
    for name in ("docker", "podman"):
        alone.engine(name, f": >{mark}; exit 1")
    card = alone.place.root / "card.json"
    card.write_text(json.dumps({**CARD, "sandboxLevel": int(level)}))
    assert alone.mudroom("agent", "check", str(card)).returncode == 0
    assert alone.mudroom("run", "--no", "--level", level, "--", "true").returncode == 0
    assert not mark.exists()
    assert alone.mudroom("run", "--no", "--level", "2", "--", "true").returncode == 125
    assert mark.exists()


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("echo '{'", "docker prints { where it should print JSON"),
        ('echo \'{"ServerErrors": ["x"]}\'; exit 1', "no daemon of docker listens at /nobody/is/here"),
        ("kill -9 $$", "no daemon of docker listens at /nobody/is/here"),
    ],
)
def test_an_engine_that_is_broken(alone: Alone, script: str, says: str) -> None:
    alone.engine("docker", f'[ "$1" = context ] && echo unix:///nobody/is/here && exit; {script}')
    done = alone.mudroom("run", "--level", "2", "--", "true")
    assert done.returncode == 125
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr


_INFO = {
    "ServerVersion": "1", "OSType": "linux", "KernelVersion": os.uname().release, "SecurityOptions": [],
    "MemoryLimit": True,
}  # fmt: skip


@pytest.mark.parametrize(
    ("run", "says"),
    [
        ("echo 'docker: no space left on device.' >&2; exit 125", "found: docker: no space left on device."),
        ("exit 0", "a container that printed nothing"),
        ("echo mudroom-trial garbage; exit 0", "printed an invalid report"),
        ("echo mudroom-trial 1000 1 another-boot 0 0 1 2 lo; exit 0", "runs them on another one"),
    ],
)
def test_an_engine_that_starts_nothing(alone: Alone, run: str, says: str) -> None:
    (alone.bin / "info.json").write_text(json.dumps(_INFO))
    alone.engine(
        "docker",
        f'case "$1" in context) echo unix:///nobody/is/here;; info) while read -r line; do echo "$line"; done '
        f"<{alone.bin}/info.json; echo;; images) echo there;; run) {run};; esac",
    )
    (alone.bin / "info.json").write_text(json.dumps(_INFO) + "\n")
    done = alone.mudroom("run", "--level", "2", "--", "true")
    assert done.returncode == 125
    assert says in done.stderr, done.stderr
    assert done.stderr.count("\n") == 1
    assert "run-" not in alone.mudroom("ls").stdout, "no fork is left"
    assert not list(Path(alone.place.state).glob("engines/*")), "what failed is not remembered"
