"""A fork's repository was written by an agent: whatever it holds, nothing of it runs, nothing outside is read, and what
git would call broken does not come."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import zlib
from pathlib import Path

import pytest
from handgit import WHO, Copy, fsck, git, tree_entry, with_settings
from hostile import blob, copy, head_of, refused, with_tree

from conftest import Place, full_listing
from kernel_calls import within
from mudroom.errors import UsageError
from mudroom.ext.commits.git import history, objects, read, walk
from mudroom.ext.commits.session import bring_commits

__all__ = ["copy"]  # a fixture
pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


# --- objects ---


def test_an_object_with_another_content(copy: Copy) -> None:
    copy.agent("echo two >> file; git commit -qam two")
    name = git(copy.fork, "git rev-parse HEAD:file").strip()
    copy.put(name, zlib.compress(b"blob 5\0evil\n"))
    refused(copy, f"the object {name} does not have the hash that it is named by")


@pytest.mark.parametrize("what", ["HEAD", "HEAD^{tree}", "HEAD:file", "HEAD^"])
def test_a_missing_object(copy: Copy, what: str) -> None:
    copy.agent("echo two >> file; git commit -qam two; echo three >> file; git commit -qam three")
    name = git(copy.fork, f"git rev-parse '{what}'").strip()
    copy.path_of(name).unlink()
    refused(copy, f"the object {name} is missing")


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        b"not zlib",
        zlib.compress(b"blob 5\0evil\n")[:-3],
        zlib.compress(b"blob 5\0evil\n") + b"more",
        zlib.compress(b"blob 6\0evil\n"),
        zlib.compress(b"blob 4\0evil\n"),
        zlib.compress(b"blob 05\0evil\n"),
        zlib.compress(b"blob -5\0evil\n"),
        zlib.compress(b"blub 5\0evil\n"),
        zlib.compress(b"blob 5"),
        zlib.compress(b"blob 0\0"),
        zlib.compress(b""),
    ],
)
def test_loose_objects_that_are_none(copy: Copy, stored: bytes) -> None:
    copy.agent("echo two >> file; git commit -qam two")
    name = git(copy.fork, "git rev-parse HEAD:file").strip()
    copy.put(name, stored)
    refused(copy, f"the object {name} (is damaged|ends|is not as long|is followed|does not have the hash)")


def test_something_behind_an_object(copy: Copy) -> None:
    copy.agent("echo two >> file; git commit -qam two")
    name = git(copy.fork, "git rev-parse HEAD:file").strip()
    for more in (b"more", bytes(1 << 17)):
        copy.put(name, zlib.compress(b"blob 8\0one\ntwo\n") + more)
        refused(copy, f"the object {name} is followed by something else")
    copy.put(name, zlib.compress(b"blob 8\0one\ntwo\n"))
    assert copy.bring().objects == 3


def test_an_object_that_unpacks_to_more_than_is_read(copy: Copy) -> None:
    """One gigabyte of zeros in one megabyte, called what it is; and the same called five bytes."""
    import resource

    deflate = zlib.compressobj(1)
    zeros = bytes(1 << 20)
    parts = [deflate.compress(b"blob %d\0" % (1 << 30))]
    parts += [deflate.compress(zeros) for _ in range(1024)]
    bomb = b"".join([*parts, deflate.flush()])
    deflate = zlib.compressobj(1)
    liar = b"".join([deflate.compress(b"blob 5\0"), *(deflate.compress(zeros) for _ in range(64)), deflate.flush()])
    for stored, message in (
        (bomb, "has 1,073,741,824 bytes, more than the 256 MiB"),
        (liar, "is not as long as it says"),
    ):
        name = "11" * 20
        copy.put(name, stored)
        with_tree(copy, ("100644", b"zeros", name))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        refused(copy, f"the object {name} {message}")
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 << 10, "kilobytes"


@pytest.mark.parametrize(
    ("module", "limit", "value", "message"),
    [
        (read, "READ_LIMIT", 1000, "it unpacks to more than"),
        (history, "COMMIT_LIMIT", 2, "more than 2 new commits"),
        (walk, "OBJECT_LIMIT", 5, "more than 5 objects"),
        (objects, "_PACK_LIMIT", 1, "more than 1 packs"),
    ],
)
def test_limits(
    copy: Copy, monkeypatch: pytest.MonkeyPatch, module: object, limit: str, value: int, message: str
) -> None:
    for number in range(3):
        copy.agent(f"seq {number} 500 > file; git commit -qam {number}; git repack -qd")
    monkeypatch.setattr(module, limit, value)
    refused(copy, message)


def test_an_object_as_two_kinds(copy: Copy) -> None:
    tree = copy.tree(("100644", b"file", blob(copy)))
    with_tree(copy, ("100644", b"a", tree), ("40000", b"b", tree))
    refused(copy, f"the object {tree} is used as (tree and as blob|blob and as tree)")


@pytest.mark.parametrize("mode", ["100644", "40000"])
def test_an_object_of_another_kind(copy: Copy, mode: str) -> None:
    """A commit that the project has where a file or a directory belongs; and one that only the fork has."""
    commit = head_of(copy)
    with_tree(copy, (mode, b"a", commit))
    refused(copy, f"the object {commit} is a commit, not a (blob|tree)")
    mine = copy.commit(copy.tree())
    copy.set_head(copy.commit(copy.tree((mode, b"a", mine)), commit))
    refused(copy, f"the object {mine} is a commit, not a (blob|tree)")


def test_a_head_that_is_no_commit(copy: Copy) -> None:
    name = blob(copy)
    copy.set_head(name)
    refused(copy, f"the object {name} is a blob, not a commit")
    tag = copy.object("tag", f"object {name}\ntype blob\ntag x\ntagger ".encode() + WHO + b"\n\n")
    copy.set_head(tag)
    refused(copy, f"the object {name} is a blob, not a commit")
    for _depth in range(6):
        tag = copy.object("tag", f"object {tag}\ntype tag\ntag x\ntagger ".encode() + WHO + b"\n\n")
    copy.set_head(tag)
    refused(copy, "its tags are nested too deep")


# --- trees and commits ---


@pytest.mark.parametrize(
    "name",
    [
        b".",
        b"..",
        b".git",
        b".GIT",
        b".Git",
        b"git~1",
        b"GIT~1",
        b".git.",
        b".git ",
        b".git . .",
        b".git::$INDEX_ALLOCATION",
        b"a\\.git",
        b"a\\..\\.git ",
        ".g\u200cit".encode(),
        ".git\ufeff".encode(),
        "\u202a.g\u206fIt".encode(),
        b"a/b",
        b"/",
        b"x" * 5000,
    ],
)
def test_names_that_lead_elsewhere(copy: Copy, name: bytes) -> None:
    with_tree(copy, ("100644", name, blob(copy)))
    refused(copy, "the tree .* has an entry that is named")
    inner = copy.tree(("40000", name, copy.tree(("100644", b"config", blob(copy)))))
    with_tree(copy, ("40000", b"d", inner))
    refused(copy, f"the tree {inner} has an entry that is named")


@pytest.mark.parametrize("mode", ["100664", "040000", "0100644", "+40000", "100600", "777777", "0", "120777", ""])
def test_modes_that_git_does_not_write(copy: Copy, mode: str) -> None:
    with_tree(copy, (mode, b"file", blob(copy)))
    refused(copy, "the tree .* (has the entry file with the mode|is not a tree)")


@pytest.mark.parametrize("name", [b".gitmodules", b".GitModules", b"gitmod~1", b"GI7EBA~1", b".gitmodules ."])
def test_settings_of_submodules_as_a_link(copy: Copy, name: bytes) -> None:
    with_tree(copy, ("120000", name, blob(copy)))
    refused(copy, "as a symbolic link")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ('[submodule "../../evil"]\n\tpath = a\n', "with a submodule ../../evil"),
        ('[submodule "a"]\n\tpath = a\n\turl = --upload-pack=evil\n', "with url = --upload-pack=evil"),
        ('[submodule "a"]\n\tpath = -a\n', "with path = -a"),
        ('[submodule "a"]\n\tupdate = !evil\n', "with update = !evil"),
        ('[SubModule "a"]\n\tURL = "https://e%0ahost=x"\n', "with url = "),
        ("[submodule\n", "that cannot be parsed"),
    ],
)
def test_settings_of_submodules_that_run_something(copy: Copy, settings: str, message: str) -> None:
    name = copy.object("blob", settings.encode())
    with_tree(copy, ("100644", b".gitmodules", name), ("100644", b"same", name))
    refused(copy, f"the object {name} is a .gitmodules {message}")


def test_settings_of_submodules_lead_to_no_other_file(copy: Copy) -> None:
    other = copy.fork.parent / "other"
    os.mkfifo(other)  # whoever opens it waits for ever
    text = f'[include]\n\tpath = {other}\n[includeIf "gitdir:/"]\n\tpath = {other}\n'
    with_tree(copy, ("100644", b".gitmodules", copy.object("blob", text.encode())))
    assert copy.bring().objects == 3


def test_attributes_with_endless_lines(copy: Copy) -> None:
    name = copy.object("blob", b"* text\n" + b"x" * 5000 + b"\n")
    with_tree(copy, ("100644", b".gitattributes", name))
    refused(copy, f"the object {name} is a .gitattributes with a line")


def test_entries_out_of_order_or_twice(copy: Copy) -> None:
    one = blob(copy)
    sub = copy.tree(("100644", b"x", one))
    for entries in (
        [("100644", b"b", one), ("100644", b"a", one)],
        [("100644", b"a", one), ("100644", b"a", one)],
        [("100644", b"a", one), ("100644", b"a.b", one), ("40000", b"a", sub)],
        [("40000", b"a", sub), ("100644", b"a.b", one)],
    ):
        with_tree(copy, *entries)
        refused(copy, "twice, or not in its order")


@pytest.mark.parametrize("damage", [b"x", b"100644 x\0short", b"100644 \0" + bytes(20), b"100644 x\0" + bytes(20)])
def test_trees_that_are_none(copy: Copy, damage: bytes) -> None:
    tree = copy.object("tree", damage)
    copy.set_head(copy.commit(tree, head_of(copy)))
    refused(copy, f"the tree {tree} (is not a tree that git has written|has the entry x without an object)")


@pytest.mark.parametrize(
    "author",
    [b"", b"T", b"<t@e> 1 +0000", b"T <t@e> 1", b"T <t@e>1 +0000", b"T <t@e> 01 +0000",
     b"T <t> 99999999999999999999 +0000", b"T <t\0> 1 +0000", b"T <<t>> 1 +0000", b"T <t> -1 +0000", b"T <t> 1 0000"],
)  # fmt: skip
def test_commits_without_an_author(copy: Copy, author: bytes) -> None:
    commit = copy.commit(copy.tree(), head_of(copy), author=author)
    copy.set_head(commit)
    refused(copy, f"the commit {commit} (has no valid author line|holds a NUL)")


def test_commits_that_are_none(copy: Copy) -> None:
    tree, parent = copy.tree(), head_of(copy)
    for text in (
        b"",
        b"tree " + tree.encode() + b"\n",
        b"parent " + parent.encode() + b"\n",
        b"tree " + b"z" * 40 + b"\n",
        b"tree %s\nparent %s\n" % (tree.encode(), b"1" * 39),
        b"tree %s\ntree %s\nauthor %s\ncommitter %s\n\nx" % (tree.encode(), tree.encode(), WHO, WHO),
        b"tree %s\nauthor %s\nauthor %s\ncommitter %s\n\nx" % (tree.encode(), WHO, WHO, WHO),
        b"tree %s\nauthor %s\ncommitter %s\nparent %s\n\nx" % (tree.encode(), WHO, WHO, parent.encode()),
        b"tree %s\nauthor %s\ncommitter %s" % (tree.encode(), WHO, WHO),
        b"tree %s\nauthor %s\ncommitter %s\n\nx\0y" % (tree.encode(), WHO, WHO),
    ):
        name = copy.object("commit", text)
        copy.set_head(name)
        refused(copy, f"the commit {name} ")


def test_what_is_shown_of_a_commit_is_one_plain_line(copy: Copy) -> None:
    author = "E\x1b[2J\u202evil <e@example.org>".encode() + b" 1700000000 +0000"
    rest = b"\n\x1b]0;title\x07first\nline\n\nbody " + b"\xff" * 500
    copy.set_head(copy.commit(copy.tree(), head_of(copy), author=author, rest=rest))
    (told,) = copy.bring().commits
    assert told.subject == r"\x1b]0;title\x07first line"
    assert told.author == r"E\x1b[2J\u{202e}vil <e@example.org>"


def test_what_the_projects_own_history_has_already_is_no_reason_to_refuse(tmp_path: Path) -> None:
    """Modes that old git wrote, in a directory that the agent has changed."""
    copy = Copy(tmp_path)
    for side in (copy.project, copy.fork):
        copy.fork, keep = side, copy.fork
        tree = copy.tree(("100664", b"old", blob(copy)))
        commit = copy.commit(tree)
        (side / ".git/refs/heads/main").write_text(commit + "\n")
        copy.fork = keep
    tree = copy.tree(("100664", b"old", blob(copy)), ("100644", b"young", blob(copy)))
    copy.set_head(copy.commit(tree, commit))
    assert copy.bring().objects == 2


# --- files ---


def test_links_to_outside(copy: Copy) -> None:
    copy.agent("echo two >> file; git commit -qam two")
    name = head_of(copy)
    outside = copy.fork.parent / "outside"
    shutil.copytree(copy.fork / ".git", outside)
    path = copy.path_of(name)
    path.unlink()
    path.symlink_to(outside / "objects" / name[:2] / name[2:])
    refused(copy, r"\.git/objects/../.* is a symlink")
    shutil.rmtree(path.parent)
    path.parent.symlink_to(outside / "objects" / name[:2])
    refused(copy, f"the object {name} is missing")
    shutil.rmtree(copy.fork / ".git/objects")
    (copy.fork / ".git/objects").symlink_to(outside / "objects")
    refused(copy, f"the object {name} is missing")
    (copy.fork / ".git/HEAD").unlink()
    (copy.fork / ".git/HEAD").symlink_to(outside / "HEAD")
    refused(copy, r"\.git/HEAD is a symlink")
    shutil.rmtree(copy.fork / ".git")
    (copy.fork / ".git").symlink_to(outside)
    refused(copy, r"\.git in the fork is not what the project has there")
    (copy.fork / ".git").unlink()
    (copy.fork / ".git").write_text(f"gitdir: {outside}\n")
    refused(copy, r"\.git in the fork is not what the project has there")
    (copy.fork / ".git").unlink()
    refused(copy, r"\.git in the fork is gone")


def test_files_that_are_no_files(copy: Copy) -> None:
    copy.agent("echo two >> file; git commit -qam two")
    path = copy.path_of(head_of(copy))
    path.unlink()
    os.mkfifo(path)
    refused(copy, r"\.git/objects/../.* is a fifo")
    path.unlink()
    path.mkdir()
    refused(copy, r"\.git/objects/../.* is a directory")
    (copy.fork / ".git/HEAD").unlink()
    os.mkfifo(copy.fork / ".git/HEAD")
    refused(copy, r"\.git/HEAD is a fifo")
    (copy.fork / ".git/HEAD").unlink()
    refused(copy, "HEAD does not name an object")


def test_objects_that_are_elsewhere(copy: Copy) -> None:
    """The fork's alternates are not followed, wherever they lead."""
    copy.agent("echo two >> file; git commit -qam two")
    name = head_of(copy)
    outside = copy.fork.parent / "outside"
    shutil.copytree(copy.fork / ".git/objects", outside)
    copy.path_of(name).unlink()
    (copy.fork / ".git/objects/info/alternates").write_text(f"{outside}\n../../../outside\n")
    (copy.fork / ".git/commondir").write_text("../../outside\n")
    refused(copy, f"the object {name} is missing")


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("ref: ../../x", r"\.\./\.\./x is not the name of a ref"),
        ("ref: refs/heads/../../../x", "is not the name of a ref"),
        ("ref: refs/../config", "is not the name of a ref"),
        ("ref: /etc/passwd", "/etc/passwd is not the name of a ref"),
        ("ref: config", "config is not the name of a ref"),
        ("ref: refs/heads/" + "x" * 300, "is not the name of a ref"),
        ("ref: refs/heads/a\x1b[2Jb", "is not the name of a ref"),
        ("ref: ", "is not the name of a ref"),
        ("ref: HEAD", "HEAD leads in a circle, or too far"),
        ("ref: refs/heads/new", "refs/heads/new, to which HEAD of the fork leads, has no commit yet"),
        ("", "HEAD does not name an object"),
        ("1" * 39, "HEAD does not name an object"),
        ("1" * 64, "HEAD does not name an object"),
        ("0" * 40, "the object 0000.* is missing"),
        ("1" * 40, "the object 1111.* is missing"),
        ("x" * 10_000, r"\.git/HEAD has more than 4,096 bytes"),
    ],
)
def test_heads_that_lead_nowhere(copy: Copy, head: str, message: str) -> None:
    (copy.fork.parent / "x").write_text(git(copy.fork, "git rev-parse HEAD"))
    (copy.fork / ".git/HEAD").write_text(head + "\n")
    refused(copy, message)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'ref: refs/heads/b' > R/heads/a; echo 'ref: refs/heads/a' > R/heads/b", "leads in a circle, or too far"),
        ("echo 'ref: ../../config' > R/heads/a", r"\.\./\.\./config is not the name of a ref"),
        ("echo x > R/heads/a", "refs/heads/a does not name an object"),
        ("echo x > 'R/heads/a b'", "refs/heads/a b is not the name of a ref"),
        ("echo x > R/heads/a..b", r"refs/heads/a\.\.b is not the name of a ref"),
        ("echo 1111111111111111111111111111111111111111 > R/tags/a", "the object 1111.* is missing"),
        ("ln -s ../../HEAD R/heads/a", "refs/heads/a is a symlink"),
        ("rm -f .git/packed-refs; ln -s ../file .git/packed-refs", "packed-refs is a symlink"),
    ],
)
def test_refs_of_a_fork_that_are_none(place: Place, script: str, message: str) -> None:
    """Refused by both ways in which commits come, before anything is written."""
    place.write("file", "one\n")
    git(place.project, "git init -q; git add -A; git commit -qm one")
    session = place.session()
    script = "echo two >> file; git commit -qam two; " + script.replace("R/", ".git/refs/")
    result = session.run([b"sh", b"-ec", with_settings(script).encode()], fork="agent")
    assert result.exit_code == 0, result.stderr
    before = full_listing(place.project)
    for bring in (lambda: bring_commits(session, "agent"), lambda: session.changes.apply("agent", git=True)):
        with pytest.raises(UsageError, match=message) as told:
            bring()
        assert "\n" not in str(told.value)
    assert full_listing(place.project) == before


def test_a_tree_with_more_paths_than_can_be_listed(place: Place) -> None:
    """Twelve trees of sixteen entries are 1.4 kB, and 16**12 paths: the checked-out branch does not move to them."""
    place.write("file", "one\n")
    git(place.project, "git init -q; git add -A; git commit -qm one")
    session = place.session()
    script = """
        tree=$(for n in $(seq 16); do printf '100644 blob %s\tf%d\n' $(git rev-parse HEAD:file) $n; done | git mktree)
        for level in $(seq 11); do
            tree=$(for n in $(seq 16); do printf '040000 tree %s\td%d\n' $tree $n; done | git mktree)
        done
        git update-ref HEAD $(git commit-tree -m many -p HEAD $tree)
    """
    result = session.run([b"sh", b"-ec", with_settings(script).encode()], fork="agent")
    assert result.exit_code == 0, result.stderr
    with pytest.raises(UsageError, match="its commits change more than 2,000,000 paths"):
        session.changes.apply("agent", git=True)
    assert git(place.project, "git log --format=%s") == "one\n" and git(place.project, "git status --short") == ""


def test_a_branch_that_names_no_commit_is_left(place: Place) -> None:
    """git calls a repository broken whose branch names a tag, a tree or a blob."""
    place.write("file", "one\n")
    git(place.project, "git init -q; git add -A; git commit -qm one")
    session = place.session()
    script = (
        "echo two >> file; git commit -qam two; git tag -am v1 v1; git rev-parse v1 > .git/refs/heads/a;"
        "git rev-parse HEAD: > .git/refs/heads/b; git rev-parse HEAD:file > .git/refs/tags/c; git rev-parse v1 > H;"
        "mv H .git/HEAD"
    )
    result = session.run([b"sh", b"-ec", with_settings(script).encode()], fork="agent")
    assert result.exit_code == 0, result.stderr
    commits = bring_commits(session, "agent")
    assert {outcome.ref for outcome in commits.result.refs if outcome.result == "left"} == {
        b"refs/heads/a",
        b"refs/heads/b",
        b"refs/tags/c",
    }
    assert git(place.project, "git cat-file -t mudroom/agent; git cat-file -t v1").split() == ["commit", "tag"]
    assert fsck(place.project) == ""


def test_packed_refs_that_are_none(copy: Copy) -> None:
    copy.agent("echo two >> file; git commit -qam two; git pack-refs --all")
    (copy.fork / ".git/packed-refs").write_bytes(b"\xff" * 100 + b" refs/heads/main\n")
    refused(copy, "refs/heads/main does not name an object")
    (copy.fork / ".git/packed-refs").unlink()
    (copy.fork / ".git/packed-refs").symlink_to("../file")
    refused(copy, r"\.git/packed-refs is a symlink")


def test_a_history_that_is_cut_off(copy: Copy) -> None:
    """What the fork calls shallow, grafted or replaced is read as it is."""
    copy.agent("echo two >> file; git commit -qam two; echo three >> file; git commit -qam three")
    head, parent = head_of(copy), git(copy.fork, "git rev-parse HEAD^").strip()
    copy.agent("git replace --graft HEAD")
    (copy.fork / ".git/info/grafts").write_text(head + "\n")
    found = copy.bring()
    assert [one.id for one in found.commits] == [parent, head]
    copy.agent("git replace -d HEAD; echo four >> file; git commit -qam four; echo five >> file; git commit -qam five")
    parent = git(copy.fork, "git rev-parse HEAD^").strip()
    copy.agent("git rev-parse HEAD > .git/shallow")
    copy.path_of(parent).unlink()
    refused(copy, f"the object {parent} is missing")


# --- what would run ---


def test_a_fifo_in_place_of_a_ref_is_no_ref(place: Place) -> None:
    """It never lands, so it is a remark; the commits come over."""
    place.write("file", "one\n")
    git(place.project, "git init -q; git add -A; git commit -qm one")
    session = place.session()
    script = "echo two >> file; git commit -qam two; mkfifo .git/refs/heads/a"
    result = session.run([b"sh", b"-ec", with_settings(script).encode()], fork="agent")
    assert [remark.path for remark in result.changeset.remarks] == [b".git/refs/heads/a"]
    found = bring_commits(session, "agent")
    assert [one.subject for one in found.commits] == ["two"]
    assert not (place.project / ".git/refs/heads/a").exists()


def test_nothing_of_the_fork_runs(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.write("file", "one\n")
    git(place.project, "git init -q; git add -A; git commit -qm one")
    session = place.session()
    marker = place.root / "ran"
    run = f"touch {marker}"
    result = session.run(
        [
            b"sh",
            b"-ec",
            with_settings(
                "echo two >> file; echo '* filter=evil diff=evil merge=evil' > .gitattributes; git add -A;"
                "git commit -qm two; for hook in pre-receive post-receive update post-update reference-transaction"
                f" post-checkout pre-auto-gc; do printf '#!/bin/sh\\n{run}\\n' > .git/hooks/$hook;"
                "chmod +x .git/hooks/$hook; done;"
                f"cat >> .git/config <<E\n[core]\n\tfsmonitor = {run}\n\tsshCommand = {run}\n\thooksPath = .git/hooks\n"
                f'\tpager = {run}\n\tgitProxy = {run}\n\talternateRefsCommand = {run}\n[filter "evil"]\n'
                f'\tclean = {run}\n\tsmudge = {run}\n\tprocess = {run}\n[diff "evil"]\n\tcommand = {run}\n'
                f"\ttextconv = {run}\n[gpg]\n\tprogram = {run}\n[credential]\n\thelper = !{run}\n"
                f"[include]\n\tpath = /nowhere\n[extensions]\n\tunheardOf = true\nE\n"
            ).encode(),
        ],
        fork="agent",
    )
    assert result.exit_code == 0, result.stderr

    def no_program(*_arguments: object, **_settings: object) -> None:
        raise AssertionError("a program was started")

    session.forks.record("agent")  # the kernel is asked who holds the fork's files: by a program of mudroom's own
    with monkeypatch.context() as patched:
        for module, name in (
            (subprocess, "Popen"),
            (os, "system"),
            (os, "fork"),
            (os, "posix_spawn"),
            (os, "execve"),
            (os, "popen"),
        ):
            patched.setattr(module, name, no_program)
        found = bring_commits(session, "agent")
    assert [one.subject for one in found.commits] == ["two"]
    assert fsck(place.project) == ""
    assert git(place.project, "git status --porcelain; git log --format=%s mudroom/agent").split() == ["two", "one"]
    assert not marker.exists()
    assert "evil" not in (place.project / ".git/config").read_text()


def test_a_repository_that_is_a_link_in_a_real_fork(place: Place) -> None:
    place.write("file", "one\n")
    git(place.project, "git init -q; git add -A; git commit -qm one")
    outside = place.root / "outside"
    shutil.copytree(place.project, outside)
    git(outside, "echo two >> file; git commit -qam two")
    session = place.session()
    session.run([b"sh", b"-ec", b"mv .git old; ln -s %s .git" % os.fsencode(outside / ".git")], fork="agent")
    session.run([b"sh", b"-ec", b"rm -rf .git; ln -s %s .git" % os.fsencode(outside / ".git")], fork="agent")
    assert os.path.islink(os.fsdecode(session.vault.fork("agent").upper) + "/.git")
    with pytest.raises(UsageError, match="is not what the project has there"):
        bring_commits(session, "agent")


# --- how long ---


def test_a_tree_of_trees_is_looked_at_once(copy: Copy) -> None:
    """Ten to the fifteenth of paths, in fifteen trees."""
    tree = copy.tree(("100644", b"x", blob(copy)))
    for _depth in range(15):
        tree = copy.tree(*[("40000", b"%d" % number, tree) for number in range(10)])
    copy.set_head(copy.commit(tree, head_of(copy)))
    assert within(100_000, copy.bring).objects == 18
    assert git(copy.project, "git rev-list --objects --count mudroom/agent").strip().isdigit()


def test_a_very_deep_tree(copy: Copy) -> None:
    tree = copy.tree(("100644", b"x", blob(copy)))
    for _depth in range(1500):
        tree = copy.tree(("40000", b"d", tree))
    copy.set_head(copy.commit(tree, head_of(copy)))
    assert copy.bring().objects == 1503


def test_many_entries(copy: Copy) -> None:
    one = blob(copy)
    data = b"".join(tree_entry("100644", b"%06d" % number, one) for number in range(100_000))
    copy.set_head(copy.commit(copy.object("tree", data), head_of(copy)))
    assert within(10_000_000, copy.bring).objects == 3


# --- anything ---


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.slow
def test_any_damage(copy: Copy, is_packed: bool) -> None:
    """Bytes changed anywhere in the fork's repository: it is refused in one line, or what comes is whole."""
    copy.agent("seq 300 > file; git commit -qam two; git mv file other; git commit -qm three; echo 301 >> other")
    copy.agent("git commit -qam four; git gc -q" if is_packed else "git commit -qam four")
    files = sorted(path for path in (copy.fork / ".git").rglob("*") if path.is_file())
    files = [path for path in files if path.relative_to(copy.fork / ".git").parts[0] in ("objects", "refs", "HEAD")]
    files += [path for path in files if path.suffix in (".pack", ".idx")] * 5
    chance = random.Random(7)
    came = 0
    for _turn in range(int(os.environ.get("MUDROOM_TEST_DAMAGES", "30"))):
        path = chance.choice(files)
        whole, mode = path.read_bytes(), path.stat().st_mode
        changed = bytearray(whole)
        for _byte in range(chance.choice((1, 1, 2, 20))):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        if chance.random() < 0.2:
            del changed[chance.randrange(len(changed)) :]
        path.chmod(0o644)
        path.write_bytes(changed)
        try:
            found = copy.bring()
        except UsageError as error:
            assert "\n" not in str(error)
        else:
            came += 1
            assert fsck(copy.project) == ""
            assert copy.take_back(found) == []
            for left in (copy.project / ".git/objects/pack").iterdir():
                left.unlink()
        path.write_bytes(whole)
        path.chmod(mode)
    assert came, "what is damaged was not always needed"
