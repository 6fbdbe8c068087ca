"""Certificates that the user's variables name: with the variable and without its file, a program trusts no server."""

from __future__ import annotations

import datetime
import ipaddress
import os
import shutil
import sys
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from conftest import Place
from mudroom.core.confinement.environment import CERTIFICATES

pytestmark = pytest.mark.both_users
SERVE = """
import http.server, os, ssl, subprocess, sys, tempfile, threading
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = b'<a href="x-1-py3-none-any.whl">x</a>' if "simple" in self.path else b""
        self.send_response(200)
        self.send_header("Content-Type", "text/html" if body else "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *words): pass
with tempfile.NamedTemporaryFile("w") as pem:
    pem.write(sys.argv[1]); pem.flush()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem.name)
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
server.socket = context.wrap_socket(server.socket, server_side=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = "https://127.0.0.1:%d/" % server.server_port
sys.exit(subprocess.run([word.replace("URL/", url) for word in sys.argv[2:]]).returncode)
"""
FETCH = "import sys, urllib.request as u; u.urlopen(sys.argv[1])"
GET = (
    "require('https').get(process.argv[1], a => process.exit(0)).on('error', e => { console.log(e); process.exit(1) })"
)
REQUESTS = "import sys; from pip._vendor import requests; requests.get(sys.argv[1])"
TOOLS = {
    "SSL_CERT_FILE": [sys.executable, "-c", FETCH, "URL/"],
    "CURL_CA_BUNDLE": ["curl", "-sS", "URL/"],
    "GIT_SSL_CAINFO": ["git", "ls-remote", "URL/x.git"],
    "NODE_EXTRA_CA_CERTS": ["node", "-e", GET, "URL/"],
    "PIP_CERT": [sys.executable, "-m", "pip", "index", "versions", "--index-url", "URL/simple", "x"],
    "REQUESTS_CA_BUNDLE": [sys.executable, "-c", REQUESTS, "URL/"],
}


def own_certificate() -> tuple[str, str]:
    """Return a certificate of 127.0.0.1 that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a company")])
    start = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(start.replace(year=2120))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(serialization.Encoding.PEM).decode(), private.decode()


def run(place: Place, variable: str, path: Path, *command: str) -> tuple[int, str]:
    with pytest.MonkeyPatch.context() as patch:
        for name in CERTIFICATES:  # requests takes its own before pip's
            patch.delenv(name.decode(), raising=False)
        patch.setenv(variable, str(path))
        with place.session() as session:
            result = session.run([os.fsencode(word) for word in command])
    return result.exit_code, (result.stdout + result.stderr).decode()


@pytest.mark.parametrize("variable", TOOLS)
def test_a_program_trusts_the_certificates_that_a_variable_names(place: Place, variable: str) -> None:
    if shutil.which(TOOLS[variable][0]) is None:
        pytest.skip(f"{TOOLS[variable][0]} is not installed")
    certificate, key = own_certificate()
    place.home.mkdir(exist_ok=True)
    (place.home / "company.pem").write_text(f"# the company's roots\n{certificate}")
    serve = [sys.executable, "-c", SERVE, certificate + key, *TOOLS[variable]]
    code, output = run(place, variable, place.home / "company.pem", *serve)
    assert code == 0 or "No matching distribution" in output, output
    assert "certificate" not in output.lower(), output


HIDDEN = {
    "a key beside it": ("client.pem", "{certificate}{key}"),
    "a token": ("roots.pem", "token = ghp_0123456789abcdefghijklmnopqrstuvwxyzAB\n{certificate}"),
    "no certificate": ("notes", "my notes\n"),
    "a store": (".aws/roots.pem", "{certificate}"),
    "a key's place": (".ssh/roots.pem", "{certificate}"),
}


@pytest.mark.parametrize("what", HIDDEN)
def test_another_file_stays_hidden(place: Place, what: str) -> None:
    name, content = HIDDEN[what]
    certificate, key = own_certificate()
    path = place.home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content.format(certificate=certificate, key=key))
    assert run(place, "SSL_CERT_FILE", path, "sh", "-c", f"cat '{path}' 2>/dev/null; echo over") == (0, "over\n")


def test_a_link_to_a_store_stays_hidden(place: Place) -> None:
    (place.home / ".aws").mkdir(parents=True)
    (place.home / ".aws/roots.pem").write_text(own_certificate()[0])
    link = place.home / "roots.pem"
    link.symlink_to(".aws/roots.pem")
    assert run(place, "SSL_CERT_FILE", link, "sh", "-c", f"cat '{link}' 2>/dev/null; echo over") == (0, "over\n")


def test_a_file_of_the_project_is_the_forks(place: Place) -> None:
    place.project = place.home / "proj"
    place.project.mkdir(parents=True)
    path = place.project / "roots.pem"
    path.write_text(own_certificate()[0])
    assert run(place, "SSL_CERT_FILE", path, "sh", "-c", f"echo x >'{path}'; cat '{path}'") == (0, "x\n")
    assert path.read_text().startswith("-----BEGIN")
