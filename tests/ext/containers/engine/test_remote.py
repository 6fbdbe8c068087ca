"""Containers that only a command line reaches, tried with an engine that is near."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from conftest import Place
from engines import EngineHere
from mudroom.core.confinement.container import user_of
from mudroom.core.confinement.plan import Plan
from mudroom.core.confinement.spec import Bind, Copy, SandboxSpec
from mudroom.errors import MudroomError, Unsupported
from mudroom.ext.containers.core.container import (
    Container,
    ContainerMount,
    Engine,
    exec_argv,
    session_argv,
    variable_lines,
)
from mudroom.ext.containers.engine.engine import choose
from mudroom.ext.containers.engine.image import provide_host_image
from mudroom.ext.containers.engine.plain_plan import compile_remote
from mudroom.ext.containers.engine.remote import RemoteBox, start_remote
from mudroom.sandbox.client.client import Client
from mudroom.sandbox.client.invocation import Exit, Invocation, RunOptions
from tiers import each

pytestmark = pytest.mark.both_users

DOCKER = Engine("docker", b"/usr/bin/docker", remote=True)
BOX = Container("mudroom-x", "image", (b"cat",), (1000, 1000))


def test_variables_are_in_no_list_of_processes_and_nothing_to_the_command_line() -> None:
    words = exec_argv(DOCKER, "mudroom-x", [b"make", b"-k"], b"/home/u/p", b"/state/variables/x", terminal=True)
    assert words == (
        b"/usr/bin/docker", b"exec", b"--interactive", b"--tty", b"--workdir", b"/home/u/p", b"--env-file",
        b"/state/variables/x", b"mudroom-x", b"make", b"-k",
    )  # fmt: skip
    assert variable_lines({b"A": b"b c", b"E": b""}) == b"A=b c\nE=\n"


@each("env", [{b"A": b"b\nLD_PRELOAD=x"}, {b"A\n": b"b"}, {b"#A": b"b"}, {b"A": b"b\rc"}])
def test_what_has_no_place_in_a_line_is_refused(env: dict[bytes, bytes]) -> None:
    with pytest.raises(ValueError, match=r"has a line end in it|begins with #"):
        variable_lines(env)


def test_it_ends_with_its_command_line() -> None:
    words = session_argv(DOCKER, BOX)
    assert words[:3] == (b"/usr/bin/docker", b"run", b"--interactive")
    assert b"--rm" in words and b"--detach" not in words and b"--network=none" in words


def test_the_plan() -> None:
    project, work = b"/Users/u/p", b"/Users/u/state/copy/work"
    spec = SandboxSpec(
        project, Copy(work), project + b"/d", b"/Users/u", b"", namespaces=False, network="gate", proxy=4711,
        binds=(Bind(b"/state/cache", b"/Users/u/.npm", writable=True),),
    )  # fmt: skip
    plan = compile_remote(spec)
    assert [step[0] for step in plan.steps] == ["view", "terminal", "umask", "cwd"]
    assert plan.mounts == ((b"/state/cache", b"/Users/u/.npm", True), (work, project, True))
    assert (plan.cwd, plan.gate, plan.memory) == (project + b"/d", 4711, (b"/Users/u",))
    assert compile_remote(spec._replace(network="none")).gate == 0


class Remote:
    """One container after another, of the host's own system."""

    def __init__(self, engine: EngineHere, place: Place, client: Client) -> None:
        self.environ = {os.fsencode(key): os.fsencode(value) for key, value in engine.environ.items()}
        self.engine, self._client, self._place = choose(self.environ, engine.kind), client, place
        self.image = provide_host_image(self.engine, self.environ)
        self.boxes: list[RemoteBox] = []
        place.project.chmod(0o777)

    def start(self, gate: int = 0, **changes: Any) -> RemoteBox:
        work = os.fsencode(self._place.project)
        shown = [path for path in (b"/usr", b"/bin", b"/lib", b"/lib64", b"/etc") if not os.path.islink(path)]
        mounts = (
            *(ContainerMount(path, path) for path in shown if os.path.isdir(path)),
            ContainerMount(work, b"/work", True),
        )
        name = f"mudroom-test-{os.getpid()}-{len(self.boxes)}"
        user = user_of(os.geteuid(), os.getegid())
        box = Container(name, self.image, (), user, mounts, labels=(("mudroom", "1"),), nested=False)
        made = start_remote(
            self.engine, box._replace(**changes), self._client, os.fsencode(self._place.state), self.environ, gate
        )
        self.boxes.append(made)
        return made

    def sh(self, box: RemoteBox, script: str) -> tuple[Exit, bytes]:
        read, write = os.pipe()
        plan = Plan(0, (b"", b"", False), (("cwd", b"/"),), cwd=b"/work")
        env = {b"PATH": b"/usr/bin:/bin", b"HOME": b"/tmp", b"SECRET": b"s e c"}
        try:
            running = box.client.run(plan, Invocation([b"/bin/sh", b"-c", script.encode()], env, (0, write, write)))
        finally:
            os.close(write)
        with open(read, "rb") as stream:
            said = stream.read()
        return running.wait(), said


@pytest.fixture
def remote(engine: EngineHere, place: Place, client: Client) -> Iterator[Remote]:
    found = Remote(engine, place, client)
    yield found
    for box in found.boxes:
        box.close()


def test_a_command(remote: Remote, place: Place) -> None:
    box = remote.start()
    script = 'echo "$SECRET|$HOME"; pwd; echo x > new; cut -d: -f1 /proc/net/dev | tail -n +3; exit 7'
    ended, said = remote.sh(box, script)
    assert (ended.status >> 8, said) == (7, b"s e c|/tmp\n/work\n    lo\n")
    assert (place.project / "new").read_text() == "x\n"
    assert box.is_healthy()
    assert [path.stat().st_mode & 0o777 for path in (place.state / "variables").iterdir()] == [0o600]
    box.close()
    assert not box.is_healthy()
    assert list((place.state / "variables").iterdir()) == []


def test_variables_of_a_killed_mudroom_go(remote: Remote, place: Place) -> None:
    left = place.state / "variables" / "mudroom-abc-4194304-19a-1"  # beyond the greatest number that a process has
    left.parent.mkdir(parents=True)
    left.write_text("SECRET=x")
    remote.start()
    assert not left.exists()


def test_the_gate_is_reached_and_nothing_else(remote: Remote) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gate:
        gate.settimeout(30)
        heard: list[bytes] = []

        def answer() -> None:
            peer, _address = gate.accept()
            with peer:
                heard.append(peer.recv(4096))
                peer.sendall(b"HTTP/1.1 403 No\r\nContent-Length: 3\r\n\r\nno\n")

        thread = threading.Thread(target=answer)
        thread.start()
        box = remote.start(gate.getsockname()[1])
        asked = "curl -sS -m 20 -x http://127.0.0.1:3128 http://example.com/"
        _ended, said = remote.sh(box, asked + "; curl -sS -m 5 http://93.184.216.34/; echo $?")
        thread.join(30)
    assert heard[0].startswith(b"GET http://example.com/ HTTP/1.1\r\n")
    lines = said.splitlines()
    assert (lines[0], lines[-1]) == (b"no", b"7")


def test_it_is_gone_when_its_command_line_is(remote: Remote, engine: EngineHere, place: Place) -> None:
    box = remote.start()
    box._first.kill()
    assert engine.left(place.root) == []


def test_an_image_without_what_it_takes(remote: Remote, place: Place) -> None:
    empty = place.root / "empty"
    empty.mkdir()
    with pytest.raises(MudroomError, match="did not come up") as caught:
        remote.start(1, mounts=(ContainerMount(os.fsencode(empty), b"/work"),))
    assert caught.value.hint == "with the gate an image needs python3"


def test_nothing_goes_on_in_the_background(remote: Remote) -> None:
    box = remote.start()
    with pytest.raises(Unsupported, match="background at level 2"):
        box.client.run(Plan(0, (b"", b"", False), ()), Invocation([b"true"], {}, (0, 1, 2)), RunOptions(held=True))
