"""Flags: which names a reviewer is told of, and which are never applied without being named."""

from __future__ import annotations

import pytest
from hypothesis import given
from sample import paths

from mudroom.core.flag import flags_of, git_directory, is_protected

EXECUTES = b"""
package.json Makefile sub/conftest.py deep/er/.envrc setup.py pyproject.toml .pre-commit-config.yaml .gitattributes
site-packages/x.pth team.code-workspace .github/workflows/ci.yml .vscode/tasks.json sub/.vscode/tasks.json .husky/x
.claude/settings.json .devcontainer/devcontainer.json .idea/runConfigurations/a.xml Dockerfile .mcp.json sub/.npmrc
""".split()
SECRET = b".env .env.local sub/.env.production id_rsa keys/server.pem x.key store.p12 .netrc a/.pypirc .env.pem".split()
PROTECTED = b"""
.git/hooks .git/hooks/pre-commit .git/hooks/deep/er .git/config .git/config.worktree .git/commondir
sub/.git/hooks/pre-push sub/.git/config .git/modules/lib/config .git/modules/a/b/hooks/post-checkout
.git/modules/hooks/config .git/worktrees/w/config.worktree .git/worktrees/w/commondir .git/modules/lib/hooks
""".split()
OWN = b".mudroom .mudroom/policy.yaml .mudroom/deep/er".split()
PLAIN = b"""
README.md src/main.c env .environment envrc package.json.bak xconftest.py makefile.md key pem github/workflows/ci.yml
.github/CODEOWNERS sub/.mudroom .mudroomx hooks/pre-commit config git/config .gitignore
.git .git/HEAD .git/index .git/objects/aa/bb .git/refs/heads/main .git/refs/heads/config .git/info/exclude
.git/modules/hooks/HEAD .git/logs/HEAD .git/description .git/worktrees/hooks/HEAD
""".split()


@pytest.mark.parametrize("path", EXECUTES)
def test_what_runs_later(path: bytes) -> None:
    assert flags_of(path) == ("executes-later",)


@pytest.mark.parametrize("path", SECRET)
def test_what_holds_secrets(path: bytes) -> None:
    assert flags_of(path) == ("secret",)


@pytest.mark.parametrize("path", PROTECTED)
def test_what_git_would_run(path: bytes) -> None:
    assert flags_of(path) == ("executes-later", "protected")


@pytest.mark.parametrize("path", OWN)
def test_what_is_mudrooms_own(path: bytes) -> None:
    assert flags_of(path) == ("protected",)


@pytest.mark.parametrize("path", PLAIN)
def test_what_is_nothing_special(path: bytes) -> None:
    assert flags_of(path) == ()


def test_all_at_once() -> None:
    assert flags_of(b".git/hooks/key.pem") == ("executes-later", "secret", "protected")


@pytest.mark.parametrize("path", [*EXECUTES, *SECRET, *PROTECTED, *PLAIN])
def test_a_nested_directory_hides_nothing(path: bytes) -> None:
    assert set(flags_of(b"vendor/lib/" + path)) >= set(flags_of(path))


@given(paths())
def test_protected_paths_are_flagged(path: bytes) -> None:
    assert is_protected(path) == ("protected" in flags_of(path))


@pytest.mark.parametrize(
    ("path", "git"),
    [
        (b".git", b".git"),
        (b".git/HEAD", b".git"),
        (b"a/.git/b/.git/c", b"a/.git"),
        (b"a/.gitx/b", None),
        (b".gitignore", None),
        (b"a", None),
    ],
)
def test_git_directory(path: bytes, git: bytes | None) -> None:
    assert git_directory(path) == git
