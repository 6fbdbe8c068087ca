"""The root certificate files that a sandbox is shown, created on the host, and what points at them.

Rules of this file: the files hold no secret. When their sources change, new files are created atomically in a new
directory, and the old ones are removed. Running commands keep those, because each file is mounted by itself: a mounted
directory would lose its entries. Where nothing is mounted, the old ones stay.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress

from mudroom.core.confinement.spec import Bind
from mudroom.core.text.regex import regex
from mudroom.core.tree.path import show
from mudroom.errors import MudroomError, Unsupported
from mudroom.ext.inspection.authority import certificate_of
from mudroom.typing import NamedTuple

# --- Trust ---
# Environment and mounts by which programs in a sandbox trust the vault's certificate authority. Programs outside do
# not trust it. Pure.
#
# Rules of this file: most of these variables *replace* a program's root certificates, so their file contains all: the
# system's, the user's and the vault's. The same file is mounted where distributions keep root certificates, for
# programs without such a variable. A sandbox without an inspecting rule gets none of this.


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
        files = (BUNDLE, EXTRA, *((STORE,) if java else ()))
        binds = [Bind(directory + b"/" + name, inside + b"/" + name) for name in files]
        binds += [Bind(directory + b"/" + BUNDLE, place) for place in dict.fromkeys(places)]
    return CertificateTrust(tuple(environment), tuple(binds))


def _java(store: bytes, options: bytes) -> bytes:
    own = b"-Djavax.net.ssl.trustStore=%s -Djavax.net.ssl.trustStorePassword=%s -Djavax.net.ssl.trustStoreType=PKCS12"
    return (options + b" " if options else b"") + own % (store, PASSWORD)


_PREFIX = b"trust-"


def prepare(
    directory: bytes, authority: str, environ: Mapping[bytes, bytes], *, mounts: bool = True
) -> CertificateTrust:
    """Return the binds and variables by which programs in the sandbox trust the authority (from ``load_authority``).

    ``directory``: the authority's. ``environ``: the user's. Raise MudroomError if the files cannot be created, and
    Unsupported if the system's roots are at no known path: without them, no other server would be trusted.
    """
    places = [place for place in PLACES if os.path.isfile(place)]
    if not places:
        hint = "install the package ca-certificates"
        raise Unsupported("inspection", "the system's root certificates", "none of the usual files", hint)
    own = [path for path in named_bundles(environ) if os.path.isfile(path)]
    java = _has_java(environ)
    try:
        bundle_directory = directory + b"/" + _PREFIX + _stamp(authority, [places[0], *own], java)
        if not os.path.isdir(bundle_directory):
            _make(
                bundle_directory,
                _read(places[0]),
                [_read(path) for path in own],
                certificate_of(authority).encode(),
                java,
            )
            if mounts:
                _forget(directory, bundle_directory)
    except OSError as error:
        path = show(os.fsencode(error.filename or directory))
        hint = f"ls -ld {path} shows its owner and mode"
        raise MudroomError(f"the root certificates for inspection, {path}: {error.strerror}", hint) from error
    real = [os.path.realpath(place) for place in places]
    return trust(bundle_directory, real, java=java, java_options=environ.get(b"JAVA_TOOL_OPTIONS", b""), mounts=mounts)


def own_roots(environ: Mapping[bytes, bytes]) -> str:
    """Return the PEM from the files that the user's own variables name, such as a company's roots, which are trusted on
    the host, too. Raise MudroomError."""
    try:
        bundles = [_read(path) for path in named_bundles(environ) if os.path.isfile(path)]
    except OSError as error:
        name = show(os.fsencode(error.filename))
        hint = "SSL_CERT_FILE, or a variable like it, names this file: correct it, or unset it"
        raise MudroomError(f"the root certificates {name} cannot be read: {error.strerror}", hint) from error
    return merge(bundles).decode("ascii")


def _has_java(environ: Mapping[bytes, bytes]) -> bool:
    homes = (environ[name] + b"/bin" for name in (b"JAVA_HOME", b"GRAALVM_HOME") if environ.get(name))
    paths = [*homes, *environ.get(b"PATH", os.fsencode(os.defpath)).split(b":")]
    return any(os.access(path + b"/java", os.X_OK) for path in paths if path)


def _stamp(authority: str, paths: Sequence[bytes], java: bool) -> bytes:
    import hashlib

    digest = hashlib.sha256(repr((certificate_of(authority), java)).encode())
    for path in paths:
        status = os.stat(path)
        digest.update(repr((path, status.st_ino, status.st_size, status.st_mtime_ns)).encode())
    return digest.hexdigest()[:16].encode()


def _read(path: bytes) -> bytes:
    with open(path, "rb") as stream:
        try:
            return stream.read()
        except OSError as error:
            error.filename = path  # an error from read(2) has none
            raise


def _make(path: bytes, system: bytes, own: Sequence[bytes], authority: bytes, java: bool) -> None:
    bundle = merge([system, *own, authority])
    files = {BUNDLE: bundle, EXTRA: merge([*own, authority])}
    if java:
        files[STORE] = _store(bundle)
    new = path + b".%d" % os.getpid()
    os.makedirs(new, 0o755, exist_ok=True)
    for name, content in files.items():
        with open(new + b"/" + name, "wb") as stream:
            stream.write(content)
    try:
        os.rename(new, path)
    except OSError:
        if not os.path.isdir(path):
            raise
        _remove(new)  # another process was first


def _store(bundle: bytes) -> bytes:
    """Return a Java trust store: the certificates in PKCS #12, each with the attribute that makes it trusted.
    Unreadable certificates are left out."""
    import warnings

    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import PrivateFormat, pkcs12

    certificates, end = [], b"-----END CERTIFICATE-----\n"
    for number, block in enumerate(bundle.split(end)[:-1]):
        try:
            with warnings.catch_warnings(action="ignore"):  # some old roots have invalid serial numbers
                certificate = x509.load_pem_x509_certificate(block + end)
        except ValueError:
            continue
        certificates.append(pkcs12.PKCS12Certificate(certificate, b"%d" % number))
    light = PrivateFormat.PKCS12.encryption_builder().kdf_rounds(1).build(PASSWORD)  # no secret to protect
    return pkcs12.serialize_java_truststore(certificates, light)


def _forget(directory: bytes, kept: bytes) -> None:
    """Remove older files."""
    for name in os.listdir(directory):
        path = directory + b"/" + name
        if name.startswith(_PREFIX) and path != kept and b"." not in name:
            _remove(path)


def _remove(path: bytes) -> None:
    with suppress(OSError):  # another process removes or uses it; the next creation tries again
        for name in os.listdir(path):
            os.unlink(path + b"/" + name)
        os.rmdir(path)
