"""Mail to a held server waits, is shown, and is sent once by the apply."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from post_office import PostOffice
from yard import Yard, killed_at
from yard import yard as yard

from mudroom.cli.change.preview import held_lines as push_lines
from mudroom.core.network.host_rules import parse_rule
from mudroom.core.result import Result
from mudroom.errors import UsageError
from mudroom.ext.effects.mail import parse_mail
from mudroom.ext.effects.upstream import MailServer
from mudroom.ext.inspection.credentials import save_credentials
from mudroom.ext.inspection.placeholder import parse_credential
from mudroom.session import Session

pytestmark = [pytest.mark.both_users]

SCRIPT = """
import os, smtplib, ssl, sys
from email.message import EmailMessage
mail = EmailMessage()
mail['From'], mail['To'], mail['Subject'] = 'me@example.com', 'bob@example.com', sys.argv[2]
mail['Message-ID'] = sys.argv[3] if len(sys.argv) > 3 else '<1@example.com>'
mail.set_content('.Hello Bob\\n.\\nbye\\n')
mail.add_attachment(b'12345', maintype='application', subtype='zip', filename='report.zip')
mail.set_boundary('b')
context = ssl.create_default_context()
secure = {'context': context} if os.environ.get('TLS') else {}
with (smtplib.SMTP_SSL if secure else smtplib.SMTP)('forge.example', int(sys.argv[1]), **secure) as server:
    if os.environ.get('STARTTLS'):
        server.starttls(context=context)
    if os.environ.get('PASSWORD'):
        server.login('me', os.environ['PASSWORD'])
    print(server.send_message(mail, to_addrs=['bob@example.com', 'eve@example.com']))
"""


class Post:
    def __init__(self, yard: Yard, *, tls: bool = False) -> None:
        self.yard, self.office = yard, PostOffice(yard.pem, tls=tls)
        self.port = self.office.open()
        (yard.project / "mail.py").write_text(SCRIPT)

    def session(self, **environ: Any) -> Session:
        rule = parse_rule(f"forge.example:{self.port}", "hold", "the test", private=True)
        return self.yard.session(rule, **environ)

    def send(self, session: Session, before: str = "", subject: str = "Hi", more: str = "") -> Result:
        return self.yard.run(session, f"{before} {sys.executable} mail.py {self.port} {subject} {more}")


@pytest.fixture
def post(yard: Yard) -> Iterator[Post]:
    opened = Post(yard)
    yield opened
    opened.office.close()


@pytest.mark.parametrize("tls", ["", "STARTTLS=1"])
def test_a_mail_waits_is_shown_and_is_sent_once(post: Post, tls: str) -> None:
    with post.session() as session:
        done = post.send(session, tls)
        assert (done.exit_code, done.stdout) == (0, b"{}\n"), done.stderr
        assert post.send(session, tls).exit_code == 0, "the client asks again: the same key"
        assert post.send(session, tls, "Bye").exit_code == 1, "its key is held"
        (row,) = session.changes.pushes("f")
        assert not post.office.taken
        lines = push_lines(session, "f")
        assert lines[0].startswith(
            f'mail:1  mail "Hi" for bob@example.com, eve@example.com to smtp://forge.example:{post.port}: '
        )
        assert {
            "      Subject: Hi",
            "      .Hello Bob",
            "      attachment report.zip (application/zip, 5 bytes)",
        } <= set(lines)
        landed = session.changes.apply("f", pushes=["mail:1"], exact=True)
        (row,) = landed.applied.pushes
        assert (row.state, row.why, row.said) == ("sent", "", ("2.0.0 queued as 1",))
        ((sender, recipients, content),) = post.office.taken
        assert (sender, recipients) == ("me@example.com", ["bob@example.com", "eve@example.com"])
        assert b"\r\n.Hello Bob\r\n.\r\nbye\r\n" in content
        assert "not taken back: a mail cannot be taken back" in session.changes.undo().pushes[0].why
        assert session.changes.redo(landed.applied.name).pushes[0].why.startswith("a redo sends nothing: the mail")
    assert len(post.office.taken) == 1


@pytest.mark.parametrize(
    ("fault", "state", "times"),
    [
        ("refuse", "refused", 0),
        ("busy", "refused", 0),
        ("cut before", "unknown", 0),
        ("cut after", "unknown", 1),
        ("error after", "unknown", 1),
    ],
)
def test_a_mail_whose_answer_is_lost_is_unknown_and_stays_so(post: Post, fault: str, state: str, times: int) -> None:
    with post.session() as session:
        post.send(session)
        post.office.fault = fault
        (row,) = session.changes.apply("f", pushes=["mail:1"], exact=True).applied.pushes
        assert (row.state, len(post.office.taken)) == (state, times), row
        post.office.fault = ""
        (row,) = session.changes.apply("f", pushes=["mail:1"], exact=True).applied.pushes
        again = state == "refused"
        assert (row.state, len(post.office.taken)) == ("sent" if again else "unknown", times + again), row
        if not again:
            assert "cannot be asked, so it is not sent again" in row.why


def test_held_effects_are_dropped_by_name_and_the_others_stay(post: Post) -> None:
    with post.session() as session:
        for number, subject in enumerate(("Hi", "Bye", "Ciao"), 1):
            post.send(session, subject=subject, more=f"'<{number}@x>'")
        with pytest.raises(UsageError, match="f has no mail:9"):
            session.changes.drop_pushes("f", ["mail:1", "mail:9"])
        post.office.fault = "cut before"
        session.changes.apply("f", pushes=["mail:1"], exact=True)
        session.forks.unsaid()
        session.changes.drop_pushes("f", [])
        assert len(session.changes.pushes("f")) == 3, "none is not all"
        session.changes.drop_pushes("f", ["mail:1", "mail:3"])
        server = f"smtp://forge.example:{post.port}"
        assert session.forks.unsaid() == [
            f'mail:1 is dropped: mail "Hi" for bob@example.com, eve@example.com to {server} may have been sent',
            f'mail:3 is dropped: mail "Ciao" for bob@example.com, eve@example.com to {server} was not sent',
        ]
        assert [row.name for row in session.changes.pushes("f")] == ["mail:2"]


def test_all_recipients_or_none(post: Post) -> None:
    (post.yard.project / "mail.py").write_text(SCRIPT.replace("eve@", "nobody@"))
    with post.session() as session:
        post.send(session)
        (row,) = session.changes.apply("f", pushes=["mail:1"], exact=True).applied.pushes
    assert (row.state, row.why) == ("refused", "the server answered 550 5.1.1 no such mailbox")
    assert not post.office.taken


def test_the_login_is_put_in_at_the_release(post: Post) -> None:
    post.office.login = "me", "the-real-password-of-mine"
    with post.session(SMTP_PASSWORD=post.office.login[1]) as session:
        credential = parse_credential("SMTP_PASSWORD", f"forge.example:{post.port}", user="me")
        save_credentials(session.vault.path, (credential,))
        refused = post.send(session, "PASSWORD=mine")
        assert b"this cannot be held: a login of the command's own" in refused.stderr
        done = post.send(session, 'STARTTLS=1 PASSWORD="$SMTP_PASSWORD"')
        assert done.exit_code == 0, done.stderr
        (row,) = session.changes.apply("f", pushes=["mail:1"], exact=True).applied.pushes
        assert (row.state, row.why) == ("sent", "")
    assert post.office.logins == [post.office.login]


def test_mail_over_tls_from_the_first_byte_is_held_and_sent_in_the_same_way(yard: Yard) -> None:
    post = Post(yard, tls=True)
    post.office.login = "me", "the-real-password-of-mine"
    try:
        with post.session(SMTP_PASSWORD=post.office.login[1]) as session:
            credential = parse_credential("SMTP_PASSWORD", f"forge.example:{post.port}", user="me")
            save_credentials(session.vault.path, (credential,))
            done = post.send(session, 'TLS=1 PASSWORD="$SMTP_PASSWORD"')
            assert (done.exit_code, done.stdout) == (0, b"{}\n"), done
            assert not post.office.taken
            (row,) = session.changes.apply("f", pushes=["mail:1"], exact=True).applied.pushes
            assert (row.state, row.why, row.remote) == ("sent", "", f"smtps://forge.example:{post.port}")
    finally:
        post.office.close()
    assert (len(post.office.taken), post.office.logins) == (1, [("me", "the-real-password-of-mine")])


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a killed one leaves its connection
@pytest.mark.parametrize("step", range(1, 5))
def test_a_killed_release_sends_no_mail_twice(post: Post, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    with post.session() as session:
        post.send(session)
        with killed_at(monkeypatch, step, MailServer):
            session.changes.apply("f", pushes=["mail:1"], exact=True)
    with post.session() as session:
        session.changes.recover()
        left = [row.name for row in session.changes.pushes("f")]
        states = {row.state for row in session.changes.apply("f", pushes=left, exact=True).applied.pushes}
        assert states == ({"sent"} if step == 1 else {"unknown"}), states
    assert len(post.office.taken) == (1 if step not in (2,) else 0)


@pytest.mark.parametrize(
    ("sender", "recipients"), [("a@b", []), ("a@b\r\nRCPT", ["c@d"]), ("a@b", ["c@d> X"]), ("a@b", ["x@y"] * 101)]
)
def test_an_envelope_that_is_not_understood_is_refused(sender: str, recipients: list[str]) -> None:
    with pytest.raises(ValueError, match="a mail "):
        parse_mail([("from", sender), *(("to", one) for one in recipients)], b"Subject: x\r\n\r\n")


@pytest.mark.parametrize("body", [b"x\n.\r\nMAIL FROM:<a@b>\r\n", b"x\r.\r\n", b"x\n\n"])
def test_a_mail_that_servers_may_split_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="line ends"):
        parse_mail([("from", "a@b"), ("to", "c@d")], body)
