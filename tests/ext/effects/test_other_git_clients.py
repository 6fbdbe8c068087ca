"""libgit2, dulwich and JGit at a server that holds: each push waits or is refused (docs/evidence/EFFECTS.md)."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable

import pytest
from ssh_host import SSHD
from yard import Yard
from yard import yard as yard

from mudroom.core.result import Result
from mudroom.session import Session
from test_held_ssh import SshYard
from test_real_publishers import installed

pytestmark = [pytest.mark.deep, pytest.mark.slow, pytest.mark.network, pytest.mark.both_users, pytest.mark.limit(600)]

LIBGIT2 = """
import sys
sys.path.insert(0, 'tools')
import pygit2
repository = pygit2.Repository('.')
class Callbacks(pygit2.RemoteCallbacks):
    def certificate_check(self, _certificate, valid, _host):
        return valid or 'ssh' in sys.argv[1]
    def credentials(self, _url, user, _types):
        return pygit2.KeypairFromAgent(user)
callbacks = Callbacks()
remote = repository.remotes.create_anonymous(sys.argv[1])
remote.push(['refs/heads/main:refs/heads/topic'], callbacks=callbacks)
assert 'refs/heads/topic' in [head.name for head in remote.list_heads(callbacks=callbacks)]
"""
CLIENTS = {
    "libgit2": f"{sys.executable} push.py URL",
    "dulwich": f"{sys.executable} -m dulwich push URL refs/heads/main:refs/heads/topic",
    "JGit": "JGIT_CLASSPATH='/usr/share/java/*' jgit push URL refs/heads/main:refs/heads/topic </dev/null",
}


def push(client: str, url: str, run: Callable[[str], Result], yard: Yard) -> Result:
    if client == "libgit2":
        installed(f"{sys.executable} -m pip install -q --target tools pygit2", yard.project)
        (yard.project / "push.py").write_text(LIBGIT2)
    if client == "JGit" and shutil.which("jgit") is None:
        pytest.skip("JGit is not installed")
    return run("echo 2 >> a; git commit -qam second; " + CLIENTS[client].replace("URL", url))


def waits(session: Session) -> list[str]:
    return [ref.ref for row in session.changes.pushes("f") for ref in row.refs]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_push_over_https_is_held(yard: Yard, client: str) -> None:
    with yard.session() as session:
        done = push(client, yard.url(tls=True), lambda script: yard.run(session, script), yard)
        assert (done.exit_code, waits(session)) == (0, ["refs/heads/topic"]), done
        (row,) = session.changes.apply("f", pushes=["push:1"], exact=True).applied.pushes
        assert (row.state, row.why) == ("sent", "")
    assert "refs/heads/topic" in yard.forge.refs()


@pytest.mark.skipif(not os.path.exists(SSHD), reason="no OpenSSH server: apt install openssh-server")
@pytest.mark.parametrize("client", CLIENTS)
def test_a_push_over_ssh_is_held_or_refused_in_words(yard: Yard, client: str) -> None:
    ssh = SshYard(yard)
    with ssh.session() as session:
        done = push(client, ssh.url, lambda script: yard.run(session, script), yard)
        if client == "dulwich":
            assert (done.exit_code, waits(session)) == (0, ["refs/heads/topic"]), done
            return
        assert done.exit_code, done
        assert "libgit2 and JGit have, push over https" in done.denials[0].reason
        assert waits(session) == []
    assert not yard.forge.pushes()
