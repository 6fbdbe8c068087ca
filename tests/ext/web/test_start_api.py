"""Choosing a folder for a new session, as somebody would who means ill: nothing but what is below a root is shown,
measured or made a project."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from asking import Asked, folder

from conftest import Place
from mudroom.core.settings import Settings
from mudroom.ext.web.api.endpoint import id_of
from mudroom.ext.web.cli import new_project


@pytest.fixture
def work(place: Place) -> Path:
    """The only root."""
    path = place.root / "work"
    path.mkdir()
    return path


@pytest.fixture
def ask(place: Place, work: Path) -> Asked:
    return Asked(place, roots=(os.fsencode(work),))


def names(found: Any) -> list[str]:
    return [one["name"] for one in found["folders"]]


def test_from_the_roots_down_and_up_again(ask: Asked, work: Path) -> None:
    (work / "a" / "deep").mkdir(parents=True)
    (work / ".hidden").mkdir()
    (work / "Zed").mkdir()
    (work / "a" / "package.json").write_text("{}")
    (work / "file").write_text("")
    roots = ask.get("/folders")
    assert (roots["at"], roots["above"], [one["path"] for one in roots["folders"]]) == (None, None, [str(work)])
    top = ask.get("/folders", at=roots["folders"][0]["id"])
    assert (names(top), top["above"], top["more"], top["refused"]) == (["a", "Zed", ".hidden"], "", 0, "")
    assert [one["is_project"] for one in top["folders"]] == [True, False, False]
    inner = ask.get("/folders", at=top["folders"][0]["id"])
    assert (names(inner), inner["above"], inner["at"]["name"]) == (["deep"], top["at"]["id"], "a")


@pytest.mark.parametrize(
    "path",
    [
        "{root}", "/", "", "relative", "{work}/..", "{work}/../home", "{work}/a/../..", "{work}x", "{work}/a/.",
        "{work}//a",
        "{work}/a/", "/proc/self/cwd", "{root}/project", "{work}/\0", "{work}/a\0/..",
    ],
)  # fmt: skip
def test_what_is_not_below_a_root(ask: Asked, work: Path, path: str) -> None:
    (work / "a").mkdir()
    (ask.place.root / "workx").mkdir()
    identity = folder(path.format(root=ask.place.root, work=work).encode())
    wanted = {(403, "forbidden"), (400, "bad-request")}
    if identity:
        assert ask.refused("GET", "/folders", at=identity)[:2] in wanted
    assert ask.refused("POST", "/folders/measure", {"id": identity})[:2] in wanted
    assert ask.refused("POST", "/projects", {"id": identity})[:2] in wanted


@pytest.mark.parametrize("identity", ["!", "a=b", "../..", "AAAAA", "\u00e9", "x" * 9000, "%2e"])
def test_what_is_no_id(ask: Asked, identity: str) -> None:
    assert ask.refused("GET", "/folders", at=identity)[:2] == (400, "bad-request")
    assert ask.refused("POST", "/projects", {"id": identity})[:2] == (400, "bad-request")


def test_links_out_of_the_roots_are_named_and_never_followed(ask: Asked, work: Path) -> None:
    (work / "out").symlink_to(ask.place.project)
    (work / "a").mkdir()
    (work / "a" / "further").symlink_to("/")
    (work / "loop").symlink_to("loop")
    top = ask.get("/folders", at=folder(work))
    assert {one["name"]: one["problem"] for one in top["folders"]} == {
        "a": "", "out": "a symbolic link, which is not followed",
    }  # fmt: skip
    for path in (work / "out", work / "a" / "further", work / "a" / "further" / "etc", work / "loop"):
        assert ask.refused("GET", "/folders", at=folder(path))[:2] == (404, "not-found")
        assert ask.refused("POST", "/folders/measure", {"id": folder(path)})[:2] == (404, "not-found")
        assert ask.refused("POST", "/projects", {"id": folder(path)})[:2] == (404, "not-found")


def test_files_and_what_is_gone(ask: Asked, work: Path) -> None:
    (work / "file").write_text("secret")
    os.mkfifo(work / "fifo")
    for name in ("file", "fifo", "gone", "file/x"):
        assert ask.refused("GET", "/folders", at=folder(work / name))[:2] == (404, "not-found")
        assert ask.refused("POST", "/folders/measure", {"id": folder(work / name)})[:2] == (404, "not-found")


ODD = [b"new\nline", b"<img src=x onerror=alert(1)>", b"\xff\xfe", "\u202egnp".encode(), b"a b "]


@pytest.mark.parametrize("name", ODD)
def test_names_of_any_kind_work_from_end_to_end(ask: Asked, work: Path, name: bytes) -> None:
    path = os.fsencode(work) + b"/" + name
    os.mkdir(path)
    os.mkdir(path + b"/" + name)
    with open(path + b"/.env", "w") as stream:
        stream.write("KEY=1")
    (row,) = ask.get("/folders", at=folder(work))["folders"]
    assert row["name"].isprintable()
    assert row["id"] == id_of(path)
    assert len(ask.get("/folders", at=row["id"])["folders"]) == 1
    assert ask.post("/folders/measure", {"id": row["id"]})["secrets"] == [".env"]
    made = ask.post("/projects", {"id": row["id"]})
    assert ask.get("/projects/" + made["id"])["path"] == row["path"]
    (again,) = ask.get("/folders", at=folder(work))["folders"]
    assert again["vault"] == made["id"]
    assert ask.post("/projects", {"id": row["id"]})["id"] == made["id"]  # twice is once


def test_many_folders(ask: Asked, work: Path) -> None:
    for number in range(new_project.MOST + 7):
        (work / f"d{number:04}").mkdir()
    found = ask.get("/folders", at=folder(work))
    assert (len(found["folders"]), found["more"]) == (new_project.MOST, 7)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_folders_that_we_may_not_read(ask: Asked, work: Path) -> None:
    (work / "closed").mkdir(0)
    (row,) = ask.get("/folders", at=folder(work))["folders"]
    assert row["problem"] == "permission denied"
    assert ask.refused("GET", "/folders", at=row["id"])[:2] == (404, "not-found")
    (note,) = ask.post("/folders/measure", {"id": folder(work)})["notes"]
    assert note.startswith("1 directories cannot be read")


def test_what_cannot_be_a_project_is_said_in_words(place: Place) -> None:
    place.state.mkdir(exist_ok=True)
    (place.state / "inner").mkdir()
    ask = Asked(place)
    for path, word in (
        (place.home, "your home directory is in it"), (place.root, "your home directory is in it"),
        (place.state / "inner", "mudroom's own state"),
    ):  # fmt: skip
        assert word in ask.get("/folders", at=folder(path))["refused"]
        assert word in ask.refused("POST", "/folders/measure", {"id": folder(path)})[2]
        assert word in ask.refused("POST", "/projects", {"id": folder(path)})[2]
    assert not (place.state / "vaults").exists()


def test_a_measure_writes_nothing(ask: Asked, work: Path) -> None:
    (work / "p" / "__pycache__").mkdir(parents=True)
    (work / "p" / "__pycache__" / "x.pyc").write_bytes(b"x" * 70_000)
    (work / "p" / "a.txt").write_text("hello")
    (work / "p" / "key.pem").write_text("-")
    found = ask.post("/folders/measure", {"id": folder(work / "p")})
    assert (found["files"], found["size"], found["complete"], found["copied"]) == (3, 70_006, True, 6)
    assert [(one["path"], one["text"]) for one in found["excluded"]] == [("__pycache__", "0.1 MB")]
    assert (found["secrets"], found["secrets_total"]) == (["key.pem"], 1)
    assert (found["badge"]["level"], found["badge"]["safe"], found["view"]) == (1, True, "overlay")
    assert not (ask.place.state / "vaults").exists()
    assert sorted(one.name for one in (work / "p").iterdir()) == ["__pycache__", "a.txt", "key.pem"]


def test_the_policy_of_the_folder_counts(ask: Asked, work: Path) -> None:
    (work / "p" / ".mudroom").mkdir(parents=True)
    policy = "run: {level: 0}\ncopy: {exclude: [big], limit: 1MB}\nsecrets: {show: [key.pem]}\n"
    (work / "p" / ".mudroom" / "policy.yaml").write_text(policy)
    (work / "p" / "big").write_bytes(b"x" * 5_000_000)
    (work / "p" / "key.pem").write_text("-")
    found = ask.post("/folders/measure", {"id": folder(work / "p")})
    assert [one["path"] for one in found["excluded"]] == ["big"]
    assert found["secrets"] == []
    assert (found["badge"]["level"], found["badge"]["safe"]) == (0, False)


def test_a_measure_has_an_end(work: Path) -> None:
    for number in range(40):
        (work / f"d{number}" / "x").mkdir(parents=True)
    late = iter([0.0, 0.0, 0.0, *([9.0] * 999)])
    descriptor = os.open(work, os.O_RDONLY)
    try:
        assert new_project.measure(descriptor, Settings(), lambda: next(late)).complete is False
    finally:
        os.close(descriptor)


def test_the_folder_that_was_chosen_and_no_other(ask: Asked, work: Path) -> None:
    """Another one comes into its place between the look and the making."""
    (work / "p").mkdir()
    really = ask.server.environment.open

    def swapped(path: bytes) -> Any:
        (work / "p").rename(work / "old")
        (work / "p").symlink_to(ask.place.project)
        return really(path)

    ask.server.environment = ask.server.environment._replace(open=swapped)
    assert ask.refused("POST", "/projects", {"id": folder(work / "p")})[:2] == (409, "moved")


@pytest.mark.parametrize("swap", [lambda path: None, lambda path: path.mkdir()], ids=["gone", "another"])
def test_a_folder_that_goes_meanwhile(ask: Asked, work: Path, swap: Callable[[Path], None]) -> None:
    (work / "p").mkdir()
    really = ask.server.environment.open

    def swapped(path: bytes) -> Any:
        (work / "p").rename(work / "old")
        swap(work / "p")
        return really(path)

    ask.server.environment = ask.server.environment._replace(open=swapped)
    status, code, _text = ask.refused("POST", "/projects", {"id": folder(work / "p")})
    assert (status, code) in ((409, "moved"), (400, "bad-request"))
