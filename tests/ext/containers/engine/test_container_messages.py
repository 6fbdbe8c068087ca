"""Messages about engines, images and containers that fail, by programs of the test in the engine's place."""

from __future__ import annotations

import io
import json
import os
import platform
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from mudroom.core.confinement.plan import Plan
from mudroom.ext.containers.core.container import Container, Engine, EngineKind
from mudroom.ext.containers.core.image_recipe import Recipe
from mudroom.ext.containers.engine import box, image, remote, runtime, trial
from mudroom.ext.containers.engine.building import Workshop, build, pack_host
from mudroom.ext.containers.engine.image import provide_host_image
from mudroom.ext.containers.engine.image_file import inspect_image
from mudroom.ext.containers.engine.remote import RemoteClient, start_remote
from mudroom.sandbox.client.invocation import Invocation, RunOptions
from mudroom.sandbox.client.launcher_client import LauncherClient
from whole_text import told

pytestmark = pytest.mark.both_users

BOX = Container("mudroom-x-1-1", "image", (), (1000, 1000))
DOCTOR = "mudroom doctor looks for the cause"


class Fake:
    """An engine whose command line is a script of sh(1): ``$1`` is the engine's verb."""

    def __init__(self, root: Path, kind: EngineKind = "docker") -> None:
        self.root, self.bin = root, root / "bin"
        self.bin.mkdir()
        self.engine = Engine(kind, os.fsencode(self.bin / kind))
        self.environ = {b"PATH": os.fsencode(self.bin) + b":/usr/bin:/bin"}

    def does(self, script: str, program: str = "") -> None:
        path = self.bin / (program or self.engine.kind)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def build(self, recipe: Recipe) -> str:
        place = os.fsencode(self.root / "state")
        environ = {b"PATH": os.fsencode(self.bin)}
        return build(Workshop(self.engine, environ, place, lambda _kind, _done, _total: None), recipe, "x", {})


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    return Fake(tmp_path)


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """With a runtime, which takes a while to be made."""
    place = os.fsencode(tmp_path_factory.mktemp("state"))
    runtime.provide(place + b"/runtime")
    return place


# --- images ---


def test_apple_builds_its_images_itself(tmp_path: Path) -> None:
    assert told(lambda: Fake(tmp_path, "container").build(Recipe("host"))) == (
        "an image made by mudroom needs Docker or Podman; found: Apple container "
        "(container build makes one: container build --tag NAME DIRECTORY)"
    )


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "{file}: No such file or directory (mudroom image build --file FILE)"),
        ("FROM $X\n", "{file} builds on $X, which a variable names (--network lets the engine pull it)"),
        ("FROM\n", "{file} has a FROM that names nothing (--network lets the engine pull it)"),
        (
            "FROM debian\n",
            "{file}: there is no image debian here: docker: No such image: debian "
            "(pull it with docker pull debian, or --network lets the engine do that)",
        ),
    ],
)
def test_a_containerfile(fake: Fake, content: str | None, why: str) -> None:
    file = fake.root / "F"
    if content is not None:
        file.write_text(content)
    fake.does('echo "Error: No such image: debian" >&2; exit 1')
    said = told(lambda: fake.build(Recipe("containerfile", file=os.fsencode(file))))
    assert said.replace("Error: ", "") == "the Containerfile " + why.format(file=file)


def test_an_engine_that_takes_no_image(fake: Fake) -> None:
    fake.does('[ "$1" = images ] || { cat > /dev/null; echo "no space left on device" >&2; exit 1; }')
    assert told(lambda: provide_host_image(fake.engine, fake.environ)) == (
        f"the image mudroom-host:2 cannot be made: docker: no space left on device ({DOCTOR})"
    )


def test_an_engine_that_hangs_while_it_takes_an_image(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was waited for without a limit."""
    monkeypatch.setattr(image, "PATIENCE", 0.2)
    fake.does('[ "$1" = images ] || exec tail -f /dev/null')
    assert told(lambda: provide_host_image(fake.engine, fake.environ)) == (
        "docker does not answer for 0 s (the engine hangs: restart it, or choose another one with container.engine)"
    )


@pytest.mark.parametrize(
    ("described", "found"),
    [
        ("no json", "is described by the engine in a way that is not understood"),
        ("[]", "is described by the engine in a way that is not understood"),
        (json.dumps([{"Id": "x", "Os": "windows"}]), "is made for windows, not for Linux"),
        (json.dumps([{"Id": "x", "Os": "linux", "Architecture": "s390x"}]), "is made for s390x, this machine is {}"),
    ],
)
def test_an_image_of_another_machine(fake: Fake, described: str, found: str) -> None:
    fake.does(f"echo '{described}'")
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    told_here = f"the image x needs an image for this machine; found: it {found.format(machine)}"
    assert (
        told(lambda: inspect_image(fake.engine, "x", fake.environ)) == f"{told_here} (choose another: container.image)"
    )


class Shrinking(io.BytesIO):
    """A stream whose reader empties a file meanwhile."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file = file

    def write(self, data: object) -> int:
        self.file.write_bytes(b"")
        return super().write(data)  # type: ignore[arg-type]


def test_files_that_cannot_be_packed(tmp_path: Path) -> None:
    (tmp_path / "usr").mkdir()
    file = tmp_path / "usr/large"
    file.write_bytes(bytes(1 << 20))
    with open("/dev/full", "wb", buffering=0) as full:
        said = told(lambda: pack_host(full, lambda _size: None, os.fsencode(tmp_path)))
        assert said == "the image cannot be packed: No space left on device (run the command again)"
    said = told(lambda: pack_host(Shrinking(file), lambda _size: None, os.fsencode(tmp_path)))
    assert said == "the image cannot be packed: unexpected end of data (run the command again)"


# --- containers ---


def test_a_container_whose_launcher_does_not_come(fake: Fake, state: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(box, "ARRIVAL", 0.0)
    monkeypatch.setattr(box, "SLICE", 0.0)
    fake.does(f'echo "$1" >> {fake.root}/asked')
    late = f"the container did not come up in 0 s ({DOCTOR})"
    before = set(os.listdir("/proc/self/fd"))
    assert told(lambda: box.start(fake.engine, BOX, state, fake.environ)) == late
    died = json.dumps({"Action": "die", "Actor": {"Attributes": {"exitCode": "3"}}})
    fake.does(f"""echo "$1" >> {fake.root}/asked; [ "$1" != events ] || echo '{died}'""")
    assert told(lambda: box.start(fake.engine, BOX, state, fake.environ)) == (
        "the container ended before its launcher came up: its engine says that it ended by itself or was killed from "
        f"outside (exit code 3) ({DOCTOR})"
    )
    asked = (fake.root / "asked").read_text().split()
    assert [verb for verb in asked if verb != "events"] == ["run", "rm"] * 2, "it is removed"
    assert os.listdir(state + b"/doors") == []
    assert set(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    ("script", "gate", "told_here"),
    [
        ("exit 1", 0, "the container did not come up: it printed no message (an image needs cat)"),
        (
            'echo "docker: exec: cat: not found" >&2; exit 127', 0,
            "the container did not come up: docker: exec: cat: not found (an image needs cat)",
        ),
        (
            'echo "docker: exec: python3: not found" >&2; exit 127', 9,
            "the container did not come up: docker: exec: python3: not found (with the gate an image needs python3)",
        ),
        ('[ "$1" = rm ] || exec tail -f /dev/null', 0, f"the container did not come up in 0 s ({DOCTOR})"),
    ],
)  # fmt: skip
def test_a_container_in_a_virtual_machine(
    fake: Fake, client: LauncherClient, monkeypatch: pytest.MonkeyPatch, script: str, gate: int, told_here: str
) -> None:
    if told_here.startswith("the container did not come up in"):
        monkeypatch.setattr(remote, "ARRIVAL", 0.0)
    fake.does(script)
    state = os.fsencode(fake.root / "state")
    before = set(os.listdir("/proc/self/fd"))
    assert told(lambda: start_remote(fake.engine, BOX, client, state, fake.environ, gate)) == told_here
    assert set(os.listdir("/proc/self/fd")) == before


def test_an_engine_that_closes_its_output_and_stays(
    fake: Fake, client: LauncherClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason was then waited for without a limit."""
    monkeypatch.setattr(remote, "ARRIVAL", 0.2)
    fake.does('[ "$1" = rm ] || { echo "no room" >&2; exec > /dev/null; exec tail -f /dev/null; }')
    said = told(lambda: start_remote(fake.engine, BOX, client, os.fsencode(fake.root / "state"), fake.environ))
    assert said.startswith("the container did not come up")


def test_what_an_engine_cannot_pass_on(fake: Fake, client: LauncherClient) -> None:
    far = RemoteClient(client, fake.engine, "x", fake.environ, os.fsencode(fake.root / "variables"))
    plan = Plan(0, (b"", b"", False), ())
    assert told(lambda: far.run(plan, Invocation([b"true"], {}, (0, 1, 2)), RunOptions(held=True))) == (
        "a command in the background at level 2 needs an engine whose containers run on this machine itself; found: "
        "one in a virtual machine (use level 1, or Docker on Linux)"
    )
    for variables, why in (
        ({b"A": b"b\nc"}, "the variable A has a line end in it"),
        ({b"#A": b"b"}, "the variable #A begins with #"),
    ):
        assert told(lambda: far.run(plan, Invocation([b"true"], variables, (0, 1, 2)))) == (  # noqa: B023 - called at once
            f"{why}, which engines do not accept (pass its value in a file, and leave it out: env -u NAME mudroom …)"
        )
    assert not (fake.root / "variables").exists()


def test_a_trial_without_an_answer(fake: Fake, state: bytes) -> None:
    before = set(os.listdir("/proc/self/fd"))
    rows = (
        ("", "started a container that printed nothing"),
        ("mudroom-trial 1 2", "started a container that printed an invalid report"),
        ("mudroom-trial 0 0 other-boot 0 0 1 2", ""),
    )
    for output, why in rows:
        fake.does(f"echo '{output}'")
        said = told(lambda: trial.attempt(fake.engine, "x", fake.environ, state))
        if why:
            assert said == (
                f"level 2 needs Docker to start a container; found: Docker {why} ({DOCTOR}; level 1 needs no engine)"
            )
        else:
            assert said == (
                "level 2 needs containers on this machine's own kernel; found: Docker runs them on another one "
                "(use an engine of this machine, or level 1)"
            )
    assert set(os.listdir("/proc/self/fd")) == before


# --- the runtime ---


@pytest.fixture
def small_files() -> Iterator[None]:
    """No file of this process becomes longer than a page, as with a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_without_room_for_the_runtime(tmp_path: Path, small_files: None) -> None:
    said = told(lambda: runtime.provide(os.fsencode(tmp_path / "runtime")))
    assert said.startswith("the runtime for containers cannot be made: ")
    assert said.endswith(
        "File too large (it is made below the state directory; another one: MUDROOM_STATE=/var/tmp/mudroom)"
    )
    assert list((tmp_path / "runtime").iterdir()) == []


def test_a_runtime_where_no_directory_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    place = tmp_path / "state/runtime"
    assert told(lambda: runtime.provide(bytes(place))) == (
        f"the runtime for containers cannot be made: {place}: Not a directory "
        "(it is made below the state directory; another one: MUDROOM_STATE=/var/tmp/mudroom)"
    )
