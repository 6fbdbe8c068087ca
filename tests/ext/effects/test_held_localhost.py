"""A held server on this machine is known by the name that the client gives it, also in TLS."""

from __future__ import annotations

import ssl
import sys

import pytest
from post_office import PostOffice
from seal import Seal
from yard import Yard
from yard import yard as yard

from mudroom.core.network.host_rules import parse_rule
from test_held_mail import SCRIPT

pytestmark = [pytest.mark.both_users]


def test_https_and_mail_at_localhost_are_held_under_this_name(yard: Yard) -> None:
    (yard.root / "own").mkdir()
    seal = Seal(yard.root / "own")
    (yard.root / "roots.pem").write_text(seal.roots)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(seal.pem("localhost"))

    def talk(client: object) -> None:
        with context.wrap_socket(client, server_side=True) as inside:  # type: ignore[arg-type]
            yard.api.talk(inside)

    port, office = yard.town.serve(talk), PostOffice(seal.pem("localhost"))
    mail = office.open()
    (yard.project / "mail.py").write_text(SCRIPT.replace("forge.example", "localhost"))
    rules = [parse_rule(f"localhost:{port} PUT", "hold", "x"), parse_rule(f"localhost:{mail}", "hold", "x")]
    try:
        with yard.session(*rules) as session:
            put = f"curl -sS -X PUT -d '{{}}' https://localhost:{port}/items/1"
            done = yard.run(session, f"{put} && {sys.executable} mail.py {mail} Hi")
            assert (done.exit_code, b'"held"' in done.stdout) == (0, True), done
            remotes = [row.remote for row in session.changes.pushes("f")]
            assert remotes == [f"https://localhost:{port}", f"smtp://localhost:{mail}"]
            landed = session.changes.apply("f", pushes=["request:1", "mail:2"], exact=True)
            assert [(row.state, row.why) for row in landed.applied.pushes] == [("sent", ""), ("sent", "")]
    finally:
        office.close()
    assert (yard.api.effects(), len(office.taken)) == (1, 1)
