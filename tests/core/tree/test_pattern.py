"""One pattern language for files: gitignore(5), as git itself reads it."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from mudroom.core.tree import pattern as pattern_module
from mudroom.core.tree.pattern import is_meant, matches, parsed, pattern_error
from tiers import SEED, each, sample

WORDS = ("prod", "key", "a", "b.pem", "id_x", ".env", "prod.key", "x y", "[a]", "é")


@each(
    ("pattern", "path", "is_matched"),
    [
        ("*.pem", "certs/a.pem", True),
        ("*.pem", "a.pem/inside", True),
        ("id_*", "keys/id_rsa", True),
        ("prod-*.yaml", "deploy/prod-eu.yaml", True),
        ("prod-*.yaml", "deploy/prod.yaml", False),
        ("/prod.env", "prod.env", True),
        ("/prod.env", "sub/prod.env", False),
        ("config/*.key", "config/a.key", True),
        ("config/*.key", "config/sub/a.key", False),
        ("config/**/*.key", "config/sub/a.key", True),
        ("**/private", "a/private/b", True),
        ("secrets/", "a/secrets/b", True),
        ("secrets/", "a/secrets", False),
        ("secrets", "a/secrets", True),
        ("a/b", "a/b/c", True),
        ("a/b", "x/a/b", False),
        ("[pd]rod.env", "drod.env", True),
        ("prod?env", "prod.env", True),
        ("*prod*", "my-prod-1.txt", True),
        ("\\!odd", "!odd", True),
        ("deploy/", "deploy/x/y", True),
        ("name\\ ", "name ", True),
    ],
)
def test_what_a_pattern_matches(pattern: str, path: str, is_matched: bool) -> None:
    assert pattern_error(pattern.encode()) == ""
    assert matches(path.encode(), (pattern.encode(),)) == is_matched


@each("pattern", ["", "/", " ", "//", "# a", "./a", "a/../b", "a//b", "!", "[z-a]", "a\\", "../x", "."])
def test_what_can_match_nothing_is_an_error(pattern: str) -> None:
    assert pattern_error(pattern.encode())


def test_the_usual_patterns_need_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its import takes longer than a cold command."""
    monkeypatch.setattr(pattern_module, "parsed", lambda _line: pytest.fail("the library was asked"))
    for pattern in (b".env", b"/a/b", b"a/b/", b"*.pem", b"id_*", b"secrets/", b"deploy/prod.env"):
        pattern_module._test_of.cache_clear()
        assert pattern_error(pattern) == "" and not matches(b"none", (pattern,))


def some_pattern(choice: random.Random) -> str:
    pieces = [*WORDS, "*", "**", "?", "*.pem", "prod*", "[pk]*", "\\[a]", "x\\ y"]
    parts = [choice.choice(pieces) for _part in range(choice.randrange(1, 4))]
    return choice.choice(["", "", "/"]) + "/".join(parts) + choice.choice(["", "", "/"])


def test_git_agrees(tmp_path: Path) -> None:
    choice = random.Random(SEED)
    paths = {"/".join(choice.choice(WORDS) for _part in range(choice.randrange(1, 4))) for _path in range(150)}
    paths = {path for path in paths if not any(other.startswith(path + "/") for other in paths)}  # files
    for path in paths:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    asked = "\0".join(sorted(paths)).encode()
    for _pattern in range(sample(120)):
        pattern = some_pattern(choice)
        (tmp_path / ".git/info").mkdir(exist_ok=True)
        (tmp_path / ".git/info/exclude").write_text(pattern + "\n")
        done = subprocess.run(
            ["git", "check-ignore", "--stdin", "-z", "--no-index"], cwd=tmp_path, input=asked, capture_output=True,
            check=False,
        )  # fmt: skip
        found = {path for path in paths if matches(path.encode(), (pattern.encode(),))}
        assert found == set(done.stdout.decode().split("\0")) - {""}, pattern
        library = parsed(pattern.encode())
        assert library is not None
        assert found == {path for path in paths if library.regex.search(path.encode())}, pattern


def test_names_of_agents() -> None:
    assert is_meant("some-tool", "some-tool") and is_meant("some-tool", "some-*") and is_meant("@a/b", "@a/b")
    assert not is_meant("other", "some-*") and not is_meant("a/some-tool", "some-tool")
