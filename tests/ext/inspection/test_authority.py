"""The authority of a vault: its file, its certificates; the files that make it trusted; where credentials come from."""

from __future__ import annotations

import datetime
import os
import ssl
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography", reason="inspection needs the library cryptography")
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.serialization import pkcs12

from mudroom.core.network.host_rules import parse_rule
from mudroom.errors import MudroomError, Unsupported, UsageError
from mudroom.ext.inspection import authority as module
from mudroom.ext.inspection.authority import Issuer, certificate_of, load_authority
from mudroom.ext.inspection.credentials import read_credentials, save_credentials, variables
from mudroom.ext.inspection.placeholder import parse_credential
from mudroom.ext.inspection.roots import INSIDE, prepare
from mudroom.ext.inspection.setup import DIRECTORY, equip

PROJECT = b"/home/ada/pro\xffject"


@pytest.fixture
def vault(tmp_path: Path) -> bytes:
    return os.fsencode(tmp_path / "inspect")


def certificate(pem: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem.encode())


def test_it_is_made_at_the_first_need_and_kept(vault: bytes) -> None:
    first = load_authority(vault, PROJECT)
    assert load_authority(vault, PROJECT) == first
    path = vault + b"/authority.pem"
    assert (os.stat(path).st_mode & 0o777, os.stat(vault).st_mode & 0o777) == (0o600, 0o700)
    assert os.listdir(vault) == [b"authority.pem"]
    found = certificate(first)
    assert found.subject.rfc4514_string() == "CN=mudroom of pro\\\\xffject"
    assert found.extensions.get_extension_for_class(x509.BasicConstraints).value == x509.BasicConstraints(True, 0)
    key = found.public_key()
    assert isinstance(key, EllipticCurvePublicKey)
    assert isinstance(key.curve, SECP256R1)
    assert "PRIVATE" not in certificate_of(first)
    assert certificate(certificate_of(first)) == found


def test_two_that_make_it_at_the_same_time_use_the_same(vault: bytes) -> None:
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(load_authority(vault, PROJECT))) for _ in range(1)]
    real = module._write

    def slow(path: bytes, content: str, *, replace: bool) -> None:
        module._write = real
        load_authority(vault, PROJECT)  # another process is faster
        real(path, content, replace=replace)

    module._write = slow
    for thread in threads:
        thread.start()
        thread.join()
    assert found == [load_authority(vault, PROJECT)]
    assert os.listdir(vault) == [b"authority.pem"]


def test_a_key_that_others_could_read_is_not_used(vault: bytes) -> None:
    load_authority(vault, PROJECT)
    os.chmod(vault + b"/authority.pem", 0o640)
    with pytest.raises(MudroomError, match="0600"):
        load_authority(vault, PROJECT)


@pytest.mark.parametrize("content", ["", "nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_a_file_that_is_no_authority_is_refused_with_what_to_do(vault: bytes, content: str) -> None:
    os.makedirs(vault)
    with open(vault + b"/authority.pem", "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as stream:
        stream.write(content)
    with pytest.raises(MudroomError, match="remove it"):
        load_authority(vault, PROJECT)


def test_a_link_is_not_followed(vault: bytes, tmp_path: Path) -> None:
    os.makedirs(vault)
    (tmp_path / "elsewhere").write_text("x")
    os.symlink(tmp_path / "elsewhere", vault + b"/authority.pem")
    with pytest.raises(MudroomError, match="symbolic links"):
        load_authority(vault, PROJECT)


def test_one_that_ends_soon_is_made_anew(vault: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load_authority(vault, PROJECT)
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=700)
    monkeypatch.setattr(module, "_now", lambda: later)
    second = load_authority(vault, PROJECT)
    assert second != first
    assert certificate(second).not_valid_after_utc > later + datetime.timedelta(days=700)


def test_without_the_libraries_it_is_unsupported_in_one_line(vault: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None if name == "cryptography" else object())
    with pytest.raises(Unsupported, match=r"^inspection needs .* found: cryptography not installed \(pip install"):
        load_authority(vault, PROJECT)
    assert not os.path.exists(vault)


# --- what it gives out ---


@pytest.mark.parametrize(
    "host", ["api.example.com", "a" * 60 + "." + "b" * 60 + ".example", "192.0.2.1", "2001:db8::1", "_x.y"]
)
def test_what_it_gives_out_is_for_one_host_and_for_days(vault: bytes, host: str) -> None:
    authority = load_authority(vault, PROJECT)
    leaf = Issuer(authority)._issue(host)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(one.value) for one in names] == [host]
    assert leaf.not_valid_after_utc - leaf.not_valid_before_utc <= datetime.timedelta(days=7)
    assert leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False
    leaf.verify_directly_issued_by(certificate(authority))


def test_strict_clients_take_it(vault: bytes) -> None:
    authority = load_authority(vault, PROJECT)
    server, client = (
        Issuer(authority).context("api.example", "h2"),
        ssl.create_default_context(cadata=certificate_of(authority)),
    )
    client.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    client.set_alpn_protocols(["h2"])
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = client.wrap_bio(back, there, server_hostname="api.example"), server.wrap_bio(there, back, server_side=True)
    waiting = list(ends)
    while waiting:
        for end in list(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                continue
    assert ends[0].selected_alpn_protocol() == "h2"


def test_contexts_are_kept_until_they_are_old_and_no_more_than_agreed(
    vault: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    issuer = Issuer(load_authority(vault, PROJECT))
    first = issuer.context("a.example", "h2")
    assert issuer.context("a.example", "h2") is first
    assert issuer.context("a.example", "http/1.1") is not first
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=4)
    monkeypatch.setattr(module, "_now", lambda: later)
    assert issuer.context("a.example", "h2") is not first
    monkeypatch.setattr(module, "CACHED", 3)
    for number in range(5):
        issuer.context(f"{number}.example", "h2")
    assert len(issuer._contexts) <= 5


def test_no_key_is_left_on_a_disk_or_in_an_open_file(vault: bytes) -> None:
    before = set(os.listdir("/proc/self/fd"))
    Issuer(load_authority(vault, PROJECT)).context("a.example", "h2")
    assert set(os.listdir("/proc/self/fd")) == before
    assert os.listdir(vault) == [b"authority.pem"]


# --- the files that make it trusted ---


def test_the_files_hold_the_systems_roots_the_users_and_ours(vault: bytes, tmp_path: Path) -> None:
    authority = load_authority(vault, PROJECT)
    own = tmp_path / "own.pem"
    own.write_text(certificate_of(load_authority(os.fsencode(tmp_path / "other"), b"/other")))
    environ = {b"SSL_CERT_FILE": os.fsencode(own), b"PATH": b"/nowhere"}
    given = prepare(vault, authority, environ)
    directory = os.path.dirname(given.binds[0].source)
    assert os.path.dirname(directory) == vault
    with open(directory + b"/bundle.pem") as stream:
        bundle = stream.read()
    assert certificate_of(authority) in bundle
    assert own.read_text() in bundle
    assert bundle.count("BEGIN") > 50
    with open(directory + b"/extra.pem") as stream:
        assert stream.read() == own.read_text() + certificate_of(authority)
    assert not os.path.exists(directory + b"/java.p12")
    assert "PRIVATE" not in bundle
    assert prepare(vault, authority, environ) == given, "made once"
    own.write_text(own.read_text() * 2)
    other = os.path.dirname(prepare(vault, authority, environ).binds[0].source)
    assert other != directory
    assert not os.path.exists(directory), "what is old goes"


def test_java_gets_a_store_of_its_own(vault: bytes, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("")
    java.chmod(0o755)
    authority = load_authority(vault, PROJECT)
    given = prepare(vault, authority, {b"PATH": b"", b"JAVA_HOME": os.fsencode(tmp_path)})
    (store_path,) = [Path(os.fsdecode(bind.source)) for bind in given.binds if bind.path.endswith(b"/java.p12")]
    with warnings.catch_warnings(action="ignore"):  # some of the system's roots are old
        store = pkcs12.load_pkcs12(store_path.read_bytes(), b"changeit")
    assert certificate(authority) in [one.certificate for one in store.additional_certs]
    assert b"JAVA_TOOL_OPTIONS" in dict(given.environment)


def test_all_that_inspection_needs_comes_from_one_call(vault: bytes, tmp_path: Path) -> None:
    own = tmp_path / "own.pem"
    own.write_text("# of a company\n" + certificate_of(load_authority(os.fsencode(tmp_path / "other"), b"/other")))
    environ = {b"CURL_CA_BUNDLE": os.fsencode(own), b"TOKEN": b"real-one", b"PATH": b""}
    never = (parse_rule("pinned.example", "deny"),)
    os.makedirs(vault)
    save_credentials(vault, (parse_credential("TOKEN", "a.example"),))
    found = equip(vault, PROJECT, environ, b"/home/ada", never=never)
    assert found.inspection.authority == load_authority(vault + DIRECTORY, PROJECT)
    assert found.inspection.never == never
    assert found.inspection.roots == own.read_text().partition("\n")[2]
    assert found.inspection.credentials[0].value == "real-one"
    environment = dict(found.environment)
    assert environment[b"TOKEN"] == found.inspection.credentials[0].placeholder.encode()
    assert environment[b"SSL_CERT_FILE"] == INSIDE + b"/bundle.pem"
    assert b"real-one" not in repr((found.environment, found.binds, found.inspection)).encode()
    assert all(bind.source.startswith(vault) and not bind.writable for bind in found.binds)


# --- where credentials come from ---


def test_values_come_from_variables_and_files_and_only_placeholders_go_in(tmp_path: Path) -> None:
    (tmp_path / ".token").write_text("from-a-file\n")
    wanted = [
        parse_credential("A", "a.example"),
        parse_credential("B", "a.example", "x-b", "env:OTHER"),
        parse_credential("C", "a.example", "x-c", "file:~/.token"),
    ]
    found = read_credentials(wanted, {b"A": b"the-first", b"OTHER": b"the-second"}, os.fsencode(tmp_path))
    assert [one.value for one in found] == ["the-first", "the-second", "from-a-file"]
    inside = dict(variables(found))
    assert set(inside) == {b"A", b"B", b"C"}
    assert all(b"mudroom" in value for value in inside.values())
    assert len(set(inside.values())) == 3


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("env:MISSING", "there is no variable MISSING"),
        ("file:~/missing", "No such file"),
        ("file:relative", "not an absolute path"),
        ("env:BAD", "holds characters that a header cannot hold"),
        ("env:EMPTY", "is empty"),
        ("env:SHORT", "too short to be told from other text"),
    ],
)
def test_a_value_that_is_not_there_is_said_so_without_values(tmp_path: Path, source: str, why: str) -> None:
    environ = {b"BAD": b"s3cret\nx", b"EMPTY": b" \n", b"SHORT": b"s3cret"}
    with pytest.raises(UsageError, match=why) as caught:
        read_credentials([parse_credential("A", "a.example", "x", source)], environ, os.fsencode(tmp_path))
    assert "s3cret" not in str(caught.value)


def test_a_keyring_is_asked_if_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = [parse_credential("A", "a.example", "x", "keyring:git/ada")]
    import sys
    import types

    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(Unsupported) as raised:
        read_credentials(wanted, {}, b"/")
    assert str(raised.value) == (
        "the credential A needs the library keyring; found: not installed "
        "(pip install 'keyring>=25'; mudroom net credential --remove A does without it)"
    )
    keyring: Any = types.ModuleType("keyring")
    errors: Any = types.ModuleType("keyring.errors")
    errors.KeyringError = RuntimeError
    keyring.get_password = lambda service, user: f"{service}+{user}+password" if service == "git" else None
    monkeypatch.setitem(sys.modules, "keyring", keyring)
    monkeypatch.setitem(sys.modules, "keyring.errors", errors)
    assert read_credentials(wanted, {}, b"/")[0].value == "git+ada+password"
    with pytest.raises(UsageError) as missing:
        read_credentials([parse_credential("A", "a.example", "x", "keyring:other/ada")], {}, b"/")
    assert str(missing.value) == (
        "the credential A: the keyring has no password of ada for other (keyring set other ada; "
        "mudroom net credential --remove A does without it)"
    )


def test_certificates_without_files_in_memory(vault: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS has no memfd_create: certificate and key come from pipes, and no descriptor is left."""
    issuer = Issuer(load_authority(vault, PROJECT))
    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.delattr(os, "memfd_create")
    context = issuer.context("a.example", "h2")
    assert context is issuer.context("a.example", "h2") and len(os.listdir("/proc/self/fd")) == before
    assert os.listdir(vault) == [b"authority.pem"]


def test_an_authority_that_is_there_is_read_without_the_library(vault: bytes) -> None:
    """It takes 40 ms to load, which each command of an agent with a held host would wait for."""
    load_authority(vault, PROJECT)
    program = (
        "import os, sys; from mudroom.ext.inspection.authority import load_authority; "
        "load_authority(os.fsencode(sys.argv[1]), b'/p'); "
        "print(*sys.modules.keys() & {'cryptography', 'msgspec'})"
    )
    assert subprocess.check_output([sys.executable, "-c", program, vault], text=True) == "\n"
