"""A vault's certificate authority, and the certificates that it issues in the gate.

Rules of this file: the authority's key is in a vault file that only its owner can read; it is created when first
needed. A key that other users could have read is not used. The authority is trusted inside sandboxes that inspect, and
nowhere else. The certificates that it issues are valid for days. Their keys are never on a disk: OpenSSL reads them
from a memfd_create(2) file. ``cryptography`` is imported when needed: without it, inspection is Unsupported.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import ssl
import stat
from functools import lru_cache
from importlib.util import find_spec

from mudroom.core.network.host import parse_host
from mudroom.core.network.host_pattern import LOCALHOST, LOCALHOST_ADDRESSES
from mudroom.core.system.closing import Descriptor
from mudroom.core.tree.path import show
from mudroom.errors import MudroomError, Unsupported
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

EXTRA = "pip install 'cryptography>=45' 'h2>=4.3'"
FILE = b"authority.pem"
LIFETIME = datetime.timedelta(days=730)
"""The authority's lifetime. It is renewed when less than ``RENEWAL`` is left."""
RENEWAL = datetime.timedelta(days=60)
LEAF_LIFETIME = datetime.timedelta(days=5)
SKEW = datetime.timedelta(days=1)
"""The clock inside is the same as outside, but some clients use another time zone."""
_LEAF_RENEWAL = datetime.timedelta(days=2)
CACHED = 512
"""Maximum hosts whose certificates are cached."""
_LONGEST_NAME = 64
"""Maximum commonName length: ub-common-name in RFC 5280."""


def missing_libraries() -> list[str]:
    """Return the libraries that inspection needs and that are not installed."""
    return [name for name in ("cryptography", "h2") if find_spec(name) is None]


def check_libraries() -> None:
    """Raise Unsupported if a library is missing."""
    if missing := missing_libraries():
        needs = "the libraries cryptography and h2"
        raise Unsupported("inspection", needs, f"{' and '.join(missing)} not installed", EXTRA)


def load_authority(directory: bytes, project: bytes) -> str:
    """Return the PEM with the vault's authority, certificate and key. Create it if it is missing or expires soon.

    ``directory`` is in the vault; it is created (mode 0700). Raise Unsupported without the libraries, and MudroomError
    if the file cannot be created, is invalid, or could be read by other users.
    """
    check_libraries()
    path = directory + b"/" + FILE
    try:
        os.makedirs(directory, 0o700, exist_ok=True)
        pem = _read(path)
        if pem is None or _ends_soon(pem):
            _write(path, _create(project), replace=pem is not None)
            pem = _read(path)
    except OSError as error:
        hint = f"ls -ld {show(directory)} shows its owner and mode"
        raise MudroomError(f"the authority of inspection, {show(path)}: {error.strerror}", hint) from error
    except ValueError as error:
        raise MudroomError(
            f"{show(path)} is not a valid certificate authority: {error}",
            f"remove it, and a new one is created: rm {show(path)}",
        ) from error
    assert pem is not None
    return pem


def certificate_of(authority: str) -> str:
    """Return the certificate only: the public part."""
    end = "-----END CERTIFICATE-----\n"
    return authority.partition(end)[0] + end


def _read(path: bytes) -> str | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with open(descriptor, encoding="ascii", errors="replace") as stream:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise ValueError("it is not the user's alone (mode 0600)")
        return stream.read()


def _write(path: bytes, content: str, *, replace: bool) -> None:
    """Write the file atomically."""
    new = path + b".%d" % os.getpid()
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "w") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(descriptor)
        if replace:
            os.rename(new, path)
            return
        # Unlike rename(2), link(2) does not replace a file: if two processes create the first authority at the same
        # time, both use the same one.
        os.link(new, path)
    except FileExistsError:
        pass
    finally:
        if os.path.lexists(new):
            os.unlink(new)


def _ends_soon(pem: str) -> bool:
    """Return whether less than ``RENEWAL`` is left. Raise ValueError without a certificate of an authority and its key.
    OpenSSL tells: ``cryptography`` takes 40 ms to load."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        _load(context, pem)
        context.load_verify_locations(cadata=certificate_of(pem))
        (found,) = context.get_ca_certs()
    except (ssl.SSLError, ValueError):
        return _parsed(pem)[0].not_valid_after_utc - _now() < RENEWAL  # it says why not
    ends = ssl.cert_time_to_seconds(str(found["notAfter"]))
    return ends - _now().timestamp() < RENEWAL.total_seconds()


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _parsed(pem: str) -> tuple[x509.Certificate, EllipticCurvePrivateKey]:
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        certificate = x509.load_pem_x509_certificate(pem.encode())
        key = load_pem_private_key(pem.encode(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:  # TypeError: a key with a password
        raise ValueError("it does not hold a certificate with its key") from error
    if not isinstance(key, EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise ValueError("the key is not the certificate's")
    return certificate, key


def _pem(certificate: x509.Certificate, key: EllipticCurvePrivateKey) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return (certificate.public_bytes(Encoding.PEM) + secret).decode()


def _create(project: bytes) -> str:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = _x509_name(f"mudroom of {show(project.rpartition(b'/')[2])}")
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_now() - SKEW)
        .not_valid_after(_now() + LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _pem(certificate, key)


def _x509_name(text: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:_LONGEST_NAME])])


# --- in the gate ---


class Issuer:
    """Issues certificates for hosts, in the gate process."""

    def __init__(self, authority: str) -> None:
        from cryptography.hazmat.primitives.asymmetric import ec

        self._certificate, self._key = _parsed(authority)
        # shared by all: the gate process holds all of them anyway
        self._leaf_key = ec.generate_private_key(ec.SECP256R1())
        self._contexts: dict[tuple[str, str], tuple[ssl.SSLContext, datetime.datetime]] = {}

    def context(self, host: str, protocol: str) -> ssl.SSLContext:
        """Return the TLS context for clients, in place of ``host``. ``protocol``: ``h2`` or ``http/1.1``."""
        cached = self._contexts.get((host, protocol))
        if cached is not None and cached[1] > _now():
            return cached[0]
        if len(self._contexts) >= CACHED:
            del self._contexts[next(iter(self._contexts))]
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
        context.set_alpn_protocols([protocol])
        _load(context, _pem(self._issue(host), self._leaf_key))
        self._contexts[host, protocol] = context, _now() + LEAF_LIFETIME - _LEAF_RENEWAL
        return context

    def _issue(self, host: str) -> x509.Certificate:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.x509.oid import ExtendedKeyUsageOID

        is_name = parse_host(host.encode()).kind == "name"
        names = [host] if is_name else [LOCALHOST] if host in LOCALHOST_ADDRESSES else []
        subject: list[x509.GeneralName] = list(map(x509.DNSName, names))
        subject += [] if is_name else [x509.IPAddress(ipaddress.ip_address(host))]
        issuer = self._certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        return (
            x509.CertificateBuilder()
            .subject_name(_x509_name(host))
            .issuer_name(self._certificate.subject)
            .public_key(self._leaf_key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(_now() - SKEW)
            .not_valid_after(_now() + LEAF_LIFETIME)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.KeyUsage(True, False, False, False, False, False, False, False, False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.SubjectAlternativeName(subject), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._leaf_key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer), critical=False)
            .sign(self._key, hashes.SHA256())
        )


def _load(context: ssl.SSLContext, pem: str) -> None:
    """Load a certificate into a context. ssl loads only from paths; a memfd has one without being on a disk."""
    if not hasattr(os, "memfd_create"):
        _load_from_pipes(context, pem)
        return
    with Descriptor(os.memfd_create("certificate", os.MFD_CLOEXEC)) as descriptor:
        with open(descriptor, "w", closefd=False) as stream:
            stream.write(pem)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=b"")  # otherwise it asks for one


def _load_from_pipes(context: ssl.SSLContext, pem: str) -> None:
    """Load a certificate as above, for macOS: certificate and key are each read once, from a pipe that has it whole.
    fd(4): /dev/fd/N is the open descriptor."""
    pipes = [os.pipe() for _file in range(2)]
    try:
        for _read, write in pipes:
            os.write(write, pem.encode())  # less than a pipe holds
            os.close(write)
        certificate, key = (f"/dev/fd/{read}" for read, _write in pipes)
        context.load_cert_chain(certificate, key, b"")
    finally:
        for read, _write in pipes:
            os.close(read)


@lru_cache(maxsize=16)
def issuer(authority: str) -> Issuer:
    """Return the authority's issuer, shared by all guards. Raise ImportError without the libraries."""
    return Issuer(authority)


@lru_cache(maxsize=64)
def client_context(roots: str, protocols: tuple[str, ...]) -> ssl.SSLContext:
    """Return the TLS context for servers: it verifies certificates and names, by the system's roots and ``roots``."""
    context = ssl.create_default_context()
    context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF  # truncated data must not look complete
    if roots:
        context.load_verify_locations(cadata=roots)
    if protocols:
        context.set_alpn_protocols(list(protocols))
    return context
