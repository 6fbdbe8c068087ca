"""Credentials of a command's own: where they are seen, and what of a request stays."""

from __future__ import annotations

import base64

from mudroom.core.network.host_rules import HostRule, Request, decide
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
from mudroom.net.protocol.head import as_judged
from tiers import each

OWN = with_value(parse_credential("TOKEN", "api.example.com"), "ghp_" + "R4t5" * 9, bytes(range(32)))
PLACEHOLDER = OWN.placeholder.encode()
STRANGER = b"sk-ant-api03-" + b"s" * 30


STRANGERS = (
    b"ada",
    b"AC0123456789abcdef",
    b"stranger@example.com",
    b"k3y",
    b"sk",
    b"x" * 8,
    b"x-access-token ",
    b"Git",
)


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
        *((b"Authorization", basic(user, PLACEHOLDER)) for user in STRANGERS),
        *((b"Authorization", basic(PLACEHOLDER, user)) for user in STRANGERS),
        *((name, b"x") for name in (b"X-Company-Key", b"company_auth", b"X-Pat", b"X-Signing-Keys", b"X-Api-Sig")),
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
        *((b"Authorization", basic(user, PLACEHOLDER)) for user in (b"", b"oauth2", b"__token__", b"git", b"AWS")),
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


def test_the_credential_names_the_user_beside_it() -> None:
    own = OWN._replace(user="ada")
    assert find(b"/", (b"Authorization", basic(b"ada", PLACEHOLDER)), own=(own,)).where == ()
    for user in (b"Ada", b"ada2", b"bob", b"ada:ada"):
        found = find(b"/", (b"Authorization", basic(user, PLACEHOLDER)), own=(own,))
        assert found.where == (
            "more than the credential TOKEN in the header authorization "
            "(mudroom net credential TOKEN --user NAME lets a user name through)",
        ), user


def test_parameters_with_a_secret_name_are_foreign() -> None:
    for name in (b"company_token", b"x-company-secret", b"my.api.key", b"upload%5Ftoken", b"login_password"):
        assert find(b"/?a=1&" + name + b"=v").path == b"/?a=1", name
    for fine in (
        b"next_page_token",
        b"pagination_token",
        b"max_tokens",
        b"project_key",
        b"key-marker",
        b"partition_key",
    ):
        assert find(b"/?" + fine + b"=v").where == (), fine


CLIENTS = {
    "git": """GET /o/r.git/info/refs?service=git-upload-pack
user-agent: git/2.43.0
accept: */*
accept-encoding: deflate, gzip, br, zstd
accept-language: de-DE, *;q=0.9
pragma: no-cache
git-protocol: version=2""",
    "git push": """POST /o/r.git/git-receive-pack
user-agent: git/2.43.0
accept-encoding: deflate, gzip
content-type: application/x-git-receive-pack-request
accept: application/x-git-receive-pack-result
content-length: 1042""",
    "npm": """GET /@scope%2fname
user-agent: npm/10.2.4 node/v20.11.0 linux x64 workspaces/false
npm-command: install
npm-session: 0f1e2d3c4b5a69788796a5b4c3d2e1f0
npm-auth-type: web
npm-in-ci: false
npm-scope: @scope
pacote-version: 17.0.6
pacote-req-type: packument
pacote-pkg-id: registry:@scope/name
pacote-integrity: sha512-AbC/dEf+==
accept: application/vnd.npm.install-v1+json; q=1.0, application/json; q=0.8, */*
if-none-match: "0123456789abcdef"
connection: keep-alive""",
    "pip": """GET /simple/requests/
user-agent: pip/24.0 {"ci":null,"cpu":"x86_64","installer":{"name":"pip"},"openssl_version":"OpenSSL 3.0.13"}
accept: application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html; q=0.1, text/html; q=0.01
accept-encoding: gzip, deflate
cache-control: max-age=0
connection: keep-alive""",
    "curl": """GET /a%20b?q=x
user-agent: curl/8.5.0
accept: */*
range: bytes=0-1023""",
    "gh": """POST /graphql
user-agent: GitHub CLI 2.45.0
accept: application/vnd.github.merge-info-preview+json, application/vnd.github.nebula-preview
content-type: application/json; charset=utf-8
graphql-features: merge_queue
time-zone: Europe/Berlin
x-github-api-version: 2022-11-28
x-github-next-global-id: 1""",
    "aws": """PUT /bucket/dir/a%20file%3D1.bin?partNumber=1&uploadId=abc.DEF-1
user-agent: aws-cli/2.15.0 md/Botocore#1.34 ua/2.0 os/linux lang/python#3.11
amz-sdk-invocation-id: 0b5c2a2e-5b1e-4a57-8f2a-5f4a8d6e7c10
amz-sdk-request: attempt=1
x-amz-date: 20240102T030405Z
x-amz-content-sha256: UNSIGNED-PAYLOAD
x-amz-checksum-crc32: AAAAAA==
x-amz-sdk-checksum-algorithm: CRC32
content-md5: /CY9rzUYh03PK3k6DJie09g==
expect: 100-continue""",
    "dynamo": """POST /
x-amz-target: DynamoDB_20120810.GetItem
content-type: application/x-amz-json-1.0
x-amz-date: 20240102T030405Z""",
    "httpx": """POST /v1/chat/completions
host: api.example.com
user-agent: OpenAI/Python 1.12.0
accept: application/json
accept-encoding: gzip, deflate
content-type: application/json
idempotency-key: stainless-python-retry-0b5c2a2e
x-stainless-lang: python
x-stainless-runtime-version: 3.11.8
x-stainless-async: false
openai-organization: org-AbCdEf0123456789
anthropic-version: 2023-06-01
anthropic-beta: prompt-caching-2024-07-31
traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
x-request-id: 0b5c2a2e-5b1e-4a57-8f2a-5f4a8d6e7c10""",
    "google": """GET /storage/v1/b/bucket/o?pageToken=abc&maxResults=5&fields=items(name)
x-goog-api-client: gl-python/3.11.8 grpc/1.60.0 gax/2.15.0
x-goog-user-project: my-project-123456
x-goog-request-params: name=projects%2Fp""",
    "docker": """GET /v2/library/alpine/manifests/sha256:0a0b
accept: application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.v2+json
docker-distribution-api-version: registry/2.0
user-agent: docker/25.0.3 go/go1.21.6""",
    "cargo": """GET /se/rd/serde
user-agent: cargo 1.76.0
cargo-protocol: version=1
if-modified-since: Fri, 01 Mar 2024 00:00:00 GMT""",
    "browser": """GET /
sec-ch-ua: "Chromium";v="122"
sec-fetch-mode: navigate
upgrade-insecure-requests: 1
origin: https://api.example.com
referer: https://api.example.com/x""",
}


@each("client", CLIENTS)
def test_the_requests_of_real_clients_pass(client: str) -> None:
    """Beside its credential, no header or parameter counts as one, and none as another method or path."""
    line, *rows = CLIENTS[client].splitlines()
    method, target = line.split(" ", 1)
    fields = [(name.encode(), value.encode()) for name, _colon, value in (row.partition(": ") for row in rows)]
    found = find(target.encode(), *fields, (b"authorization", b"Bearer " + PLACEHOLDER))
    assert (found.where, found.path) == ((), target.encode())
    path = target.partition("?")[0]
    assert as_judged(method, path, fields) == (method, path)
    if client != "npm":  # the name of a scoped package has %2f, which a rule with paths does not allow
        rule = HostRule("allow", "api.example.com", methods=(method,), paths=("/",), inspect=True)
        assert decide(Request("api.example.com", 443, method, path), [rule]).action == "allow"
