"""The search for a project's secrets: content, other names of an inode, links, and what a search costs."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mudroom.stage.source import OpenSource
from mudroom.stage.views import secret
from mudroom.stage.views.secret import Finder, files_at

pytestmark = pytest.mark.both_users

TOKEN = "//registry.example/:_authToken=s3cr3t-9471\n"
HARMLESS = "registry=https://registry.example/\n"


class Searched:
    def __init__(self, top: Path) -> None:
        self.project, self.index = top / "project", os.fsencode(top / "index")
        self.project.mkdir()
        self.finder = self.another()

    def another(self) -> Finder:
        """A finder as another process has it."""
        return Finder(os.fsencode(self.project), self.index)

    def write(self, name: str, text: str) -> Path:
        path = self.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def found(self, *show: bytes) -> list[str]:
        """What this finder, and one of another process, finds."""
        paths, complete = self.finder.find(show)
        assert complete and (paths, complete) == self.another().find(show)
        return [os.fsdecode(path) for path in paths]

    def others(self, finder: Finder) -> list[str]:
        paths = finder.find(())[0]
        with OpenSource(os.fsencode(self.project)) as source:
            return [os.fsdecode(path) for path in finder.other_names(files_at(source, paths))]


@pytest.fixture
def searched(tmp_path: Path) -> Searched:
    return Searched(tmp_path)


def test_content_decides_and_is_read_again_when_it_has_changed(searched: Searched) -> None:
    npmrc = searched.write("sub/.npmrc", HARMLESS)
    searched.write("ca.pem", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n")
    assert searched.found() == []
    assert searched.finder.harmless == {b"sub/.npmrc", b"ca.pem"}
    with npmrc.open("r+") as stream:  # in place: the directory does not change
        stream.write(TOKEN)
    assert searched.found() == ["sub/.npmrc"] and searched.finder.harmless == {b"ca.pem"}
    assert searched.found(b".npmrc") == [] and searched.finder.shown((b".npmrc",)) == {b"sub/.npmrc"}
    npmrc.write_text(HARMLESS)
    assert searched.found() == []
    npmrc.unlink()
    assert searched.found() == [] and searched.finder.harmless == {b"ca.pem"}


def test_what_cannot_be_read_is_a_secret(searched: Searched) -> None:
    npmrc = searched.write(".npmrc", HARMLESS)
    npmrc.write_text("#" * (1 << 20) + HARMLESS)
    assert searched.found() == [".npmrc"]
    npmrc.write_text(HARMLESS)
    npmrc.chmod(0)
    assert searched.found() == ([".npmrc"] if os.geteuid() else [])


def test_a_link_with_a_secrets_name_leads_to_a_secret(searched: Searched) -> None:
    searched.write("conf/production", "KEY=1\n")
    searched.write("conf/registry", HARMLESS)
    searched.write("conf/certificate", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n")
    outside = searched.project.parent / "outside"
    outside.write_text(TOKEN)
    for link, target in {
        ".env": "conf/next",
        "conf/next": "production",
        ".npmrc": "conf/registry",
        "a.pem": str(searched.project / "conf/certificate"),
        "b.pem": str(outside),
        "c.pem": "missing",
        "d.pem": "d.pem",
        "e.pem": "conf",
    }.items():
        (searched.project / link).symlink_to(target)
    assert searched.found() == ["conf/production"]
    (searched.project / "conf/registry").write_text(TOKEN)
    assert searched.found() == ["conf/production", "conf/registry"]
    assert searched.found(b".env") == ["conf/registry"] and searched.finder.shown((b".env",)) == {b"conf/production"}
    (searched.project / ".npmrc").unlink()
    assert searched.found() == ["conf/production"]


def test_other_names_of_a_secret_are_found(searched: Searched) -> None:
    env = searched.write(".env", "KEY=1\n")
    searched.write("sub/deep/file", "x\n")
    os.link(env, searched.project / "sub/deep/notes.txt")
    assert searched.others(searched.finder) == ["sub/deep/notes.txt"]
    os.link(env, searched.project / "sub/.env.local")
    os.link(env, searched.project / "sub/second")
    for finder in (searched.finder, searched.another()):
        assert searched.others(finder) == ["sub/second", "sub/deep/notes.txt"]
    (searched.project / "sub/second").unlink()
    (searched.project / "sub/deep/notes.txt").unlink()
    assert searched.others(searched.finder) == [], "all its names are secrets' names"


def test_other_names_are_found_among_files_of_others(searched: Searched, monkeypatch: pytest.MonkeyPatch) -> None:
    """No secret is searched for there, but a secret's inode is; its number of links says when to search again."""
    env = searched.write(".env", "KEY=1\n")
    searched.write("node_modules/a/b/file", "x\n")
    os.link(env, searched.project / "second")
    monkeypatch.setattr(secret, "is_settled", lambda _ctime, _now: True)
    assert searched.others(searched.finder) == ["second"]
    os.link(env, searched.project / "node_modules/a/b/notes.txt")
    for finder in (searched.finder, searched.another()):
        assert searched.others(finder) == ["second", "node_modules/a/b/notes.txt"]


def test_a_search_for_other_names_that_ends_at_its_bound_says_so(
    searched: Searched, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = searched.write(".env", "KEY=1\n")
    os.link(env, searched.project.parent / "backup")
    for number in range(5):
        searched.write(f"node_modules/{number}/file", "x\n")
    assert searched.others(searched.finder) == [] and searched.finder.is_complete
    monkeypatch.setattr(secret, "DIRECTORIES", 4)
    finder = searched.another()
    os.link(env, searched.project.parent / "another")
    for looked in (finder, searched.another()):
        assert searched.others(looked) == [] and not looked.is_complete


def test_a_search_keeps_no_former_answer_about_other_names(searched: Searched, monkeypatch: pytest.MonkeyPatch) -> None:
    env = searched.write(".env", "KEY=1\n")
    searched.write("sub/file", "x\n")
    os.link(env, searched.project.parent / "backup")
    monkeypatch.setattr(secret, "is_settled", lambda _ctime, _now: True)
    assert searched.others(searched.finder) == []
    os.link(env, searched.project / "sub/notes.txt")
    searched.another().find(())  # by a process that ends then
    assert searched.others(searched.another()) == ["sub/notes.txt"]


def test_other_names_are_searched_for_once(searched: Searched, monkeypatch: pytest.MonkeyPatch) -> None:
    env = searched.write(".env", "KEY=1\n")
    for number in range(30):
        searched.write(f"d{number}/file", "x\n")
    os.link(env, searched.project.parent / "backup")
    searches: Counter[str] = Counter()
    search = Finder._names_of

    def counted(self: Finder, wanted: Any) -> Any:
        searches["names"] += 1
        return search(self, wanted)

    monkeypatch.setattr(Finder, "_names_of", counted)
    monkeypatch.setattr(secret, "is_settled", lambda _ctime, _now: True)
    for _time in range(3):
        assert searched.others(searched.finder) == [] == searched.others(searched.another())
    assert searches["names"] == 1


def test_a_search_examines_no_file_that_is_no_suspect(searched: Searched, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        for name in ("file.py", "readme.txt", "data.json", "Makefile"):
            searched.write(f"d{number}/{name}", "x\n")
    searched.write(".env", "KEY=1\n")
    searched.write("d1/.npmrc", HARMLESS)
    monkeypatch.setattr(secret, "is_settled", lambda _ctime, _now: True)
    looks: Counter[str] = Counter()
    lstat, opened = os.lstat, OpenSource.open
    monkeypatch.setattr(os, "lstat", lambda *given, **more: (looks.update(["lstat"]), lstat(*given, **more))[1])
    monkeypatch.setattr(OpenSource, "open", lambda self, path: (looks.update(["open"]), opened(self, path))[1])
    assert searched.finder.find(()) == ([b".env"], True)
    assert looks == {"lstat": 21 + 1, "open": 1}, "each directory, and the suspect"
    looks.clear()
    assert searched.another().find(()) == ([b".env"], True)
    assert looks == {"lstat": 21 + 1}
