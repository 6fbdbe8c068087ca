"""A git push to a held host is stored, told to the client as done, and not sent."""

from __future__ import annotations

import json
import os
import sys
from base64 import b64encode
from pathlib import Path

import pytest
from forge import git
from yard import COMMIT, LOST_ANSWERS, Yard, killed_at
from yard import yard as yard

from mudroom.core.network.host_rules import Request, held, holding, parse_rule
from mudroom.core.network.inspection import Inspection, uninspected
from mudroom.errors import MudroomError, UsageError
from mudroom.ext.effects.store import effects
from mudroom.ext.effects.upstream import PushServer
from mudroom.ext.inspection.credentials import save_credentials
from mudroom.ext.inspection.placeholder import parse_credential
from mudroom.ext.transfer.vault.bundle import export_fork
from mudroom.ext.tui import summary as review_summary
from mudroom.ext.tui.choice import Choice
from mudroom.ext.web.api.landing import landed_shape, turned_shape
from tiers import every, half, pairs

pytestmark = [pytest.mark.both_users]


@pytest.mark.parametrize(("tls", "version"), pairs([False, True], [0, 2]))
def test_a_push_waits_and_the_command_reads_it_back(yard: Yard, tls: bool, version: int) -> None:
    before = yard.forge.refs()
    with yard.session() as session:
        first = yard.run(
            session,
            f"git config protocol.version {version}; git remote set-url origin {yard.url(tls=tls)}; {COMMIT}"
            "git push -q origin HEAD:main; git rev-parse HEAD; git ls-remote origin refs/heads/main; git fetch -q; "
            "git status -sb | head -1",
        )
        assert first.exit_code == 0, first.stderr
        head, told, state = first.stdout.decode().splitlines()
        assert told == f"{head}\trefs/heads/main"
        assert "ahead" not in state and "behind" not in state
        assert b"remote: held: refs/heads/main will be pushed when the fork is applied" in first.stderr
        second = yard.run(
            session,
            "echo three >> a; git commit -qam third; git push -q origin HEAD:main HEAD:topic; git pull -q origin main",
        )
        assert second.exit_code == 0, second.stderr
        held_pushes = effects(session.vault.fork("f").path)
        assert [(push.name, push.state) for push in held_pushes] == [("push:1", "held"), ("push:2", "held")]
        assert [[command.ref for command in push.commands] for push in held_pushes] == [
            ["refs/heads/main"],
            ["refs/heads/main", "refs/heads/topic"],
        ]
        assert held_pushes[1].commands[0].old == held_pushes[0].commands[0].new == head
    assert yard.forge.refs() == before
    assert yard.forge.pushes() == 0


PUSH = COMMIT + "git push -q origin HEAD:main; "


def remote(yard: Yard, *, tls: bool = False) -> str:
    return f"git remote set-url origin {yard.url(tls=tls)}; "


def test_an_apply_sends_the_pushes_in_order_and_an_undo_takes_them_back(yard: Yard) -> None:
    before = yard.forge.refs()
    with yard.session() as session:
        done = yard.run(
            session,
            remote(yard)
            + PUSH
            + "echo new > b; git push -q origin HEAD:refs/heads/topic; git tag v1; git push -q origin v1",
        )
        assert done.exit_code == 0, done.stderr
        rows = session.changes.pushes("f")
        assert [(row.name, row.state, row.refs[0].ref, row.refs[0].verb) for row in rows] == [
            ("push:1", "held", "refs/heads/main", "moved"),
            ("push:2", "held", "refs/heads/topic", "new"),
            ("push:3", "held", "refs/tags/v1", "new"),
        ]
        assert [subject for _id, subject in rows[0].refs[0].commits] == ["second"]
        landed = session.changes.apply("f", pushes=["push:1", "push:2", "push:3"])
        assert [(row.name, row.state, row.why) for row in landed.applied.pushes] == [
            (f"push:{number}", "sent", "") for number in (1, 2, 3)
        ]
        assert (yard.project / "b").read_text() == "new\n"
        after = yard.forge.refs()
        assert after["refs/heads/main"] == after["refs/heads/topic"] == after["refs/tags/v1"] == rows[0].refs[0].new
        assert session.changes.pushes("f") == []
        undone = session.changes.undo()
        assert [(row.name, row.state, row.why) for row in undone.pushes] == [
            (f"push:{number}", "undone", "") for number in (3, 2, 1)
        ]
    assert yard.forge.refs() == before
    assert not (yard.project / "b").exists()


def test_a_push_alone_is_an_apply_that_undo_takes_back(yard: Yard) -> None:
    before = yard.forge.refs()
    with yard.session() as session:
        yard.run(session, remote(yard) + PUSH)
        landed = session.changes.apply("f", pushes=["push:1"], exact=True)
        assert (landed.applied.written, [row.state for row in landed.applied.pushes]) == (0, ["sent"])
        assert yard.forge.refs() != before
        undone = session.changes.undo(landed.applied.name)
        assert [row.state for row in undone.pushes] == ["undone"]
        assert [remark.path for remark in undone.remarks] == [b"push:1"]
        assert [remark.path for remark in session.changes.redo(landed.applied.name).remarks] == [b"push:1"]
    assert yard.forge.refs() == before


def test_a_push_is_sent_from_a_fork_that_has_no_change_or_none_left(yard: Yard) -> None:
    with yard.session() as session:
        assert yard.run(session, remote(yard) + "git checkout -q .; git push -q origin HEAD:x").exit_code == 0
        session.changes.apply("f", pushes=["push:1"], exact=True)
        yard.run(session, "echo new > b; git push -q origin HEAD:y")
        session.changes.apply("f")
        assert [row.state for row in session.changes.pushes("f")] == ["held"]
        session.changes.apply("f", pushes=["push:1"], exact=True)
    assert {"refs/heads/x", "refs/heads/y"} <= yard.forge.refs().keys()


def test_the_page_and_the_review_say_what_was_not_pushed(yard: Yard) -> None:
    with yard.session() as session:
        yard.run(session, remote(yard) + PUSH)
        landed = session.changes.apply("f", [b"a"])
        text = "is not sent: mudroom apply f push:1 does"
        assert [(row.path, row.text) for row in landed_shape(landed).remarks] == [("push:1", text)]
        assert [(f"push:1 {text}", "warn")] in review_summary.landed(landed, Choice((), {}, ()))
        session.changes.undo()
        session.changes.apply("f", pushes=["push:1"], exact=True)
        undone = session.changes.undo()
        told = f"taken back: refs/heads/main to {yard.url()}"
        assert [(row.path, row.text) for row in turned_shape(undone, "undo").remarks] == [("push:1", told)]
        assert [(f"push:1 {told}", "warn")] in review_summary.undone(undone)
        assert session.forks.unsaid() == []


def test_an_upstream_that_has_moved_refuses_with_a_way_on(yard: Yard) -> None:
    with yard.session() as session:
        yard.run(session, remote(yard) + PUSH)
        twin = yard.root / "twin"
        git("clone", "-q", str(yard.upstream), str(twin), at=yard.root)
        (twin / "elsewhere").write_text("zero\n")
        git("add", ".", at=twin)
        git("commit", "-qm", "elsewhere", at=twin)
        git("push", "-q", "origin", "HEAD:main", at=twin)
        there = yard.forge.refs()
        (shown,) = session.held_effects("f")
        moved = f"moved upstream to {there['refs/heads/main'][:10]}: refused"
        assert shown.refs[0].flags == (moved, "protected name")
        landed = session.changes.apply("f", pushes=["push:1"], exact=True)
        row = landed.applied.pushes[0]
        assert row.state == "refused" and "git rebase --no-fork-point" in row.why
        assert yard.forge.refs() == there and not yard.forge.pushes()
        again = yard.run(
            session, "git fetch -q; git rebase -q --no-fork-point origin/main; git push -q origin HEAD:main"
        )
        assert again.exit_code == 0, again.stderr
        assert b"held: refs/heads/main" in again.stderr, again
        assert [row.name for row in session.changes.pushes("f")] == ["push:2"], "the refused one is replaced"
        reasons = [json.loads(event.data)["why"] for event in session.vault.journal.events() if event.kind == "effect"]
        assert reasons[-1] == "replaced by push:2"
        landed = session.changes.apply("f", pushes=["push:2"], exact=True)
        assert [row.state for row in landed.applied.pushes] == ["sent"]


def cut() -> None:
    raise ConnectionError


@pytest.mark.parametrize(("fault", "state", "times"), half(LOST_ANSWERS))
def test_a_lost_answer_is_asked_about_and_never_doubled(yard: Yard, fault: str, state: str, times: int) -> None:
    word, when = fault.split()
    setattr(yard.forge, when, cut if word == "cut" else lambda: int(word))
    with yard.session() as session:
        yard.run(session, remote(yard) + PUSH)
        new = session.changes.pushes("f")[0].refs[0].new
        landed = session.changes.apply("f", pushes=["push:1"], exact=True)
        assert [row.state for row in landed.applied.pushes] == [state], landed.applied.pushes
        assert (yard.forge.refs()["refs/heads/main"] == new) == bool(times)
        assert [row.state for row in session.changes.pushes("f")] == ([] if state == "sent" else [state])
        yard.forge.before = yard.forge.after = lambda: None
        pushed = yard.forge.pushes()
        if state != "sent":
            landed = session.changes.apply("f", pushes=["push:1"], exact=True)
            assert [row.state for row in landed.applied.pushes] == ["sent"]
            assert yard.forge.pushes() == pushed + 1
    assert yard.forge.refs()["refs/heads/main"] == new


@pytest.mark.parametrize(
    "request_line", ["-X PUT", "-X DELETE", "-X PATCH -d x", "-d x", "-X POST -H X-HTTP-Method-Override:GET"]
)
def test_what_is_no_push_is_refused_in_a_sentence(yard: Yard, request_line: str) -> None:
    with yard.session() as session:
        done = yard.run(
            session, f"curl -s {request_line} http://forge.example:{yard.port}/team/app.git/info/lfs/objects/batch"
        )
    assert b"this cannot be held: " in done.stdout
    assert not yard.forge.requests[-1:] or yard.forge.requests[-1][0] == "POST"


def test_discard_and_rollback_drop_and_say_so(yard: Yard) -> None:
    with yard.session() as session:
        yard.run(session, remote(yard) + PUSH)
        session.forks.checkpoint("f", "here")
        yard.run(session, "git push -q origin HEAD:later")
        session.forks.unsaid()
        session.forks.rollback("f", "here")
        assert ["push:2 is dropped: refs/heads/later" in line for line in session.forks.unsaid()] == [True]
        assert [row.name for row in session.changes.pushes("f")] == ["push:1"]
        session.forks.discard("f")
        assert ["push:1 is dropped: refs/heads/main" in line for line in session.forks.unsaid()] == [True]
        kinds = [event.kind for event in session.vault.journal.events() if event.kind == "effect"]
    assert len(kinds) == 4


def test_a_damaged_push_goes_with_its_fork_and_not_before(yard: Yard) -> None:
    with yard.session() as session:
        yard.run(session, "true")
        session.forks.checkpoint("f", "here")
        yard.run(session, remote(yard) + PUSH)
        damaged = Path(os.fsdecode(session.vault.fork("f").path)) / "effects/1/effect.json"
        damaged.write_bytes(b"{")
        session.forks.unsaid()
        session.forks.rollback("f", "here")
        assert ["effects/1/effect.json cannot be read" in line for line in session.forks.unsaid()] == [True]
        with pytest.raises(MudroomError, match="cannot be read"):
            session.changes.pushes("f")
        session.forks.discard("f")
        assert ["its held effects are dropped: " in line for line in session.forks.unsaid()] == [True]
        assert session.vault.find("f") is None


def test_an_archive_says_that_it_has_no_pushes(yard: Yard, tmp_path: Path) -> None:
    with yard.session() as session:
        yard.run(session, remote(yard) + PUSH)
        with session.forks.at_rest("f") as fork:
            exported = export_fork(session.vault, fork, os.fsencode(tmp_path / "f.tar"), 1)
        assert exported.remarks == ("the effects that it holds are left out: they stay in this fork",)
        assert [row.name for row in session.changes.pushes("f")] == ["push:1"]


def test_force_delete_and_secrets_are_flagged(yard: Yard) -> None:
    git("branch", "old", at=yard.project)
    git("push", "-q", "origin", "old", at=yard.project)
    with yard.session() as session:
        done = yard.run(
            session,
            remote(yard) + "echo 'token = \"ghp_0123456789abcdefghijABCDEFGHIJ012345\"' > s; git add s; "
            "git commit -q --amend -m amended; git push -q -f origin HEAD:main; git push -q origin :old",
        )
        assert done.exit_code == 0, done.stderr
        main, old = (row.refs[0] for row in session.changes.pushes("f"))
        assert main.flags == ("force, as far as its pack shows", "protected name", "may have a secret")
        assert (old.verb, old.flags) == ("deleted", ())
        landed = session.changes.apply("f", pushes=["push:1", "push:2"], exact=True)
        assert [row.state for row in landed.applied.pushes] == ["sent", "sent"]
        assert "refs/heads/old" not in yard.forge.refs()
        session.changes.undo()
    assert yard.forge.refs()["refs/heads/old"] == main.old == yard.forge.refs()["refs/heads/main"]


def test_a_clone_that_needs_held_commits_gets_a_sentence(yard: Yard) -> None:
    with yard.session() as session:
        yard.run(session, remote(yard) + PUSH)
        done = yard.run(session, f"cd /tmp; git clone -q {yard.url()} twin")
    assert b"refs/heads/main has a held push" in done.stderr, done


SECRET = "ghp_the-real-one-that-nobody-may-see-0123456789"


def test_the_credential_is_put_in_at_the_release_and_is_never_stored(yard: Yard) -> None:
    yard.forge.token = "Basic " + b64encode(f"me:{SECRET}".encode()).decode()
    with yard.session(TOKEN=SECRET) as session:
        save_credentials(session.vault.path, (parse_credential("TOKEN", f"forge.example:{yard.tls_port}", user="me"),))
        url = yard.url(tls=True).replace("https://", "https://me:$TOKEN@")
        done = yard.run(session, f"git remote set-url origin {url}; " + PUSH)
        assert done.exit_code == 0, done.stderr
        place = Path(os.fsdecode(session.vault.path))
        assert not any(SECRET.encode() in path.read_bytes() for path in place.rglob("*") if path.is_file())
        landed = session.changes.apply("f", pushes=["push:1"], exact=True)
        assert [(row.state, row.why) for row in landed.applied.pushes] == [("sent", "")]
        save_credentials(session.vault.path, ())
        assert "the credential TOKEN is not for forge.example any more" in session.changes.undo().pushes[0].why


@pytest.mark.parametrize("step", every(4, 9))
def test_a_killed_release_goes_on_and_doubles_nothing(yard: Yard, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """At each durable step of two pushes: before it, and the process is gone."""
    with yard.session() as session:
        yard.run(session, remote(yard) + PUSH + "git push -q origin HEAD:topic")
        new = session.changes.pushes("f")[0].refs[0].new
        with killed_at(monkeypatch, step, PushServer):
            session.changes.apply("f", pushes=["push:1", "push:2"], exact=True)
    with yard.session() as session:
        session.changes.recover()
        left = [row.name for row in session.changes.pushes("f")]
        landed = session.changes.apply("f", pushes=left, exact=True)
        assert {row.state for row in landed.applied.pushes} == {"sent"}
        assert session.changes.pushes("f") == []
    assert yard.forge.refs() == {"refs/heads/main": new, "refs/heads/topic": new}
    assert yard.forge.pushes() == 2


def test_another_client_is_told_the_same(yard: Yard) -> None:
    script = (
        "import sys; from dulwich import porcelain; porcelain.push('.', sys.argv[1], 'HEAD:refs/heads/topic'); "
        "print(porcelain.ls_remote(sys.argv[1]).refs[b'refs/heads/topic'].decode())"
    )
    with yard.session() as session:
        done = yard.run(session, COMMIT + f'git rev-parse HEAD; {sys.executable} -c "{script}" {yard.url()}')
        assert done.exit_code == 0, done.stderr
        lines = done.stdout.decode().split()
        assert lines[0] == lines[-1]
        assert [row.refs[0].ref for row in session.changes.pushes("f")] == ["refs/heads/topic"]
    assert "refs/heads/topic" not in yard.forge.refs()


def test_a_stored_push_that_was_changed_is_not_sent(yard: Yard) -> None:
    with yard.session() as session:
        yard.run(session, remote(yard) + PUSH)
        with pytest.raises(UsageError, match="f has no push:7"):
            session.changes.apply("f", pushes=["push:7"], exact=True)
        place = session.vault.fork("f").path + b"/effects/1/request"
        with open(place, "ab") as stream:
            stream.write(b"x")
        with pytest.raises(MudroomError, match="is not what was held"):
            session.changes.apply("f", pushes=["push:1"], exact=True)
    assert not yard.forge.pushes()


def test_a_host_that_is_never_inspected_is_refused(yard: Yard) -> None:
    rules = [held(parse_rule("forge.example:443", "allow"))]
    never = Inspection("", (parse_rule("forge.example", "deny"),))
    why = uninspected(Request("forge.example", 443), rules, never)
    assert "forge.example holds what is sent there, which needs inspection, and never_inspect excludes it" in why
    assert holding(rules, "forge.example", 22) is None
    assert holding([held(parse_rule("*.example", "allow"))], "forge.example", 22) is not None
