"""Environment and mounts by which programs in a sandbox trust the vault's certificate authority. Programs outside do
not trust it. Pure.

Rules of this file: most of these variables *replace* a program's root certificates, so their file contains all: the
system's, the user's and the vault's. The same file is mounted where distributions keep root certificates, for programs
without such a variable. A sandbox without an inspecting rule gets none of this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mudroom.core.confinement.spec import Bind
from mudroom.core.text.regex import regex
from mudroom.typing import NamedTuple

PLACES = (
    b"/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Arch, Alpine, Gentoo
    b"/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, RHEL
    b"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  # target of the link above
    b"/etc/ssl/ca-bundle.pem",  # openSUSE
    b"/var/lib/ca-certificates/ca-bundle.pem",  # target of the link above
    b"/etc/ssl/cert.pem",  # Alpine, BSD
    b"/usr/local/share/certs/ca-root-nss.crt",
)
"""Paths at which distributions keep the system's root certificates in one file."""
INSIDE = b"/run/mudroom/trust"
"""Directory inside the sandbox."""
BUNDLE, EXTRA, STORE = b"bundle.pem", b"extra.pem", b"java.p12"
"""All root certificates; only those beyond the system's; all, for Java."""
PASSWORD = b"changeit"
"""Password for ``STORE``. It protects no secret, and equals that for Java's own store."""

_ALL = (
    b"SSL_CERT_FILE", b"CURL_CA_BUNDLE", b"REQUESTS_CA_BUNDLE", b"PIP_CERT", b"GIT_SSL_CAINFO", b"npm_config_cafile",
    b"AWS_CA_BUNDLE", b"CARGO_HTTP_CAINFO", b"BUNDLE_SSL_CA_CERT", b"NIX_SSL_CERT_FILE",
    b"CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE", b"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", b"HTTPLIB2_CA_CERTS",
)  # fmt: skip
"""Variables that name a file with all root certificates: OpenSSL (Python, Ruby, Go), curl, requests, pip, git, npm,
AWS, cargo, Bundler, Nix, Google Cloud, gRPC, httplib2."""
_MORE = (b"NODE_EXTRA_CA_CERTS", b"DENO_CERT")
"""Variables that name a file with root certificates in addition to the program's own."""
_SYSTEM = (b"UV_NATIVE_TLS", b"UV_SYSTEM_CERTS")
"""Flags for uv: use the system's root certificates."""
_BLOCK = regex(rb"-----BEGIN CERTIFICATE-----\s[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")


class CertificateTrust(NamedTuple):
    """Environment and mounts for a sandbox."""

    environment: tuple[tuple[bytes, bytes], ...]
    """Replaces the user's variables with these names."""
    binds: tuple[Bind, ...]


def named_bundles(environ: Mapping[bytes, bytes]) -> list[bytes]:
    """Return the absolute paths in the user's own variables for root certificates, without duplicates."""
    paths = [environ[name] for name in (*_ALL, *_MORE) if environ.get(name, b"").startswith(b"/")]
    return list(dict.fromkeys(paths))


def merge(parts: Sequence[bytes]) -> bytes:
    """Return the certificates from several PEM files as one, without duplicates and comments."""
    blocks = (block.strip() for part in parts for block in _BLOCK.findall(part))
    return b"".join(block + b"\n" for block in dict.fromkeys(blocks))


def trust(
    directory: bytes, places: Sequence[bytes], *, java: bool, java_options: bytes = b"", mounts: bool = True
) -> CertificateTrust:
    """Return the environment and mounts. ``directory``: on the host, contains the three files. ``places``: the existing
    paths from ``PLACES``, with links resolved. ``java_options``: the user's JAVA_TOOL_OPTIONS. ``mounts``: False if
    files cannot be mounted at other paths; the variables then name the files on the host."""
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
