"""Credentials of a command's own: where they are seen, and what of a request stays."""

from __future__ import annotations

import base64

from mudroom.core.network.inspection import Credential
from mudroom.ext.inspection.foreign_credential import (
    HEADERS,
    QUERY,
    Field,
    ForeignCredentials,
    describe_foreign,
    find_foreign,
    strictest,
)
from mudroom.ext.inspection.placeholder import parse_credential, with_value
from mudroom.ext.inspection.sanitizer import Sanitizer
from tiers import each

OWN = with_value(parse_credential("TOKEN", "api.example.com"), "ghp_" + "R4t5" * 9, bytes(range(32)))
PLACEHOLDER = OWN.placeholder.encode()
STRANGER = b"sk-ant-api03-" + b"s" * 30


def basic(user: bytes, password: bytes) -> bytes:
    return b"Basic " + base64.b64encode(user + b":" + password)


def find(path: bytes, *fields: Field, own: tuple[Credential, ...] = (OWN,), known: bytes = b"") -> ForeignCredentials:
    return find_foreign(path, fields, own, lambda pair: pair == known)


def test_each_header_of_the_table_is_foreign_and_left_out() -> None:
    other = (b"Accept", b"*/*")
    for name in HEADERS:
        for spelled in (name, name.upper(), name.title(), name.replace(b"-", b"_")):
            found = find(b"/", (spelled, b"anything"), other)
            assert len(found.where) == 1 and name.decode() in found.where[0], spelled
            assert found.fields == [other], spelled


def test_each_parameter_of_the_table_is_foreign_and_left_out() -> None:
    for name in QUERY:
        encoded = b"".join(b"%%%02x" % byte for byte in name)
        for spelled in (name, name.upper(), encoded, name + b"%5B%5D"):
            found = find(b"/a?x=1&" + spelled + b"=v&y=2")
            assert len(found.where) == 1, spelled
            assert found.path == b"/a?x=1&y=2", spelled
        assert find(b"/a?" + name + b"=v").path == b"/a", name
        assert find(b"/a?" + name + b"=").where == (), name


@each(
    "field",
    [
        (b"Authorization", b"Bearer " + STRANGER),
        (b"authorization", basic(b"ada", b"password")),
        (b"Authorization", b"Bearer " + STRANGER + b", Bearer " + PLACEHOLDER),
        (b"Authorization", b"Bearer " + PLACEHOLDER + b" " + STRANGER),
        (b"Authorization", b'OAuth a="b", oauth_token="' + PLACEHOLDER + b'"'),
        (b"Authorization", basic(STRANGER, PLACEHOLDER)),
        (b"Authorization", basic(b"a", PLACEHOLDER + b"x")),
        (b"Cookie", b"session=stranger"),
        (b"X-Anything-Token", b"x"),
        (b"My-Api-Key", b"x"),
        (b"x-client-secret", b"x"),
        (b"X-Note", b"key " + STRANGER),
        (b"X-Note", b"eyJhbGciOiJI.eyJzdWIiOiIx.sig"),
        (b"Sec-WebSocket-Protocol", b"openai-insecure-api-key." + STRANGER),
        (b"Sec-WebSocket-Protocol", b"base64url.bearer.authorization.k8s.io.c3RyYW5nZXI"),
        (b"Sec-WebSocket-Protocol", b"access_token, c3RyYW5nZXI"),
    ],
)
def test_credentials_of_others_are_seen(field: Field) -> None:
    found = find(b"/", field)
    assert len(found.where) >= 1
    assert STRANGER not in b"".join(map(b"".join, found.fields))
    assert STRANGER.decode() not in describe_foreign(found, "api.example.com", [OWN])


@each(
    "field",
    [
        (b"Authorization", b"Bearer " + PLACEHOLDER),
        (b"authorization", b"token " + PLACEHOLDER),
        (b"authorization", PLACEHOLDER),
        (b"authorization", b'Token token="' + PLACEHOLDER + b'"'),
        (b"Authorization", basic(b"x-access-token", PLACEHOLDER)),
        (b"Authorization", basic(PLACEHOLDER, b"x-oauth-basic")),
        (b"Authorization", basic(PLACEHOLDER, b"")),
        (b"Authorization", b""),
        (b"Cookie", b"known=1"),
        (b"Idempotency-Key", b"6f7f"),
        (b"X-CSRF-Token", b"x"),
        (b"Sec-WebSocket-Key", b"dGhlIHNhbXBsZSBub25jZQ=="),
        (b"Sec-WebSocket-Protocol", b"v4.channel.k8s.io, graphql-transport-ws"),
        (b"X-Claude-Code-Session-Id", b"0b5c"),
        (b"OpenAI-Organization", b"org-1"),
        (b"If-None-Match", b'"abc"'),
        (b"X-Page-Token", b"abc"),
    ],
)
def test_what_is_no_credential_or_the_users_own_passes(field: Field) -> None:
    assert find(b"/a?page_token=x&cursor=y&q=token", field, known=b"known=1") == (
        (),
        b"/a?page_token=x&cursor=y&q=token",
        [field],
    )


def test_a_cookie_may_be_the_credential_and_others_beside_it_are_left_out() -> None:
    own = OWN._replace(header="cookie")
    field = (b"Cookie", b"sid=%s; evil=1; known=2" % PLACEHOLDER)
    found = find(b"/", field, own=(own,), known=b"known=2")
    assert found.where == ("the cookie evil",)
    assert found.fields == [(b"Cookie", b"sid=%s; known=2" % PLACEHOLDER)]


def test_each_of_several_credentials_is_for_its_own_header() -> None:
    key = OWN._replace(name="KEY", header="x-api-key", placeholder="mudroomkey" + "k" * 40)
    fields = ((b"X-Api-Key", key.placeholder.encode()), (b"Authorization", b"Bearer " + PLACEHOLDER))
    assert find(b"/", *fields, own=(OWN, key)).where == ()
    assert len(find(b"/", (b"X-Api-Key", PLACEHOLDER), own=(OWN, key)).where) == 1


def test_without_a_credential_all_are_foreign_and_the_stricter_rule_wins() -> None:
    found = find(b"/", (b"Authorization", b"Bearer " + STRANGER), own=())
    assert "lets none through" in describe_foreign(found, "pypi.org", [])
    assert strictest([], []) == "allow"
    assert strictest([], ["strip"]) == "strip"
    assert strictest([OWN._replace(foreign="strip")], ["refuse"]) == "refuse"
    assert strictest([OWN, OWN._replace(foreign="allow")], []) == "refuse"


def test_tables_are_in_lower_case_and_no_own_placeholder_is_taken_for_a_strangers() -> None:
    assert all(name == name.lower() for name in (*HEADERS, *QUERY))
    assert find(b"/", (b"X-Other", PLACEHOLDER)).where == (), "refused as a placeholder that is misused"
    assert not Sanitizer([OWN]).spans(PLACEHOLDER, is_whole=True)


def test_a_header_that_a_credential_of_the_user_has_is_one_for_credentials() -> None:
    """The tables cannot know the header of a company's own gateway."""
    own = with_value(parse_credential("CORP", "api.example.com", "X-Corp-Pass"), "corp-" + "R4t5" * 9, bytes(32))
    mine = own.placeholder.encode()
    for name in (b"x-corp-pass", b"X-Corp-Pass", b"x_corp_pass"):
        for value in (b"stranger", mine + b", stranger", b"stranger " * 9 + mine):
            assert find(b"/", (name, value), own=(own,)).fields == [], (name, value)
    assert find(b"/", (b"X-Corp-Pass", mine), own=(own,)).where == ()
    assert find(b"/", (b"X-Corp-Pass", b"stranger")).where == (), "at another host it is any header"


def test_names_of_parameters_are_read_as_servers_read_them() -> None:
    """PHP makes an underscore of a dot and a space, an array of a bracket, and nothing of a NUL."""
    for spelled in (b"access.token", b"access%20token", b"access+token", b"%20access_token", b"access_token%00x"):
        assert find(b"/?a=1&" + spelled + b"=v").path == b"/?a=1", spelled
    for spelled in (b"access_token[0]", b"access_token%5Bx%5D", b"access_token[", b"x.amz.signature"):
        assert find(b"/?" + spelled + b"=v").where, spelled
    for fine in (b"filter[key]", b"[key]", b"key.x", b"x key"):
        assert find(b"/?" + fine + b"=v").where == (), fine
