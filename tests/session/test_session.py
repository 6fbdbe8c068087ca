"""The whole way of a command, through the library: stage, run, collect, apply, undo."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mudroom.session
from clocks import give_way
from conftest import Place, full_listing, listing, tick
from mudroom.core.result import Result
from mudroom.core.settings import Settings
from mudroom.core.tree.change import counted_changes
from mudroom.errors import CommandNotStarted, MudroomError, UsageError
from mudroom.session import Stdio
from mudroom.session.upkeep import remove_vault
from mudroom.vault.apply import transaction
from mudroom.vault.apply.execution import Executor
from mudroom.vault.forks.stacking import is_unchanged
from tiers import each
from whole_text import whole

pytestmark = [pytest.mark.both_users, pytest.mark.root]


def verbs(result: Result) -> dict[str, str]:
    return {os.fsdecode(change.path): change.verb for change in counted_changes(result.changeset.changes)}


def test_nothing_reaches_the_project_before_apply(place: Place) -> None:
    place.write("a", "one\n")
    place.write("d/b", "two\n")
    os.symlink("a", place.project / "l")
    before = full_listing(place.project)
    _session, result = place.sh(
        "echo more >> a; rm -rf d; ln -sf b l; mkdir n; touch n/x; chmod 600 a; touch -d 2001-01-01 a; mv a z"
    )
    assert result.exit_code == 0, result.stderr
    assert full_listing(place.project) == before
    assert verbs(result) == {"a": "deleted", "d/b": "deleted", "l": "modified", "n/x": "added", "z": "added"}


def test_rm_rf_of_everything_harms_nothing(place: Place) -> None:
    place.write("a", "one")
    place.write("deep/er/b", "two")
    before = full_listing(place.project)
    _session, result = place.sh(f"rm -rf {place.project}/* {place.project} / --no-preserve-root 2>/dev/null; exit 0")
    assert full_listing(place.project) == before
    assert verbs(result) == {"a": "deleted", "deep/er/b": "deleted"}


def test_apply_and_undo(place: Place) -> None:
    place.write("keep", "k")
    place.write("edit", "1\n2\n3\n")
    place.write("gone/deep/file", "x")
    place.write("script", "#!/bin/sh\n")
    before = listing(place.project)
    session, result = place.sh(
        "sed -i s/2/two/ edit; rm -r gone; chmod +x script; mkdir -p new/sub; echo n > new/sub/f; ln -s f new/sub/l"
    )
    landed = session.changes.apply(result.fork)
    assert not landed.conflicts
    assert landed.remaining == 0
    assert (place.project / "edit").read_text() == "1\ntwo\n3\n"
    assert not (place.project / "gone").exists()
    assert os.access(place.project / "script", os.X_OK)
    assert os.readlink(place.project / "new/sub/l") == "f"
    undone = session.changes.undo()
    assert not undone.conflicts
    assert listing(place.project) == before


def test_undo_twice_and_unknown(place: Place) -> None:
    session, result = place.sh("echo 1 > f")
    session.changes.apply(result.fork)
    session.changes.undo("u1")
    with pytest.raises(UsageError, match="cannot be undone"):
        session.changes.undo("u1")
    with pytest.raises(UsageError, match="nothing to undo"):
        session.changes.undo()
    with pytest.raises(UsageError, match="no apply named u9"):
        session.changes.undo("u9")


def test_a_file_edited_meanwhile_is_a_conflict(place: Place) -> None:
    place.write("shared", "base\n")
    place.write("mine", "m\n")
    session, result = place.sh("echo theirs >> shared; echo theirs >> mine; echo new > created")
    place.write("shared", "the user's own words\n")
    place.write("created", "the user's, too\n")
    landed = session.changes.apply(result.fork)
    assert {conflict.path for conflict in landed.conflicts} == {b"shared", b"created"}
    assert (place.project / "shared").read_text() == "the user's own words\n"
    assert (place.project / "created").read_text() == "the user's, too\n"
    assert (place.project / "mine").read_text() == "m\ntheirs\n"
    kept = Path(os.fsdecode(session.vault.fork(result.fork).contents[0]))
    assert (kept / "shared").read_text() == "base\ntheirs\n", "the fork keeps its version"
    assert landed.remaining == 2
    again = session.changes.apply(result.fork)
    assert {conflict.path for conflict in again.conflicts} == {b"shared", b"created"}, "applying again is harmless"


def test_an_edit_during_the_command_is_a_conflict(place: Place) -> None:
    """The command says that it runs by making a file in its view, then waits on its stdin for the user's edit."""
    place.write("file", "base\n")
    session = place.session()
    started = Path(os.fsdecode(session.forks.new("f").upper)) / "started"
    read, write = os.pipe()

    def edit() -> None:
        while not started.exists():
            give_way()
        tick()
        place.write("file", "user\n")
        os.write(write, b"go\n")

    user = threading.Thread(target=edit)
    user.start()
    result = session.run([b"sh", b"-c", b"touch started; read go; echo fork > file"], fork="f", stdio=Stdio(stdin=read))
    user.join()
    os.close(read)
    os.close(write)
    change = next(change for change in result.changeset.changes if change.path == b"file")
    assert not change.original_known
    landed = session.changes.apply("f")
    assert [conflict.path for conflict in landed.conflicts] == [b"file"]
    assert (place.project / "file").read_text() == "user\n"


def test_both_sides_the_same_is_satisfied(place: Place) -> None:
    place.write("f", "old\n")
    session, result = place.sh("echo new > f; rm -f nothing; echo x > g")
    place.write("f", "new\n")
    place.write("g", "x\n")
    landed = session.changes.apply(result.fork)
    assert not landed.conflicts
    assert landed.applied.written == 0


def test_touching_and_opening_is_no_change(place: Place) -> None:
    place.write("a", "content")
    place.write("d/b", "content")
    _session, result = place.sh("touch a d/b; : >> a; chmod 600 a; chmod 644 a; mv a b; mv b a; cp d/b t; mv t d/b")
    assert verbs(result) == {}


def test_names_that_are_not_text(place: Place) -> None:
    odd = [b"new\nline", b"\xff\xfe", b"spa ce", b"-dash", "ünï".encode(), b"\x1b[31mred", b"a\\b", b"quo\"te'"]
    for name in odd:
        with open(os.path.join(os.fsencode(place.project), name), "wb") as stream:
            stream.write(b"x\n")
    session = place.session()
    result = session.run(
        [b"sh", b"-c", b'for f in *; do echo more >> "./$f"; done; for f in *; do cp -- "$f" "new$f"; done']
    )
    assert result.exit_code == 0, result.stderr
    changed = {change.path for change in result.changeset.changes}
    assert changed == set(odd) | {b"new" + name for name in odd}
    assert not session.changes.apply(result.fork).conflicts
    with open(os.path.join(os.fsencode(place.project), b"new\xff\xfe"), "rb") as stream:
        assert stream.read() == b"x\nmore\n"


def test_modes_links_sparse_and_empty(place: Place) -> None:
    place.write("ro", "r", 0o444)
    session, result = place.sh(
        "mkdir -m 700 private; mkdir -m 555 closed_later; echo s > secret; chmod 000 secret; truncate -s 50M sparse;"
        "mkdir empty; mkdir tree; echo 1 > tree/f; chmod 555 tree; chmod 640 ro; echo h > h1; ln h1 h2"
    )
    assert result.exit_code == 0, result.stderr
    landed = session.changes.apply(result.fork)
    assert not landed.conflicts
    mode = {name: stat.S_IMODE((place.project / name).lstat().st_mode) for name in os.listdir(place.project)}
    assert mode["private"] == 0o700
    assert mode["closed_later"] == 0o555
    assert mode["secret"] == 0
    assert mode["tree"] == 0o555
    assert mode["ro"] == 0o640
    assert (place.project / "sparse").stat().st_blocks < 100
    assert (place.project / "h1").stat().st_ino == (place.project / "h2").stat().st_ino
    undone = session.changes.undo()
    assert not undone.conflicts
    assert os.listdir(place.project) == ["ro"]


def test_a_link_to_an_unchanged_file_does_not_tie_project_and_fork(place: Place) -> None:
    place.write("old", "content\n")
    session = place.session()
    result = session.run([b"ln", b"old", b"new"], fork="f")
    session.changes.apply("f", [b"new"])
    again = session.run([b"sh", b"-c", b"echo later >> old; echo x > y"], fork="f")
    assert again.exit_code == 0
    assert (place.project / "new").read_text() == "content\n"
    assert (place.project / "new").stat().st_nlink == 1
    assert result.exit_code == 0


def test_a_socket_is_listed_and_not_applied(place: Place) -> None:
    session, result = place.sh(
        f"mkdir d; echo f > d/f; {sys.executable} -c \"import socket; socket.socket(socket.AF_UNIX).bind('d/s')\""
    )
    assert result.exit_code == 0, result.stderr
    assert [(remark.path, "socket" in remark.text) for remark in result.changeset.remarks] == [(b"d/s", True)]
    landed = session.changes.apply(result.fork)
    assert not landed.conflicts
    assert sorted(os.listdir(place.project / "d")) == ["f"]


def test_a_directory_that_gained_files_is_not_removed(place: Place) -> None:
    place.write("d/a", "a")
    place.write("d/sub/b", "b")
    session, result = place.sh("rm -rf d")
    place.write("d/mine", "the user's")
    landed = session.changes.apply(result.fork)
    assert sorted(os.listdir(place.project / "d")) == ["mine"]
    assert any(remark.path == b"d" for remark in landed.applied.remarks)
    session.changes.undo()
    assert sorted(os.listdir(place.project / "d")) == ["a", "mine", "sub"]


def test_undo_keeps_what_came_after(place: Place) -> None:
    place.write("edited", "before\n")
    session, result = place.sh("mkdir pkg; echo 1 > pkg/one; echo 2 > pkg/two; echo after > edited")
    session.changes.apply(result.fork)
    place.write("pkg/mine", "the user's")
    place.write("pkg/two", "changed by the user")
    undone = session.changes.undo()
    assert {conflict.path for conflict in undone.conflicts} == {b"pkg/two"}
    assert sorted(os.listdir(place.project / "pkg")) == ["mine", "two"]
    assert (place.project / "edited").read_text() == "before\n"


def test_symlinked_parent_in_the_project_is_not_followed(place: Place) -> None:
    outside = place.root / "outside"
    outside.mkdir()
    place.write("d/a", "a")
    session, result = place.sh("echo b > d/b; echo more >> d/a")
    (place.project / "d/a").unlink()
    (place.project / "d").rmdir()
    os.symlink(outside, place.project / "d")
    landed = session.changes.apply(result.fork)
    assert {conflict.path for conflict in landed.conflicts} >= {b"d/a", b"d/b"}
    assert os.listdir(outside) == []


def test_git_hooks_and_config_are_left_out_unless_named(place: Place) -> None:
    place.write(".git/config", "[core]\n")
    place.write(".git/HEAD", "ref: refs/heads/main\n")
    session, result = place.sh(
        "mkdir -p .git/hooks; echo evil > .git/hooks/post-checkout; echo evil >> .git/config; echo f > f"
    )
    landed = session.changes.apply(result.fork)
    assert set(landed.withheld) == {b".git/hooks", b".git/hooks/post-checkout", b".git/config"}
    assert (place.project / "f").exists()
    assert (place.project / ".git/config").read_text() == "[core]\n"
    assert not (place.project / ".git/hooks").exists()
    landed = session.changes.apply(result.fork, [b".git/config"])
    assert (place.project / ".git/config").read_text() == "[core]\nevil\n"
    assert landed.remaining == 2


def test_earlier_versions_of_secrets_are_not_shown(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the vault is on another file system they are in ``.mudroom/apply``, by numbers, so no name tells them."""
    monkeypatch.setattr(transaction, "mount_of", lambda path: path)
    place.write(".env", "TOKEN=old\n")
    with place.session(settings=Settings(secrets_show=(b".env",))) as session:
        result = session.run([b"sh", b"-c", b"echo TOKEN=new > .env"])
        session.changes.apply(result.fork)
    assert (place.project / ".mudroom/apply/u1/1").read_text() == "TOKEN=old\n"
    session, result = place.sh("ls .mudroom; ls .mudroom/apply; cat .mudroom/apply/*/* .env")
    assert result.stdout == b"apply\n"
    files = session.forks.files(session.forks.new("tools").name)
    for path in (b".mudroom/apply/u1/1", b".mudroom/apply/u1/1".upper()):
        with pytest.raises(FileNotFoundError):
            files.read(path)
    assert files.list(b".mudroom") == {}
    assert not [found for found in files.search("TOKEN") if b"apply" in os.fsencode(str(found))]
    session.changes.undo()
    assert (place.project / ".env").read_text() == "TOKEN=old\n"


def test_exit_codes_and_signals(place: Place) -> None:
    _session, result = place.sh("exit 7")
    assert (result.exit_code, result.signal) == (7, None)
    _session, result = place.sh("kill -TERM $$")
    assert (result.exit_code, result.signal) == (143, 15)
    session = place.session()
    with pytest.raises(CommandNotStarted) as caught:
        session.run([b"no-such-program"])
    assert caught.value.exit_code == 127
    place.write("plain", "not executable")
    with pytest.raises(CommandNotStarted) as caught:
        place.session().run([b"./plain"])
    assert caught.value.exit_code == 126
    assert session.vault.forks() and all(fork.name.startswith("run-") for fork in session.vault.forks())


def test_a_script_without_a_shebang_runs_as_in_a_shell(place: Place) -> None:
    place.write("script", "echo $((6*7))\n", 0o755)
    assert place.session().run([b"./script"]).stdout == b"42\n"


def test_timeout_ends_everything(place: Place, later: Callable[[float], None]) -> None:
    session = place.session()
    begun = Stdio(on_output=lambda _name, _data: later(600.0))
    script = b"echo partial > f; echo begun; sleep 1000 & sleep 1000"
    result = session.run([b"sh", b"-c", script], timeout=600.0, stdio=begun)
    assert result.timed_out
    assert verbs(result) == {"f": "added"}


def test_background_processes_end_with_the_command(place: Place) -> None:
    session = place.session()
    result = session.run([b"sh", b"-c", b"(setsid sh -c 'sleep 2; echo late > late' &) ; echo now > now"])
    assert verbs(result) == {"now": "added"}
    assert not os.path.exists(os.path.join(session.vault.fork(result.fork).contents[0], b"late"))


def test_output_is_captured_up_to_the_limit(place: Place) -> None:
    session = place.session(Settings(output_limit=1000))
    result = session.run([b"sh", b"-c", b"yes | head -c 100000; echo err >&2"])
    assert len(result.stdout) == 1000
    assert result.truncated
    assert result.stderr == b"err\n"


def test_the_environment_is_an_allowlist(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("WANTED", "yes")
    result = place.session(Settings(environment=(b"WANTED", b"GIVEN=too"))).run([b"env"])
    assert b"secret" not in result.stdout
    assert b"WANTED=yes\n" in result.stdout
    assert b"GIVEN=too\n" in result.stdout
    assert b"HOME=" + os.fsencode(place.home) in result.stdout


def test_two_commands_in_one_fork_add_up(place: Place) -> None:
    place.write("f", "1\n")
    session = place.session()
    session.run([b"sh", b"-c", b"echo 2 >> f; echo a > a"], fork="work")
    result = session.run([b"sh", b"-c", b"cat f a; echo 3 >> f; rm a; echo b > b"], fork="work")
    assert result.stdout == b"1\n2\na\n"
    assert verbs(result) == {"f": "modified", "b": "added"}
    session.changes.apply("work")
    assert (place.project / "f").read_text() == "1\n2\n3\n"


def test_many_commands_use_the_prepared_root(place: Place) -> None:
    session = place.session()
    for number in range(8):
        result = session.run(
            [b"sh", b"-c", b"echo %d > f%d; ls /proc | head -1; hostname" % (number, number)], fork="w"
        )
        assert result.exit_code == 0, result.stderr
        assert os.uname().nodename.encode() in result.stdout
    assert len(session.changes.of("w").changes) == 8


def test_part_of_a_new_directory(place: Place) -> None:
    session, result = place.sh("mkdir d; echo a > d/a; echo b > d/b")
    assert session.changes.apply(result.fork, [b"d/a"]).conflicts == ()
    assert os.listdir(place.project / "d") == ["a"]
    assert session.changes.apply(result.fork).conflicts == ()
    assert sorted(os.listdir(place.project / "d")) == ["a", "b"]


def test_a_conflict_found_while_applying_leaves_theirs_in_the_fork(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.write("e", "base")
    session, result = place.sh("echo fork > f; echo fork > e")
    run = Executor.run

    def late(self: Executor, *arguments: Any) -> None:
        place.write("f", "user")
        place.write("e", "user!")
        run(self, *arguments)

    monkeypatch.setattr(Executor, "run", late)
    assert len(session.changes.apply(result.fork).conflicts) == 2
    kept = Path(os.fsdecode(session.vault.fork(result.fork).contents[0]))
    assert (kept / "f").read_text() == (kept / "e").read_text() == "fork\n"
    assert (place.project / "f").read_text() == "user"


@each("name", mudroom.session.__all__)
def test_every_public_name_is_loaded_when_it_is_asked_for(name: str) -> None:
    assert getattr(mudroom.session, name) is not None


@pytest.mark.parametrize("way", ["landed", "unchanged"])
def test_what_the_user_has_removed_since_does_not_land_with_its_directory(place: Place, way: str) -> None:
    """The layer of the fork still holds the file, because it landed before, or was written as it is."""
    place.write("d/one", "1\n")
    place.write("other", "o\n")
    session = place.session()
    session.run([b"sh", b"-c", b"cat d/one > o; cat o > d/one; rm o; echo f >> other"], fork="f")
    if way == "landed":
        session.run([b"sh", b"-c", b"echo f >> d/one"], fork="f")
        session.changes.apply("f", [b"d/one"])
    shutil.rmtree(place.project / "d")
    session.run([b"sh", b"-c", b"echo f >> d/two"], fork="f")
    assert session.changes.apply("f").conflicts == ()
    assert sorted(path.name for path in place.project.rglob("*")) == ["d", "other", "two"]


@pytest.mark.parametrize("script", ["rm -rf d", "rm -rf d; mkdir d; echo f > d/new", "rm -rf d; echo f > d", "mkdir e"])
def test_what_the_user_makes_in_a_directory_that_the_fork_has_replaced_stays(place: Place, script: str) -> None:
    """No command of the fork has seen it, so its absence from the fork is no deletion."""
    place.write("d/sub/one", "1\n")
    session = place.session()
    session.run([b"sh", b"-c", script.encode()], fork="f")
    place.write("d/two", "2\n")
    place.write("d/sub/three", "3\n")
    place.write("e/four", "4\n")
    tick()
    session.run([b"sh", b"-c", b"echo > other"], fork="f")
    deleted = [change.path for change in session.changes.of("f").changes if change.staged is None]
    session.changes.apply("f")
    assert {b"d/two", b"d/sub/three", b"e/four"}.isdisjoint(deleted)
    for name, text in {"d/two": "2\n", "d/sub/three": "3\n", "e/four": "4\n"}.items():
        assert (place.project / name).read_text() == text


def test_a_deletion_in_a_replaced_directory_is_one_of_the_fork(place: Place) -> None:
    """What the fork has made again as it was, and then removed, is a deletion."""
    for name in ("file", "folder/inner"):
        place.write(f"d/{name}", "1\n")
    (place.project / "d/link").symlink_to("file")
    session = place.session()
    copy = b"cp -a d d.copy; rm -rf d; mkdir d; cp -a d.copy/. d; rm -rf d.copy"
    session.run([b"sh", b"-c", copy], fork="f")
    session.run([b"sh", b"-c", b"rm -rf d/file d/folder d/link; echo > d/new"], fork="f")
    session.changes.apply("f")
    assert [path.name for path in (place.project / "d").iterdir()] == ["new"]


def test_each_part_of_the_work_on_a_copy_has_a_progress_of_its_own(place: Place) -> None:
    """A count that reaches its end once more, or a silence after the result, looks like a fault."""
    for number in range(70):
        place.write(f"d{number}/file", "x\n")
    session = place.session(Settings(view="copy"))
    told: list[tuple[str, int]] = []
    session.forks.tell_progress(lambda label, done, _total: told.append((label, done)))
    result = session.run([b"sh", b"-c", b"echo more > new"])
    session.forks.discard(result.fork)
    labels = list(dict.fromkeys(label for label, _done in told))
    assert labels == [
        "copying the project",
        "copying the snapshot for the command",
        "collecting the changes",
        "cleaning up, files",
    ]
    for label in labels:
        counts = [done for own, done in told if own == label]
        assert counts == sorted(counts)
    assert told[-1][1] >= 140  # both copies


@pytest.mark.both_users
@pytest.mark.root
def test_the_state_of_a_user_can_be_removed_by_rm(place: Place) -> None:
    """The kernel makes directories of mode 000 in an overlay's work directory; their owner cannot enter them."""
    session = place.session()
    session.run([b"sh", b"-c", b"echo more > new"], fork="f")
    session.start([b"sh", b"-c", b"echo more > newer"], fork="g").wait()
    session.close()
    closed = [path for path in place.state.rglob("*") if path.is_dir() and not path.stat().st_mode & 0o700]
    assert closed == []
    subprocess.run(["rm", "-rf", place.state], check=True)


def test_a_command_that_was_not_found_leaves_no_copy(place: Place) -> None:
    """Where no overlay can be had, each typo left a fork with a copy of the project."""
    place.write("a", "1\n")
    place.write(".env", "SECRET=1\n")
    session = place.session(Settings(view="copy"))
    for _time in range(2):
        with pytest.raises(CommandNotStarted):
            session.run([b"no-such-program"])
    assert list(session.vault.forks()) == []

    assert session.run([b"true"], fork="f").exit_code == 0
    fork = session.vault.fork("f")
    assert is_unchanged(session.forks.secrets.masked_vault(fork), fork)
    session.forks.files("f").write("b", "kept\n")
    session.forks.flush("f")
    assert not is_unchanged(session.forks.secrets.masked_vault(fork), fork), "file tools are somebody's work, too"


def test_the_vault_of_a_project_that_is_back_stays(place: Place) -> None:
    """It was gone when ``vault gc --all`` looked."""
    session = place.session()
    with session.alone("a test"):
        told = f"the project {place.project} is there: its vault stays"
        with pytest.raises(MudroomError, match=whole(told)):
            remove_vault(session.vault)
    assert session.run([b"true"]).exit_code == 0
