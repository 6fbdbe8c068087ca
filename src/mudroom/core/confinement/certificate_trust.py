"""How the programs of a sandbox come to trust the vault's authority, and no other programs do.

Rules of this file: pure. Most of these variables *replace* the roots of some program, so what they name holds all: the
system's, the user's own, and the vault's. The same is shown at the places where distributions keep theirs, for
programs that know of no variable. Nothing of this is done for a sandbox that no rule inspects.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mudroom.core.confinement.spec import Bind

PLACES = (
    b"/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Arch, Alpine, Gentoo
    b"/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, RHEL
    b"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  # what the last one is a link to
    b"/etc/ssl/ca-bundle.pem",  # openSUSE
    b"/var/lib/ca-certificates/ca-bundle.pem",  # what that is a link to
    b"/etc/ssl/cert.pem",  # Alpine, BSD
    b"/usr/local/share/certs/ca-root-nss.crt",
)
"""Where distributions keep the roots of the system, as one file."""
INSIDE = b"/run/mudroom/trust"
"""The directory that is shown inside."""
BUNDLE, EXTRA, STORE = b"bundle.pem", b"extra.pem", b"java.p12"
"""All roots; only those that are not the system's; all, for Java."""
PASSWORD = b"changeit"
"""Of ``STORE``: it protects nothing, and is what Java's own store has."""

_ALL = (
    b"SSL_CERT_FILE", b"CURL_CA_BUNDLE", b"REQUESTS_CA_BUNDLE", b"PIP_CERT", b"GIT_SSL_CAINFO", b"npm_config_cafile",
    b"AWS_CA_BUNDLE", b"CARGO_HTTP_CAINFO", b"BUNDLE_SSL_CA_CERT", b"NIX_SSL_CERT_FILE",
    b"CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE", b"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", b"HTTPLIB2_CA_CERTS",
)  # fmt: skip
"""Variables that name a file with all roots: OpenSSL (Python, Ruby, Go), curl, requests, pip, git, npm, AWS, cargo,
Bundler, Nix, Google Cloud, gRPC, httplib2."""
_MORE = (b"NODE_EXTRA_CA_CERTS", b"DENO_CERT")
"""Variables that name a file with roots beyond the program's own."""
_SYSTEM = (b"UV_NATIVE_TLS", b"UV_SYSTEM_CERTS")
"""Flags of uv: use the system's roots."""
_BLOCK = re.compile(rb"-----BEGIN CERTIFICATE-----\s[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")


class CertificateTrust(NamedTuple):
    """What a sandbox is given."""

    environment: tuple[tuple[bytes, bytes], ...]
    """Takes the place of what the user has under these names."""
    binds: tuple[Bind, ...]


def named(environ: Mapping[bytes, bytes]) -> list[bytes]:
    """The files of roots that the user's own variables name, absolute ones, each once."""
    paths = [environ[name] for name in (*_ALL, *_MORE) if environ.get(name, b"").startswith(b"/")]
    return list(dict.fromkeys(paths))


def merge(parts: Sequence[bytes]) -> bytes:
    """All certificates of PEM files in one, each once, comments left out."""
    blocks = (block.strip() for part in parts for block in _BLOCK.findall(part))
    return b"".join(block + b"\n" for block in dict.fromkeys(blocks))


def trust(
    directory: bytes, places: Sequence[bytes], *, java: bool, java_options: bytes = b"", mounts: bool = True
) -> CertificateTrust:
    """``directory``: on the host, holds the three files. ``places``: those of ``PLACES`` that are there, their links
    resolved. ``java_options``: what the user has in JAVA_TOOL_OPTIONS. ``mounts``: False where nothing can be shown at
    another place: then only the variables are left, and they name the files where they are."""
    inside = INSIDE if mounts else directory
    bundle = inside + b"/" + BUNDLE
    environment = [(name, bundle) for name in _ALL]
    environment += [(name, inside + b"/" + EXTRA) for name in _MORE]
    environment += [(name, b"1") for name in _SYSTEM]
    if java:
        environment.append((b"JAVA_TOOL_OPTIONS", _java(inside + b"/" + STORE, java_options)))
    binds = [Bind(directory, inside)]
    if mounts:
        binds += [Bind(directory + b"/" + BUNDLE, place) for place in dict.fromkeys(places)]
    return CertificateTrust(tuple(environment), tuple(binds))


def _java(store: bytes, options: bytes) -> bytes:
    own = b"-Djavax.net.ssl.trustStore=%s -Djavax.net.ssl.trustStorePassword=%s -Djavax.net.ssl.trustStoreType=PKCS12"
    return (options + b" " if options else b"") + own % (store, PASSWORD)
