"""Ids of blobs, and the object format of a repository, as git has them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from mudroom.core.git.blob import blob_id, blob_ids, id_length_of
from tiers import each


@each(
    ("config", "length"),
    [
        (b"", 20),
        (b"[core]\n\trepositoryformatversion = 0\n", 20),
        (b"[core]\n\trepositoryformatversion = 1\n[extensions]\n\tobjectformat = sha256\n", 32),
        (b"[Extensions]\n  objectFormat=sha256 ; new\n", 32),
        (b'[extensions] objectFormat = "sha256"\n', 32),
        (b"[core] bare = false\n[extensions] objectFormat = sha1", 20),
        (b"[remote]\nobjectformat = sha256\n", 20),
        (b'[extensions "x"]\nobjectformat = sha256\n', 20),
        (b"[extensions]\n# objectformat = sha256\n", 20),
        (b"[extensions]\nnoop = 1\n[core]\nobjectformat = sha256\n", 20),
    ],
)
def test_length_of_ids(config: bytes, length: int) -> None:
    assert id_length_of(config) == length


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown object format"):
        id_length_of(b"[extensions]\nobjectformat = blake2\n")


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@pytest.mark.parametrize(("name", "length"), [("sha1", 20), ("sha256", 32)])
@pytest.mark.parametrize("data", [b"", b"K\n", b"\0\xff" * 1000, b"a\r\nb\n"])
def test_ids_are_those_of_git(tmp_path: Path, name: str, length: int, data: bytes) -> None:
    subprocess.run(["git", "init", "-q", f"--object-format={name}", tmp_path], check=True)
    assert id_length_of((tmp_path / ".git/config").read_bytes()) == length
    for ending, number in (("false", 0), ("input", -1)):
        words = ["git", "-c", f"core.autocrlf={ending}", "hash-object", "--stdin", "--path=x.txt"]
        done = subprocess.run(words, cwd=tmp_path, input=data, capture_output=True, check=True)
        if number == 0:
            assert blob_id(data, length).hex() == done.stdout.decode().strip()
        if b"\0" not in data:
            assert blob_ids(data, length)[number].hex() == done.stdout.decode().strip()
