"""Settings files of git: the parser agrees with git, and what it writes is read alike."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mudroom.core.git.settings_file import GitSetting, encode_settings, hook_directories, included, parse_settings
from tiers import each, examples

PIECES = (
    *rb"""[core]|[a "b c"]|[a.B]|[a "x\"y"]|[c  "d"]|[e"f"]|key|Key-2|=|"|\n|\t|\q|#|;|val|x y|.|]|[|9|\ """.split(
        b"|"
    ),
    *(b"\n", b"\r\n", b" ", b"\\\n", b"\xc3\xa9", b'[a.b "c"]', b'[a ""]'),
)
TEXT = st.lists(st.sampled_from(PIECES), max_size=14).map(b"".join)

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


def ours(data: bytes) -> list[tuple[bytes, bytes | None]] | None:
    try:
        return [(setting.name, setting.value) for setting in parse_settings(data)]
    except ValueError:
        return None


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@given(TEXT)
@settings(max_examples=examples(400))
def test_a_file_is_read_as_git_reads_it(tmp_path_factory: pytest.TempPathFactory, text: bytes) -> None:
    path = tmp_path_factory.mktemp("settings") / "config"
    path.write_bytes(b"[s]\n" + text)
    done = subprocess.run(["git", "config", "--list", "-z", "-f", path], capture_output=True, check=False)
    rows = [row.partition(b"\n") for row in done.stdout.split(b"\0")[:-1]]
    theirs = [(name, value if mark else None) for name, mark, value in rows]
    assert ours(b"[s]\n" + text) == (theirs if done.returncode == 0 else None)


@each(
    "data",
    [
        b"a = b",
        b"[core\na = b",
        b'[a "b\n"]',
        b"[a]\n*",
        b"[a]\nb c",
        b'[a]\nb = "c',
        rb"[a] b = \q",
        b"[]",
        b"[a]\nb #",
        b"[a]\rb",
        b"[a]\0",
    ],
)
def test_a_damaged_file_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        parse_settings(data)


def test_places_that_settings_name() -> None:
    text = b'\xef\xbb\xbf[Core]\nhooksPath = a\n[core "x"]\nhookspath = b\n[include]\npath = "c d" ; e\n'
    found = parse_settings(text + b'[includeIf "f"]\npath=g')
    assert found[0].name == b"core.hookspath"
    assert hook_directories(found) == [b"a"]
    assert included(found) == [b"c d", b"g"]


@pytest.mark.parametrize("data", [b"[a]\nb #", b"[a]\rb", b"[a]\0"])
def test_a_file_that_versions_of_git_read_differently_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"line 2|NUL"):
        parse_settings(data)
