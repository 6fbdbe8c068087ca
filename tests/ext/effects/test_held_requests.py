"""PUT, PATCH, DELETE and a POST with a natural key to a host whose rule names them: held, shown, sent once."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from yard import Yard, killed_at
from yard import yard as yard

from mudroom.cli.change.preview import held_lines as push_lines
from mudroom.core.network.host_rules import parse_rule
from mudroom.core.result import Result
from mudroom.ext.effects.request import HttpRequest, is_done, is_request_path, parse_request
from mudroom.ext.effects.upstream import RequestServer
from mudroom.ext.inspection.credentials import save_credentials
from mudroom.ext.inspection.placeholder import parse_credential
from mudroom.session import Session
from tiers import every, half

pytestmark = [pytest.mark.both_users]

ALL = "PUT PATCH DELETE POST=Idempotency-Key POST=.id POST=.head"
CURL = "curl -sS -w '\\n%{http_code}\\n'"
JSON = "-H 'Content-Type: application/json'"
MERGE = "-H 'Content-Type: application/merge-patch+json'"
ORDER = "-X POST -H 'Idempotency-Key: k1' --json '{\"n\": 1}' {}/orders"
REQUESTS = {
    "PUT": "-X PUT --json '{\"b\": 2}' {}/items/new",
    "PATCH": f"-X PATCH {MERGE} -d '{{\"a\": 2}}' {{}}/items/old",
    "DELETE": "-X DELETE {}/items/old",
    "POST": ORDER,
    "POST with a field": "-X POST --json '{\"id\": 7}' {}/orders",
    "POST of a branch": '-X POST --json \'{"head": "fix"}\' {}/pulls',
}
"""For curl; ``{}`` stands for the API."""
KINDS = [pytest.param(kind, marks=[pytest.mark.deep] if kind.startswith("POST ") else []) for kind in REQUESTS]
PLAIN_PATCH = f"-X PATCH {JSON} -d '{{\"a\": 2}}' {{}}/items/old"


def origin(yard: Yard) -> str:
    return f"https://api.example:{yard.api_port}"


def opened(yard: Yard, requests: str = ALL, token: str = "") -> Session:
    text = f"api.example:{yard.api_port} {requests}".strip()
    return yard.session(parse_rule(text, "hold", "the test", private=True), TOKEN=token)


def curl(yard: Yard, session: Session, *requests: str) -> Result:
    return yard.run(session, "; ".join(f"{CURL} {request.replace('{}/', origin(yard) + '/')}" for request in requests))


@pytest.mark.parametrize("kind", REQUESTS)
def test_a_request_waits_is_shown_and_is_sent_by_the_apply(yard: Yard, kind: str) -> None:
    with opened(yard) as session:
        done = curl(yard, session, REQUESTS[kind])
        assert done.stdout.endswith(b"\n202\n"), done
        (row,) = session.changes.pushes("f")
        assert json.loads(done.stdout[:-5]) == {"held": f"{row.refs[0].ref} will be sent when the fork is applied"}
        assert not yard.api.effects()
        assert push_lines(session, "f")[0].startswith(f"request:1  {kind.partition(' ')[0]} /")
        landed = session.changes.apply("f", pushes=["request:1"], exact=True)
        (row,) = landed.applied.pushes
        assert (row.state, row.why) == ("sent", ""), row
        assert len(yard.api.done) == yard.api.effects() == 1
        assert session.changes.pushes("f") == []
        (undone,) = session.changes.undo().pushes
        assert undone.state == "sent" and "not taken back: " in undone.why and "is held again" in undone.why
        assert session.changes.redo(landed.applied.name).pushes[0].why.startswith("a redo sends nothing")
        events = [json.loads(event.data) for event in session.vault.journal.events() if event.kind == "effect"]
        assert [event["state"] for event in events] == ["held", "sent", "sent"]


def test_the_review_shows_method_path_headers_and_body(yard: Yard) -> None:
    secret = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
    with opened(yard) as session:
        curl(
            yard, session, f"-X PUT {JSON} -A me -H 'X-Level: 3' -d '{{\"t\": \"{secret}\"}}' '{{}}/items/old?v=1'",
            "-X DELETE {}/items/none", REQUESTS["POST"],
        )  # fmt: skip
        lines = push_lines(session, "f")
        place = f"to {origin(yard)}"
        assert lines[0] == (
            f"request:1  PUT /items/old?v=1 {place}: 49 bytes, may have a secret, changes what is there"
        )
        assert {"      content-type: application/json", "      x-level: 3", "      user-agent: me"} <= set(lines)
        assert f'      {{"t": "{secret}"}}' in lines
        assert f"request:2  DELETE /items/none {place}: 0 bytes, nothing is there" in lines
        assert f"request:3  POST /orders (Idempotency-Key: k1) {place}: 8 bytes" in lines
        names = [json.loads(event.data)["names"] for event in session.vault.journal.events() if event.kind == "effect"]
        assert names == [["PUT /items/old"], ["DELETE /items/none"], ["POST /orders"]]


@pytest.mark.parametrize(
    ("requests", "request_line", "why"),
    [
        ("", "-X PUT -d x {}/a", "PUT /a; the test holds pushes, publishes, mail alone"),
        ("PUT", "-X DELETE {}/a", "DELETE /a; the test holds pushes, publishes, mail, PUT alone"),
        ("POST=Idempotency-Key", "-d x {}/a", "POST /a without Idempotency-Key"),
        ("POST=.id POST=Key", "--json '{\"id\": {}}' {}/a", "POST /a without .id or Key"),
        ("PUT", "-X PUT -d x -u me:secret {}/a", "a login in the header authorization"),
        ("PUT", "-X PUT -d x -b session=1 {}/a", "a login in the cookie"),
        ("PUT", "-X PUT -d x '{}/a?token=1'", "a login in the query parameter token"),
        ("PUT", "-X PUT -d x '{}/a;b'", "PUT of a path that servers may read in several ways"),
        ("PUT", "-X PUT -d x --path-as-is '{}/a/../b'", "PUT of a path that servers may read in several ways"),
        ("PUT", "-X PUT -d x {}/team/app.git/info/lfs/objects/1", "an upload or a lock of git LFS"),
        ("PUT", "-X PUT -d x -H 'X-HTTP-Method-Override: DELETE' {}/a", "PUT (x-http-method-override) /a"),
        ("PUT", "-X PUT -d x -H 'X-Name: ä' {}/a", "PUT with a header x-name that is not plain ASCII"),
    ],
)
def test_another_request_is_refused_in_a_sentence_that_the_program_sees(
    yard: Yard, requests: str, request_line: str, why: str
) -> None:
    with opened(yard, requests) as session:
        done = curl(yard, session, request_line)
        assert done.stdout.endswith(b"403\n") and f"this cannot be held: {why}".encode() in done.stdout, done
        assert session.changes.pushes("f") == []
    assert not yard.api.effects()


def cut() -> None:
    raise ConnectionError


FAULTS = [("cut before", "unknown"), ("cut after", "sent"), ("500 after", "sent"), ("500 before", "unknown"),
          ("403 before", "refused")]  # fmt: skip


@pytest.mark.parametrize("kind", [*KINDS, "plain PATCH"])
@pytest.mark.parametrize(("fault", "state"), half(FAULTS))
def test_a_lost_answer_is_asked_about_and_never_doubled(yard: Yard, kind: str, fault: str, state: str) -> None:
    word, when = fault.split()
    setattr(yard.api, when, cut if word == "cut" else lambda: int(word))
    with opened(yard) as session:
        curl(yard, session, REQUESTS.get(kind, PLAIN_PATCH))
        landed = session.changes.apply("f", pushes=["request:1"], exact=True)
        first = "unknown" if kind.startswith("POST") and state == "sent" else state
        (row,) = landed.applied.pushes
        assert row.state == first, row
        yard.api.before = yard.api.after = lambda: None
        if first != "sent":
            landed = session.changes.apply("f", pushes=["request:1"], exact=True)
            (row,) = landed.applied.pushes
            if kind == "plain PATCH" and first == "unknown":
                assert (row.state, yard.api.done) == ("unknown", []), row
                assert "make it again in the fork, or discard it" in row.why
                assert curl(yard, session, PLAIN_PATCH).stdout.endswith(b"202\n")
                assert [row.name for row in session.changes.pushes("f")] == ["request:2"], "the unknown one is replaced"
                landed = session.changes.apply("f", pushes=["request:2"], exact=True)
            assert [row.state for row in landed.applied.pushes] == ["sent"], landed.applied.pushes
    assert len(yard.api.done) == 1 and not yard.api.doubles


DONE_MEANWHILE: dict[str, Callable[[dict[str, bytes]], object]] = {
    "PUT": lambda things: things.update({"/items/new": b'{"b":2}'}),
    "DELETE": lambda things: things.pop("/items/old"),
}


@pytest.mark.parametrize("kind", ["PUT", pytest.param("DELETE", marks=pytest.mark.deep)])
@pytest.mark.parametrize("is_there", [False, True])
def test_a_refusal_of_what_was_sent_before_is_asked_about(yard: Yard, kind: str, is_there: bool) -> None:
    """The server has still been at the first one when it gets the second."""

    def refuse() -> int:
        if is_there:
            DONE_MEANWHILE[kind](yard.api.things)
        return 409

    yard.api.before = cut
    with opened(yard) as session:
        curl(yard, session, REQUESTS[kind])
        session.changes.apply("f", pushes=["request:1"], exact=True)
        yard.api.before = refuse
        (row,) = session.changes.apply("f", pushes=["request:1"], exact=True).applied.pushes
        assert row.state == ("sent" if is_there else "unknown"), row
        assert row.why.startswith("the answer was lost (the server answered 409 No, perhaps since"), row
        assert row.why.endswith("it is there" if is_there else "the next apply asks the server first")


@pytest.mark.parametrize("kind", ["PUT", *(pytest.param(kind, marks=pytest.mark.deep) for kind in ("PATCH", "DELETE"))])
def test_what_somebody_has_put_there_since_is_not_overwritten(yard: Yard, kind: str) -> None:
    yard.api.before = cut
    with opened(yard) as session:
        curl(yard, session, REQUESTS[kind])
        session.changes.apply("f", pushes=["request:1"], exact=True)
        yard.api.before = lambda: None
        theirs = dict.fromkeys(("/items/new", "/items/old"), b'{"a":3}')
        yard.api.things = dict(theirs)
        (row,) = session.changes.apply("f", pushes=["request:1"], exact=True).applied.pushes
        assert row.state == "unknown" and "does not show whether it was done" in row.why, row
    assert yard.api.things == theirs


def test_a_key_that_is_outstanding_is_not_told_as_sent(yard: Yard) -> None:
    yard.api.before = cut
    with opened(yard) as session:
        curl(yard, session, ORDER)
        session.changes.apply("f", pushes=["request:1"], exact=True)
        yard.api.before, yard.api.outstanding = lambda: None, {"k1"}
        (row,) = session.changes.apply("f", pushes=["request:1"], exact=True).applied.pushes
        assert row.state == "unknown" and "outstanding" in row.why, row
        yard.api.outstanding.clear()
        (row,) = session.changes.apply("f", pushes=["request:1"], exact=True).applied.pushes
        assert row.state == "sent" and len(yard.api.done) == 1


def test_a_server_that_sends_on_afterwards_is_asked(yard: Yard) -> None:
    yard.api.after = lambda: 303
    with opened(yard) as session:
        curl(yard, session, REQUESTS["PUT"], ORDER)
        rows = session.changes.apply("f", pushes=["request:1", "request:2"], exact=True).applied.pushes
        assert [row.state for row in rows] == ["sent", "unknown"], rows


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_sent", half([False, True]))
def test_a_server_that_hangs_is_given_up_and_asked_later(
    yard: Yard, monkeypatch: pytest.MonkeyPatch, kind: str, is_sent: bool
) -> None:
    """It takes the request or does not, and its answer does not come."""

    def hang(connection: HTTPConnection, *given: Any, **more: Any) -> Any:
        is_question = (given[0] if given else vars(connection)["_method"]) == "GET"
        answer = real(connection, *given, **more) if is_question or is_sent else None
        if is_question:
            return answer
        raise TimeoutError("timed out")

    hanging = "getresponse" if is_sent else "request"
    real = getattr(HTTPConnection, hanging)
    with opened(yard) as session:
        curl(yard, session, REQUESTS[kind])
        with monkeypatch.context() as patch:
            patch.setattr(RequestServer, "is_there", lambda _server, may_be: False)  # nor does it say what is there
            patch.setattr(HTTPConnection, hanging, hang)
            landed = session.changes.apply("f", pushes=["request:1"], exact=True)
        (row,) = landed.applied.pushes
        assert row.state == "unknown" and row.why.startswith("the answer was lost (timed out); "), row
        assert len(yard.api.done) == is_sent
        landed = session.changes.apply("f", pushes=["request:1"], exact=True)
        assert [row.state for row in landed.applied.pushes] == ["sent"], landed.applied.pushes
    assert len(yard.api.done) == 1 and not yard.api.doubles


@pytest.mark.parametrize("step", every(4, 17))
def test_a_killed_release_goes_on_and_doubles_nothing(yard: Yard, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """At each durable step of four requests: before it, and the process is gone."""
    kinds = ("PUT", "PATCH", "DELETE", "POST")
    with opened(yard) as session:
        curl(yard, session, *(REQUESTS[kind] for kind in kinds))
        names = [row.name for row in session.changes.pushes("f")]
        with killed_at(monkeypatch, step, RequestServer):
            session.changes.apply("f", pushes=names, exact=True)
    with opened(yard) as session:
        session.changes.recover()
        left = [row.name for row in session.changes.pushes("f")]
        landed = session.changes.apply("f", pushes=left, exact=True)
        assert {row.state for row in landed.applied.pushes} == {"sent"}, landed.applied.pushes
        assert session.changes.pushes("f") == []
    assert [method for method, _path in yard.api.done] == list(kinds) and not yard.api.doubles


def test_a_plain_patch_that_was_killed_at_its_first_byte_is_told_and_not_sent(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(yard) as session:
        curl(yard, session, PLAIN_PATCH.replace("application/json", "text/x-patch"))
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(RequestServer, "send", lambda *_given: (_ for _ in ()).throw(KeyboardInterrupt))
            session.changes.apply("f", pushes=["request:1"], exact=True)
    with opened(yard) as session:
        session.changes.recover()
        assert [row.state for row in session.changes.pushes("f")] == ["sending"]
        landed = session.changes.apply("f", pushes=["request:1"], exact=True)
        assert [row.state for row in landed.applied.pushes] == ["unknown"]
        assert "does not show whether it was done; it is not sent again" in landed.applied.pushes[0].why
    assert not yard.api.effects()


def test_after_a_failure_the_host_s_later_requests_wait(yard: Yard) -> None:
    """A file is moved there: it is not removed unless its copy was made."""
    yard.api.before = lambda: 403
    with opened(yard) as session:
        curl(yard, session, REQUESTS["PUT"], REQUESTS["DELETE"])
        landed = session.changes.apply("f", pushes=["request:1", "request:2"], exact=True)
        assert [(row.state, row.why) for row in landed.applied.pushes][1] == (
            "held", "an effect before it to this host was not sent",
        )  # fmt: skip
        yard.api.before = lambda: None
        landed = session.changes.apply("f", pushes=["request:2"], exact=True)  # the user leaves the first one out
        assert [row.state for row in landed.applied.pushes] == ["sent"]
    assert yard.api.done == [("DELETE", "/items/old")]


def test_a_key_is_held_once(yard: Yard) -> None:
    other = ORDER.replace('"n": 1', '"n": 2')
    with opened(yard) as session:
        done = curl(yard, session, ORDER, ORDER, other)
        assert [line for line in done.stdout.splitlines() if line.isdigit()] == [b"202", b"202", b"403"]
        assert b"its key is held already, with another content" in done.stdout
        assert [row.name for row in session.changes.pushes("f")] == ["request:1"]


SECRET = "api_the-real-one-that-nobody-may-see-0123456789"


def test_the_credential_is_put_in_at_the_release_and_is_never_stored(yard: Yard) -> None:
    yard.api.token = f"Bearer {SECRET}"
    with opened(yard, token=SECRET) as session:
        save_credentials(session.vault.path, (parse_credential("TOKEN", f"api.example:{yard.api_port}"),))
        done = curl(yard, session, REQUESTS["PUT"].replace("-X", '-H "Authorization: Bearer $TOKEN" -X'))
        assert done.stdout.endswith(b"202\n"), done
        vault = Path(os.fsdecode(session.vault.path))
        assert not any(SECRET.encode() in path.read_bytes() for path in vault.rglob("*") if path.is_file())
        landed = session.changes.apply("f", pushes=["request:1"], exact=True)
        assert [(row.state, row.why) for row in landed.applied.pushes] == [("sent", "")]
    assert yard.api.done == [("PUT", "/items/new")]


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_fetch_of_node_accepts_what_it_is_told(yard: Yard) -> None:
    script = (
        f"const r = await fetch('{origin(yard)}/items/new', {{method: 'PUT', body: JSON.stringify({{b: 2}}), "
        "headers: {'content-type': 'application/json'}}); console.log(r.ok, r.status, (await r.json()).held);"
    )
    with opened(yard) as session:
        (yard.project / "put.mjs").write_text(script)
        done = yard.run(session, "node put.mjs")
        assert done.stdout == b"true 202 PUT /items/new will be sent when the fork is applied\n", done
        session.changes.apply("f", pushes=["request:1"], exact=True)
    assert yard.api.things["/items/new"] == b'{"b":2}'


@pytest.mark.deep
@pytest.mark.network
@pytest.mark.slow
def test_httpx_accepts_what_it_is_told(yard: Yard) -> None:
    install = [sys.executable, "-m", "pip", "install", "-q", "--target", str(yard.project / "tools"), "httpx"]
    subprocess.run(install, check=True)
    script = (
        f"import httpx; client = httpx.Client(base_url='{origin(yard)}'); "
        "kinds = [client.put('/items/new', json={'b': 2}), client.patch('/items/old', json={'a': 2}, "
        "headers={'content-type': 'application/merge-patch+json'}), client.delete('/items/old'), "
        "client.post('/orders', json={'n': 1}, headers={'Idempotency-Key': 'k1'})]; "
        "print([kind.raise_for_status().status_code for kind in kinds], kinds[0].json()['held']); "
        "print(client.get('/items/old').text)"
    )
    with opened(yard) as session:
        done = yard.run(session, f'PYTHONPATH=tools {sys.executable} -c "{script}"')
        assert done.stdout.splitlines() == [
            b"[202, 202, 202, 202] PUT /items/new will be sent when the fork is applied", b'{"a":1}',
        ], done.stderr  # fmt: skip
        names = [row.name for row in session.changes.pushes("f")]
        landed = session.changes.apply("f", pushes=names, exact=True)
        assert [row.state for row in landed.applied.pushes] == ["sent"] * 4
    assert [method for method, _path in yard.api.done] == ["PUT", "PATCH", "DELETE", "POST"]


def test_a_program_of_python_accepts_what_it_is_told(yard: Yard) -> None:
    script = (
        "import json, urllib.request as u; "
        f"r = u.urlopen(u.Request('{origin(yard)}/items/old', method='DELETE')); print(r.status, json.load(r))"
    )
    with opened(yard) as session:
        done = yard.run(session, f'{sys.executable} -c "{script}"')
        assert done.stdout.startswith(b"202 {'held': 'DELETE /items/old will be sent"), done.stderr
        session.changes.apply("f", pushes=["request:1"], exact=True)
    assert yard.api.done == [("DELETE", "/items/old")]


@pytest.mark.parametrize(
    ("path", "is_read_once"),
    [("/a", True), ("/a?x=1&y=%20", True), ("/a#b", False), ("/a/../b", False), ("/a//b", False), ("/%2e%2e/b", False),
     ("/a;b", False), ("", False), ("/a b", False), ("/a?ä", False)],
)  # fmt: skip
def test_a_path_that_servers_may_read_in_several_ways_is_not_held(path: str, is_read_once: bool) -> None:
    assert is_request_path(path) == is_read_once


@pytest.mark.parametrize(
    ("body", "key"),
    [(b'{"id": 7}', "7"), (b'{"id": "a b"}', ""), (b'{"id": true}', ""), (b'{"id": ""}', ""), (b"[]", ""), (b"", ""),
     (b"\xff", ""), (b'{"id": {"id": 1}}', ""), (b'{"id": null}', "")],
)  # fmt: skip
def test_a_key_in_the_body_is_a_short_text_or_a_number(body: bytes, key: str) -> None:
    if key:
        assert parse_request("POST", "/a", [], body, ["POST=.id"]).key == f".id: {key}"
    else:
        with pytest.raises(ValueError, match=r"POST /a without \.id"):
            parse_request("POST", "/a", [], body, ["POST=.id"])


MERGES = (("content-type", "application/merge-patch+json"),)


@pytest.mark.parametrize(
    ("method", "seen", "sent", "status", "there", "done"),
    [
        ("DELETE", "200 x", b"", 404, b"", True),
        ("DELETE", "404 x", b"", 404, b"", False),  # hidden, or not there: before as after
        ("DELETE", "200 x", b"", 200, b"", False),
        ("DELETE", "", b"", 404, b"", False),
        ("PUT", "404 x", b'{"a":1,"b":2}', 200, b'{ "b": 2, "a": 1 }', True),
        ("PUT", "404 x", b'{"a":1}', 200, b'{"a":1,"b":2}', False),
        ("PUT", "404 x", b'{"a":1}', 200, b'{"a":true}', False),
        ("PUT", "404 x", b"x", 200, b"y", False),
        ("PATCH", "200 x", b'{"a":{"b":1},"c":null}', 200, b'{"a":{"b":1,"d":2}}', True),
        ("PATCH", "200 x", b'{"c":null}', 200, b'{"c":1}', False),
        ("PATCH", "200 x", b"[]", 200, b"[]", False),
        ("POST", "", b"{}", 200, b"{}", False),
    ],
)
def test_a_server_shows_that_a_request_was_done(
    method: str, seen: str, sent: bytes, status: int, there: bytes, done: bool
) -> None:
    assert is_done(HttpRequest(method, MERGES, "", seen), sent, status, there) == done
