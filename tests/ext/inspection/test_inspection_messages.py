"""Messages about the authority of inspection and about root certificates, by files that strangers left."""

from __future__ import annotations

from pathlib import Path

import pytest

from mudroom.ext.inspection import roots
from mudroom.ext.inspection.authority import load_authority
from mudroom.ext.inspection.roots import own_roots, prepare
from whole_text import told

PROJECT = b"/home/u/p"


def write(path: Path, content: bytes, mode: int = 0o600) -> None:
    path.write_bytes(content)
    path.chmod(mode)


@pytest.mark.parametrize(
    ("content", "mode", "why"),
    [
        (b"", 0o600, "it does not hold a certificate with its key"),
        (b"\xff\xfe\0", 0o600, "it does not hold a certificate with its key"),
        (b"whole", 0o640, "it is not the user's alone (mode 0600)"),
        (b"two", 0o600, "the key is not the certificate's"),
    ],
)
def test_an_authority_that_is_none(tmp_path: Path, content: bytes, mode: int, why: str) -> None:
    place, other = tmp_path / "place", tmp_path / "other"
    own = load_authority(bytes(place), PROJECT)
    if content == b"two":  # a certificate with the key of another one
        content = (own.partition("-----BEGIN PRIVATE")[0] + load_authority(bytes(other), PROJECT)).encode()
        content = content.replace(
            content[content.index(b"-----BEGIN CERT", 9) : content.index(b"-----BEGIN PRIV")], b""
        )
    write(place / "authority.pem", own.encode() if content == b"whole" else content, mode)
    path = place / "authority.pem"
    assert told(lambda: load_authority(bytes(place), PROJECT)) == (
        f"{path} is not a valid certificate authority: {why} (remove it, and a new one is created: rm {path})"
    )


def test_an_authority_where_none_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    place = tmp_path / "file/place"
    assert told(lambda: load_authority(bytes(place), PROJECT)) == (
        f"the authority of inspection, {place}/authority.pem: Not a directory (ls -ld {place} shows its owner and mode)"
    )


def test_a_machine_without_root_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = load_authority(bytes(tmp_path / "a"), PROJECT)
    monkeypatch.setattr(roots, "PLACES", (bytes(tmp_path / "none"),))
    assert told(lambda: prepare(bytes(tmp_path / "a"), authority, {})) == (
        "inspection needs the system's root certificates; found: none of the usual files "
        "(install the package ca-certificates)"
    )


def test_root_certificates_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = load_authority(bytes(tmp_path / "a"), PROJECT)
    (tmp_path / "system.pem").write_text("")
    monkeypatch.setattr(roots, "PLACES", (bytes(tmp_path / "system.pem"),))
    (tmp_path / "file").write_text("")
    said = told(lambda: prepare(bytes(tmp_path / "file/place"), authority, {}))
    assert said.startswith(f"the root certificates for inspection, {tmp_path}/file/place")
    assert said.partition(": ")[2].startswith("Not a directory (ls -ld ")
    assert said.endswith(" shows its owner and mode)")


def test_root_certificates_of_the_user_that_cannot_be_read() -> None:
    """/proc/self/mem is a file that may be opened; nothing is mapped at its beginning (proc_pid_mem(5))."""
    hint = "(SSL_CERT_FILE, or a variable like it, names this file: correct it, or unset it)"
    assert told(lambda: own_roots({b"SSL_CERT_FILE": b"/proc/self/mem"})) == (
        f"the root certificates /proc/self/mem cannot be read: Input/output error {hint}"
    )
