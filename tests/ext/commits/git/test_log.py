"""The commits of a fork as a list, and each as a difference; of real git, and of hostile repositories."""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from agent_repository import project
from handgit import Copy, git, with_settings

from conftest import Place
from kernel_calls import within
from mudroom.core.settings import Settings
from mudroom.errors import UsageError
from mudroom.ext.commits.git.commit_diff import CommitDiff, read_commit_diff
from mudroom.ext.commits.git.fork_refs import ForkFiles
from mudroom.ext.commits.git.log import CommitLog, LogSource, open_log
from mudroom.ext.commits.session import bring_commits, commit_diff, commit_diffs, list_commits
from mudroom.stage.source import OpenSource
from whole_text import whole

__all__ = ["project"]  # a fixture

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


class Fork:
    """The fork ``f`` of a project with a repository."""

    def __init__(self, place: Place, settings: Settings | None = None) -> None:
        self.place, self.session = place, place.session(settings)

    def run(self, script: str) -> None:
        result = self.session.run([b"sh", b"-ec", with_settings(script).encode()], fork="f")
        assert result.exit_code == 0, result.stderr

    def log(self, repository: bytes = b".git") -> CommitLog:
        return list_commits(self.session, "f", repository)

    def subjects(self) -> list[str]:
        return [commit.subject for commit in self.log().commits]

    def diff(self, commit: str) -> CommitDiff:
        return commit_diff(self.session, "f", commit)

    def text(self, commit: str) -> str:
        return b"".join(line for file in self.diff(commit).files for line in file.lines()).decode()


@pytest.fixture
def fork(project: Place) -> Fork:
    return Fork(project)


# --- the list ---


def test_commits_are_listed_oldest_first_with_author_message_and_refs(fork: Fork) -> None:
    fork.run("echo two >> file; git commit -qam two")
    fork.run(
        "echo 3 > new; git add new; export GIT_AUTHOR_DATE='@1700000000 +0530'"
        "; git commit -q --author='Ann <ann@example.org>' -m 'three' -m 'why\n\twhat'; git tag v1"
    )
    two, three = fork.log().commits
    assert [two.subject, three.subject] == ["two", "three"]
    assert three.message == "three\n\nwhy\n\twhat"
    assert three.author == ("Ann <ann@example.org>", 1_700_000_000, 330)
    assert three.committer.name == "T <t@example.org>" and three.committer.time >= int(time.time()) - 100
    assert three.parents == (two.id,)
    assert two.refs == () and set(three.refs) == {"HEAD", "refs/heads/main", "refs/tags/v1"}
    assert fork.log().branch == "refs/heads/main"


def test_a_fork_without_commits(fork: Fork) -> None:
    fork.run("echo two >> file; git status")
    assert fork.log().commits == ()
    fork.run("git tag same; git branch other; git checkout -q other")
    assert fork.log().commits == ()


def test_commits_of_other_branches_of_a_stash_and_of_a_detached_head(fork: Fork) -> None:
    fork.run(
        "git checkout -qb side; echo s > s; git add s; git commit -qm side; git checkout -q main; echo w >> file;"
        "git stash -q; git checkout -q --detach; echo d > d; git add d; git commit -qm detached"
    )
    log = fork.log()
    assert log.branch == ""
    refs = {commit.subject: commit.refs for commit in log.commits}
    assert refs["side"] == ("refs/heads/side",) and refs["detached"] == ("HEAD",)
    (stash,) = [subject for subject in refs if subject.startswith("WIP on main")]
    assert refs[stash] == ("refs/stash",) and len(refs) == 3
    assert "+w" in fork.text("stash")


def test_refs_that_git_has_packed(fork: Fork) -> None:
    fork.run(
        "git checkout -qb side; echo s > s; git add s; git commit -qm side; git checkout -q main;"
        "git commit -q --allow-empty -m empty; git gc -q --prune=now; git pack-refs --all"
    )
    assert set(fork.subjects()) == {"side", "empty"}


def test_merged_history_is_listed_once_and_parents_first(fork: Fork) -> None:
    fork.run(
        "git checkout -qb side; echo s > s; git add s; git commit -qm side; git checkout -q main; echo m > m;"
        "git add m; git commit -qm main; git merge -q -m merged side"
    )
    subjects = fork.subjects()
    assert sorted(subjects) == ["main", "merged", "side"] and subjects[-1] == "merged"
    files = fork.diff("main").files
    assert [file.change.path for file in files] == [b"s"], "against the first parent"


def test_a_commit_that_the_project_has_is_not_listed(fork: Fork) -> None:
    fork.run("echo two >> file; git commit -qam two")
    with fork.session.alone("a test"):
        bring_commits(fork.session, "f")
    assert fork.subjects() == []
    fork.run("echo three >> file; git commit -qam three")
    assert fork.subjects() == ["three"]


def test_a_nested_repository(place: Place) -> None:
    place.write("sub/file", "one\n")
    git(place.project / "sub", "git init -q; git add -A; git commit -qm one")
    fork = Fork(place)
    fork.run("cd sub; echo two >> file; git commit -qam two")
    assert [commit.subject for commit in fork.log(b"sub/.git").commits] == ["two"]
    with pytest.raises(UsageError, match="no git repository"):
        fork.log()


def test_messages_cannot_act_on_a_terminal(fork: Fork) -> None:
    fork.run("printf '\\033[31mred\\n\\nbody\\033]0;title\\007\\n\xe2\x80\xae' > m; git commit -q --allow-empty -F m")
    (commit,) = fork.log().commits
    assert commit.subject == "\\x1b[31mred"
    assert "\x1b" not in commit.message and "\\x1b]0;title\\x07" in commit.message


def test_a_long_message_is_cut(fork: Fork) -> None:
    fork.run("seq 1000 > m; git commit -q --allow-empty -F m")
    (commit,) = fork.log().commits
    assert commit.message.endswith("…") and len(commit.message.splitlines()) == 401
    assert len(commit.subject) <= 200


# --- a commit ---


def test_the_difference_is_that_of_git(fork: Fork) -> None:
    fork.run(
        "echo two >> file; rm directory/other; echo n > 'new file'; chmod +x file; ln -s file link;"
        "printf 'a\\0b' > binary; git add -A; git commit -qm two"
    )
    assert fork.text("HEAD") == (
        "diff --git a/binary b/binary\nnew file mode 100644\nBinary files differ\n"
        "diff --git a/directory/other b/directory/other\ndeleted file mode 100644\n"
        "--- a/directory/other\n+++ /dev/null\n@@ -1 +0,0 @@\n-other\n"
        "diff --git a/file b/file\nold mode 100644\nnew mode 100755\n"
        "--- a/file\n+++ b/file\n@@ -1 +1,2 @@\n one\n+two\n"
        "diff --git a/link b/link\nnew file mode 120000\n--- /dev/null\n+++ b/link\n@@ -0,0 +1 @@\n+file\n"
        "\\ No newline at end of file\n"
        "diff --git a/new file b/new file\nnew file mode 100644\n--- /dev/null\n+++ b/new file\t\n@@ -0,0 +1 @@\n+n\n"
    )
    diff = fork.diff("HEAD")
    assert (diff.lines_added, diff.lines_removed, diff.more) == (3, 1, False)


def test_a_renamed_file_and_one_that_becomes_a_link(fork: Fork) -> None:
    fork.run("git mv directory/other moved; rm file; ln -s moved file; git add -A; git commit -qm two")
    text = fork.text("HEAD")
    assert "rename from directory/other\nrename to moved\n" in text
    assert "deleted file mode 100644" in text and "new file mode 120000" in text


def test_a_first_commit_without_parent(fork: Fork) -> None:
    fork.run("git checkout -q --orphan fresh; git rm -rqf .; echo x > x; git add x; git commit -qm fresh")
    assert [file.change.path for file in fork.diff("fresh").files] == [b"x"]


def test_a_secret_is_masked(project: Place) -> None:
    project.write("server.key", "KEY\n")
    git(project.project, "git add -A; git commit -qm key")
    project.write("server.key", "of this machine\n")
    fork = Fork(project)
    fork.run("git update-index --force-remove server.key; echo x > x; git add x; git commit -qm gone")
    (gone,) = [file for file in fork.diff("HEAD").files if file.change.path == b"server.key"]
    assert (gone.kind, gone.old) == ("masked", b"")
    assert "KEY" not in fork.text("HEAD") and "a secret: it is not shown" in fork.text("HEAD")


def test_large_texts_are_named_only(fork: Fork) -> None:
    fork.run("head -c 5000000 /dev/zero | tr '\\0' x > big; yes | head -n 300000 > many; git add .; git commit -qm big")
    assert [file.kind for file in fork.diff("HEAD").files] == ["large", "large"]


def test_many_files_are_cut(fork: Fork) -> None:
    fork.run("mkdir d; seq 2100 | (cd d; xargs touch); git add .; git commit -qm many")
    diff = fork.diff("HEAD")
    assert len(diff.files) == 2000 and diff.more


def test_which_commit_is_meant(fork: Fork) -> None:
    fork.run("echo two >> file; git commit -qam two; git tag v1; echo three >> file; git commit -qam three")
    two, three = fork.log().commits
    named = [fork.diff(word).commit.id for word in (two.id, two.id[:8].upper(), "v1", "refs/tags/v1", "HEAD", "main")]
    assert named == [two.id] * 4 + [three.id] * 2
    for word in ("nothing", "", "abc", git(fork.place.project, "git rev-parse HEAD").strip(), "\x1b[31m", "a/../b"):
        with pytest.raises(UsageError, match="the fork has no new commit"):
            fork.diff(word)
    listed = "mudroom diff --commits lists them"
    with pytest.raises(UsageError, match=whole(f"the fork has no new commit nothing ({listed})")):
        fork.diff("nothing")


def test_the_beginning_of_two_ids(fork: Fork) -> None:
    """Four digits are the fewest that name a commit; here two begin with them."""
    rows = git(fork.place.project, "git rev-parse HEAD HEAD^{tree}").split()
    texts: dict[str, str] = {}
    for number in itertools.count():
        who = f"T <t@example.org> {number} +0000"
        text = f"tree {rows[1]}\nparent {rows[0]}\nauthor {who}\ncommitter {who}\n\nc\n"
        begin = hashlib.sha1(f"commit {len(text)}\0{text}".encode()).hexdigest()[:4]
        if begin in texts:
            break
        texts[begin] = text
    for name, content in (("one", texts[begin]), ("two", text)):
        fork.place.write(name, content)
        fork.run(f"git update-ref refs/heads/{name} $(git hash-object -t commit -w {name})")
    with pytest.raises(UsageError, match=whole(f"2 commits of the fork begin with {begin} (give more digits)")):
        fork.diff(begin)


def test_differences_of_all_commits(fork: Fork) -> None:
    fork.run("echo two >> file; git commit -qam two; echo three >> file; git commit -qam three")
    diffs = list(commit_diffs(fork.session, "f"))
    assert [(diff.commit.subject, diff.lines_added) for diff in diffs] == [("two", 1), ("three", 1)]


# --- hostile and broken repositories ---


def read_copy(copy: Copy, commits: Sequence[str] = ()) -> CommitLog:
    project = os.fsencode(copy.project)
    with (
        OpenSource(os.fsencode(copy.fork)) as view,
        OpenSource(project) as base,
        open_log(project, b".git", LogSource(view, ForkFiles(base), ())) as log,
    ):
        for commit in commits:
            read_commit_diff(log, log.find(commit), lambda _path: False)
        return log.read()


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


@pytest.mark.parametrize(
    "script",
    [
        "rm .git/HEAD; ln -s /etc/passwd .git/HEAD",
        "rm .git/HEAD; mkfifo .git/HEAD",
        "echo nonsense > .git/HEAD",
        "echo 'ref: refs/heads/../../config' > .git/HEAD",
        "echo 'ref: refs/heads/a' > .git/HEAD; echo 'ref: refs/heads/a' > .git/refs/heads/a",
        "echo 0123456789012345678901234567890123456789 > .git/refs/heads/main",
        "git commit -q --allow-empty -m x; rm -r .git/objects",
    ],
)
def test_a_broken_repository_is_one_error(copy: Copy, script: str) -> None:
    copy.agent(script)
    with pytest.raises(UsageError) as caught:
        read_copy(copy)
    assert "\n" not in str(caught.value) and str(caught.value).isprintable()


def test_why_a_repository_is_not_read(copy: Copy) -> None:
    copy.agent("rm .git/HEAD; ln -s /etc/passwd .git/HEAD")
    told = "the fork's repository is not read: .git/HEAD is a symlink (git fsck in the fork shows details)"
    with pytest.raises(UsageError, match=whole(told)):
        read_copy(copy)


def test_a_repository_that_is_gone(copy: Copy) -> None:
    shutil.rmtree(copy.fork / ".git")
    with pytest.raises(UsageError, match="is gone"):
        read_copy(copy)


def test_a_tag_of_a_file_is_no_commit(copy: Copy) -> None:
    copy.agent("git commit -q --allow-empty -m two; git tag blob HEAD:file")
    assert len(read_copy(copy).commits) == 1


def test_a_head_without_a_commit(copy: Copy) -> None:
    copy.agent("git checkout -q --orphan fresh")
    assert read_copy(copy).commits == ()


def test_a_tree_of_trees_is_not_walked_for_ever(copy: Copy) -> None:
    tree = copy.tree(("100644", b"f", copy.object("blob", b"x")))
    for _level in range(12):
        tree = copy.tree(*(("40000", b"%d" % n, tree) for n in range(10)))
    commit = copy.commit(tree, git(copy.fork, "git rev-parse HEAD").strip())
    copy.agent(f"git update-ref refs/heads/main {commit}")
    assert len(within(2_000_000, lambda: read_copy(copy, ["HEAD"])).commits) == 1
