"""Find credentials in requests that are not the user's. With its own credential, a command could send its data to
a stranger's account at an allowed host.

Rules of this file:

1. Pure. A credential is foreign if it is in a place for credentials and is not a placeholder whose credential belongs
   to this host and header. The places are tables. These count, too: a header whose name says that it is secret, the
   header that a credential for this host uses, and a header or query parameter whose value has a token's published
   form.
2. A header for credentials holds a placeholder alone, after a scheme or a name, so no second credential is beside it.
   In a Basic pair the other half is in a list: names that stand for no account, and the credential's own ``user``.
3. A cookie is known if the server has set it in a response to a request with the user's own credential (``known``).
4. Not detected: credentials in bodies and in path segments, in a header or parameter whose name and value say nothing
   of it, and accounts that are named beside a credential.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Sequence

from mudroom.core.network.inspection import Credential, Foreign
from mudroom.core.text.regex import regex
from mudroom.core.tree.path import show
from mudroom.ext.inspection.placeholder import holds_placeholder, in_basic
from mudroom.typing import NamedTuple

Field = tuple[bytes, bytes]
FOREIGN: tuple[Foreign, ...] = ("allow", "strip", "refuse")
"""From mild to strict."""

HEADERS: dict[bytes, str] = {
    b"authorization": "HTTP",
    b"proxy-authorization": "HTTP",
    b"signature": "HTTP message signatures (RFC 9421)",
    b"signature-input": "HTTP message signatures (RFC 9421)",
    b"dpop": "OAuth (RFC 9449)",
    b"x-authorization": "several",
    b"x-forwarded-authorization": "several",
    b"x-api-key": "Anthropic, AWS API Gateway, Postman",
    b"api-key": "Azure OpenAI, New Relic, Qdrant, Brevo",
    b"apikey": "Supabase, Kong",
    b"x-apikey": "VirusTotal",
    b"x-goog-api-key": "Google",
    b"x-goog-iam-authorization-token": "Google Cloud IAM",
    b"private-token": "GitLab",
    b"job-token": "GitLab CI",
    b"deploy-token": "GitLab",
    b"x-auth-token": "OpenStack, Packet, Redfish",
    b"x-subject-token": "OpenStack",
    b"x-auth-key": "Cloudflare",
    b"x-auth-email": "Cloudflare",
    b"x-auth-user-service-key": "Cloudflare",
    b"x-amz-security-token": "AWS",
    b"ocp-apim-subscription-key": "Azure API Management",
    b"x-functions-key": "Azure Functions",
    b"x-ms-copy-source-authorization": "Azure Storage",
    b"x-vault-token": "HashiCorp Vault",
    b"x-consul-token": "HashiCorp Consul",
    b"x-nomad-token": "HashiCorp Nomad",
    b"dd-api-key": "Datadog",
    b"dd-application-key": "Datadog",
    b"x-shopify-access-token": "Shopify",
    b"x-figma-token": "Figma",
    b"circle-token": "CircleCI",
    b"fastly-key": "Fastly",
    b"x-subscription-token": "Brave Search",
    b"x-rapidapi-key": "RapidAPI",
    b"x-jfrog-art-api": "JFrog Artifactory",
    b"x-nuget-apikey": "NuGet",
    b"x-sentry-auth": "Sentry",
    b"x-sentry-token": "Sentry",
    b"x-honeycomb-team": "Honeycomb",
    b"x-postmark-server-token": "Postmark",
    b"x-postmark-account-token": "Postmark",
    b"x-algolia-api-key": "Algolia",
    b"xi-api-key": "ElevenLabs",
    b"x-hasura-admin-secret": "Hasura",
    b"x-redmine-api-key": "Redmine",
    b"x-plex-token": "Plex",
    b"x-emby-token": "Emby, Jellyfin",
    b"x-mbx-apikey": "Binance",
    b"x-registry-auth": "Docker Engine",
    b"x-tfe-token": "Terraform Enterprise",
    b"npm-otp": "npm",
    b"x-github-otp": "GitHub",
    b"x-rubygems-api-key": "RubyGems",
}
"""Headers that hold a credential, in lower case, with makers that document them."""

QUERY: dict[bytes, str] = {
    b"key": "Google",
    b"api_key": "several",
    b"apikey": "several",
    b"api-key": "Azure",
    b"access_token": "OAuth (RFC 6750 2.3), GitHub",
    b"accesstoken": "several",
    b"oauth_token": "OAuth 1",
    b"oauth_signature": "OAuth 1",
    b"refresh_token": "OAuth",
    b"id_token": "OpenID Connect",
    b"client_secret": "OAuth",
    b"token": "Slack and others",
    b"auth": "Firebase and others",
    b"auth_token": "several",
    b"authtoken": "several",
    b"authorization": "several",
    b"bearer_token": "several",
    b"session_token": "several",
    b"private_token": "GitLab",
    b"job_token": "GitLab CI",
    b"personal_access_token": "several",
    b"subscription-key": "Azure",
    b"hapikey": "HubSpot",
    b"circle-token": "CircleCI",
    b"jwt": "several",
    b"password": "several",
    b"passwd": "several",
    b"secret": "several",
    b"secret_key": "several",
    b"signature": "AWS (version 2), CloudFront, Google Cloud",
    b"awsaccesskeyid": "AWS (version 2)",
    b"x-amz-signature": "AWS",
    b"x-amz-credential": "AWS",
    b"x-amz-security-token": "AWS",
    b"x-goog-signature": "Google Cloud Storage",
    b"x-goog-credential": "Google Cloud Storage",
    b"googleaccessid": "Google Cloud Storage",
    b"sig": "Azure (shared access signature)",
    b"x-oss-signature": "Alibaba Cloud",
    b"ossaccesskeyid": "Alibaba Cloud",
}
"""Query parameters that hold a credential, in lower case, decoded."""

_SECRET_NAME = regex(
    rb"(?:^|[-_])(?:authorization|authentication|access-?key|api-?key|auth-?key|token|tokens|secret|secrets|passw(?:or)?d"
    rb"|passphrase|credential|credentials|jwt|bearer)$"
)
"""Suffixes by which the name of a header or a query parameter is secret, unless the name is in ``_HARMLESS``."""
_SECRET_HEADER = regex(rb"(?:^|[-_])(?:auth|keys?|pat|pwd|otp|sas|hmac|sig|signature)$")
"""Further suffixes by which a header name is."""
_HARMLESS = frozenset(
    (
        b"x-csrf-token", b"csrf-token", b"x-xsrf-token", b"xsrf-token", b"anti-csrf-token", b"requestverificationtoken",
        b"x-page-token", b"page-token", b"x-continuation-token", b"continuation-token", b"x-sync-token", b"sync-token",
        b"x-ms-continuation-token", b"x-next-token", b"next-token", b"x-client-request-token", b"cancellation-token",
        b"next-page-token", b"pagination-token", b"request-token", b"client-request-token", b"max-tokens",
        b"idempotency-key", b"x-idempotency-key", b"sec-websocket-key", b"surrogate-key", b"cache-key", b"x-cache-key",
        b"partition-key", b"x-ms-partition-key", b"routing-key",
    )
)  # fmt: skip
"""Names that belong to no account: against forgery, for the next page, for a retry, for a cache."""
_TOKEN = regex(
    rb"(?:gh[opsur]_[A-Za-z0-9]{20}|github_pat_[A-Za-z0-9_]{20}|glpat-[\w.-]{15}|npm_[A-Za-z0-9]{20}|pypi-[\w-]{30}|sk-ant-[\w-]{15}"
    rb"|sk-(?:proj-|svcacct-|admin-)?[\w-]{20}|xox[abeoprs]-[\w-]{10}|hf_[A-Za-z0-9]{20}|AKIA[A-Z2-7]{16}|ASIA[A-Z2-7]{16}"
    rb"|AIza[\w-]{30}|ya29\.[\w-]{15}|[rs]k_live_\w{10}|eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.)"
)
"""Published token forms, each matched by its beginning."""
_PROTOCOL = regex(rb"(?i)bearer|authorization|token|api-?key|secret|passw|jwt|credential")
"""Websocket protocol names that carry a credential, or announce that the next one does."""
_LONGEST_PROTOCOL = 64
_BEFORE = regex(rb"(?:[A-Za-z][A-Za-z0-9._-]{0,31} +)?(?:[A-Za-z][A-Za-z0-9_-]{0,31}=)?\"?")
"""Text allowed before a placeholder in a header: a scheme, or a name."""


_USERS = frozenset(
    (
        b"", b"x-access-token", b"git", b"token", b"oauth2", b"gitlab-ci-token", b"__token__", b"_token",
        b"x-token-auth", b"x-bitbucket-api-token-auth", b"oauth2accesstoken", b"api", b"apikey", b"AWS", b"$oauthtoken",
        b"<token>", b"00000000-0000-0000-0000-000000000000",
    )
)  # fmt: skip
"""User names that makers document beside a token: GitHub, GitLab, PyPI, Bitbucket, Google, Mailgun, IBM, AWS ECR,
NVIDIA, Docker, Azure. They stand for the token's account."""
_PASSWORDS = frozenset((b"", b"x-oauth-basic", b"x", b"X", b"api_token"))
"""Passwords that makers document beside a token that is the user name: Stripe, GitHub, Freshdesk, Toggl."""


class ForeignCredentials(NamedTuple):
    """A request's credentials that are not the user's."""

    where: tuple[str, ...]
    """Places for display: ``the header x-api-key (Anthropic)``. Without a value."""
    path: bytes
    """The request's path, without the foreign credentials."""
    fields: list[Field]


def find_foreign(
    path: bytes, fields: Sequence[Field], own: Sequence[Credential], known: Callable[[bytes], bool]
) -> ForeignCredentials:
    """Return a request's foreign credentials. ``path``: with its query. ``fields``: with placeholders. ``own``: the
    host's credentials. ``known``: returns whether a cookie, as ``name=value``, is known."""
    where: list[str] = []
    path = _find_in_query(path, where)
    kept = []
    for name, value in fields:
        lower = name.lower().replace(b"_", b"-")  # some servers treat them alike (RFC 3875 4.1.18)
        if lower == b"cookie":
            value = _find_in_cookies(value, own, known, where)
            if not value:
                continue
        elif lower == b"sec-websocket-protocol":
            value = _find_in_protocols(value, where)
            if not value:
                continue
        elif value and (reason := _foreign_header(lower, value, own)):
            where.append(reason)
            continue
        kept.append((name, value))
    return ForeignCredentials(tuple(where), path, kept)


def _foreign_header(name: bytes, value: bytes, own: Sequence[Credential]) -> str:
    """Return a description of the foreign credential in a header, or an empty string."""
    at_it = [one for one in own if one.header.encode().replace(b"_", b"-") == name]
    is_named = _SECRET_NAME.search(name) is not None or _SECRET_HEADER.search(name) is not None
    is_secret = bool(at_it) or name in HEADERS or (is_named and name not in _HARMLESS)
    mine = [one for one in at_it if holds_placeholder(value, one)]
    if any(_is_alone(value, one) for one in mine):
        return ""
    if mine:
        is_pair = bool(in_basic(value))
        pair = f" (mudroom net credential {mine[0].name} --user NAME lets a user name through)" if is_pair else ""
        return f"more than the credential {mine[0].name} in the header {show(name)}{pair}"
    if is_secret:
        maker = HEADERS.get(name, "")
        return f"the header {show(name)}" + (f" ({maker})" if maker else "")
    for one in own:
        value = value.replace(one.placeholder.encode(), b"")  # in another header: refused with another reason
    return f"a token in the header {show(name)}" if _TOKEN.search(value) else ""


def _is_alone(value: bytes, credential: Credential) -> bool:
    """Return whether a header has a placeholder and no further credential."""
    raw = credential.placeholder.encode()
    user, colon, password = in_basic(value).partition(b":")
    if colon:
        if password == raw:
            return user in _USERS or user == credential.user.encode("utf-8", "surrogateescape")
        return user == raw and password in _PASSWORDS
    before, _raw, after = value.partition(raw)
    return _BEFORE.fullmatch(before) is not None and after in (b"", b'"')


def _find_in_query(path: bytes, where: list[str]) -> bytes:
    """Return the path without foreign parameters, whose descriptions are added to ``where``."""
    before, mark, query = path.partition(b"?")
    if not mark:
        return path
    kept, at = [], 0
    for separator in (*(at for at, byte in enumerate(query) if byte in b"&;"), len(query)):
        pair = query[at:separator]
        name, _equals, value = pair.partition(b"=")
        name = _parameter(name)
        if value and name:
            maker = f" ({QUERY[name]})" if name in QUERY else ""
            where.append(f"the query parameter {show(name)}{maker}")
        elif _TOKEN.search(_decoded(pair)):
            where.append("a token in the query")
        else:
            kept.append(query[at : separator + 1])
        at = separator + 1
    if len(b"".join(kept)) == len(query):
        return path
    rest = b"".join(kept).rstrip(b"&;")
    return before + mark + rest if rest else before


def _parameter(name: bytes) -> bytes:
    """Return the secret parameter that a server would take this name for, or an empty value. PHP reads a name up
    to a NUL or a bracket, and its dots and spaces as underscores (its manual: variables from external sources)."""
    name = _decoded(name).lower().partition(b"\0")[0].partition(b"[")[0].strip()
    spellings = (name, name.translate(_UNDERSCORES), name.translate(_HYPHENS))
    known = next((spelled for spelled in spellings if spelled in QUERY), b"")
    return known or (spellings[2] if _SECRET_NAME.search(spellings[2]) and spellings[2] not in _HARMLESS else b"")


_UNDERSCORES, _HYPHENS = bytes.maketrans(b". ", b"__"), bytes.maketrans(b". _", b"---")


def _decoded(text: bytes) -> bytes:
    """Decode part of a query: percent-encoding, and + for a space."""
    text = text.replace(b"+", b" ")
    return _PERCENT.sub(lambda match: binascii.a2b_hex(match.group(1)), text) if b"%" in text else text


_PERCENT = regex(rb"%([0-9A-Fa-f]{2})")


def _find_in_cookies(
    value: bytes, own: Sequence[Credential], known: Callable[[bytes], bool], where: list[str]
) -> bytes:
    kept = []
    for pair in value.split(b";"):
        cookie = pair.strip()
        if not cookie:
            continue
        name, _equals, content = cookie.partition(b"=")
        is_own = any(one.header == "cookie" and content.strip(b'"') == one.placeholder.encode() for one in own)
        if is_own or known(cookie):
            kept.append(cookie)
        else:
            where.append(f"the cookie {show(name[:64])}")
    return b"; ".join(kept)


def _find_in_protocols(value: bytes, where: list[str]) -> bytes:
    """Return the header's value without foreign protocols. Websocket protocols are names, but some servers take a
    credential as one (Kubernetes, OpenAI), also after a protocol that announces it."""
    kept, is_next = [], False
    for protocol in map(bytes.strip, value.split(b",")):
        announces = _PROTOCOL.search(protocol) is not None
        if announces or is_next or len(protocol) > _LONGEST_PROTOCOL or _TOKEN.search(protocol):
            where.append("the header sec-websocket-protocol (Kubernetes, OpenAI)")
        else:
            kept.append(protocol)
        is_next = announces
    return b", ".join(kept)


def describe_foreign(foreign: ForeignCredentials, host: str, own: Sequence[Credential]) -> str:
    """Return the reason for a refusal, with a remedy."""
    text = f"the request has a credential that is not yours: {'; '.join(dict.fromkeys(foreign.where))}"
    if not own:
        return f"{text}; the rule for {host} lets none through"
    name = own[0].name
    return (
        f"{text}; at {host} only {' and '.join(one.name for one in own)} goes through"
        f"; to send it without the other: mudroom net credential {name} --foreign strip"
    )


def strictest(own: Sequence[Credential], wanted: Sequence[Foreign]) -> Foreign:
    """Return how foreign credentials at a host are treated. ``wanted``: the settings in its rules."""
    return max((*(one.foreign for one in own), *wanted), key=FOREIGN.index, default="allow")
