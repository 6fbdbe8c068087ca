"""``mudroom run --root`` and ``--home``: what is printed, chosen by path, applied and undone."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from box import if_namespaces
from conftest import Place, environment, listing
from forked import run

pytestmark = if_namespaces


@pytest.fixture
def lib(place: Place) -> Path:
    path = place.root / "lib"
    path.mkdir()
    (path / "code").write_text("one\n")
    (place.home / ".bashrc").write_text("a\n")
    return path


def mudroom(place: Place, *words: str) -> subprocess.CompletedProcess[str]:
    return run(list(words), cwd=place.project, env=environment(place))


NEEDS = "a second project or the home beside the first needs a kernel overlay at level 1; found"
SCRIPT = "echo p > p; echo two >> ../lib/code; echo b >> ~/.bashrc; echo n > ~/.new"


def test_the_parts_are_shown_chosen_applied_and_undone(place: Place, lib: Path) -> None:
    before = listing(place.home), listing(lib)
    ran = mudroom(place, "run", "--json", "--root", "../lib", "--home", "--", "sh", "-c", SCRIPT)
    report = json.loads(ran.stdout)
    assert {root["path"]: root["home"] for root in report["roots"]} == {str(place.home): True, str(lib): False}
    fork = report["fork"]
    (row,) = json.loads(mudroom(place, "ls", "--json").stdout)["forks"]
    assert set(row["also_in"]) == {"your home", str(lib)}
    shown = mudroom(place, "diff", fork).stdout
    assert "# in your home:" in shown
    assert f"# in {lib}:" in shown
    assert "+two" in shown
    assert ".new" in mudroom(place, "diff", fork, "--stat").stdout
    look = json.loads(mudroom(place, "diff", fork, "--json").stdout)
    assert look["reviewed"].count("+") == 2
    some = mudroom(place, "apply", fork, "--yes", "~/.new", "../lib")
    assert "in your home: 1 written" in some.stderr
    assert (place.home / ".bashrc").read_text() == "a\n"
    assert (lib / "code").read_text() == "one\ntwo\n"
    assert not (place.project / "p").exists()
    rest = mudroom(place, "apply", fork, "--yes", "--json")
    assert [root["written"] for root in json.loads(rest.stdout)["roots"]] == [1]
    assert (place.project / "p").exists()
    assert "in your home:" in mudroom(place, "undo").stderr
    undone = json.loads(mudroom(place, "undo", "--json").stdout)
    assert {root["root"] for root in undone["roots"]} == {"your home", str(lib)}
    assert (listing(place.home), listing(lib)) == before


def test_a_fork_with_parts_is_run_in_again_and_applied_by_whole_files(place: Place, lib: Path) -> None:
    fork = json.loads(mudroom(place, "run", "--json", "--root", "../lib", "--", "sh", "-c", SCRIPT).stdout)["fork"]
    assert mudroom(place, "exec", "--fork", fork, "--", "true").returncode == 0
    assert f"-p does not show the changes in {lib}" in mudroom(place, "apply", fork, "-p").stderr
    assert mudroom(place, "discard", fork).returncode == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--root", "../nowhere"], "nowhere does not exist"),
        (["--root", "."], "lies in the project, which is staged as a whole"),
        (["--root", ".."], "lies in"),
        (["--home", "--level", "0"], f"{NEEDS}: level 0"),
        (["--home", "--view", "copy"], f"{NEEDS}: mode copy"),
        (["--home", "--on", "w"], "--root and --home stage directories of this machine, not of a worker"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_staged_is_said(place: Place, lib: Path, words: list[str], said: str) -> None:
    ran = mudroom(place, "run", *words, "--", "true")
    assert ran.returncode
    assert said in ran.stderr
    assert not list((next(place.state.glob("vaults/project*")) / "forks").iterdir())
