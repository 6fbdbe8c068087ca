"""Settings files of git: the parser agrees with git, and what it writes is read alike."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from mudroom.core.git.settings_file import GitSetting, encode_settings, parse_settings

FILE = rb"""
# a comment
[core] bare = false ; another
	RepositoryFormatVersion = 0
	quotePath
[remote "o\\r\"i.G"]
	url = "a b # c" d  e  # end
	url = one\
 two \"x\" \t\\
	empty =
[branch.Old]
	merge = refs/heads/main
[alias]
	x = "!f() { echo \"a;b\"; }; f"
"""


def listed(path: Path) -> list[str]:
    done = subprocess.run(
        ["git", "config", "--file", str(path), "--null", "--list"], capture_output=True, text=True, check=True
    )
    return done.stdout.split("\0")


def test_parts_of_a_file() -> None:
    settings = parse_settings(FILE)
    assert settings[0] == GitSetting(b"core", None, b"bare", b"false")
    assert settings[1].key == b"repositoryformatversion"
    assert settings[2].value is None
    assert settings[3] == GitSetting(b"remote", b'o\\r"i.G', b"url", b"a b # c d  e")
    assert settings[4].value == b'one two "x" \t\\'
    assert settings[5].value == b""
    assert settings[6].subsection == b"old"


def test_encoded_settings_are_parsed_alike() -> None:
    settings = parse_settings(FILE)
    assert parse_settings(encode_settings(settings)) == settings
    kept = encode_settings(settings, lambda setting: setting.section != b"core")
    assert parse_settings(kept) == settings[3:]


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_git_reads_the_same_in_both(tmp_path: Path) -> None:
    (tmp_path / "before").write_bytes(FILE)
    (tmp_path / "after").write_bytes(encode_settings(parse_settings(FILE)))
    assert listed(tmp_path / "before") == listed(tmp_path / "after")


@pytest.mark.parametrize(
    "data", [b"a = b", b"[core\na = b", b'[a "b\n"]', b"[a]\n*", b"[a]\nb c", b'[a]\nb = "c', rb"[a] b = \q", b"[]"]
)
def test_a_damaged_file_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        parse_settings(data)
