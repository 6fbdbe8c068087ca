"""Pushes that were held, sent to real forges: gitolite by its SSH and its HTTP, and klaus, whose git is dulwich's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from forge import ENVIRONMENT, Forge, git
from ssh_host import SSHD, USER, SshHost
from yard import COMMIT, Yard
from yard import yard as yard

from mudroom.core.network.host_rules import HostRule, held, parse_rule
from mudroom.core.network.push import PushRow
from mudroom.session import Session
from test_real_publishers import free_port, installed, served

pytestmark = [pytest.mark.deep, pytest.mark.slow, pytest.mark.both_users, pytest.mark.limit(300)]
_SHELL = "/usr/share/gitolite3/gitolite-shell"
_CONF = """
repo app
    -   refs/heads/release$ = @all
    RW+ = @all
"""
WORK = COMMIT + (
    "git push -q {url} HEAD:main HEAD:topic; git tag v1; git push -q {url} v1; git commit -q --amend -m other; "
    "git push -q -f {url} HEAD:topic; git push -q {url} :old; git ls-remote {url}"
)
"""Branches, a tag, a forced push and a deletion."""


class Gitolite:
    """An installation in a folder, with one repository."""

    def __init__(self, yard: Yard) -> None:
        self.home = home = yard.root / "gitolite"
        home.mkdir()
        self.host = SshHost(yard.root / "ssh", home / "repositories", f"env HOME={home} {_SHELL} admin")
        key = home / "admin.pub"
        key.write_text((self.host.root / "key.pub").read_text())
        self._run("setup", "-pk", str(key))
        with (home / ".gitolite/conf/gitolite.conf").open("a") as conf:
            conf.write(_CONF)
        for step in ("compile", "trigger POST_COMPILE"):
            self._run(*step.split())
        self.repository = home / "repositories/app.git"
        git("fetch", "-q", str(yard.project), "main:main", "main:old", at=self.repository)

    def _run(self, *words: str) -> None:
        environment = ENVIRONMENT | {"HOME": str(self.home), "USER": USER}
        subprocess.run(["gitolite", *words], env=environment, check=True, capture_output=True)

    def refs(self) -> set[str]:
        names = git("for-each-ref", "--format=%(refname)", at=self.repository).split()
        return {name.removeprefix("refs/") for name in names}


def released(session: Session) -> list[PushRow]:
    names = [row.name for row in session.changes.pushes("f")]
    return list(session.changes.apply("f", pushes=names, exact=True).applied.pushes)


@pytest.mark.skipif(shutil.which("gitolite") is None, reason="gitolite is not installed: apt install gitolite3")
@pytest.mark.skipif(not os.path.exists(SSHD), reason="no OpenSSH server: apt install openssh-server")
@pytest.mark.parametrize("way", ["ssh", "http"])
def test_gitolite_takes_what_was_held_and_says_what_it_refuses(yard: Yard, way: str) -> None:
    there = Gitolite(yard)
    if way == "ssh":
        port = yard.town.serve(there.host.talk)
        url = f"ssh://{USER}@forge.example:{port}/app"
    else:
        forge = Forge(yard.root / "none")
        forge.backend = _SHELL
        forge.more = {"GITOLITE_HTTP_HOME": str(there.home), "GIT_PROJECT_ROOT": str(there.home / "repositories")}
        port = yard.town.serve(forge.talk)
        url = f"http://forge.example:{port}/app"
    rule = parse_rule(f"forge.example:{port}", "hold", "the test", private=True)
    with yard.session(rule, PATH=f"{there.host.path}:{os.environ['PATH']}") as session:
        done = yard.run(session, WORK.format(url=url))
        assert done.exit_code == 0, done.stderr
        told = {line.split(b"\t")[1].decode() for line in done.stdout.splitlines()}
        assert told - {"HEAD"} == {"refs/heads/main", "refs/heads/topic", "refs/tags/v1"}
        assert there.refs() == {"heads/main", "heads/old"}
        assert [(row.state, row.why) for row in released(session)] == [("sent", "")] * 4
        assert there.refs() == {"heads/main", "heads/topic", "tags/v1"}
        assert [row.state for row in session.changes.undo().pushes] == ["undone"] * 4
        assert there.refs() == {"heads/main", "heads/old"}
        yard.run(session, f"git push -q {url} HEAD:release")
        (row,) = released(session)
        assert row.state == "refused" and row.why == "refs/heads/release: hook declined", row
        assert any("DENIED by refs/heads/release$" in line for line in row.said), row
        assert "heads/release" not in there.refs()


_KLAUS = """
import sys
from wsgiref.simple_server import make_server
from klaus import make_app
app = make_app([sys.argv[2]], "here", use_smarthttp=True, unauthenticated_push=True)
make_server("127.0.0.1", int(sys.argv[1]), app).serve_forever()
"""


@pytest.mark.network
def test_klaus_takes_what_was_held(yard: Yard) -> None:
    """Its git is dulwich's, which speaks as git did ten years ago: no hooks, no side band for what it says."""
    tools, port = yard.root / "klaus", free_port()
    installed(f"{sys.executable} -m venv klaus; klaus/bin/pip install -q klaus", yard.root)
    repository = yard.root / "served/app"
    repository.mkdir(parents=True)
    git("clone", "-q", "--mirror", str(yard.project), ".", at=repository)
    git("update-ref", "refs/heads/old", "refs/heads/main", at=repository)
    git("update-ref", "-d", "refs/remotes/origin/main", at=repository)
    url = f"http://forge.example:{port}/app"
    rule = held(HostRule("allow", "forge.example", (port,), private=True, source="the test"))
    program = [str(tools / "bin/python"), "-c", _KLAUS, str(port), str(repository)]
    with served(program, port, tools), yard.session(rule) as session:
        done = yard.run(session, WORK.format(url=url))
        assert done.exit_code == 0, done.stderr
        rows = released(session)
        assert [(row.state, row.why) for row in rows] == [("sent", "")] * 4, rows
        there = git("for-each-ref", "--format=%(refname)", at=repository).split()
        assert set(there) == {"refs/heads/main", "refs/heads/topic", "refs/tags/v1"}
