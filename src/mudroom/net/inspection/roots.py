"""The files of roots that a sandbox is shown, made on the host: see ``core/confinement/certificate_trust.py``.

Rules of this file: nothing secret is in them. They are made anew when what they are made of has changed, under a name
of their own, whole or not at all: commands that run keep what they were shown.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from mudroom.core.confinement.certificate_trust import (
    BUNDLE,
    EXTRA,
    PASSWORD,
    PLACES,
    STORE,
    CertificateTrust,
    merge,
    named_bundles,
    trust,
)
from mudroom.core.tree.path import show
from mudroom.errors import MudroomError, Unsupported
from mudroom.net.inspection.authority import certificate_of

_PREFIX = b"trust-"


def prepare(
    directory: bytes, authority: str, environ: Mapping[bytes, bytes], *, mounts: bool = True
) -> CertificateTrust:
    """What a sandbox has to be given so that its programs trust the authority (of ``load_authority``).

    ``directory``: that of the authority. ``environ``: the user's. Raises MudroomError if the files cannot be made, and
    Unsupported if this system keeps its roots nowhere that is known: without them, nothing else would be trusted."""
    places = [place for place in PLACES if os.path.isfile(place)]
    if not places:
        raise Unsupported("inspection", "the system's root certificates", "none of the usual files", "install them")
    own = [path for path in named_bundles(environ) if os.path.isfile(path)]
    java = _has_java(environ)
    try:
        made = directory + b"/" + _PREFIX + _stamp(authority, [places[0], *own], java)
        if not os.path.isdir(made):
            _make(made, _read(places[0]), [_read(path) for path in own], certificate_of(authority).encode(), java)
            _forget(directory, made)
    except OSError as error:
        raise MudroomError(f"the root certificates for inspection, {show(directory)}: {error.strerror}") from error
    real = [os.path.realpath(place) for place in places]
    return trust(made, real, java=java, java_options=environ.get(b"JAVA_TOOL_OPTIONS", b""), mounts=mounts)


def own_roots(environ: Mapping[bytes, bytes]) -> str:
    """PEM of what the user's own variables name: whoever has roots of a company's own trusts them on the host, too.
    Raises MudroomError."""
    try:
        return merge([_read(path) for path in named_bundles(environ) if os.path.isfile(path)]).decode("ascii")
    except OSError as error:
        name = show(os.fsencode(error.filename or b""))
        raise MudroomError(f"root certificates: {name}: {error.strerror}") from error


def _has_java(environ: Mapping[bytes, bytes]) -> bool:
    homes = (environ[name] + b"/bin" for name in (b"JAVA_HOME", b"GRAALVM_HOME") if environ.get(name))
    paths = [*homes, *environ.get(b"PATH", os.fsencode(os.defpath)).split(b":")]
    return any(os.access(path + b"/java", os.X_OK) for path in paths if path)


def _stamp(authority: str, paths: Sequence[bytes], java: bool) -> bytes:
    import hashlib

    found = hashlib.sha256(repr((certificate_of(authority), java)).encode())
    for path in paths:
        status = os.stat(path)
        found.update(repr((path, status.st_ino, status.st_size, status.st_mtime_ns)).encode())
    return found.hexdigest()[:16].encode()


def _read(path: bytes) -> bytes:
    with open(path, "rb") as stream:
        return stream.read()


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
    """What Java reads: the certificates in PKCS #12, each with the attribute that makes it trusted. What cannot be read
    is left out."""
    import warnings

    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import PrivateFormat, pkcs12

    certificates, end = [], b"-----END CERTIFICATE-----\n"
    for number, block in enumerate(bundle.split(end)[:-1]):
        try:
            with warnings.catch_warnings(action="ignore"):  # old roots have serial numbers that are none
                certificate = x509.load_pem_x509_certificate(block + end)
        except ValueError:
            continue
        certificates.append(pkcs12.PKCS12Certificate(certificate, b"%d" % number))
    light = PrivateFormat.PKCS12.encryption_builder().kdf_rounds(1).build(PASSWORD)  # there is nothing to protect
    return pkcs12.serialize_java_truststore(certificates, light)


def _forget(directory: bytes, kept: bytes) -> None:
    """Those of before: what a running command was shown stays there for it as long as it runs (mounts hold it)."""
    for name in os.listdir(directory):
        path = directory + b"/" + name
        if name.startswith(_PREFIX) and path != kept and b"." not in name:
            _remove(path)


def _remove(path: bytes) -> None:
    try:
        for name in os.listdir(path):
            os.unlink(path + b"/" + name)
        os.rmdir(path)
    except OSError:
        pass  # another process does the same, or uses it; it is tried again when the next is made
