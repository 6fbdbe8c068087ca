"""A publish to a held registry is stored, told to the client as done, and sent with the apply at most once."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from registry import BOUNDARY, npm_document, tarball, upload_form, wheel
from yard import LOST_ANSWERS, Yard, killed_at
from yard import yard as yard

from mudroom.cli.change.preview import held_lines as push_lines
from mudroom.core.result import Result
from mudroom.errors import MudroomError
from mudroom.ext.effects.publish import package_files, parse_publish
from mudroom.ext.effects.store import HeldEffect
from mudroom.ext.effects.upstream import Registry as RegistryClient
from mudroom.ext.inspection.credentials import save_credentials
from mudroom.ext.inspection.placeholder import parse_credential
from mudroom.session import Session
from tiers import every, half

pytestmark = [pytest.mark.both_users]

FILES = {"package.json": '{"name": "tiny", "version": "1.0.0"}', "index.js": "module.exports = 1\n"}
SDIST = tarball({"tiny.py": "x = 1\n"}, "tiny-1.0")
FORM = f"multipart/form-data; boundary={BOUNDARY}"
CURL = "curl -sS -w '\\n%{http_code}' --data-binary @body"
WHEEL = wheel({"tiny.py": "x = 1\n", "tiny-1.0.dist-info/METADATA": "Name: tiny\n"})


def origin(yard: Yard) -> str:
    return f"http://registry.example:{yard.registry_port}"


def npm(yard: Yard, session: Session, version: str = "1.0.0", content: bytes = tarball(FILES), **more: Any) -> Result:
    (yard.project / "body").write_bytes(npm_document("tiny", version, content, origin(yard), **more))
    return yard.run(session, f"{CURL} -X PUT -H 'Content-Type: application/json' {origin(yard)}/tiny")


def pypi(yard: Yard, session: Session, file: str = "tiny-1.0.tar.gz", content: bytes = SDIST) -> Result:
    (yard.project / "body").write_bytes(upload_form("Tiny", "1.0", file, content))
    return yard.run(session, f"{CURL} -X POST -H 'Content-Type: {FORM}' {origin(yard)}/legacy/")


def test_a_publish_waits_is_read_back_and_is_sent_by_the_apply(yard: Yard) -> None:
    with yard.session() as session:
        done = npm(yard, session)
        assert done.stdout.endswith(b"\n200"), done
        assert b"held: tiny 1.0.0 will be published when the fork is applied" in done.stdout
        seen = yard.run(
            session, f"curl -sS {origin(yard)}/tiny; curl -sS {origin(yard)}/tiny/-/tiny-1.0.0.tgz | sha512sum"
        )
        document = json.loads(seen.stdout.rpartition(b"}")[0] + b"}")
        assert document["dist-tags"] == {"latest": "1.0.0"}
        assert document["versions"]["1.0.0"]["dist"]["tarball"] == f"{origin(yard)}/tiny/-/tiny-1.0.0.tgz"
        assert not yard.registry.publishes()
        assert push_lines(session, "f") == [
            f"publish:1  publish tiny 1.0.0 to {origin(yard)}/tiny: 2 files, 2 files not from the fork, "
            "first publish of this name",
            "    +! index.js",
            "    +! package.json",
        ]
        landed = session.changes.apply("f", pushes=["publish:1"], exact=True)
        (row,) = landed.applied.pushes
        assert (row.state, row.why, row.said) == ("sent", "", ('{"ok":"created"}',))
        assert f"published: tiny 1.0.0 to {origin(yard)}/tiny" in [remark.text for remark in landed.applied.remarks]
        assert list(yard.registry.files.values()) == [tarball(FILES)] and not yard.registry.doubles
        (undone,) = session.changes.undo().pushes
        assert undone.state == "sent" and "npm unpublish tiny@1.0.0 within 72 hours" in undone.why
        assert session.changes.redo(landed.applied.name).pushes[0].why.startswith("a redo sends nothing")
        events = [json.loads(event.data) for event in session.vault.journal.events() if event.kind == "effect"]
        assert [event["state"] for event in events] == ["held", "sent", "sent"]
        assert len({event["sha256"] for event in events}) == 1 and events[0]["names"] == ["tiny 1.0.0"]


def test_an_index_is_read_back_and_its_files_wait_one_by_one(yard: Yard) -> None:
    with yard.session() as session:
        assert pypi(yard, session).stdout.endswith(b"\n200")
        assert pypi(yard, session, "tiny-1.0-py3-none-any.whl", WHEEL).stdout.endswith(b"\n200")
        seen = yard.run(
            session,
            f"curl -sS {origin(yard)}/simple/tiny/; curl -sS {origin(yard)}/simple/tiny/tiny-1.0.tar.gz | tar tz",
        )
        assert b"tiny-1.0-py3-none-any.whl</a>" in seen.stdout and b"tiny-1.0/tiny.py" in seen.stdout
        landed = session.changes.apply("f", pushes=["publish:2"], exact=True)
        assert [row.state for row in landed.applied.pushes] == ["sent"]
        assert [(remark.path, remark.text) for remark in landed.applied.remarks][-1] == (
            b"publish:1", "is not sent: mudroom apply f publish:1 does",
        )  # fmt: skip
        assert list(yard.registry.files) == ["tiny-1.0-py3-none-any.whl"]
        assert "its page at the index can yank it" in session.changes.undo().pushes[0].why
        session.changes.apply("f", pushes=["publish:1"], exact=True)
        assert yard.registry.files["tiny-1.0.tar.gz"] == SDIST and not yard.registry.doubles


def test_the_review_compares_with_the_last_published_version(yard: Yard) -> None:
    (yard.project / "package.json").write_text(FILES["package.json"])
    with yard.session() as session:
        npm(yard, session)
        session.changes.apply("f", pushes=["publish:1"], exact=True)
        secret = 'token = "ghp_0123456789abcdefghijABCDEFGHIJ012345"\n'
        npm(yard, session, "1.0.1", tarball({"package.json": FILES["package.json"], "postinstall.js": secret}))
        lines = push_lines(session, "f")
        told = ": 2 files, may have a secret, 1 file not from the fork, compared with 1.0.0"
        assert lines[0].endswith(told)
        assert lines[1:] == ["    +! postinstall.js", "    - index.js"]
        yard.registry.token = "none"
        assert "not compared: the server answered 401" in push_lines(session, "f")[0]


def test_a_package_s_file_that_the_fork_does_not_have_comes_first(yard: Yard) -> None:
    metadata = {"tiny-1.0.dist-info/METADATA": "Name: tiny\n", "tiny-1.0.dist-info/RECORD": ""}
    built = wheel({"tiny.py": "x = 1\n", "a.py": "y = 1\n", "b.py": "z = 1\n", **metadata})
    (yard.project / "src").mkdir()
    (yard.project / "src/tiny.py").write_text("x = 1\n")
    (yard.project / "b.py").write_text("z = 2\n")
    with yard.session() as session:
        yard.run(session, "mkdir -p build/lib; echo 'y = 1' > build/lib/a.py")
        pypi(yard, session, "tiny-1.0-py3-none-any.whl", built)
        lines = push_lines(session, "f")
    assert lines[0].endswith(": 5 files, 1 file not from the fork, first publish of this name")
    assert lines[1:3] == ["    +! b.py", "    + a.py"] and sum("!" in line for line in lines) == 1


def cut() -> None:
    raise ConnectionError


@pytest.mark.parametrize("publish", [npm, pypi])
@pytest.mark.parametrize(("fault", "state", "times"), half(LOST_ANSWERS))
def test_a_lost_answer_is_asked_about_and_never_doubled(
    yard: Yard, publish: Callable[[Yard, Session], Result], fault: str, state: str, times: int
) -> None:
    word, when = fault.split()
    setattr(yard.registry, when, cut if word == "cut" else lambda: int(word))
    with yard.session() as session:
        publish(yard, session)
        landed = session.changes.apply("f", pushes=["publish:1"], exact=True)
        assert [row.state for row in landed.applied.pushes] == [state], landed.applied.pushes
        assert len(yard.registry.files) == times
        yard.registry.before = yard.registry.after = lambda: None
        if state != "sent":
            landed = session.changes.apply("f", pushes=["publish:1"], exact=True)
            assert [row.state for row in landed.applied.pushes] == ["sent"]
    assert len(yard.registry.files) == 1 and not yard.registry.doubles


@pytest.mark.parametrize("step", every(4, 9))
def test_a_killed_release_goes_on_and_doubles_nothing(yard: Yard, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """At each durable step of two publishes: before it, and the process is gone."""
    with yard.session() as session:
        npm(yard, session)
        pypi(yard, session)
        with killed_at(monkeypatch, step, RegistryClient):
            session.changes.apply("f", pushes=["publish:1", "publish:2"], exact=True)
    with yard.session() as session:
        session.changes.recover()
        left = [row.name for row in session.changes.pushes("f")]
        landed = session.changes.apply("f", pushes=left, exact=True)
        assert {row.state for row in landed.applied.pushes} == {"sent"}
    assert len(yard.registry.files) == 2 and not yard.registry.doubles and yard.registry.publishes() == 2


def test_a_version_that_somebody_has_published_is_refused(yard: Yard) -> None:
    with yard.session() as session:
        npm(yard, session)
        assert b"which is held already" in npm(yard, session).stdout
        session.forks.new("g")
        script = f"curl -sS -X PUT -H 'Content-Type: application/json' --data-binary @body {origin(yard)}/tiny"
        yard.run(session, script, "g")
        session.changes.apply("g", pushes=["publish:1"], exact=True)
        landed = session.changes.apply("f", pushes=["publish:1"], exact=True)
        (row,) = landed.applied.pushes
        assert (row.state, row.why) == (
            "refused", "tiny 1.0.0 is there already, and is not replaced: publish another version",
        )  # fmt: skip
    assert yard.registry.publishes() == 1


def test_discard_and_rollback_drop_and_say_so(yard: Yard) -> None:
    with yard.session() as session:
        npm(yard, session)
        session.forks.checkpoint("f", "here")
        pypi(yard, session)
        session.forks.unsaid()
        session.forks.rollback("f", "here")
        assert f"publish:2 is dropped: Tiny 1.0 (tiny-1.0.tar.gz) to {origin(yard)}/legacy/ was not published" in (
            session.forks.unsaid()
        )
        session.forks.discard("f")
        assert ["publish:1 is dropped" in line for line in session.forks.unsaid()] == [True]
    assert not yard.registry.publishes()


def test_what_publishes_no_package_is_refused_in_a_sentence(yard: Yard) -> None:
    with yard.session() as session:
        done = npm(yard, session, _attachments={})
        assert done.stdout.endswith(b"\n403") and b"this cannot be held: a change of what is published" in done.stdout
        other: dict[str, Any] = {"dist-tags": {"latest": "9.9.9"}}
        assert b"a package that is not the one" in npm(yard, session, **other).stdout
        assert session.changes.pushes("f") == []
    assert not yard.registry.publishes()


@pytest.mark.parametrize(
    ("path", "kind", "body", "why"),
    [
        ("/tiny", "application/json", b"[]", "publishes no package"),
        ("/other", "application/json", npm_document("tiny", "1.0.0", b"x"), "is not understood"),
        ("/..%2ftiny", "application/json", npm_document("..%2ftiny", "1.0.0", b"x"), "is not understood"),
        ("/legacy/", "multipart/form-data", b"", "a form that is not understood"),
        ("/", FORM, upload_form("a", "1", "../a-1.tar.gz", b"x"), "is not"),
        ("/", FORM, upload_form("a", "1", "a-1.zip", b"x", sha256_digest="0"),
         "damaged"),
        ("/", FORM, upload_form("a", "1", "a-1.zip", b"x", **{":action": "submit"}),
         "uploads no package"),
        ("/", FORM, upload_form("a", "1", "a-1.zip", b"x")[:-9], "not understood"),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_not_held(path: str, kind: str, body: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_publish(path, kind, body)


@pytest.mark.parametrize(
    "content",
    [b"", b"PK\3\4 damaged", b"\x1f\x8b damaged", SDIST[:60], WHEEL[:60]],
    ids=["empty", "zip", "gzip", "short sdist", "short wheel"],
)
def test_a_damaged_archive_is_said_to_be_one(content: bytes) -> None:
    with pytest.raises(ValueError, match="its archive is damaged"):
        package_files(content, lambda _data: False)


def test_a_file_whose_name_is_no_text_is_shown_escaped() -> None:
    content = tarball({"\udcff\x1b[2J.js": "x"})
    assert list(package_files(content, lambda _data: False)[0]) == ["\\xff\\x1b[2J.js"]


def test_a_stored_publish_that_was_changed_is_not_sent(yard: Yard) -> None:
    with yard.session() as session:
        npm(yard, session)
        with Path(os.fsdecode(session.vault.fork("f").path), "effects/1/request").open("ab") as stream:
            stream.write(b" ")
        with pytest.raises(MudroomError, match="is not what was held"):
            session.changes.apply("f", pushes=["publish:1"], exact=True)
    assert not yard.registry.publishes()


SECRET = "npm_the-real-one-that-nobody-may-see-0123456789"


def test_the_credential_is_put_in_at_the_release_and_is_never_stored(yard: Yard) -> None:
    yard.registry.token = f"Bearer {SECRET}"
    place, body = f"registry.example:{yard.registry_tls_port}", npm_document("tiny", "1.0.0", tarball(FILES))
    (yard.project / "body").write_bytes(body)
    with yard.session(TOKEN=SECRET) as session:
        save_credentials(session.vault.path, (parse_credential("TOKEN", place),))
        kind = "-H 'Content-Type: application/json' -H \"Authorization: Bearer $TOKEN\""
        done = yard.run(session, f"{CURL} -X PUT {kind} https://{place}/tiny")
        assert done.stdout.endswith(b"\n200"), done
        vault = Path(os.fsdecode(session.vault.path))
        assert not any(SECRET.encode() in path.read_bytes() for path in vault.rglob("*") if path.is_file())
        landed = session.changes.apply("f", pushes=["publish:1"], exact=True)
        assert [(row.state, row.why) for row in landed.applied.pushes] == [("sent", "")]
    assert len(yard.registry.files) == 1


def test_an_index_that_cannot_be_asked_is_named_and_nothing_is_sent(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    with yard.session() as session:
        pypi(yard, session)
        monkeypatch.setattr(HeldEffect, "page_hosts", ("index.example",))
        landed = session.changes.apply("f", pushes=["publish:1"], exact=True)
        (row,) = landed.applied.pushes
        assert (row.state, row.why) == ("held", "index.example cannot be asked for Tiny: no rule names it")
    assert not yard.registry.publishes()


def test_many_reads_at_once_and_a_publish_between_two_reads_of_one_command(yard: Yard) -> None:
    (yard.project / "body").write_bytes(npm_document("tiny", "1.0.0", tarball(FILES), origin(yard)))
    told, url = "-w '%{http_code} '", origin(yard)
    script = (
        f"curl -s -Z --parallel-immediate --parallel-max 50 {told} '{url}/p[1-60]' -o /dev/null; "
        f"curl -s -o out {told} {url}/tiny; {CURL} -o out -X PUT -H 'Content-Type: application/json' {url}/tiny; "
        f"echo; curl -s -o out {told} {url}/tiny; curl -s -o out {told} -I {url}/tiny/-/tiny-1.0.0.tgz"
    )
    with yard.session() as session:
        done = yard.run(session, script)
    assert done.stdout.split() == [b"404"] * 61 + [b"200"] * 3, done
