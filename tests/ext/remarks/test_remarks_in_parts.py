"""Remarks about files in other projects and in the home that a fork has changed with its own."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from box import if_namespaces
from conftest import Place
from mudroom.errors import UsageError
from mudroom.ext.remarks.session import Remarks
from test_vault_verb import Cli

pytestmark = [pytest.mark.slow, if_namespaces, pytest.mark.both_users]
SCRIPT = "echo p > p; sed -i 's/two/zwei/' ../lib/code; rm ../lib/old; echo b >> ~/.bashrc"


@pytest.fixture
def lib(place: Place) -> Path:
    path = place.root / "lib"
    path.mkdir()
    (path / "code").write_text("one\ntwo\nthree\n")
    (path / "old").write_text("was\n")
    (path / ".env").write_text("KEY=1\n")
    (place.home / ".bashrc").write_text("a\n")
    return path


@pytest.fixture
def cli(place: Place, lib: Path) -> Cli:
    cli = Cli(place)
    done = cli("run", "--keep", "--root", str(lib), "--home", "--", "sh", "-c", SCRIPT)
    assert done.returncode == 0, done.stderr
    return cli


def fork(cli: Cli) -> str:
    ((name),) = [row["fork"] for row in cli.json("ls")["forks"]]
    return str(name)


def test_a_remark_names_a_file_of_another_project_as_programs_do(cli: Cli, lib: Path) -> None:
    name = fork(cli)
    for place, text in (("../lib/code:2", "why?"), (f"{lib}/old:1", "gone?"), ("~/.bashrc", "no"), ("p:1", "own")):
        done = cli("comment", name, *(["--old"] if place.endswith("old:1") else []), place, text)
        assert done.returncode == 0, done.stderr
    rows = cli.json("comment", name)["remarks"]
    home = cli.place.home
    assert [row["path"] for row in rows] == [f"{lib}/code", f"{lib}/old", f"{home}/.bashrc", "p"]
    assert [row["lines"] for row in rows] == [["zwei"], ["was"], [], ["p"]]
    prompt = cli("send", name, "--print").stdout
    assert f"about line 2 of {lib}/code" in prompt and "| 2: zwei" in prompt


def test_a_suggestion_lands_in_the_other_project_with_the_fork(cli: Cli, lib: Path) -> None:
    name = fork(cli)
    cli("comment", name, "../lib/code:2", "in English", "--suggest", "2")
    assert cli("comment", name, "--take", "r1").returncode == 0
    assert (lib / "code").read_text() == "one\ntwo\nthree\n"
    assert cli("apply", "--yes", name).returncode == 0
    assert (lib / "code").read_text() == "one\n2\nthree\n"


def test_the_second_round_shows_what_is_new_in_all_projects(cli: Cli, place: Place, lib: Path) -> None:
    name = fork(cli)
    cli("comment", name, "../lib/code:2", "why?")
    assert cli("send", name, "--wait").returncode == 0
    session = place.session()
    remarks = Remarks(session, name)
    assert remarks.new_since(remarks.listed()) == frozenset()
    cli("exec", "--fork", name, "--", "sh", "-c", "sed -i s/zwei/deux/ ../lib/code")
    listed = remarks.listed()
    assert remarks.new_since(listed) == frozenset([os.fsencode(lib / "code")])
    assert [(one.where, one.lines) for one in listed.remarks] == [("answered", (b"deux\n",))]


def test_what_is_in_no_project_of_the_fork_is_refused(cli: Cli, place: Place, lib: Path) -> None:
    name = fork(cli)
    for path in ("/etc/passwd:1", "../other/x", str(lib)):
        done = cli("comment", name, path, "hm")
        assert done.returncode == 125 and "Traceback" not in done.stderr, (path, done.stderr)
    assert "lines to show" in cli("comment", name, "../lib/.env:1", "a secret").stderr
    with pytest.raises(UsageError, match="no change at"):
        Remarks(place.session(), name).add(b"/etc/passwd", 1, 1, "hm")


def test_a_file_that_names_another_place_is_shown_and_not_read(cli: Cli, place: Place) -> None:
    """A script of the user may write remarks."""
    name = fork(cli)
    cli("comment", name, "p:1", "own")
    (stored,) = place.state.glob("vaults/*/forks/*/remarks/r1.json")
    written = json.loads(stored.read_text())
    stored.write_text(json.dumps(written | {"path": "/etc/hostname"}))
    (row,) = cli.json("comment", name)["remarks"]
    assert (row["path"], row["where"]) == ("/etc/hostname", "outdated")
    assert row["lines"] == ["p"], "as they were kept"
    stored.write_text(json.dumps(written | {"path": "/etc/../x"}))
    assert "not a path in a project" in cli.json("comment", name)["damaged"][0]
