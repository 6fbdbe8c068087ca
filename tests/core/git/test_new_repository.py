"""Which settings, paths and links of a repository are harmless."""

from __future__ import annotations

from mudroom.core.git.new_repository import (
    LinkedDirectory,
    branch_of,
    examine,
    is_harmless_url,
    link_target,
    linked_directory,
    linked_remark,
    new_tops,
)
from mudroom.core.tree.change import Change
from mudroom.core.tree.entry import Entry
from tiers import each


def added(path: str, kind: str = "file") -> Change:
    entry = Entry(kind, 0o755 if kind == "directory" else 0o644, 0, b"", 1, 1, 1, 0, 0, 0, 0)  # type: ignore[arg-type]
    return Change(path.encode(), "added", None, entry)


def directory(path: str) -> Change:
    return added(path, "directory")


def reason(config: str, *more: str, top: str = "x/.git", file: str = "config") -> str:
    changes = [directory(top), added(f"{top}/{file}"), *map(added, more)]
    return examine(top.encode(), changes, lambda _path: False, lambda _path: config.encode()).reason


@each(
    "config",
    [
        "",
        "[core]\nrepositoryformatversion = 0\nfilemode\nbare = false\nlogallrefupdates = true\nignorecase = true\n",
        '[remote "origin"]\nurl = git@example.org:a/b.git\nfetch = +refs/heads/*:refs/remotes/origin/*\n',
        '[branch "main"]\nremote = origin\nmerge = refs/heads/main\nrebase = true\n',
        "[user]\nname = T\nemail = t@example.org\n[init]\ndefaultBranch = main\n[extensions]\nobjectFormat = sha256\n",
        '[submodule "a"]\nurl = ../a\nactive = true\nupdate = none\n',
        '[color]\nui = always\n[color "diff"]\nmeta = red\n[advice]\ndetachedHead = false\n',
    ],
)
def test_settings_that_are_harmless(config: str) -> None:
    assert reason(config) == ""


@each(
    ("config", "name"),
    [
        ("[core]\nfsmonitor = /tmp/evil\n", "core.fsmonitor"),
        ("[CORE]\nHooksPath = hooks\n", "core.hookspath"),
        ("[core]\nsshCommand = evil\n", "core.sshcommand"),
        ("[core]\nworktree = /home/user\n", "core.worktree"),
        ("[core]\nattributesFile = a\n", "core.attributesfile"),
        ('[core "x"]\nbare = true\n', "core.x.bare"),
        ('[filter "lfs"]\nclean = evil\n', "filter.lfs.clean"),
        ('[diff "a"]\ntextconv = evil\n', "diff.a.textconv"),
        ("[include]\npath = ../evil\n", "include.path"),
        ('[includeIf "gitdir:x"]\npath = ../evil\n', "includeif.gitdir:x.path"),
        ("[alias]\nst = !evil\n", "alias.st"),
        ("[credential]\nhelper = !evil\n", "credential.helper"),
        ('[url "ext::evil"]\ninsteadOf = https://a\n', "url.ext::evil.insteadof"),
        ('[remote "o"]\nurl = ext::sh -c evil\n', "remote.o.url"),
        ('[remote "o"]\nurl\n', "remote.o.url"),
        ('[remote "o"]\nuploadpack = evil\n', "remote.o.uploadpack"),
        ('[remote "o"]\nvcs = evil\n', "remote.o.vcs"),
        ('[branch "b"]\nremote = ext::evil\n', "branch.b.remote"),
        ('[branch "b"]\nmergeOptions = -s evil\n', "branch.b.mergeoptions"),
        ('[submodule "s"]\nupdate = !evil\n', "submodule.s.update"),
        ("[gpg]\nprogram = evil\n", "gpg.program"),
        ("[unknown]\nnew = 1\n", "unknown.new"),
    ],
)
def test_settings_that_are_not(config: str, name: str) -> None:
    assert reason(config) == f"its config sets {name}"
    assert reason("[core]\nbare = true\n" + config, top="store", file="config") == f"its config sets {name}"
    assert reason(config, file="modules/lib/config") == f"its modules/lib/config sets {name}"


def test_the_work_tree_of_a_submodule_is_beside_the_repository() -> None:
    for value, harmless in (("../../../lib", True), ("../../..", True), ("../../../../lib", False), ("/lib", False)):
        assert (reason(f"[core]\nworktree = {value}\n", file="modules/lib/config") == "") is harmless, value
    assert reason("[core]\nworktree = ../../../.git/hooks\n", file="modules/lib/config") != ""


@each(
    ("path", "harmless"),
    [
        ("hooks/pre-commit.sample", True),
        ("hooks/pre-commit", False),
        ("modules/a/b/hooks/x.sample", True),
        ("modules/a/hooks/x", False),
        ("modules/a/refs/remotes/origin/HEAD", True),
        ("info/exclude", True),
        ("info/sparse-checkout", True),
        ("info/attributes", False),
        ("info/grafts", False),
        ("objects/info/alternates", False),
        ("objects/info/packs", True),
        ("commondir", False),
        ("worktrees/a/commondir", False),
        ("rebase-apply/patch", False),
        ("sequencer/todo", False),
        ("branches/a", False),
        ("refs/heads/hooks/config", True),
        ("MERGE_MSG", True),
        ("shallow", True),
        ("a/.git/hooks/evil", False),
        ("a/.GIT/x", False),
        ("Info/Attributes", False),
        ("HOOKS/post-checkout", False),
        ("HOOKS/post-checkout.sample", True),
    ],
)
def test_files_of_a_repository(path: str, harmless: bool) -> None:
    assert (reason("", f"x/.git/{path}") == "") is harmless


def test_a_config_in_another_spelling_is_read() -> None:
    changes = [directory("x/.git"), added("x/.git/CONFIG")]
    found = examine(b"x/.git", changes, lambda _path: False, lambda _path: b"[core]\nfsmonitor = evil\n")
    assert found.reason == "its CONFIG sets core.fsmonitor"


def test_a_config_that_cannot_be_read_is_not_harmless() -> None:
    changes = [directory("x/.git"), added("x/.git/config")]
    found = examine(b"x/.git", changes, lambda _path: False, lambda _path: None)
    assert found.reason == "its config cannot be read, or is too large"
    found = examine(b"x/.git", [directory("x/.git"), added("x/.git/HEAD", "symlink")], lambda _p: False, lambda _p: b"")
    assert found.reason == "HEAD is a symbolic link"


def test_which_directories_are_new_repositories() -> None:
    bare = [added("s/HEAD"), directory("s/objects"), directory("s/refs")]
    changes = [
        *(directory(".git/modules/m"), added(".git/modules/m/HEAD"), directory(".git/modules/m/objects")),
        *(directory(".git/modules/m/refs"), added("f/.git"), directory("half"), added("half/HEAD")),
        *(directory("s"), *bare, directory("x"), directory("x/.git"), directory("x/.git/a/.git"), directory("y/.git")),
    ]
    assert new_tops(changes) == [b"s", b"x/.git", b"y/.git"]


def test_a_bare_repository_in_the_spelling_of_another_file_system() -> None:
    """On vfat, NTFS and directories with casefold git finds it."""
    bare = [directory("s"), added("s/Config"), added("s/head"), directory("s/OBJECTS"), directory("s/Refs.")]
    assert new_tops(bare) == [b"s"]
    assert new_tops([directory("s"), added("s/head"), added("s/CommonDir")]) == [b"s"]
    assert new_tops([directory("s"), added("s/ahead"), directory("s/objects"), directory("s/refs")]) == []


@each(
    ("url", "harmless"),
    [
        ("https://example.org/a", True),
        ("ssh://git@example.org/a", True),
        ("git@example.org:a", True),
        ("../a", True),
        ("/a/b c", True),
        ("ext::sh -c evil", False),
        ("fd::17", False),
        ("::x", False),
        ("-oProxyCommand=evil", False),
        ("ssh://-oProxyCommand=evil/a", False),
        ("ssh://u@-oProxyCommand=evil/a", False),
        ("evil://example.org/a", False),
        ("https://a\nb", False),
    ],
)
def test_urls(url: str, harmless: bool) -> None:
    assert is_harmless_url(url.encode()) is harmless


@each(
    ("path", "content", "target"),
    [
        ("wt/.git", "gitdir: /home/u/p/.git/worktrees/wt\n", ".git/worktrees/wt"),
        ("wt/.git", "gitdir: ../.git/worktrees/wt", ".git/worktrees/wt"),
        ("a/b/.git", "gitdir: ../../.git/modules/a/b\n", ".git/modules/a/b"),
        ("wt/.git", "gitdir: /home/u/p/.git\n", None),
        ("wt/.git", "gitdir: ../../.git/worktrees/wt\n", None),
        ("wt/.git", "gitdir: /home/u/p/.git/worktrees/other\n", None),
        ("wt/.git", "x: ../.git/worktrees/wt\n", None),
        ("wt/.git", "", None),
    ],
)
def test_where_a_link_leads(path: str, content: str, target: str | None) -> None:
    present = {b".git", b".git/worktrees/wt", b".git/modules/a/b"}
    found = link_target(path.encode(), content.encode(), present.__contains__)
    assert found == (target.encode() if target is not None else None)


def test_kinds_of_linked_directories() -> None:
    assert linked_directory(b"wt/.git", b".git/worktrees/x") == LinkedDirectory(b"wt", "work-tree", b".git/worktrees/x")
    assert linked_directory(b"l/.git", b".git/modules/a/b") == LinkedDirectory(b"l", "submodule", b".git/modules/a/b")
    assert linked_directory(b"l/.git", b".git/refs") is None
    assert linked_directory(b"l/.git", b".git") is None


def test_the_command_that_makes_it_is_safe_to_paste() -> None:
    linked = LinkedDirectory(b"-a b", "work-tree", b".git/worktrees/w")
    assert "git worktree add './-a b' feature/x makes it" in linked_remark(linked, b"ref: refs/heads/feature/x\n")
    for head in (b"ref: refs/heads/$(evil)\n", b"ref: refs/heads/-x\n", b"0" * 40, None):
        assert branch_of(head) == b"BRANCH"
