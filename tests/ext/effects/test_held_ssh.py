"""A git push over ssh to a held host is stored, read back, and sent by the user's own ssh."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from forge import git
from ssh_host import SSHD, USER, SshHost
from yard import COMMIT, Yard
from yard import yard as yard

from mudroom.core.network.host_rules import parse_rule
from mudroom.ext.effects.store import effects
from mudroom.session import Session
from town import Town

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
