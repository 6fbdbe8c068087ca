"""What lands besides content: no set-id bits, no fifos, no mode that is open to everybody, and no link that leads out
of the project without a word."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from conftest import Place, tick
from mudroom.cli.change.preview import preview
from mudroom.cli.terminal.terminal import Terminal
from mudroom.core.result import Result, changes_to_json
from mudroom.core.settings import Settings
from mudroom.session import Session
from mudroom.stage.layers.layer import remove_tree

pytestmark = [pytest.mark.both_users, pytest.mark.root]

FILE, DIRECTORY = 0o644, 0o755


@pytest.fixture(params=["overlay", "copy"])
def settings(request: pytest.FixtureRequest) -> Settings:
    return Settings(view=request.param)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def flags(result: Result) -> dict[str, tuple[str, ...]]:
    return {os.fsdecode(change.path): change.flags for change in result.changeset.changes}


def rows(session: Session, fork: str) -> dict[str, dict[str, object]]:
    return {row["path"]: row for row in changes_to_json(session.changes.of(fork))["files"]}


def shown(session: Session, fork: str) -> str:
    return "\n".join(preview("changes", session.changes.of(fork), Terminal({})))


def apply(session: Session, fork: str) -> None:
    applied = session.changes.apply(fork)
    assert not applied.conflicts


def test_set_id_bits_stay_in_the_fork(place: Place, settings: Settings) -> None:
    place.write("old", "old\n")
    place.write("same", "same\n")
    session, result = place.sh(
        "cp /bin/true new; chmod 4755 new; mkdir -p d/sub; cp new d/sub/inner; chmod 6755 d/sub/inner;"
        "echo more >> old; chmod 6755 old; chmod 2644 same",
        settings,
    )
    assert {path for path, found in flags(result).items() if "reduced-mode" in found} == {"new", "d/sub/inner", "old"}
    assert [(remark.path, "set-group-ID" in remark.text) for remark in result.changeset.remarks] == [(b"same", True)]
    found = rows(session, result.fork)
    assert found["new"]["mode"] == [None, "0755"]
    assert found["old"]["mode"] == ["0644", "0755"]
    assert "same" not in found
    assert "lands with fewer permissions" in shown(session, result.fork)
    apply(session, result.fork)
    for path, expected in (("new", 0o755), ("d/sub/inner", 0o755), ("old", 0o755), ("same", FILE)):
        assert mode(place.project / path) == expected, path
    session.changes.undo()
    assert not (place.project / "new").exists()
    session.changes.redo()
    assert mode(place.project / "new") == mode(place.project / "d/sub/inner") == 0o755


def test_the_rest_of_a_fork_is_not_offered_again(place: Place, settings: Settings) -> None:
    session, result = place.sh("mkdir d; echo a > d/a; chmod 4755 d/a; echo b > b; chmod 666 b", settings)
    session.forks.checkpoint(result.fork, "point")
    session.changes.apply(result.fork, [b"d"])
    assert mode(place.project / "d/a") == 0o755
    assert [change.path for change in session.changes.of(result.fork).changes] == [b"b"]
    session.run([b"true"], fork=result.fork)
    assert [change.path for change in session.changes.of(result.fork).changes] == [b"b"]
    apply(session, result.fork)
    assert mode(place.project / "b") == 0o644
    session.run([b"true"], fork=result.fork)
    assert not session.changes.of(result.fork).changes


def test_directories_open_to_everybody(place: Place, settings: Settings) -> None:
    (place.project / "group").mkdir()
    (place.project / "group").chmod(0o2775)
    (place.project / "drop").mkdir()
    (place.project / "drop").chmod(0o1777)
    session, result = place.sh(
        "mkdir -p wide/in; echo f > wide/in/f; chmod 666 wide/in/f; chmod 7777 wide wide/in;"
        "echo f > group/f; echo f > drop/f; mkdir plain; chmod 755 plain; chmod 1755 plain",
        settings,
    )
    assert {path for path, found in flags(result).items() if "reduced-mode" in found} == {
        "wide",
        "wide/in",
        "wide/in/f",
        "plain",
    }
    apply(session, result.fork)
    assert mode(place.project / "wide") == mode(place.project / "wide/in") == DIRECTORY
    assert mode(place.project / "wide/in/f") == FILE
    assert mode(place.project / "plain") == DIRECTORY
    assert mode(place.project / "group") == 0o2775
    assert mode(place.project / "drop") == 0o1777


def test_a_file_of_the_project_keeps_its_own_bits(place: Place, settings: Settings) -> None:
    place.write("tool", "tool\n", 0o4755)
    place.write("open", "open\n", 0o666)
    session, result = place.sh("touch tool; echo more >> open", settings)
    assert set(flags(result)) == {"open"}
    apply(session, result.fork)
    assert mode(place.project / "tool") == 0o4755
    assert mode(place.project / "open") == 0o666


def test_new_content_does_not_get_the_set_id_bits_of_the_project(place: Place, settings: Settings) -> None:
    place.write("tool", "tool\n", 0o4755)
    session, result = place.sh("cp /bin/true tool; chmod 4755 tool", settings)
    assert rows(session, result.fork)["tool"]["mode"] == ["4755", "0755"]
    apply(session, result.fork)
    assert mode(place.project / "tool") == 0o755


def test_a_fifo_is_said_and_stays(place: Place, settings: Settings) -> None:
    place.write("was", "a file\n")
    session, result = place.sh("mkdir d; mkfifo d/pipe pipe; echo f > d/f; rm was; mkfifo was", settings)
    stays = "has become a fifo, which cannot be applied: it stays as it is"
    assert {remark.path: remark.text for remark in result.changeset.remarks} == {
        **dict.fromkeys((b"d/pipe", b"pipe"), "a fifo cannot be applied"),
        b"was": stays,
    }
    assert {change.path for change in result.changeset.changes} == {b"d", b"d/f"}
    apply(session, result.fork)
    assert (place.project / "was").read_text() == "a file\n"
    assert sorted(os.listdir(place.project / "d")) == ["f"]
    assert not (place.project / "pipe").exists()


def test_a_fifo_of_the_project_stays_as_it_is(place: Place, settings: Settings) -> None:
    os.mkfifo(place.project / "pipe", 0o644)
    session, result = place.sh("touch pipe; chmod 600 pipe; echo f > f", settings)
    assert [change.path for change in result.changeset.changes] == [b"f"]
    assert [(remark.path, remark.text) for remark in result.changeset.remarks] == [
        (b"pipe", "the mode of a fifo is not applied")
    ]
    apply(session, result.fork)
    assert mode(place.project / "pipe") == 0o644


def test_links_that_lead_out_are_flagged_with_their_target(place: Place, settings: Settings) -> None:
    (place.project / "sub").mkdir()
    os.symlink("/etc", place.project / "etc")
    session, result = place.sh(
        "ln -s ~/.ssh keys; ln -s ../../x sub/up; ln -s ../x sub/in; ln -s etc/passwd chain; ln -s hop one;"
        "ln -s / hop;"
        'ln -s "$PWD/sub" absolute; mkdir -p new/deep; ln -s ../../../x new/deep/out',
        settings,
    )
    leading = {path for path, found in flags(result).items() if "leads-outside" in found}
    assert leading == {"keys", "sub/up", "chain", "one", "hop", "new/deep/out"}
    found = rows(session, result.fork)
    assert found["chain"]["target"] == "etc/passwd"
    assert found["sub/in"]["target"] == "../x"
    assert "chain → etc/passwd" in shown(session, result.fork)
    assert "leads out of the project: " in shown(session, result.fork)


def test_a_link_of_an_earlier_command_is_judged_again(place: Place) -> None:
    session, result = place.sh("mkdir d; ln -s d/x link")
    assert flags(result)["link"] == ()
    session.forks.checkpoint(result.fork, "point")
    result = session.run([b"sh", b"-c", b"rmdir d; ln -s /etc d"], fork=result.fork)
    assert flags(result)["link"] == flags(result)["d"] == ("leads-outside",)
    result = session.run([b"sh", b"-c", b"rm d; mkdir d"], fork=result.fork)
    assert flags(result)["link"] == ()


def test_modes_of_new_files_are_in_the_preview(place: Place) -> None:
    session, result = place.sh("echo a > a; echo b > b; chmod 755 b; echo c > c; chmod 400 c; mkdir d; ln -s a l")
    found = rows(session, result.fork)
    assert {path: row.get("mode") for path, row in found.items()} == {
        "a": [None, "0644"],
        "b": [None, "0755"],
        "c": [None, "0400"],
        "d": [None, "0755"],
        "l": None,
    }
    lines = {line.split()[0]: line for line in shown(session, result.fork).splitlines()}
    assert "executable" in lines["b"]
    assert "mode 400" in lines["c"]
    assert "→ a" in lines["l"]
    assert "mode" not in lines["a"] + lines["d/" if "d/" in lines else "d"]


def test_a_merge_and_a_decision_have_the_same_form(place: Place) -> None:
    place.write("merged", "1\n2\n3\n4\n5\n6\n")
    session, result = place.sh("sed -i s/6/six/ merged; chmod 6777 merged; echo theirs > both; chmod 6777 both")
    tick()
    place.write("merged", "one\n2\n3\n4\n5\n6\n")
    place.write("both", "ours\n")
    (conflict,) = session.changes.conflicts(result.fork)
    session.changes.decide(result.fork, conflict, "theirs")
    apply(session, result.fork)
    assert (place.project / "merged").read_text() == "one\n2\n3\n4\n5\nsix\n"
    assert (place.project / "both").read_text() == "theirs\n"
    assert mode(place.project / "merged") == mode(place.project / "both") == 0o755


def test_bits_that_never_land_may_change_after_the_review(place: Place) -> None:
    session, result = place.sh("mkdir d; echo f > d/f; chmod 4755 d/f")
    upper = Path(os.fsdecode(session.vault.layer(session.vault.fork(result.fork).state.upper))) / "tree"
    (upper / "d/f").chmod(0o6755)  # of both states the form is 0755
    apply(session, result.fork)
    assert mode(place.project / "d/f") == 0o755


def test_missing_parents_have_the_form_of_new_directories(place: Place) -> None:
    place.write("d/old", "old\n")
    session, result = place.sh("chmod 7777 d; echo new > d/new")
    remove_tree(os.fsencode(place.project / "d"))
    session.changes.apply(result.fork, [b"d/new"])
    assert mode(place.project / "d") & 0o7022 == 0


def test_only_the_mode_of_the_project_itself(place: Place, settings: Settings) -> None:
    """The first command of a fork: it leaves its layer empty."""
    place.write("f", "1\n")
    place.project.chmod(0o755)
    session, result = place.sh("chmod 700 .", settings)
    assert flags(result) == {"": ("mode",)}
    apply(session, result.fork)
    assert mode(place.project) == 0o700
    session, result = place.sh("chmod 1700 .", settings)
    assert [(remark.path, "sticky" in remark.text) for remark in result.changeset.remarks] == [(b"", True)]


def test_a_link_in_the_place_of_a_directory_whose_scripts_a_manifest_names_is_flagged(place: Place) -> None:
    place.write("package.json", '{"scripts": {"build": "node scripts/build.js"}}')
    place.write("scripts/build.js", "build()\n")
    place.write("other/text", "text\n")
    session = place.session()
    script = b"for one in scripts other; do mv $one $one-2; ln -s $one-2 $one; done; echo 'evil()' >> scripts/build.js"
    told = flags(session.run([b"sh", b"-c", script], fork="f"))
    assert "executes-later" in told["scripts"] and "executes-later" not in told["other"]
    assert "package.json names it)" in shown(session, "f")


def test_a_change_of_what_mudroom_runs_from_is_told_apart(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """mudroom may be installed in an environment of the project. A command's file lands there like others: it would run
    outside of every sandbox at the next command of mudroom."""
    place.write("tools/lib/data", "1\n")
    place.write("tools2/data", "1\n")
    monkeypatch.setattr(sys, "prefix", str(place.project / "tools"))
    session = place.session()
    result = session.run([b"sh", b"-c", b"echo 2 > tools/lib/data; echo 2 > tools2/data"], fork="f")
    told = {change.path: (change.runs, "executes-later" in change.flags) for change in result.changeset.changes}
    assert told == {
        b"tools/lib/data": (
            "at the next mudroom command, outside of every sandbox: mudroom itself runs from there",
            True,
        ),
        b"tools2/data": ("", False),
    }


def test_a_link_in_the_place_of_a_directory_whose_files_run_is_flagged(place: Place, settings: Settings) -> None:
    """Two forks, one after the other: a file with a harmless name, and the link by which it has another one."""
    session = place.session(settings)
    result = session.run([b"sh", b"-c", b"mkdir assets; echo '[build]' > assets/config.toml"], fork="one")
    assert "executes-later" not in flags(result)["assets/config.toml"]
    apply(session, "one")
    result = session.run([b"sh", b"-c", b"ln -s assets .cargo; ln -s assets latest"], fork="other")
    assert "executes-later" in flags(result)[".cargo"] and "executes-later" not in flags(result)["latest"]
    assert "runs by itself later: .cargo (at the next cargo" in shown(session, "other")


def test_a_new_directory_lands_with_the_modes_that_were_reviewed(place: Place) -> None:
    """A process that has outlived its command changes them after the review."""
    session, result = place.sh("mkdir -p d/in; cp /bin/true d/in/x; chmod 755 d/in/x")
    inside = os.fsdecode(session.vault.fork(result.fork).upper) + "/d/in"
    os.chmod(f"{inside}/x", 0o4775)
    os.chmod(inside, 0o1777)
    apply(session, result.fork)
    assert mode(place.project / "d/in/x") == mode(place.project / "d/in") == 0o755


def test_a_directory_that_its_owner_may_not_read_lands_readable(place: Place, settings: Settings) -> None:
    (place.project / "closed").mkdir()
    session, result = place.sh("mkdir -p d/in; echo x > d/in/x; chmod 0 d/in; chmod 300 d; chmod 0 closed", settings)
    for path, words in (("d", "(mode 0300): it lands as 0700"), ("d/in", "(mode 0000): it lands as 0500")):
        assert f"{path}/ is closed to its owner {words}" in shown(session, result.fork).replace(
            f"{path} is", f"{path}/ is"
        )
    session.changes.apply(result.fork)
    for _turn in range(2):
        assert (place.project / "d/in/x").read_text() == "x\n"
        assert [mode(place.project / path) for path in ("d", "d/in", "closed")] == [0o700, 0o500, 0o500]
        session.changes.undo()
        assert mode(place.project / "closed") == 0o755
        session.changes.redo()


def test_a_lost_attribute_is_named(place: Place, settings: Settings) -> None:
    os.setxattr(place.write("f", "f\n"), "user.k", b"v")
    session, result = place.sh("cp f t; echo more >> t; mv t f", settings)
    assert flags(result)["f"] == ("content", "xattr")
    apply(session, result.fork)
    assert "user.k" not in os.listxattr(place.project / "f")


def test_one_line_for_the_same_remark_about_many(place: Place, settings: Settings) -> None:
    session, result = place.sh("for n in 1 2 3 4 5 6; do mkfifo $n; done", settings)
    assert "1, 2, 3, 4 and 2 more: a fifo cannot be applied" in shown(session, result.fork)
