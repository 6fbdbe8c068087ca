"""What comes back is merged: the project and the fork both went on, with real commands and real files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from typing import Any

import pytest

from conftest import Place, listing, tick
from mudroom.core.merge.operations import Landing
from mudroom.core.settings import Settings, VerifyWhen
from mudroom.errors import ForkMoved, MudroomError, UsageError
from mudroom.session import Session
from mudroom.session.verification import verification
from mudroom.stage.source import Source
from mudroom.vault.apply.landing import LandingResult, Verification
from satellites import needs
from whole_text import whole

TEXT = "".join(f"line {number}\n" for number in range(1, 21))


def staged(place: Place, script: str, meanwhile: Callable[[], object]) -> tuple[Session, str]:
    """A fork in which a script has run, after which the user has gone on in the project."""
    session, result = place.sh(script)
    assert result.exit_code == 0, result.stderr
    tick()
    meanwhile()
    return session, result.fork


def conflicts(landed: LandingResult) -> dict[str, str]:
    return {os.fsdecode(one.path): one.reason for one in landed.conflicts}


def test_edits_of_both_come_together(place: Place) -> None:
    file = place.write("f", TEXT)
    session, fork = staged(
        place, "sed -i 's/^line 3$/theirs/' f", lambda: file.write_text(TEXT.replace("line 18\n", "ours\n"))
    )
    landed = session.changes.apply(fork)
    assert not landed.conflicts
    assert file.read_text() == TEXT.replace("line 3\n", "theirs\n").replace("line 18\n", "ours\n")
    assert landed.merged == (b"f",)
    session.changes.undo()
    assert file.read_text() == TEXT.replace("line 18\n", "ours\n")


def test_edits_of_the_same_line_are_a_conflict_and_the_rest_lands(place: Place) -> None:
    file = place.write("f", TEXT)
    session, fork = staged(
        place,
        "sed -i 's/^line 3$/theirs/' f; echo new > new",
        lambda: file.write_text(TEXT.replace("line 3\n", "ours\n")),
    )
    landed = session.changes.apply(fork)
    assert conflicts(landed) == {"f": "also changed in the project, in the same lines"}
    assert file.read_text() == TEXT.replace("line 3\n", "ours\n"), "no markers, the user's own bytes"
    assert (place.project / "new").read_text() == "new\n"
    assert landed.remaining == 1
    assert conflicts(session.changes.apply(fork)) == conflicts(landed), "once more is the same"


def test_a_file_only_touched_meanwhile_is_not_changed(place: Place) -> None:
    file = place.write("f", b"\0binary")
    session, fork = staged(place, "printf x > f", lambda: file.write_bytes(b"\0binary"))
    assert conflicts(session.changes.apply(fork)) == {}
    assert file.read_text() == "x"


@pytest.mark.parametrize("how", ["content", "mode"])
def test_mode_on_one_side_and_content_on_the_other(place: Place, how: str) -> None:
    file = place.write("f", TEXT)
    edit, change = "echo end >> f", "chmod 755 f"
    if how == "content":
        session, fork = staged(place, edit, lambda: file.chmod(0o755))
    else:
        session, fork = staged(place, change, lambda: file.write_text(TEXT + "end\n"))
    assert not session.changes.apply(fork).conflicts
    assert (file.read_text(), file.stat().st_mode & 0o777) == (TEXT + "end\n", 0o755)
    session.changes.undo()
    assert (file.read_text() == TEXT) == (how == "content")
    assert file.stat().st_mode & 0o777 == (0o755 if how == "content" else 0o644)


def test_what_the_user_changed_goes_along_with_a_rename(place: Place) -> None:
    file = place.write("f", TEXT)
    session, fork = staged(place, "mkdir d; mv f d/moved", lambda: file.write_text(TEXT + "ours\n"))
    before = listing(place.project)
    landed = session.changes.apply(fork)
    assert not landed.conflicts
    assert not file.exists()
    assert (place.project / "d/moved").read_text() == TEXT + "ours\n"
    assert not session.changes.undo().conflicts
    assert listing(place.project) == before


def test_what_the_fork_changed_goes_to_where_the_user_renamed_it(place: Place) -> None:
    file = place.write("f", TEXT)
    place.write("d/x")
    session, fork = staged(place, "echo theirs >> f", lambda: file.rename(place.project / "d/moved"))
    before = listing(place.project)
    landed = session.changes.apply(fork)
    assert not landed.conflicts
    assert landed.remaining == 0
    assert not file.exists()
    assert (place.project / "d/moved").read_text() == TEXT + "theirs\n"
    assert not session.changes.undo().conflicts
    assert listing(place.project) == before


def test_even_if_it_was_copied_there_and_changed_first_lines(place: Place) -> None:
    file = place.write("f", TEXT)

    def meanwhile() -> None:
        file.rename(place.project / "moved")
        (place.project / "moved").write_text("ours\n" + TEXT)

    session, fork = staged(place, "echo theirs >> f", meanwhile)
    assert not session.changes.apply(fork).conflicts
    assert (place.project / "moved").read_text() == "ours\n" + TEXT + "theirs\n"


def test_of_a_rename_both_ends_land_or_none(place: Place) -> None:
    file = place.write("f", TEXT)
    session, fork = staged(place, "mv f moved", lambda: (place.project / "moved").write_text("mine\n"))
    landed = session.changes.apply(fork)
    assert conflicts(landed).keys() == {"f", "moved"}
    assert file.read_text() == TEXT
    assert (place.project / "moved").read_text() == "mine\n"


def test_a_file_that_was_removed_and_one_that_was_renamed(place: Place) -> None:
    file = place.write("f", TEXT)
    session, fork = staged(place, "mv f moved", file.unlink)
    assert conflicts(session.changes.apply(fork)).keys() == {"f", "moved"}
    assert conflicts(session.changes.apply(fork)).keys() == {"f", "moved"}, "and stays one"
    assert not (place.project / "moved").exists()


@pytest.mark.parametrize("content", [b"a\0b\n", b"caf\xe9\n"])
def test_what_is_no_text_conflicts_whole(place: Place, content: bytes) -> None:
    file = place.write("f", b"1\n2\n3\n" + content)
    session, fork = staged(place, "echo theirs >> f", lambda: file.write_bytes(b"ours\n2\n3\n" + content))
    reason = conflicts(session.changes.apply(fork))["f"]
    assert reason.startswith("also changed in the project, and cannot be merged: ")
    assert file.read_bytes() == b"ours\n2\n3\n" + content


def test_line_ends_and_a_missing_newline_stay(place: Place) -> None:
    file = place.write("f", b"a\r\nb\r\nc\r\nd\r\ne")
    session, fork = staged(place, "sed -i 's/^a/A/' f", lambda: file.write_bytes(b"a\r\nb\r\nc\r\nd\r\nE"))
    assert not session.changes.apply(fork).conflicts
    assert file.read_bytes() == b"A\r\nb\r\nc\r\nd\r\nE"


def test_a_link_that_both_changed(place: Place) -> None:
    link = place.project / "l"
    link.symlink_to("a")

    def meanwhile() -> None:
        link.unlink()
        link.symlink_to("ours")

    session, fork = staged(place, "ln -sfn theirs l", meanwhile)
    assert conflicts(session.changes.apply(fork)) == {"l": "its target was also changed in the project"}
    assert os.readlink(link) == "ours"


def test_a_merged_file_stays_what_it_was_otherwise(place: Place) -> None:
    file = place.write("f", TEXT, 0o640)
    os.setxattr(file, "user.mine", b"kept")
    session, fork = staged(
        place, "sed -i 's/^line 3$/theirs/' f", lambda: file.write_text(TEXT.replace("line 18\n", "ours\n"))
    )
    session.changes.apply(fork)
    assert file.stat().st_mode & 0o777 == 0o640
    assert os.getxattr(file, "user.mine") == b"kept"


def test_a_fork_goes_on_after_a_merge(place: Place) -> None:
    """Its own version is the original of what comes next, not what the project was merged into."""
    file = place.write("f", TEXT)
    place.write("stuck", "1\n")
    session = place.session()
    session.forks.new("x")
    session.run([b"sh", b"-c", b"sed -i 's/^line 3$/theirs/' f; echo t > stuck"], fork="x")
    tick()
    file.write_text(TEXT.replace("line 18\n", "ours\n"))
    (place.project / "stuck").write_text("o\n")
    assert conflicts(session.changes.apply("x")).keys() == {"stuck"}, "so that the fork stays as it is"
    session.run([b"sh", b"-c", b"sed -i 's/^line 5$/more/' f"], fork="x")
    shown = b"".join(session.changes.diff("x", [b"f"]))
    assert b"+more\n" in shown
    assert b"theirs\n" not in [line[1:] for line in shown.splitlines(True) if line[:1] in b"+-"]
    assert conflicts(session.changes.apply("x")).keys() == {"stuck"}
    assert file.read_text() == TEXT.replace("line 3\n", "theirs\n").replace("line 5\n", "more\n").replace(
        "line 18\n", "ours\n"
    )


def test_a_whole_directory_renamed_with_an_edit_in_it(place: Place) -> None:
    place.write("d/a", TEXT)
    place.write("d/b", "b\n")
    session, fork = staged(place, "mv d e", lambda: (place.project / "d/a").write_text(TEXT + "ours\n"))
    before = listing(place.project)
    assert not session.changes.apply(fork).conflicts
    assert (place.project / "e/a").read_text() == TEXT + "ours\n"
    assert not (place.project / "d").exists()
    session.changes.undo()
    assert listing(place.project) == before


def test_merging_leaves_nothing_behind(place: Place) -> None:
    file = place.write("f", TEXT)
    session, fork = staged(place, "echo theirs >> f", lambda: file.write_text("ours\n" + TEXT))
    session.changes.apply(fork)
    merged = os.fsdecode(session.vault.merged)
    assert os.listdir(merged) == []
    shutil.rmtree(merged)


def ruled(place: Place, settings: Settings, theirs: str = "import c") -> tuple[Session, str]:
    """A file whose conflict a rule merges, under a policy."""
    file = place.write("m.py", "import a\n")
    session = place.session(settings)
    fork = session.run([b"sh", b"-c", f"echo '{theirs}' >> m.py; chmod 755 m.py".encode()]).fork
    tick()
    file.write_text("import a\nimport b\n")
    return session, fork


@needs("merging")
def test_a_policy_has_an_apply_take_what_a_rule_merges(place: Place) -> None:
    session, fork = ruled(place, Settings(merge_rules="apply"))
    assert session.changes.conflicts(fork) == []
    landed = session.changes.apply(fork)
    assert (place.project / "m.py").read_text() == "import a\nimport b\nimport c\n"
    assert (place.project / "m.py").stat().st_mode & 0o777 == 0o755, "the fork's mode landed, too"
    assert [(remark.path, remark.text) for remark in landed.applied.remarks] == [
        (b"m.py", "merged by rule: union of imports")
    ]
    assert (landed.merged, landed.conflicts) == ((b"m.py",), ())
    session.changes.undo()
    assert (place.project / "m.py").read_text() == "import a\nimport b\n"


@needs("merging")
def test_a_rule_is_told_once_where_the_result_was_verified(place: Place) -> None:
    """The landing is planned again after the verification."""
    session, fork = ruled(place, Settings(merge_rules="apply"))
    verify_by(session, verifying("true"))
    remarks = session.changes.apply(fork).applied.remarks
    assert [remark.text for remark in remarks] == ["merged by rule: union of imports"]


@needs("merging")
def test_a_decision_by_rule_is_told_by_the_apply(place: Place) -> None:
    session, fork = ruled(place, Settings())
    (conflict,) = session.changes.conflicts(fork)
    assert conflict.by_rule is not None
    session.changes.decide(fork, conflict, "content", conflict.by_rule.content, how=conflict.by_rule.how)
    (decided,) = session.changes.conflicts(fork)
    assert decided.how == "merged by rule: union of imports"
    session.changes.decide(fork, decided, "content", b"import d\n", edited=True)
    assert session.changes.conflicts(fork)[0].how == "", "the user has edited it"
    assert session.changes.apply(fork).applied.remarks == ()


@pytest.mark.parametrize(("settings", "theirs"), [(Settings(), "import c"), (Settings(merge_rules="apply"), "b = 1")])
def test_a_conflict_that_no_rule_merges_stays(place: Place, settings: Settings, theirs: str) -> None:
    session, fork = ruled(place, settings, theirs)
    assert [conflict.path for conflict in session.changes.apply(fork).conflicts] == [b"m.py"]
    assert (place.project / "m.py").read_text() == "import a\nimport b\n"


def test_a_decision_precedes_a_rule(place: Place) -> None:
    session, fork = ruled(place, Settings())
    (conflict,) = session.changes.conflicts(fork)
    session.changes.decide(fork, conflict, "theirs")
    session = place.session(Settings(merge_rules="apply"))
    session.changes.apply(fork)
    assert (place.project / "m.py").read_text() == "import a\nimport c\n"


def verifying(command: str, when: VerifyWhen = "merged") -> Settings:
    return Settings(verify=(b"/bin/sh", b"-c", command.encode()), verify_when=when)


def verify_by(session: Session, policy: Settings) -> None:
    actor = session.actor._replace(settings=policy, policy=policy)
    session.changes.verify = verification(session.forks, actor, session._run_as)


def both_edit(place: Place, settings: Settings) -> tuple[Session, str]:
    file = place.write("f", TEXT)
    session, fork = staged(place, "echo theirs >> f", lambda: file.write_text("ours\n" + TEXT))
    verify_by(session, settings)
    return session, fork


def test_a_user_who_edits_as_long_as_it_is_verified(place: Place) -> None:
    """Whatever was verified is not what would be written: no try is."""
    session, fork = both_edit(place, verifying("true"))
    real, edits = session.changes.verify, iter(range(10))

    def verify(on_verify: Any) -> Any:
        check: Any = real(on_verify)

        def edited(*arguments: Any) -> Any:
            verified = check(*arguments)
            (place.project / "f").write_text(f"ours {next(edits)}\n" + TEXT)
            return verified

        return edited

    session.changes.verify = verify
    told = "the project changed each time while the result was being verified (try again)"
    with pytest.raises(MudroomError, match=whole(told)):
        session.changes.apply(fork)
    assert (place.project / "f").read_text() == "ours 2\n" + TEXT
    session.changes.verify = real
    assert session.changes.apply(fork).conflicts == ()


def test_the_merged_result_is_verified_before_it_is_written(place: Place) -> None:
    session, fork = both_edit(place, verifying("head -1 f; tail -1 f; test -e /nowhere"))
    before = listing(place.project)
    landed = session.changes.apply(fork)
    assert landed.verified is not None
    assert (landed.verified.passed, landed.verified.output) == (False, b"ours\ntheirs\n")
    assert listing(place.project) == before, "the project is as it was"
    assert landed.remaining == 1
    assert [one.name for one in session.vault.forks()] == [fork]
    verify_by(session, verifying("grep -q theirs f && grep -q ours f"))
    landed = session.changes.apply(fork)
    assert landed.verified is not None and landed.verified.passed
    assert (place.project / "f").read_text() == "ours\n" + TEXT + "theirs\n"


@pytest.mark.parametrize(("when", "asked"), [("merged", False), ("always", True), ("never", False)])
def test_when_it_is_verified(place: Place, when: VerifyWhen, asked: bool) -> None:
    for name in ("f", "g", "old"):
        place.write(name, name + "\n")
    session, result = place.sh("mkdir -p a/b; echo new > a/b/c; ln -s a l; rm old; chmod 755 f; mv g h")
    verify_by(session, verifying("cat a/b/c && test -x f && test -L l && test ! -e old && test ! -e g && cat h", when))
    landed = session.changes.apply(result.fork)
    assert (landed.verified is not None) == asked
    if landed.verified is not None:
        assert (landed.verified.exit_code, landed.verified.output) == (0, b"new\ng\n")


def test_verifying_that_takes_too_long(place: Place) -> None:
    session, fork = both_edit(place, verifying("sleep 100")._replace(verify_timeout=0.3))
    landed = session.changes.apply(fork)
    assert landed.verified is not None and landed.verified.timed_out and not landed.verified.passed


def test_the_user_goes_on_while_it_is_verified(place: Place) -> None:
    """What was verified is what is written: if the project moves on meanwhile, it is verified again."""
    session, fork = both_edit(place, verifying("grep -c . f"))
    times = []

    def check(landing: Landing, source: Source, merged: bytes) -> Verification | None:
        times.append(1)
        if len(times) == 1:
            (place.project / "f").write_text("again\nours\n" + TEXT)
        found = verify(None)
        assert found is not None
        return found(landing, source, merged)

    verify = session.changes.verify
    session.changes.verify = lambda _heard: check
    landed = session.changes.apply(fork)
    assert len(times) == 2
    assert landed.verified is not None and landed.verified.output == b"23\n"
    assert (place.project / "f").read_text() == "again\nours\n" + TEXT + "theirs\n"


def test_undo_keeps_what_was_changed_since(place: Place) -> None:
    file = place.write("f", TEXT)
    session, result = place.sh("sed -i 's/^line 3$/theirs/' f")
    session.changes.apply(result.fork)
    file.write_text(file.read_text().replace("line 18\n", "later\n"))
    undone = session.changes.undo()
    assert not undone.conflicts
    assert [(remark.path, remark.text) for remark in undone.remarks] == [(b"f", "keeps the edits made since")]
    assert file.read_text() == TEXT.replace("line 18\n", "later\n")


def test_undo_of_what_was_changed_since_in_the_same_lines_is_a_conflict(place: Place) -> None:
    file = place.write("f", TEXT)
    session, result = place.sh("sed -i 's/^line 3$/theirs/' f; echo new > new")
    session.changes.apply(result.fork)
    later = file.read_text().replace("theirs\n", "later\n")
    file.write_text(later)
    undone = session.changes.undo()
    assert [conflict.path for conflict in undone.conflicts] == [b"f"]
    assert file.read_text() == later
    assert not (place.project / "new").exists()


def test_undo_of_an_apply_of_before_the_last(place: Place) -> None:
    """The files of both applies are the same: taking back the first leaves what the second did."""
    file = place.write("f", TEXT)
    session, first = place.sh("sed -i 's/^line 3$/first/' f")
    session.changes.apply(first.fork)
    session, second = place.sh("sed -i 's/^line 18$/second/' f")
    session.changes.apply(second.fork)
    assert not session.changes.undo("u1").conflicts
    assert file.read_text() == TEXT.replace("line 18\n", "second\n")
    assert not session.changes.undo("u2").conflicts
    assert file.read_text() == TEXT


def test_backups_beside_the_originals(place: Place) -> None:
    for name in ("f", "g", "d/a", "d/b", "again"):
        place.write(name, name + "\n", 0o640)
    place.write("again.bak", "older\n")
    session, result = place.sh(
        "echo new > f; rm g; rm -r d; echo 2 > again; echo added > added; ln -sf f l; echo n > f.bak.x"
    )
    before = listing(place.project)
    landed = session.changes.apply(result.fork, backups=True)
    now = place.project
    assert (now / "f.bak").read_text() == "f\n" and (now / "f.bak").stat().st_mode & 0o777 == 0o640
    assert (now / "g.bak").read_text() == "g\n" and not (now / "g").exists()
    assert (now / "again.bak").read_text() == "again\n"
    assert not (now / "added.bak").exists() and not (now / "d").exists()
    assert [remark.path for remark in landed.applied.remarks] == [b"d"]
    session.changes.undo()
    assert listing(place.project) == before


def test_redo_brings_it_again(place: Place) -> None:
    for name in ("f", "gone/a", "kind"):
        place.write(name, TEXT)
    session, result = place.sh(
        "echo more >> f; rm -r gone; mkdir new; echo n > new/n; rm kind; ln -s f kind; chmod 600 f"
    )
    before = listing(place.project)
    session.changes.apply(result.fork)
    after = listing(place.project)
    session.changes.undo()
    assert listing(place.project) == before
    assert not session.changes.redo().conflicts
    assert listing(place.project) == after
    session.changes.undo("u1")
    assert listing(place.project) == before
    (place.project / "f").write_text("edited since\n")
    assert [conflict.path for conflict in session.changes.redo("u1").conflicts] == [b"f"]
    assert (place.project / "f").read_text() == "edited since\n"
    assert (place.project / "new/n").exists()
    with pytest.raises(UsageError, match="nothing to redo"):
        session.changes.redo()


def test_what_was_undone_last_is_redone_first(place: Place) -> None:
    place.write("f", "0\n")
    for number in (1, 2, 3):
        session, result = place.sh(f"echo {number} > f")
        session.changes.apply(result.fork)
    for expected in (2, 1, 0):
        session.changes.undo()
        tick()
        assert (place.project / "f").read_text() == f"{expected}\n"
    for expected in (1, 2, 3):
        session.changes.redo()
        tick()
        assert (place.project / "f").read_text() == f"{expected}\n"


def test_a_backup_is_nowhere_that_a_file_has_gone(place: Place) -> None:
    """What another fork wants of a file that was removed is not done to the copy which the apply has left."""
    text = "".join(f"line {number}\n" for number in range(30))
    place.write("run.sh", text)
    session = place.session()
    for fork, script in (("a", "rm run.sh"), ("b", "sed -i 's/line 7$/seven/' run.sh")):
        session.forks.new(fork)
        session.run([b"sh", b"-c", script.encode()], fork=fork)
    with session.alone("a test"):
        session.changes.apply("a", backups=True)
        landed = session.changes.apply("b")
    assert [one.path for one in landed.applied.conflicts] == [b"run.sh"]
    assert {name: entry[2] for name, entry in listing(place.project).items()} == {"run.sh.bak": text.encode()}


def test_a_renamed_file_stays_where_its_new_path_is_in_conflict(place: Place) -> None:
    place.write("a", TEXT)
    place.write("y/other")

    def meanwhile() -> None:
        shutil.rmtree(place.project / "y")
        place.write("y", "ours, and no directory\n")

    session, fork = staged(place, "mv a y/b", meanwhile)
    landed = session.changes.apply(fork)
    assert {one.path for one in landed.conflicts} == {b"a", b"y/b"}
    assert (place.project / "a").read_text() == TEXT


def test_a_new_directory_that_is_not_as_reviewed_does_not_land(place: Place) -> None:
    session, result = place.sh("mkdir -p new/sub; echo reviewed > new/sub/f")
    layer = session.vault.fork(result.fork).upper
    with open(layer + b"/new/sub/f", "w") as stream:
        stream.write("written since, and longer\n")
    with pytest.raises(ForkMoved):
        session.changes.apply(result.fork)
    assert not (place.project / "new").exists()


def test_an_attribute_alone_is_a_change(place: Place) -> None:
    file = place.write("f", TEXT)
    place.write("same", TEXT)
    session, result = place.sh("setfattr -n user.new -v v f; touch same")
    assert [(change.path, change.flags) for change in result.changeset.changes] == [(b"f", ("xattr",))]
    assert not session.changes.apply(result.fork).conflicts
    assert os.getxattr(file, "user.new") == b"v"


def test_the_other_names_of_a_file_are_remarked_on(place: Place) -> None:
    os.link(place.write("f", TEXT), place.project / "twin")
    place.write("alone", TEXT)
    _session, result = place.sh("echo more >> f; echo more >> alone")
    (remark,) = result.changeset.remarks
    assert remark.path == b"f" and remark.text.startswith("has 2 hard links in the project")
