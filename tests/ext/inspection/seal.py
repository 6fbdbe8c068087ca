"""A throw-away authority that servers of tests are vouched for by, and what such servers and clients speak TLS with."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


class Seal:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority of a test")])
        self._certificate = (
            self._builder(self._name, self._key.public_key(), 0)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.roots = self._certificate.public_bytes(Encoding.PEM).decode()

    def _builder(self, name: x509.Name, key: ec.EllipticCurvePublicKey, age: int) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC) - age * DAY
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY)
            .not_valid_after(now + DAY)
        )

    def pem(self, *names: str, age: int = 0, self_signed: bool = False) -> Path:
        """A certificate for these names, made ``age`` days ago for two days, and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = self._name if self_signed else x509.Name([])
        alternatives = [
            x509.IPAddress(ipaddress.ip_address(name)) if name[-1].isdigit() else x509.DNSName(name) for name in names
        ]
        certificate = (
            self._builder(subject, key.public_key(), age)
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=not self_signed)
            .sign(key if self_signed else self._key, hashes.SHA256())
        )
        path = self.directory / f"{names[0]}.{age}.{self_signed}.pem"
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        path.write_bytes(certificate.public_bytes(Encoding.PEM) + secret)
        return path

    def server(
        self, *names: str, alpn: tuple[str, ...] = (), age: int = 0, self_signed: bool = False
    ) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.pem(*names, age=age, self_signed=self_signed))
        if alpn:
            context.set_alpn_protocols(list(alpn))
        return context


def client(authority: str, alpn: tuple[str, ...] = ()) -> ssl.SSLContext:
    """What a program in a sandbox that trusts this authority, and no other, speaks TLS with."""
    context = ssl.create_default_context(cadata=authority)
    if alpn:
        context.set_alpn_protocols(list(alpn))
    return context
