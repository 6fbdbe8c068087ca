"""Images made by programs that end in every way: an engine of the test's own."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

from mudroom.errors import MudroomError, UsageError
from mudroom.ext.containers.core.container import Engine
from mudroom.ext.containers.core.image import LABEL
from mudroom.ext.containers.core.image_recipe import Recipe
from mudroom.ext.containers.engine import building
from mudroom.ext.containers.engine.building import Workshop, build

pytestmark = pytest.mark.both_users

MARKS = {LABEL: "host"}
HOST = Recipe("host")


class Shop:
    def __init__(self, root: Path) -> None:
        self.root, self.bin = root, root / "bin"
        self.bin.mkdir()
        self.said: list[str] = []
        self.program("docker", 'echo "$@" >> calls; [ "$1" != import ] || cat > taken')

    def program(self, name: str, script: str) -> None:
        path = self.bin / name
        path.write_text(f"#!/bin/sh\ncd {self.root}\n{script}\n")
        path.chmod(0o755)

    def build(self, recipe: Recipe = HOST) -> str:
        variables = {b"PATH": os.fsencode(self.bin) + b":/usr/bin:/bin"}
        engine = Engine("docker", os.fsencode(self.bin / "docker"))
        place = os.fsencode(self.root / "state")
        shop = Workshop(engine, variables, place, lambda label, _done, _total: self.said.append(label))
        return build(shop, recipe, "x", MARKS)

    @property
    def calls(self) -> list[str]:
        return (self.root / "calls").read_text().splitlines()


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


@pytest.fixture
def empty_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "_SYSTEM", ())


def test_an_archive_goes_to_the_engine(shop: Shop, empty_host: None) -> None:
    assert shop.build() == ""
    with tarfile.open(shop.root / "taken") as archive:
        assert "var/tmp" in archive.getnames()
    assert [call.split()[0] for call in shop.calls] == ["import"]
    assert f'LABEL {LABEL}="host"' in shop.calls[0]
    assert shop.calls[0].endswith(" - x")


def test_an_engine_without_room(shop: Shop, empty_host: None) -> None:
    shop.program("docker", 'cat > /dev/null; echo "no space left on device" >&2; exit 1')
    with pytest.raises(MudroomError, match="docker: no space left on device"):
        shop.build()


def test_an_engine_that_ends_before_it_has_all(shop: Shop) -> None:
    shop.program("docker", 'echo "daemon is gone" >&2; exit 1')
    with pytest.raises(MudroomError, match="docker: daemon is gone"):
        shop.build()


def test_a_containerfile_without_context_copies_from_nothing(shop: Shop) -> None:
    (shop.root / "Containerfile").write_text("FROM scratch\n")
    shop.program("docker", 'echo "$@" > calls; for last; do :; done; ls "$last" > context')
    shop.build(Recipe("containerfile", file=os.fsencode(shop.root / "Containerfile")))
    assert "--network=none" in shop.calls[0]
    assert (shop.root / "context").read_text() == "Containerfile\n"


def test_a_containerfile_that_fails(shop: Shop) -> None:
    (shop.root / "Containerfile").write_text("FROM scratch\n")
    shop.program("docker", 'echo "I: one"; echo "E: no such suite" >&2; echo "I: cleaning"; exit 1')
    with pytest.raises(MudroomError, match="docker: E: no such suite") as caught:
        shop.build(Recipe("containerfile", file=os.fsencode(shop.root / "Containerfile")))
    assert caught.value.hint == f"full output: {shop.root}/state/build.log"
    assert "docker, lines" in shop.said
    assert [path.name for path in (shop.root / "state").iterdir()] == ["build.log"], "nothing half made is left"


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"\xff", "is not UTF-8 text, or longer than 1 MiB"), (b"FROM $X\n", r"builds on \$X, which a variable names")],
)
def test_a_containerfile_that_is_none(shop: Shop, content: bytes, message: str) -> None:
    (shop.root / "F").write_bytes(content)
    with pytest.raises(UsageError, match=message):
        shop.build(Recipe("containerfile", file=os.fsencode(shop.root / "F")))
