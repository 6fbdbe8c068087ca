"""Which variables and files make the programs of a sandbox trust an authority."""

from __future__ import annotations

from mudroom.core.confinement.spec import Bind
from mudroom.ext.inspection.roots import INSIDE, merge, named_bundles, trust

ONE = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
TWO = b"-----BEGIN CERTIFICATE-----\nBBBB\nCC==\n-----END CERTIFICATE-----\n"


def test_bundles_are_merged_each_certificate_once() -> None:
    assert merge([b"# a comment\n" + ONE + b"\n" + TWO, TWO + b"-----BEGIN PRIVATE KEY-----\nx\n", b""]) == ONE + TWO


def test_the_users_own_bundles_are_found() -> None:
    environ = {
        b"SSL_CERT_FILE": b"/a.pem",
        b"PIP_CERT": b"/a.pem",
        b"NODE_EXTRA_CA_CERTS": b"/b.pem",
        b"AWS_CA_BUNDLE": b"c",
    }
    assert named_bundles(environ) == [b"/a.pem", b"/b.pem"]
    assert named_bundles({}) == []


def test_all_is_shown_in_one_directory_and_in_the_systems_places() -> None:
    given = trust(b"/vault/trust-1", [b"/etc/ssl/x.crt", b"/etc/ssl/x.crt"], java=False)
    assert given.binds == (
        Bind(b"/vault/trust-1/bundle.pem", INSIDE + b"/bundle.pem"),
        Bind(b"/vault/trust-1/extra.pem", INSIDE + b"/extra.pem"),
        Bind(b"/vault/trust-1/bundle.pem", b"/etc/ssl/x.crt"),
    )
    environment = dict(given.environment)
    for name in (b"SSL_CERT_FILE", b"REQUESTS_CA_BUNDLE", b"GIT_SSL_CAINFO", b"npm_config_cafile", b"CURL_CA_BUNDLE"):
        assert environment[name] == INSIDE + b"/bundle.pem"
    assert environment[b"NODE_EXTRA_CA_CERTS"] == INSIDE + b"/extra.pem"
    assert b"JAVA_TOOL_OPTIONS" not in environment
    assert not any(bind.writable for bind in given.binds)


def test_without_mounts_the_variables_name_the_files_where_they_are() -> None:
    given = trust(b"/vault/trust-1", [b"/etc/ssl/x.crt"], java=False, mounts=False)
    assert given.binds == (Bind(b"/vault/trust-1", b"/vault/trust-1"),)
    assert dict(given.environment)[b"PIP_CERT"] == b"/vault/trust-1/bundle.pem"


def test_java_keeps_the_options_that_the_user_has() -> None:
    given = trust(b"/v", [], java=True, java_options=b"-Xmx1g")
    options = dict(given.environment)[b"JAVA_TOOL_OPTIONS"].split()
    assert options[0] == b"-Xmx1g"
    assert options[1] == b"-Djavax.net.ssl.trustStore=" + INSIDE + b"/java.p12"
    assert b"-Djavax.net.ssl.trustStoreType=PKCS12" in options
