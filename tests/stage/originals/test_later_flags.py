"""Changes that run by themselves later."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from mudroom.core.tree.change import Change
from mudroom.core.tree.entry import Entry
from mudroom.core.tree.flag import flags_of
from mudroom.stage import disk
from mudroom.stage.originals import later_flags
from mudroom.stage.originals.later_flags import flag_later
from mudroom.stage.source import OpenSource, Source, walk


def test_a_change_below_what_mudroom_runs_from_is_flagged_on_each_system(tmp_path: Path) -> None:
    """Python's own paths have backslashes on Windows, a project's none."""
    project, _slash, name = disk.real_path(os.fsencode(sys.prefix)).rpartition(b"/")
    entry = Entry("file", 0o644, 1, b"", 1, 2, 1, 0, 0, 3, 4)
    changes = [Change(path, "added", None, entry) for path in (name + b"/made", name + b"2/made")]
    nothing = OpenSource(disk.real_path(os.fsencode(tmp_path)))
    try:
        flagged = flag_later(changes, nothing, nothing, project)
    finally:
        nothing.close()
    assert ["mudroom itself" in change.runs for change in flagged] == [True, False]


def _write(top: Path, files: dict[str, str | bytes]) -> OpenSource:
    for path, text in files.items():
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).write_bytes(text.encode() if isinstance(text, str) else text)
    top.mkdir(exist_ok=True)
    return OpenSource(disk.real_path(os.fsencode(top)))


def _added(source: Source) -> list[Change]:
    return [
        Change(path, "added", None, entry, flags=flags_of(path)) for path, entry in walk(source) if entry.kind == "file"
    ]


def _flagged(tmp_path: Path, project: dict[str, str | bytes], fork: dict[str, str | bytes]) -> dict[str, str]:
    """Return when each file of a fork runs, by path."""
    with _write(tmp_path / "project", project) as base, _write(tmp_path / "fork", fork) as staged:
        flagged = flag_later(_added(staged), staged, base)
    assert all(bool(change.runs) == ("executes-later" in change.flags) for change in flagged)
    return {change.path.decode(): change.runs for change in flagged if change.runs}


@pytest.mark.parametrize(
    ("manifest", "text", "path"),
    [
        ("package.json", '{"scripts": {"test": "sh tools/run.txt"}}', "tools/run.txt"),
        ("Makefile", "include build.inc\n", "build.inc"),
        (".github/workflows/ci.yml", "run: sh ci/test.txt", "ci/test.txt"),
        (".husky/pre-commit", "sh tools/check.dat", "tools/check.dat"),
        (".vscode/tasks.json", '{"tasks": [{"command": "./x.data"}]}', "x.data"),
        (".claude/settings.json", '{"hooks": {"command": "sh .x/y.z"}}', ".x/y.z"),
        ("docker/compose.yaml", "command: sh start/it.conf", "start/it.conf"),
        ("sub/Jenkinsfile", "sh 'ci/x.groovy.txt'", "ci/x.groovy.txt"),
        ("a/b/Makefile", "t:\n\tsh c/x.txt", "a/b/c/x.txt"),
        (".gitlab-ci.yml", "include: ci/more.data", "ci/more.data"),
    ],
)
def test_a_file_that_a_manifest_of_the_project_names(tmp_path: Path, manifest: str, text: str, path: str) -> None:
    found = _flagged(tmp_path, {manifest: text}, {path: "x", "other/notes.txt": "x"})
    assert found.keys() == {path}
    assert found[path].endswith(f": {manifest} names it")


def test_a_manifest_of_the_fork_names_files_too(tmp_path: Path) -> None:
    found = _flagged(tmp_path, {}, {"Makefile": "t:\n\tsh x/run.txt", "x/run.txt": "y", "x/b.txt": "y"})
    assert found == {
        "Makefile": "at the next make or build",
        "x/run.txt": "at the next make or build: Makefile names it",
    }


def test_the_name_of_a_manifest_is_escaped(tmp_path: Path) -> None:
    found = _flagged(tmp_path, {}, {"\x1b]0;x\x07\n.mk": "include a.inc", "a.inc": ""})
    assert found["a.inc"] == r"at the next make or build: \x1b]0;x\x07\n.mk names it"


@pytest.mark.parametrize("data", [b"", b"#!/bin/sh\n", b"\xef\xbb\xbf#!/bin/sh\n", b"echo x\n", b"\x7fELF", b"PK\3\4"])
def test_an_executable_bit_is_enough(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "fork/x").parent.mkdir()
    (tmp_path / "fork/x").write_bytes(data)
    (tmp_path / "fork/x").chmod(0o755)
    assert _flagged(tmp_path, {}, {"y": data}) == {"x": "when it is called: it may be executed"}


@pytest.mark.parametrize("skipped", ["node_modules/a/package.json", ".claude/worktrees/w/Makefile", "poetry.lock"])
def test_manifests_of_packages_and_of_other_projects_are_not_read(tmp_path: Path, skipped: str) -> None:
    project: dict[str, str | bytes] = {skipped: '"sh tools/x.txt"', ".claude/worktrees/w/.git": "gitdir: /x"}
    assert _flagged(tmp_path, project, {"tools/x.txt": "y"}) == {}


def test_a_large_manifest_names_all_below_it(tmp_path: Path) -> None:
    project: dict[str, str | bytes] = {"sub/Makefile": b"#" * (2 << 20), ".claude/log": b"#" * (2 << 20)}
    assert _flagged(tmp_path, project, {"sub/a/b.txt": "y", "c.txt": "y"}).keys() == {"sub/a/b.txt"}


def test_a_directory_that_cannot_be_read_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = OpenSource.names

    def refused(source: OpenSource, path: bytes) -> dict[bytes, Entry]:
        if path in (b"database", b"sub", b".github"):
            raise PermissionError(13, "Permission denied")
        return names(source, path)

    monkeypatch.setattr(OpenSource, "names", refused)
    project: dict[str, str | bytes] = {"database/x": "", ".github/x.yml": "", "Makefile": "t:\n\tsh y"}
    assert _flagged(tmp_path, project, {"x": "y"}) == {}


def test_too_many_manifests_name_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(later_flags, "_MOST_FILES", 2)
    project: dict[str, str | bytes] = {".husky/a": "", ".husky/b": "", ".husky/c": ""}
    assert _flagged(tmp_path, project, {"c.txt": "y"}) == {"c.txt": "there are too many files that may name it"}
