"""A git push over ssh to a held host is stored, read back, and sent by the user's own ssh."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from forge import git
from ssh_host import SSHD, USER, SshHost
from yard import COMMIT, Yard
from yard import yard as yard

from mudroom.core.network.host_rules import parse_rule
from mudroom.ext.effects.ssh_client import trust_ssh
from mudroom.ext.inspection.authority import load_authority
from mudroom.session import Session

pytestmark = [
    pytest.mark.both_users,
    pytest.mark.skipif(not os.path.exists(SSHD), reason="no OpenSSH server: apt install openssh-server"),
]


class SshYard:
    def __init__(self, yard: Yard) -> None:
        self.yard, self.forge = yard, yard.forge
        self.host = SshHost(yard.root / "ssh", yard.forge.root)
        self.port = yard.town.serve(self.host.talk)
        self.url = f"ssh://{USER}@forge.example:{self.port}{yard.forge.root}/team/app.git"

    def session(self) -> Session:
        rule = parse_rule(f"forge.example:{self.port}", "hold", "the test", private=True)
        path = f"{self.host.path}:{os.environ['PATH']}"
        return self.yard.session(rule, PATH=path)

    def remote(self) -> str:
        return f"git remote set-url origin {self.url}; "


@pytest.fixture
def ssh(yard: Yard) -> Iterator[SshYard]:
    yield SshYard(yard)


PUSH = COMMIT + "git push -q origin HEAD:main; "


def test_a_push_over_ssh_waits_is_read_back_and_is_sent(ssh: SshYard) -> None:
    before = ssh.forge.refs()
    with ssh.session() as session:
        done = ssh.yard.run(
            session,
            ssh.remote() + PUSH + "git rev-parse HEAD; git ls-remote origin refs/heads/main; git fetch -q; "
            "git status -sb | head -1; echo three >> a; git commit -qam third; git push -q origin HEAD:main HEAD:topic",
        )
        assert done.exit_code == 0, done.stderr
        head, told, state = done.stdout.decode().splitlines()
        assert told == f"{head}\trefs/heads/main"
        assert "ahead" not in state and "behind" not in state
        assert b"remote: held: refs/heads/main will be pushed when the fork is applied" in done.stderr
        assert ssh.forge.refs() == before
        rows = session.changes.pushes("f")
        assert [(row.name, row.state, row.remote) for row in rows] == [
            ("push:1", "held", ssh.url),
            ("push:2", "held", ssh.url),
        ]
        assert [subject for _id, subject in rows[0].refs[0].commits] == ["second"]
        landed = session.changes.apply("f", pushes=["push:1", "push:2"], exact=True)
        assert [(row.state, row.why) for row in landed.applied.pushes] == [("sent", ""), ("sent", "")]
        assert ssh.forge.refs()["refs/heads/topic"] == rows[1].refs[0].new == ssh.forge.refs()["refs/heads/main"]
        undone = session.changes.undo()
        assert [row.state for row in undone.pushes] == ["undone", "undone"]
    assert ssh.forge.refs() == before


def test_a_push_without_a_pack_and_a_forced_one_are_held(ssh: SshYard) -> None:
    git("branch", "old", at=ssh.yard.project)
    git("push", "-q", "origin", "old", at=ssh.yard.project)
    with ssh.session() as session:
        done = ssh.yard.run(
            session,
            ssh.remote() + "git push -q origin :old; git commit -q --amend -m amended; git push -q -f origin HEAD:main",
        )
        assert done.exit_code == 0, done.stderr
        old, main = (row.refs[0] for row in session.changes.pushes("f"))
        assert (old.verb, main.flags) == ("deleted", ("force, as far as its pack shows", "protected name"))
        landed = session.changes.apply("f", pushes=["push:1", "push:2"], exact=True)
        assert [row.state for row in landed.applied.pushes] == ["sent", "sent"]
        assert ssh.forge.refs() == {"refs/heads/main": main.new}
        session.changes.undo()
    assert ssh.forge.refs() == {"refs/heads/main": main.old, "refs/heads/old": old.old}


def test_other_commands_are_refused_in_a_sentence(ssh: SshYard) -> None:
    with ssh.session() as session:
        done = ssh.yard.run(session, ssh.remote() + PUSH + f"git clone -q {ssh.url} /tmp/twin || true")
        assert b"refs/heads/main has a held push" in done.stderr
        for command in ("'echo hello'", "\"git-upload-pack '-x'\"", "\"git-upload-archive '/x'\"", ""):
            done = ssh.yard.run(session, f"ssh -T -p {ssh.port} {USER}@forge.example {command} </dev/null || echo $?")
            assert b"mudroom: this cannot be held: " in done.stderr, command
            assert done.stdout == b"128\n"
    assert all("git-" in call and "'echo" not in call for call in ssh.host.calls())


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("key", "the host key of forge.example is not in your known_hosts: ssh -p "),
        ("login", "forge.example takes none of your keys: no ssh-agent is running"),
        ("server", "forge.example cannot be reached"),
    ],
)
def test_what_ssh_cannot_do_outside_is_one_line(ssh: SshYard, fault: str, says: str) -> None:
    with ssh.session() as session:
        ssh.yard.run(session, ssh.remote() + PUSH)
        if fault == "key":
            ssh.host.known.write_text("")
        elif fault == "login":
            (ssh.host.root / "authorized").write_text("")
        else:
            ssh.host.root.joinpath("sshd_config").write_text("no such option\n")
        if fault != "server":
            done = ssh.yard.run(session, "git ls-remote origin || true")
            assert f"mudroom: this cannot be held: {says}".encode() in done.stderr
        row = session.changes.apply("f", pushes=["push:1"], exact=True).applied.pushes[0]
        assert row.state == "held" and (says in row.why or fault == "server"), row
        assert "\n" not in row.why
        assert [left.state for left in session.changes.pushes("f")] == ["held"]


HOOKS = {
    "cut before": ("pre-receive", "kill -9 $PPID; exit 1"),
    "cut after": ("post-receive", "kill -9 $PPID"),
    "refused": ("pre-receive", "echo never on a Monday; exit 1"),
}


@pytest.mark.parametrize(
    ("fault", "state", "times"), [("cut before", "unknown", 0), ("cut after", "sent", 1), ("refused", "refused", 0)]
)
def test_a_lost_answer_is_asked_about_and_never_doubled(ssh: SshYard, fault: str, state: str, times: int) -> None:
    name, script = HOOKS[fault]
    hook = ssh.yard.upstream / "hooks" / name
    counter = ssh.yard.root / "received"
    with ssh.session() as session:
        ssh.yard.run(session, ssh.remote() + PUSH)
        hook.write_text(f"#!/bin/sh\n{script}\n")
        hook.chmod(0o755)
        always = ssh.yard.upstream / "hooks" / "update"
        always.write_text(f"#!/bin/sh\necho x >> {counter}\n")
        always.chmod(0o755)
        new = session.changes.pushes("f")[0].refs[0].new
        row = session.changes.apply("f", pushes=["push:1"], exact=True).applied.pushes[0]
        assert row.state == state, row
        assert (ssh.forge.refs()["refs/heads/main"] == new) == bool(times)
        if fault == "refused":
            assert "never on a Monday" in row.said
        hook.unlink()
        if state != "sent":
            landed = session.changes.apply("f", pushes=["push:1"], exact=True)
            assert [row.state for row in landed.applied.pushes] == ["sent"]
    assert ssh.forge.refs()["refs/heads/main"] == new
    assert counter.read_text() == "x\n"


def test_dulwich_and_a_path_in_the_home_are_told_the_same(ssh: SshYard) -> None:
    """dulwich starts the ssh that it finds, and never ends what it sends."""
    script = f"from dulwich import porcelain; porcelain.push('.', {ssh.url!r}, 'HEAD:refs/heads/topic')"
    with ssh.session() as session:
        done = ssh.yard.run(session, COMMIT + f'{sys.executable} -c "{script}"')
        assert done.exit_code == 0, done.stderr
        assert [row.refs[0].ref for row in session.changes.pushes("f")] == ["refs/heads/topic"]
        done = ssh.yard.run(session, f"git ls-remote ssh://{USER}@forge.example:{ssh.port}/~/none-here || true")
        assert b"does not appear to be a git repository" in done.stderr


def test_the_sandbox_knows_the_gate_at_held_hosts_alone(tmp_path: Path) -> None:
    authority = load_authority(os.fsencode(tmp_path), b"/x")
    texts = {
        "forge.example:22,443": "hold",
        "**.example.org:2222": "hold",
        "web.example": "hold",
        "a.example:22": "allow",
    }
    rules = [parse_rule(text, "hold" if action == "hold" else "allow") for text, action in texts.items()]
    shown, config = trust_ssh(os.fsencode(tmp_path), authority, rules)
    known = (Path(os.fsdecode(shown.source)) / "known_hosts").read_text().splitlines()
    names = [line.split()[0] for line in known]
    assert names == ["[*.example.org]:2222", "[example.org]:2222", "forge.example"]
    assert Path(os.fsdecode(config.source)).read_text().startswith("Host *.example.org example.org forge.example\n")
    assert trust_ssh(os.fsencode(tmp_path), authority, rules[2:]) == ()
