"""What an engine beside a command needs: each lack is one line with the command that mends it."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import Place
from mudroom.core.settings import Settings
from mudroom.errors import MudroomError, Unsupported, UsageError
from mudroom.ext.engine import doctor, numbers, storage
from mudroom.sandbox.client.report import StepFailed

WITH_ENGINE = Settings(engine_beside=True)


@pytest.fixture
def complete(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine that has all, with the user 1234. Return its file of subordinate numbers."""
    file = tmp_path / "subuid"
    file.write_text("other:1:65536\nsomebody:200:100\nsomebody:100000:65536\n")
    real = numbers._range
    monkeypatch.setattr(numbers, "_range", lambda path, name: real(str(file), name))
    monkeypatch.setattr(numbers, "_name", lambda: "somebody")
    monkeypatch.setattr(shutil, "which", lambda name, path: f"/usr/bin/{name}")
    monkeypatch.setattr(numbers, "TUN", b"/dev/null")
    monkeypatch.setattr(numbers, "BRIDGES", ("/dev/null",))
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    monkeypatch.setattr(os, "getegid", lambda: 1235)
    return file


def test_the_first_range_that_is_large_enough_is_mapped(complete: Path) -> None:
    found = numbers.id_maps()
    assert found.outer[:3] == (b"1234 1234 1\n100000 100000 65536\n", b"1235 1235 1\n100000 100000 65536\n", False)
    assert found.inner[0] == b"0 1234 1\n1 100000 65536\n"
    assert found.nested[1] == b"0 0 1\n1 1 65536\n"
    assert numbers.lacking() == []


def test_a_user_may_be_named_by_number(complete: Path) -> None:
    complete.write_text("1234:300000:70000\n")
    assert numbers.id_maps().inner[0] == b"0 1234 1\n1 300000 70000\n"


@pytest.mark.parametrize("line", ["", "somebody:100000:5\n", "somebody:x:65536\n", "somebody\n", "\udcff\n"])
def test_a_user_without_numbers_is_told_how_to_get_some(complete: Path, line: str) -> None:
    complete.write_text(line, errors="surrogateescape")
    why = (
        "--engine needs podman, crun, slirp4netns, newuidmap and subordinate numbers; found: no "
        "65536 numbers of somebody in /etc/subuid"
    )
    with pytest.raises(Unsupported, match=why) as error:
        numbers.id_maps()
    assert error.value.hint == "sudo usermod --add-subuids 100000-165535 somebody"
    assert [fix.split()[2] for _what, fix in numbers.lacking()] == ["--add-subuids", "--add-subgids"]


@pytest.mark.parametrize(
    ("program", "package"),
    [("podman", "podman"), ("crun", "crun"), ("slirp4netns", "slirp4netns"), ("newuidmap", "uidmap")],
)
def test_a_missing_program_is_named_with_its_package(
    complete: Path, monkeypatch: pytest.MonkeyPatch, program: str, package: str
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, path: None if name == program else f"/usr/bin/{name}")
    with pytest.raises(Unsupported, match=f"found: no {program} ") as error:
        numbers.id_maps()
    assert error.value.hint == f"sudo apt install {package}"
    row = doctor.examine_engine()
    assert (row.state, row.found, row.fix) == ("missing", f"not here: {program}", f"sudo apt install {package}")


def test_a_closed_tunnel_device_is_named(complete: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers, "TUN", b"/nowhere/tun")
    with pytest.raises(Unsupported, match="found: no /nowhere/tun"):
        numbers.id_maps()


def test_a_machine_without_bridges_is_told_their_package(complete: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers, "BRIDGES", ("/nowhere/bridge",))
    assert numbers.lacking() == [("bridge", "sudo apt install containernetworking-plugins")]


def test_root_has_no_engine(complete: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(
        UsageError, match="--engine is not for root: a container's root would be the machine's"
    ) as error:
        numbers.id_maps()
    assert error.value.hint == "run mudroom as an ordinary user"
    assert doctor.examine_engine().state == "not probed"


def test_doctor_says_that_all_is_there(complete: Path) -> None:
    assert doctor.examine_engine().state == "strict"


def test_a_machine_that_makes_no_namespaces_is_refused(place: Place) -> None:
    failure = StepFailed("clone", errno.EPERM, "no namespaces")
    with pytest.raises(Unsupported, match="--engine needs user namespaces and the overlay view; found: ") as error:
        place.session().machine.confinement.weaker("overlay", failure, WITH_ENGINE)
    assert error.value.hint == "mudroom doctor"


@pytest.mark.parametrize(
    ("act", "why"),
    [
        (storage.remove, "cannot be removed: files of containers are in it"),
        (storage.own, "files of containers in .* cannot be given to you"),
    ],
)
def test_files_that_stay_a_container_s_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, act: Callable[[bytes], None], why: str
) -> None:
    monkeypatch.setattr(storage, "_as_root", lambda *_words: 256)
    with pytest.raises(MudroomError, match=why):
        act(os.fsencode(tmp_path))


def test_files_of_others_that_no_engine_has_made_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def lacks(*_words: bytes) -> int:
        raise Unsupported("--engine", "podman", "no podman", "sudo apt install podman")

    monkeypatch.setattr(storage, "_as_root", lacks)
    with pytest.raises(MudroomError, match="cannot be removed: others own files in it") as error:
        storage.remove(os.fsencode(tmp_path))
    assert error.value.hint == f"sudo rm -rf -- {tmp_path}"


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (WITH_ENGINE._replace(view="copy"), "--engine needs level 1, user namespaces and the overlay view"),
        (WITH_ENGINE._replace(level=0), "--engine needs level 1, user namespaces and the overlay view"),
        (WITH_ENGINE._replace(network="open"), "--engine is not for --net open: containers reach what the gate allows"),
    ],
)
def test_a_command_that_cannot_have_one_is_refused(place: Place, settings: Settings, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        place.session(settings).run([b"true"])
