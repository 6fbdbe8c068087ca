"""A git push to a held host is stored, told to the client as done, and not sent."""

from __future__ import annotations

import os
import shutil
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from forge import BACKEND, ENVIRONMENT, Forge, git
from seal import Seal

from mudroom.core.network.host_rules import HostRule, held
from mudroom.core.result import Result
from mudroom.core.settings import Settings
from mudroom.ext.effects.store import pushes
from mudroom.session import Session
from mudroom.session.confinement import command_gate
from mudroom.session.confinement.host_approver import HostAnswers
from town import Town

pytestmark = [pytest.mark.both_users]
_GIT = tuple(name.encode() for name in ENVIRONMENT if name.startswith("GIT_"))


class Yard:
    """A forge, over plain HTTP and over TLS, a project, and sessions whose rules hold what is sent to the forge."""

    def __init__(self, root: Path, town: Town) -> None:
        self.root, self.forge = root, Forge(root / "forge")
        self.upstream = self.forge.repository()
        seal = Seal(root)
        (root / "roots.pem").write_text(seal.roots)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(seal.pem("forge.example"))

        def talk_tls(client: object) -> None:
            with context.wrap_socket(client, server_side=True) as inside:  # type: ignore[arg-type]
                self.forge.talk(inside)

        self.port, self.tls_port = town.serve(self.forge.talk), town.serve(talk_tls)
        town.names({"forge.example": [["127.0.0.1"]]})
        self.project = root / "project"
        git("clone", "-q", str(self.upstream), str(self.project), at=root)
        (self.project / "a").write_text("one\n")
        git("add", ".", at=self.project)
        git("commit", "-qm", "first", at=self.project)
        git("push", "-q", "origin", "HEAD:main", at=self.project)

    def url(self, *, tls: bool = False) -> str:
        return f"https://forge.example:{self.tls_port}/team/app.git" if tls else f"http://forge.example:{self.port}/team/app.git"

    def session(self, *more: HostRule, hold: bool = True) -> Session:
        (self.root / "home").mkdir(exist_ok=True)
        rule = HostRule("allow", "forge.example", (self.port, self.tls_port), private=True, source="the test")
        rules = (held(rule) if hold else rule, *more)
        return Session.open(
            os.fsencode(self.project),
            state=os.fsencode(self.root / "state"),
            home=os.fsencode(self.root / "home"),
            environ={
                **{name.encode(): value.encode() for name, value in ENVIRONMENT.items()},
                b"SSL_CERT_FILE": os.fsencode(self.root / "roots.pem"),
            },
            settings=Settings(network="gate", hosts=rules, environment=_GIT),
            hosts=HostAnswers(lambda: rules),
        )

    def run(self, session: Session, script: str, fork: str = "f") -> Result:
        if session.vault.find(fork) is None:
            session.forks.new(fork)
        return session.run([b"sh", b"-ec", script.encode()], fork=fork)


@pytest.fixture
def yard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Yard]:
    (tmp_path / "town").mkdir()
    with Town(tmp_path / "town") as town:
        monkeypatch.setattr(command_gate, "SHARED", command_gate.SharedGates(lambda _upstream: town.gate))
        yield Yard(tmp_path, town)


COMMIT = "echo two >> a; git commit -qam second; "


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("version", [0, 2])
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
        second = yard.run(session, "echo three >> a; git commit -qam third; git push -q origin HEAD:main HEAD:topic; git pull -q origin main")
        assert second.exit_code == 0, second.stderr
        held_pushes = pushes(session.vault.fork("f").path)
        assert [(push.name, push.state) for push in held_pushes] == [("push:1", "held"), ("push:2", "held")]
        assert [[command.ref for command in push.commands] for push in held_pushes] == [
            ["refs/heads/main"],
            ["refs/heads/main", "refs/heads/topic"],
        ]
        assert held_pushes[1].commands[0].old == held_pushes[0].commands[0].new == head
    assert yard.forge.refs() == before
    assert yard.forge.pushes() == 0
