"""A real agent fixes a bug, pushes, opens a pull request, publishes and mails: all waits, and the user sends a part."""

from __future__ import annotations

import json
import shlex
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from api import Api
from forge import Forge
from model_server import ModelServer
from post_office import PostOffice
from real_agents import BY_NAME, MUDROOM, RealAgent, Try
from registry import Registry
from scenario import Step
from seal import Seal

pytestmark = [pytest.mark.deep, pytest.mark.network, pytest.mark.both_users, pytest.mark.limit(300)]

BUILD = """
import os, zipfile
os.mkdir("dist")
with zipfile.ZipFile("dist/calc-1.1-py3-none-any.whl", "w") as wheel:
    wheel.write("calc.py")
    wheel.writestr("calc-1.1.dist-info/WHEEL", "Wheel-Version: 1.0\\nTag: py3-none-any\\n")
    wheel.writestr("calc-1.1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: calc\\nVersion: 1.1\\n")
    wheel.writestr("calc-1.1.dist-info/RECORD", "")
"""
MAIL = """
import smtplib, sys
from email.message import EmailMessage
mail = EmailMessage()
mail["From"], mail["To"], mail["Subject"] = "agent@example.com", "team@example.com", "calc 1.1"
mail["Message-ID"] = "<calc-1.1@example.com>"
mail.set_content("The sum is a sum again.")
with smtplib.SMTP("127.0.0.1", int(sys.argv[1])) as server:
    server.send_message(mail)
"""


class Outside:
    """A forge with its API, an index and a mail server, over TLS on this machine's loopback, and a user's project."""

    def __init__(self, root: Path, agent: RealAgent) -> None:
        (root / "try").mkdir()
        self.here = here = Try(root / "try", agent)
        seal = Seal(root)
        (root / "roots.pem").write_text(seal.roots)
        self._pem = seal.pem("127.0.0.1")
        self._listeners: list[socket.socket] = []
        self.forge, self.api, self.index = Forge(root / "forge"), Api(root / "api"), Registry(root / "index")
        self.ports = {server: self._serve(server.talk) for server in (self.forge, self.api, self.index)}
        self.office = PostOffice(self._pem)
        self.mail_port = self.office.open()
        here.environ["SSL_CERT_FILE"] = str(root / "roots.pem")
        for name, content in {"build.py": BUILD, "mail.py": MAIL}.items():
            (here.project / name).write_text(content)
        (here.project / ".git/info/exclude").write_text("tools\ndist\nbuild.py\nmail.py\n")
        pip = [sys.executable, "-m", "pip", "install", "-q", "--target", str(here.project / "tools"), "twine"]
        subprocess.run(pip, check=True, capture_output=True)
        here.command("git", "push", "-q", str(self.forge.repository()), "main")
        here.command("git", "remote", "add", "origin", self.url(self.forge, "/team/app.git"))
        for server, requests in ((self.forge, []), (self.api, ["POST=Idempotency-Key"]), (self.index, [])):
            here.mudroom("net", "hold", f"127.0.0.1:{self.ports[server]}", *requests)
        here.mudroom("net", "hold", f"127.0.0.1:{self.mail_port}")

    def url(self, server: Forge, path: str) -> str:
        return f"https://127.0.0.1:{self.ports[server]}{path}"

    def close(self) -> None:
        for listener in self._listeners:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self.office.close()
        self.here.close()

    def _serve(self, talk: Callable[[socket.socket], None]) -> int:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._pem)
        listener = socket.create_server(("127.0.0.1", 0))
        self._listeners.append(listener)

        def talk_tls(client: socket.socket) -> None:
            with suppress(OSError), context.wrap_socket(client, server_side=True) as inside:
                talk(inside)

        def serve() -> None:
            with suppress(OSError):
                while True:
                    threading.Thread(target=talk_tls, args=(listener.accept()[0],), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        return int(listener.getsockname()[1])

    def sent(self) -> dict[str, Any]:
        return {
            "refs": self.forge.refs(),
            "requests": self.api.done,
            "packages": list(self.index.files),
            "mails": len(self.office.taken),
        }

    def steps(self) -> tuple[Step, ...]:
        calc, python = f"{self.here.project}/calc.py", shlex.quote(sys.executable)
        request = json.dumps({"title": "calc: add", "head": "fix-add", "base": "main"})
        git = "git -c user.name=Agent -c user.email=agent@example.org"
        return (
            Step("edit", f"sed -i s/-/+/ {calc}", "edit", calc, "return a - b", "return a + b"),
            Step("commit", f"git checkout -q -b fix-add && {git} commit -qam 'calc: add' && git status -s"),
            Step("push", "git push origin fix-add 2>&1; echo $?"),
            Step(
                "request",
                f"curl -sS -w '\\n%{{http_code}}\\n' -H 'Idempotency-Key: fix-add' --json {shlex.quote(request)} "
                + self.url(self.api, "/repos/team/app/pulls"),
            ),
            Step(
                "publish",
                f"{python} build.py && PYTHONPATH=tools {python} -m twine upload --disable-progress-bar "
                f"-u a -p b --repository-url {self.url(self.index, '/legacy/')} dist/* 2>&1; echo $?",
            ),
            Step("mail", f"{python} mail.py {self.mail_port} 2>&1; echo $?"),
            Step("finish", content="Done."),
        )


@pytest.fixture(params=["claude", "codex"])
def outside(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Outside]:
    agent = BY_NAME[request.param]
    if not agent.version:
        pytest.skip(f"real agent absent: {agent.name} (dev/agents --fetch installs it)")
    opened = Outside(tmp_path, agent)
    yield opened
    opened.close()


def test_the_user_sends_the_push_and_the_request_and_no_other_effect(outside: Outside) -> None:
    here, name = outside.here, outside.here.agent.name
    before = outside.sent()
    with ModelServer(outside.steps()) as server:
        here.prepare(server)
        ended = here.inside(server)
    told = dict(zip((step.name for step in server.steps), server.results.values(), strict=False))
    assert server.played() == [step.name for step in server.steps], (ended.output, server.errors)
    assert "remote: held: refs/heads/fix-add will be pushed when the fork is applied" in told["push"]
    assert "(Idempotency-Key: fix-add) will be sent when the fork is applied" in told["request"]
    assert [told[step].split()[-1] for step in ("push", "request", "publish", "mail")] == ["0", "202", "0", "0"], told
    assert outside.sent() == before
    assert "a - b" in (here.project / "calc.py").read_text()

    shown = here.mudroom("diff", name)
    assert "+    return a + b\n" in shown
    url = outside.url
    for line in (
        f"push:1  push {url(outside.forge, '/team/app.git')} refs/heads/fix-add: new, 1 commit, +1 -1\n",
        f"request:2  POST /repos/team/app/pulls (Idempotency-Key: fix-add) to {url(outside.api, ': 57 bytes')}\n",
        '      {"title": "calc: add", "head": "fix-add", "base": "main"}\n',
        f"publish:3  publish calc 1.1 (calc-1.1-py3-none-any.whl) to {url(outside.index, '/legacy/')}: 4 files, ",
        "    + calc.py\n",
        f'mail:4  mail "calc 1.1" for team@example.com to smtp://127.0.0.1:{outside.mail_port}: 224 bytes\n',
        "      The sum is a sum again.\n",
    ):
        assert line in shown, shown

    dropped = here.mudroom("discard", name, "publish:3", "mail:4")
    assert "publish:3 is dropped: calc 1.1" in dropped and "mail:4 is dropped: mail" in dropped
    assert "push:1" not in dropped and "discarded" not in dropped
    assert outside.sent() == before
    landed = here.mudroom("apply", name, "--yes")
    assert "push:1 pushed: refs/heads/fix-add" in landed and "request:2 sent: POST" in landed
    commit = outside.forge.refs()["refs/heads/fix-add"]
    assert f"    {commit[:10]} calc: add\n" in shown
    after = {**before, "requests": [("POST", "/repos/team/app/pulls")]}
    after["refs"] = {**before["refs"], "refs/heads/fix-add": commit}
    assert outside.sent() == after

    again = here.mudroom("apply", name, "--yes")
    assert again.startswith("applied: 0 written") and not any(f"{kind}:" in again for kind in ("push", "request"))
    named = here.run((*MUDROOM, "apply", name, "--yes", "push:1", "request:2"), here.environ)
    assert (named.code, "has no push:1" in named.output) == (125, True)
    assert outside.sent() == after

    undone = here.run((*MUDROOM, "undo"), here.environ)
    assert undone.code == 3
    assert "push:1 taken back: refs/heads/fix-add" in undone.output
    assert "not taken back: what it has made there is not known to mudroom" in undone.output
    assert outside.sent() == {**after, "refs": before["refs"]}
    assert (outside.api.effects(), outside.api.doubles) == (1, 0)
