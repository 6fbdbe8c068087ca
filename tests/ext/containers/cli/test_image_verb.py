"""``mudroom image`` as a user meets it: what is wrong is one line; what is made is listed, used and removed."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from conftest import Place
from engines import EngineHere
from engines import mudroom as mudroom_here
from test_images import BUSYBOX, is_static


def mudroom(place: Place, *words: str, path: str = "/nowhere") -> subprocess.CompletedProcess[str]:
    """Without an engine."""
    return mudroom_here(place, *words, environ={"PATH": path})


WRONG = [
    (("build", "--name", "A"), "the name 'A' is not the name of an image"),
    (("build", "--name", "host"), "the name 'host' means the host's own toolchain"),
    (("build", "--from", "containerfile"), "which Containerfile?"),
    (("build", "--from", "debootstrap"), "--from 'debootstrap': choose from host, containerfile"),
    (("build", "--network"), "--network is for --from containerfile"),
    ((), "image needs an action: build, ls, rm (mudroom image --help)"),
    (("build", "x"), "image build takes no name, 1 was given"),
    (("rm",), "image rm takes one name, none was given"),
    (("rm", "x", "y"), "image rm takes one name, 2 were given"),
    (("rm", "host"), "host is the host's own toolchain, no image: it cannot be removed"),
    (("rm", "A b"), "'A b' is not the name of an image"),
    (("ls", "--engine", "lxc"), "--engine 'lxc': choose from docker, podman, container"),
]


@pytest.mark.parametrize(("words", "message"), WRONG, ids=[" ".join(words) for words, _message in WRONG])
def test_what_is_wrong_is_one_line(place: Place, words: tuple[str, ...], message: str) -> None:
    done = mudroom(place, "image", *words)
    assert done.returncode == 125
    assert done.stderr.startswith(f"mudroom: {message}")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("words", [("ls",), ("build",), ("rm", "x")])
def test_without_an_engine(place: Place, words: tuple[str, ...]) -> None:
    done = mudroom(place, "image", *words)
    assert done.returncode == 125
    assert done.stderr.startswith(
        "mudroom: level 2 needs a container engine: Docker, Podman or Apple container; found: "
    )
    assert done.stderr.count("\n") == 1


def test_help_has_examples(place: Place) -> None:
    done = mudroom(place, "image", "--help")
    assert done.returncode == 0
    assert "mudroom image build --file Containerfile" in done.stdout


# --- with an engine ---


@pytest.fixture
def base(engine: EngineHere, tmp_path: Path) -> str:
    if not is_static(BUSYBOX):
        pytest.skip("there is no static busybox here (Debian: busybox-static)")
    root = tmp_path / "base"
    (root / "bin").mkdir(parents=True)
    (root / "bin/sh").write_bytes(BUSYBOX.read_bytes())
    (root / "bin/sh").chmod(0o755)
    name = f"mudroom-test-base-{os.getpid()}"
    packing = subprocess.run(["tar", "-C", str(root), "-c", "bin"], capture_output=True, check=True)
    loading = [engine.kind, "import", "-", name]
    subprocess.run(loading, input=packing.stdout, env=engine.environ, capture_output=True, check=True)
    return name


def test_a_containerfile_from_start_to_end(place: Place, engine: EngineHere, base: str) -> None:
    name = f"mudroom-test-made-{os.getpid()}"
    line = "while read a b; do case $a in eth0:) exit 1;; esac; done < /proc/net/dev; echo made > /made"
    text = f'FROM {base}\nENV WHO=me\nRUN ["/bin/sh", "-c", "{line}"]\n'
    place.write("Containerfile", text)
    try:
        made = engine.mudroom(place, "image", "build", "--file", "Containerfile", "--name", name, "--json")
        assert made.returncode == 0, made.stderr
        found = json.loads(made.stdout)
        assert (found["schema"], found["from"]) == ("mudroom.image/1", "containerfile")
        assert [one.rpartition("/")[2] for one in found["names"]] == [f"{name}:latest"]
        listed = json.loads(engine.mudroom(place, "image", "ls", "--json").stdout)
        assert (listed["schema"], listed["engine"]) == ("mudroom.images/1", engine.kind)
        assert found["id"] in [one["id"] for one in listed["images"]]
        ran = engine.mudroom(place, "run", "--image", name, "--no", "--", "sh", "-c", "read a < /made; echo $a $WHO")
        assert (ran.returncode, ran.stdout) == (0, "made me\n"), ran.stderr
        again = engine.mudroom(place, "image", "build", "--file", "Containerfile", "--name", base)
        assert again.returncode == 125
        assert again.stderr.startswith(f"mudroom: there is an image {base} that mudroom has not made")
        refused = engine.mudroom(place, "image", "rm", base)
        assert refused.stderr == f"mudroom: mudroom has made no image {base} (mudroom image ls lists them)\n"
        removed = engine.mudroom(place, "image", "rm", name)
        assert removed.returncode == 0, removed.stderr
        gone = engine.mudroom(place, "image", "rm", name)
        assert gone.returncode == 125
        assert gone.stderr.count("\n") == 1
    finally:
        engine.ask("image", "rm", "--force", name, base, check=False)


def test_what_a_containerfile_builds_on_is_not_pulled(place: Place, engine: EngineHere) -> None:
    place.write("Containerfile", "FROM nobody/has-this:1\n")
    done = engine.mudroom(place, "image", "build", "--file", "Containerfile", "--name", "x-y")
    assert done.returncode == 125
    assert "there is no image nobody/has-this:1 here: " in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_build_that_fails_says_its_last_words(place: Place, engine: EngineHere, base: str) -> None:
    place.write("Containerfile", f'FROM {base}\nRUN ["/bin/sh", "-c", "echo dead end; exit 3"]\n')
    try:
        done = engine.mudroom(place, "image", "build", "--file", "Containerfile", "--name", "x-y")
        assert done.returncode == 125
        assert done.stderr.count("\n") == 1
        assert "full output: " in done.stderr
        assert engine.ask("ps", "--all", "--quiet", f"--filter=ancestor={base}") == "", "no container is left of it"
        assert "dead end" in (place.state / "images/build.log").read_text()
    finally:
        engine.ask("image", "rm", "--force", base, check=False)
