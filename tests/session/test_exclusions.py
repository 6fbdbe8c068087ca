"""What a staged copy leaves out is neither deleted nor overwritten in the project, whatever a command does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from conftest import Place, full_listing, listing
from mudroom.core.settings import Settings
from mudroom.errors import UsageError
from satellites import needs

SMALL = Settings(view="copy", copy_limit=100_000)
LARGE = "x" * 60_000
MODULES = "left out of the copy: node_modules (0.1 MB)"


@pytest.fixture
def large(place: Place) -> Place:
    place.write("node_modules/a/index.js", LARGE)
    place.write("node_modules/b.js", LARGE)
    place.write("src/main.js", "main\n")
    return place


def changed(result: object) -> dict[str, str]:
    return {os.fsdecode(change.path): change.verb for change in result.changeset.changes}  # type: ignore[attr-defined]


def test_what_is_too_large_is_left_out_and_told(large: Place) -> None:
    _session, result = large.sh("ls -A; echo more >> src/main.js", SMALL)
    assert result.stdout == b"src\n"
    assert MODULES in result.notes
    assert changed(result) == {"src/main.js": "modified"}


def test_it_is_told_once(large: Place) -> None:
    session, result = large.sh("true", SMALL)
    again = session.run([b"ls"], fork=result.fork)
    assert again.stdout == b"src\n" and not any(note.startswith("left out") for note in again.notes)


def test_what_fits_is_copied_whole(large: Place) -> None:
    _session, result = large.sh("ls", SMALL._replace(copy_limit=200_000))
    assert result.stdout == b"node_modules\nsrc\n"
    assert not any(note.startswith("left out") for note in result.notes)


def test_what_does_not_fit_in_the_end_is_refused_and_nothing_is_left(large: Place) -> None:
    large.write("src/film", LARGE * 2)
    with pytest.raises(UsageError, match="MB that may be copied"):
        large.sh("true", SMALL)
    assert large.session(SMALL).vault.forks() == []


def test_what_git_ignores_goes_first(large: Place) -> None:
    large.write(".gitignore", "/film\n")
    large.write("film", LARGE * 3)
    _session, result = large.sh("ls", SMALL._replace(copy_limit=150_000))
    assert result.stdout == b"node_modules\nsrc\n"
    assert "left out of the copy: film (0.2 MB)" in result.notes


def test_what_git_ignores_can_always_be_left_out(large: Place) -> None:
    large.write(".gitignore", "src\n")
    _session, result = large.sh("ls", Settings(view="copy", copy_gitignore=True))
    assert result.stdout == b"node_modules\n" and changed(result) == {}


def test_caches_and_exclusions(place: Place) -> None:
    for name in ("__pycache__/x", ".cache/x", "d/.next/cache/x", "d/.next/x", "d/x.log", "d/keep.log"):
        place.write(name)
    _session, result = place.sh("find . -type f", Settings(view="copy", copy_exclude=(b"*.log", b"!keep.log")))
    assert set(result.stdout.split()) == {b"./d/.next/x", b"./d/keep.log"}
    assert changed(result) == {}


def test_a_link_out_of_the_project_is_not_followed(place: Place) -> None:
    outside = place.root / "outside"
    outside.mkdir()
    (outside / "film").write_text(LARGE * 5)
    (place.project / "out").symlink_to(outside)
    (place.project / "film").symlink_to(outside / "film")
    (place.project / ".gitignore").symlink_to(outside / "film")
    _session, result = place.sh("readlink out film; echo x > out/new; cat film", SMALL)
    assert result.stdout == f"{outside}\n{outside}/film\n".encode()
    assert result.exit_code != 0  # what it leads to is not in the sandbox either
    assert os.listdir(outside) == ["film"]
    assert not any(note.startswith("left out") for note in result.notes)


# --- apply --------------------------------------------------------------------------------------------------------


def applied(place: Place, script: str, settings: Settings = SMALL) -> set[str]:
    """Run, apply all of it; the paths that conflict."""
    session, result = place.sh(script, settings)
    assert result.exit_code == 0, result.stderr
    with session.alone("test"):
        return {os.fsdecode(conflict.path) for conflict in session.changes.apply(result.fork).conflicts}


def modules(place: Place) -> object:
    return full_listing(place.project / "node_modules")


def test_a_file_made_where_the_project_has_one_conflicts(large: Place) -> None:
    before = modules(large)
    assert applied(large, "mkdir node_modules; echo mine > node_modules/b.js; echo x > new") == {"node_modules/b.js"}
    assert modules(large) == before
    assert (large.project / "new").read_text() == "x\n"


def test_a_file_made_where_the_project_has_none_lands_beside_the_others(large: Place) -> None:
    before = listing(large.project)
    assert applied(large, "mkdir node_modules; echo mine > node_modules/c.js") == set()
    after = listing(large.project)
    assert after.pop("node_modules/c.js") == ("file", 0o644, b"mine\n")
    assert after == before


@pytest.mark.parametrize(
    "script",
    [
        "echo file > node_modules", "ln -s src node_modules", "mkfifo node_modules", "mkdir -m 700 node_modules",
        "mkdir -p node_modules/b.js/c", "mv src node_modules",
    ],
)  # fmt: skip
def test_whatever_takes_its_place_leaves_the_project_its_own(large: Place, script: str) -> None:
    before = modules(large)
    conflicts = applied(large, script)
    both_directories = script in ("mv src node_modules", "mkdir -m 700 node_modules")
    never_lands = script.startswith("mkfifo")
    assert both_directories or never_lands or any(path.startswith("node_modules") for path in conflicts)
    after = modules(large)
    assert isinstance(before, dict) and isinstance(after, dict)
    assert {path: after.get(path) for path in before} == before
    assert (large.project / "node_modules").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize(
    "script", ["rm -rf pkg", "mv pkg lib", "rm -rf pkg; echo x > pkg", "rm -rf pkg; ln -s src pkg"]
)
def test_a_directory_around_it_goes_but_not_what_was_left_out(place: Place, script: str) -> None:
    place.write("pkg/node_modules/a.js", LARGE * 2)
    place.write("pkg/code", "code\n")
    place.write("src/main", "main\n")
    before = full_listing(place.project / "pkg/node_modules")
    applied(place, script)
    assert full_listing(place.project / "pkg/node_modules") == before


@needs("commits")
def test_a_repository_that_was_left_out_is_not_mixed_with_a_new_one(place: Place) -> None:
    place.write(".git/HEAD", "ref: refs/heads/main\n")
    place.write(".git/objects/pack/p", LARGE * 2)
    place.write("main", "main\n")
    before = full_listing(place.project / ".git")
    session, result = place.sh("mkdir .git; echo other > .git/HEAD; echo new > .git/packed-refs", SMALL)
    assert "left out of the copy: .git (0.1 MB)" in result.notes
    with session.alone("test"), pytest.raises(UsageError, match="HEAD does not name an object"):
        session.changes.apply(result.fork, [b".git"])
    assert full_listing(place.project / ".git") == before


def test_a_file_that_appears_twice_the_same_is_no_conflict(large: Place) -> None:
    before = modules(large)
    large.write("copy.js", LARGE[:10])
    large.write("node_modules/c.js", LARGE[:10])
    assert applied(large, "mkdir node_modules; cp copy.js node_modules/c.js") == set()
    assert isinstance(before, dict)
    assert (large.project / "node_modules/c.js").read_text() == LARGE[:10]


def test_a_checkpoint_and_a_fork_of_it_leave_it_out_as_well(large: Place) -> None:
    session, result = large.sh("echo two > src/two", SMALL)
    session.forks.checkpoint(result.fork, "point")
    session.forks.new("other", parent=result.fork)
    again = session.run([b"sh", b"-c", b"ls; rm src/main.js"], fork="other")
    assert again.stdout == b"src\n"
    assert changed(again) == {"src/two": "added", "src/main.js": "deleted"}
    before = modules(large)
    with session.alone("test"):
        assert session.changes.apply("other").conflicts == ()
    assert modules(large) == before
    assert not Path(large.project / "src/main.js").exists()
