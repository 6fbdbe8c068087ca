"""Flags: which names a reviewer is told of, and which are never applied without being named."""

from __future__ import annotations

import pytest
from hypothesis import given

from mudroom.core.tree.change import Change
from mudroom.core.tree.entry import Entry
from mudroom.core.tree.flag import flags_of, git_directory, git_runs, is_protected, protect, repositories
from sample import paths
from tiers import each

EXECUTES = b"""
package.json Makefile sub/conftest.py deep/er/.envrc setup.py pyproject.toml .pre-commit-config.yaml .gitattributes
site-packages/x.pth team.code-workspace .github/workflows/ci.yml .vscode/tasks.json sub/.vscode/tasks.json .husky/x
.claude/settings.json .devcontainer/devcontainer.json .idea/runConfigurations/a.xml Dockerfile .mcp.json sub/.npmrc
""".split()
SECRET = b"""
.env .env.local sub/.env.production id_rsa keys/server.pem x.key store.p12 .netrc a/.pgpass .env.pem prod.env
secrets.toml
""".split()
PROTECTED = b"""
.git/hooks .git/hooks/pre-commit .git/hooks/deep/er .git/config .git/config.worktree .git/commondir
sub/.git/hooks/pre-push sub/.git/config .git/modules/lib/config .git/modules/a/b/hooks/post-checkout
.git/modules/hooks/config .git/worktrees/w/config.worktree .git/worktrees/w/commondir .git/modules/lib/hooks
.git/a/.git/config .git/a/.git/hooks/b
.git/rebase-merge .git/rebase-merge/git-rebase-todo .git/rebase-apply/patch .git/sequencer/todo .git/info/attributes
.git/objects/info/alternates .git/objects/info/http-alternates .git/remotes/origin .git/branches/main
.git/modules/lib/info/attributes .git/modules/a/b/objects/info/alternates .git/modules/lib/remotes/x
.git/worktrees/w/rebase-merge/git-rebase-todo sub/.git/info/attributes
.GIT .Git/hooks/x .GIT/refs git~1/config sub/.giT/HEAD .git./hooks/x .g\xe2\x80\x8cit/config
""".split()
OWN = b".mudroom .mudroom/policy.yaml .mudroom/deep/er sub/.mudroom sub/dir/.mudroom/policy.yaml".split()
PLAIN = b"""
README.md src/main.c env .environment envrc package.json.bak xconftest.py makefile.md key pem github/workflows/ci.yml
.github/CODEOWNERS sub/.mudroomx sub/x.mudroom .mudroomx hooks/pre-commit config git/config .gitignore
.git .git/HEAD .git/index .git/objects/aa/bb .git/refs/heads/main .git/refs/heads/config .git/info/exclude
.git/modules/hooks/HEAD .git/logs/HEAD .git/description .git/worktrees/hooks/HEAD
.git/branches .git/remotes .git/refs/remotes/origin/HEAD .git/modules/a/refs/remotes/origin/HEAD .git/info/refs
.git/MERGE_MSG .git/refs/heads/rebase-merge .git/objects/info/packs info/attributes remotes/x sequencer/x
""".split()


@each("path", EXECUTES)
def test_what_runs_later(path: bytes) -> None:
    assert flags_of(path) == ("executes-later",)


@each("path", SECRET)
def test_what_holds_secrets(path: bytes) -> None:
    assert flags_of(path) == ("secret",)


@each("path", PROTECTED)
def test_what_git_would_run(path: bytes) -> None:
    assert flags_of(path) == ("executes-later", "protected")


@pytest.mark.parametrize("path", OWN)
def test_what_is_mudrooms_own(path: bytes) -> None:
    assert flags_of(path) == ("protected",)


@each("path", PLAIN)
def test_what_is_nothing_special(path: bytes) -> None:
    assert flags_of(path) == ()


def test_grafts_change_the_history_and_run_nothing() -> None:
    assert flags_of(b".git/info/grafts") == ("protected",)


def test_all_at_once() -> None:
    assert flags_of(b".git/hooks/key.pem") == ("executes-later", "secret", "protected")


@each("path", [*EXECUTES, *SECRET, *PROTECTED, *PLAIN])
def test_a_nested_directory_hides_nothing(path: bytes) -> None:
    assert set(flags_of(b"vendor/lib/" + path)) >= set(flags_of(path))


@given(paths())
def test_protected_paths_are_flagged(path: bytes) -> None:
    assert is_protected(path) == ("protected" in flags_of(path))


@each(
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


def entry(kind: str) -> Entry:
    return Entry(kind, 0o644, 0, b"", 1, 1, 1, 0, 0, 0, 0)  # type: ignore[arg-type]


BARE = ("HEAD", "objects", "refs")


def all_in(top: str, *names: str) -> set[bytes]:
    return {f"{top}/{name}".encode() if top else name.encode() for name in names}


@each(
    ("path", "fork", "project", "runs"),
    [
        (b"s/config", all_in("s", *BARE), set(), True),
        (b"config", all_in("", *BARE), set(), True),
        (b"s/config", set(), all_in("s", *BARE), True),
        (b"s/config", all_in("s", "HEAD"), all_in("s", "objects", "refs"), True),
        (b"s/config", all_in("s", "HEAD", "objects"), set(), False),
        (b"s/config", all_in("t", *BARE), set(), False),
        (b"s/hooks", all_in("s", *BARE), set(), True),
        (b"s/hooks/deep/er", all_in("s", *BARE), set(), True),
        (b"hooks/s/hooks/x", all_in("hooks/s", *BARE), set(), True),
        (b"hooks/useState.js", set(), set(), False),
        (b"s/commondir", all_in("s", "HEAD"), set(), False),
        (b"s/commondir", all_in("s", "HEAD", "commondir"), set(), True),
        (b"s/config", all_in("s", "HEAD", "commondir"), set(), True),
        (b"s/HEAD", all_in("s", *BARE), set(), False),
        (b"s/HEAD", all_in("s", "HEAD"), all_in("s", "objects", "refs", "config"), True),
        (b"s/refs", all_in("s", "refs"), all_in("s", "objects", "HEAD", "hooks"), True),
        (b"s/HEAD", all_in("s", "HEAD"), all_in("s", "commondir"), True),
        (b"s/HEAD", all_in("s", "HEAD"), all_in("s", *BARE, "config"), False),
        (b"s/HEAD", all_in("s", "HEAD"), all_in("s", "config"), False),
        (b"s/description", all_in("s", *BARE), set(), False),
        (b"s/info/attributes", all_in("s", *BARE), set(), True),
        (b"s/objects/info/alternates", all_in("s", *BARE), set(), True),
        (b"s/rebase-merge/git-rebase-todo", all_in("s", *BARE), set(), True),
        (b"s/remotes/x", all_in("s", *BARE), set(), True),
        (b"s/info/attributes", set(), set(), False),
        (b"s/HEAD", all_in("s", "HEAD"), all_in("s", "objects", "refs", "info/attributes"), True),
        (b"s/Config", all_in("s", *BARE), set(), True),
        (b"s/config.", all_in("s", *BARE), set(), True),
        (b"s/config::$DATA", all_in("s", *BARE), set(), True),
        (b"s/HOOKS/post-checkout", all_in("s", *BARE), set(), True),
        (b"s/Objects/Info/Alternates", all_in("s", *BARE), set(), True),
        (b"s/CommonDir", all_in("s", "HEAD", "commondir"), set(), True),
        ("s/con\u200cfig".encode(), all_in("s", *BARE), set(), True),
        (b"s/head", all_in("s", "HEAD"), all_in("s", "objects", "refs", "config"), True),
    ],
)
def test_a_repository_is_known_by_what_is_in_it(path: bytes, fork: set[bytes], project: set[bytes], runs: bool) -> None:
    change = Change(path, "added", None, entry("file"))
    assert git_runs(change, (fork | project).__contains__, project.__contains__) is runs


@pytest.mark.parametrize(
    "path", [b".git/Config", b"x/.git/HOOKS/x", b".git/Modules/m/Config", b".git/info./attributes "]
)
def test_settings_in_the_spelling_of_another_file_system(path: bytes) -> None:
    assert is_protected(path)


@each(
    ("base", "staged", "runs"),
    [
        (None, "file", True),
        ("file", "file", True),
        ("file", None, True),
        (None, "symlink", True),
        ("directory", "file", True),
        ("file", "directory", True),
        (None, "directory", False),
        ("directory", None, False),
    ],
)
def test_a_link_to_a_repository(base: str | None, staged: str | None, runs: bool) -> None:
    change = Change(b"sub/.git", "modified", entry(base) if base else None, entry(staged) if staged else None)
    assert git_runs(change, lambda _path: False, lambda _path: False) is runs


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ((), ("executes-later", "protected")),
        (("secret", "mode"), ("executes-later", "secret", "protected", "mode")),
        (("executes-later", "content"), ("executes-later", "protected", "content")),
    ],
)
def test_protecting_keeps_the_order(flags: tuple[str, ...], expected: tuple[str, ...]) -> None:
    assert protect(flags) == expected


def test_a_new_repository_is_not_brought_as_commits() -> None:
    own = Change(b".git/HEAD", "modified", entry("file"), entry("file"))
    new = [Change(b"x/.git", "added", None, entry("directory"), flags=("new-repository",))]
    new.append(Change(b"x/.git/HEAD", "added", None, entry("file"), flags=("new-repository",)))
    assert repositories([own, *new]) == {b".git"}


@each(
    "path",
    [
        b".MUDROOM/policy.yaml", b".Mudroom", b"sub/.mUdroom/local/x", b".mudroom. /policy.yaml",
        b"MUDROO~1/policy.yaml", b".mudroom::$INDEX_ALLOCATION/policy.yaml", ".mud\u200croom/policy.yaml".encode(),
    ],
)  # fmt: skip
def test_a_name_that_another_file_system_takes_for_mudrooms(path: bytes) -> None:
    """In a project on a Mac, whose file systems fold case, it would be the policy."""
    assert is_protected(path)


@pytest.mark.parametrize("path", [b"MUDROOM/x", b".MUDROOMX/x", b"x.Mudroom/y", b"src/mudroom/a.py", b"mudroo/~1"])
def test_names_that_are_none_of_them(path: bytes) -> None:
    assert not is_protected(path)
