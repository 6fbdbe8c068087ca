"""msmtp and nodemailer send mail through the gate, and are held."""

from __future__ import annotations

import contextlib
import shutil
import subprocess

import pytest
from yard import Yard
from yard import yard as yard

from test_held_mail import Post

pytestmark = [pytest.mark.deep, pytest.mark.slow, pytest.mark.network, pytest.mark.both_users, pytest.mark.limit(600)]

NODE = """
const place = {host: 'forge.example', port: PORT, secure: false, requireTLS: true};
const mail = require('nodemailer').createTransport(place);
mail.sendMail({from: 'me@example.com', to: 'bob@example.com', subject: 'Hi', text: 'Hello'}).then(
  done => console.log(done.response), error => { console.error(String(error)); process.exit(1) });
"""


@pytest.mark.skipif(shutil.which("msmtp") is None, reason="msmtp is not installed")
@pytest.mark.parametrize("tls", ["--tls=off", "--tls=on --tls-starttls=on", "--tls=on --tls-starttls=off"])
def test_msmtp_is_held(yard: Yard, tls: str) -> None:
    post = Post(yard, tls=tls.endswith("--tls-starttls=off"))
    with post.session() as session, contextlib.closing(post.office):
        mail = "printf 'From: me@example.com\\nTo: bob@example.com\\nSubject: Hi\\n\\nHello\\n'"
        to = (
            f"--host=forge.example --port={post.port} --from=me@example.com {tls} --tls-trust-file=system b@example.com"
        )
        done = post.yard.run(session, f"{mail} | msmtp --file=/dev/null {to}")
        assert done.exit_code == 0, done.stderr
        (row,) = session.changes.apply("f", pushes=["mail:1"], exact=True).applied.pushes
        assert (row.state, len(post.office.taken)) == ("sent", 1), row


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
@pytest.mark.parametrize("tls", [False, True])
def test_nodemailer_is_held(yard: Yard, tls: bool) -> None:
    post = Post(yard, tls=tls)
    subprocess.run(
        ["npm", "install", "--no-audit", "--no-fund", "nodemailer@7"], cwd=post.yard.project, check=True, timeout=300
    )
    node = NODE.replace("PORT", str(post.port)).replace(
        "secure: false, requireTLS: true", f"secure: {str(tls).lower()}"
    )
    (post.yard.project / "mail.cjs").write_text(node if tls else NODE.replace("PORT", str(post.port)))
    with post.session() as session, contextlib.closing(post.office):
        done = post.yard.run(session, "node mail.cjs")
        assert done.exit_code == 0, done.stderr
        assert b"250 2.0.0 held: it will be sent when the fork is applied" in done.stdout
        (row,) = session.changes.apply("f", pushes=["mail:1"], exact=True).applied.pushes
        assert (row.state, len(post.office.taken)) == ("sent", 1), row
