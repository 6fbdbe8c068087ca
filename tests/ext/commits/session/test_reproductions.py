"""Each way in which work was lost or a repository was damaged before decision 30, by whole processes and real git."""

from __future__ import annotations

import random
import re
import subprocess
from pathlib import Path

import pytest
from git_history import environment, make_repository

from conftest import Place, listing
from test_vault_verb import Cli
from tiers import half, pairs

KEY = "secret of the user\n"


class User:
    """A user in a project with a repository: mudroom and git as whole processes."""

    def __init__(self, place: Place) -> None:
        self.project = place.project
        self.mudroom = Cli(place)
        self._environment = environment(place.home)
        self.sh("git init -q -b main; git config user.name T; git config user.email t@example.org")

    def sh(self, script: str, cwd: Path | None = None) -> str:
        done = subprocess.run(
            ["sh", "-ec", script], cwd=cwd or self.project, env=self._environment, capture_output=True, text=True,
            check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == 0, f"{script}: {done.stdout}{done.stderr}"
        return done.stdout

    def fork(self, script: str, name: str = "f") -> str:
        done = self.mudroom("exec", "--fork", name, "--", "sh", "-ec", script)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def apply(self, *words: str, code: int = 0, name: str = "f") -> str:
        mode = () if "--commits" in words else ("--yes",)
        done = self.mudroom("apply", name, *mode, *words)
        assert done.returncode == code, done.stderr
        return done.stderr

    def undo(self, code: int = 0) -> str:
        done = self.mudroom("undo")
        assert done.returncode == code, done.stderr
        return done.stderr

    def forks(self) -> list[str]:
        return [fork["fork"] for fork in self.mudroom.json("ls")["forks"]]

    def require_sound(self) -> None:
        assert self.sh("git fsck --full --strict --no-dangling") == ""


@pytest.fixture
def user(place: Place) -> User:
    user = User(place)
    place.write("a", "one\n")
    place.write("server.key", KEY)
    user.sh("git add -A; git commit -qm one")
    return user


# --- 1: tracked secrets ---


@pytest.mark.parametrize("how", ["--commits", "--git", "both"])
def test_a_tracked_secret_is_not_committed_empty(user: User, how: str) -> None:
    user.fork("echo x >> a; git commit -qam fix")
    for word in ("--commits", "--git") if how == "both" else (how,):
        user.apply(word)
    if how == "--commits":
        user.sh("git merge -q mudroom/f")
    assert user.sh("git log --format=%s").split() == ["fix", "one"]
    assert user.sh("git show HEAD:server.key") == KEY
    assert (user.project / "server.key").read_text() == KEY
    assert user.sh("git diff --name-only HEAD~1") == "a\n"
    assert user.sh("git status --porcelain") == ""
    user.require_sound()


def test_masked_files_are_not_modified_in_the_fork(user: User, place: Place) -> None:
    place.write("server.key", "rotated, and not committed\n")
    place.write(".env", "TOKEN=1\n")
    place.write("tests/certs/valid.pem", "untracked\n")
    assert user.fork("git status --porcelain") == ""
    assert user.fork("git stash push -u; git stash list") == "No local changes to save\n"
    assert user.fork("echo x >> a; git add -A; git commit -qm fix; git show --stat --format= --name-only") == "a\n"
    user.apply("--git")
    assert (place.project / "server.key").read_text() == "rotated, and not committed\n"
    assert user.sh("git show HEAD:server.key") == KEY
    assert user.sh("git status --porcelain").splitlines() == [" M server.key", "?? .env", "?? tests/"]


def test_a_commit_of_many_files_with_the_names_of_secrets(user: User, place: Place) -> None:
    names = [f"tests/certs/{name}" for name in ("ca.key", "ca.pem", "client.pem", "server.key")]
    for name in (*names, "tests/test_apps/.env"):
        place.write(name, f"content of {name}\n")
    user.sh("git add -fA; git commit -qm certificates")
    assert user.fork("cat tests/certs/ca.key tests/test_apps/.env").count("content of") == 2
    user.fork("echo more > README.md; git add -A; git commit -qam readme")
    report = user.mudroom.json("diff", "f")
    paths = [change["path"] for change in report["changes"]["files"]]
    assert [path for path in paths if not path.startswith(".git/")] == ["README.md"]
    user.apply("--git")
    assert user.sh("git show --format= --shortstat").strip() == "1 file changed, 1 insertion(+)"


@pytest.mark.parametrize(
    ("script", "how"),
    pairs(["git add -f .env; git commit -qm empty", "git add -f .env; git stash push -q"], ["--commits", "--git"]),
)
def test_an_emptied_file_is_refused_before_anything_is_written(user: User, place: Place, how: str, script: str) -> None:
    place.write(".env", "TOKEN=1\n")
    user.fork(f"echo x >> a; git commit -qam fix; test ! -s .env; {script}")
    before = listing(place.project)
    said = user.apply(how, code=125)
    assert ".env is masked" in said
    assert said.count("\n") == 1
    assert listing(place.project) == before


# --- 2: undo ---


@pytest.mark.parametrize(
    "between",
    half(
        [
            "git status",
            "touch a; git status",
            "echo more > more; git add more",
            "git gc -q --prune=now",
            "git stash list",
        ]
    ),
)
def test_undo_after_git_has_refreshed_the_index(user: User, between: str) -> None:
    user.fork("echo two >> a; echo new > new; git add -A; git commit -qm two")
    user.apply("--git")
    user.sh(between)
    user.undo()
    user.require_sound()
    assert user.sh("git log --format=%s").split() == ["one"]
    assert not (user.project / "new").exists()
    assert user.sh("git diff --name-only") == ""
    user.sh("echo three >> a; git stash push -q; git stash pop -q; git commit -qam three")
    assert user.sh("git log --format=%s").split() == ["three", "one"]
    user.require_sound()


def test_undo_after_a_commit_of_the_users_own(user: User) -> None:
    user.fork("echo two >> a; echo new > new; git add -A; git commit -qm two")
    user.apply("--git")
    user.sh("echo mine > mine; git add mine; git commit -qm mine")
    said = user.undo(code=3)
    assert "refs/heads/main: has moved since" in said
    user.require_sound()
    assert user.sh("git log --format=%s").split() == ["mine", "two", "one"]
    assert (user.project / "mine").read_text() == "mine\n"
    user.sh("git stash push -qu; git stash pop -q; git commit -qam after")
    user.require_sound()


def test_undo_and_redo_again_and_again(user: User) -> None:
    user.fork(
        "echo two >> a; git commit -qam two; git branch other; git tag t; git notes add -m n; echo s >> a; git stash"
    )
    before = user.sh("git show-ref; git ls-files -s")
    user.apply("--git")
    after = user.sh("git show-ref; git ls-files -s; git stash list")
    for _round in range(3):
        user.undo()
        assert user.sh("git show-ref; git ls-files -s; git stash list") == before
        assert user.mudroom("redo").returncode == 0
        assert user.sh("git show-ref; git ls-files -s; git stash list") == after
    user.require_sound()


# --- 3: both ways to bring commits ---


@pytest.mark.parametrize("order", half(["--commits --git", "--git --commits", "--commits --commits --git --git"]))
def test_both_ways_in_any_order(user: User, order: str) -> None:
    user.fork("for n in 1 2 3; do echo $n >> a; git commit -qam $n; done")
    for word in order.split():
        if "f" not in user.forks():
            break  # all of it has come over
        done = user.mudroom("apply", "f", *(("--yes", word) if word == "--git" else (word,)))
        nothing_left = re.search("no commits that the repository does not have|holds no changes", done.stderr)
        assert done.returncode == 0 or nothing_left, done.stderr
        assert "conflict" not in done.stderr
    assert user.sh("git log --format=%s").split() == ["3", "2", "1", "one"]
    assert user.sh("git status --porcelain") == ""
    user.require_sound()


def test_commits_after_more_commits(user: User) -> None:
    for number in range(3):
        user.fork(f"echo {number} >> a; git commit -qam {number}")
        user.apply("--commits")
    assert user.sh("git log --format=%s mudroom/f").split() == ["2", "1", "0", "one"]
    user.apply("--git")
    assert user.sh("git log --format=%s").split() == ["2", "1", "0", "one"]


# --- 4: what is no change ---


@pytest.mark.parametrize(
    "command", half(["git status", "git update-index --refresh", "git diff", "git log", "git stash list"])
)
def test_a_command_that_refreshes_the_index_leaves_no_fork(user: User, place: Place, command: str) -> None:
    place.write("a", "one\n")  # its time differs from that in the index
    done = user.mudroom("run", "--yes", "--", *command.split())
    assert done.returncode == 0, done.stderr
    assert "applied" not in done.stderr and "undo" not in done.stderr
    assert user.forks() == []


# --- 5: what would run later ---


def test_the_rebase_of_a_fork_does_not_go_on_in_the_project(user: User, place: Place) -> None:
    evil = place.root / "evil"
    user.sh("echo two >> a; git commit -qam two")
    user.fork("GIT_SEQUENCE_EDITOR='sed -i 1ibreak' git rebase -q -i HEAD~1; echo more > more")
    user.fork(f"echo 'exec touch {evil}' >> .git/rebase-merge/git-rebase-todo; test -d .git/rebase-merge")
    user.apply("--git")  # HEAD is at a commit that the project has
    assert not (user.project / ".git/rebase-merge").exists()
    assert "rebase" not in user.sh("git status").lower()
    done = subprocess.run(
        ["git", "rebase", "--continue"], cwd=user.project, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0 and "no rebase in progress" in done.stderr.lower()
    assert not evil.exists()


@pytest.mark.parametrize(
    "path",
    half(
        [
            "sequencer/todo",
            "rebase-apply/next",
            "info/attributes",
            "info/grafts",
            "config.worktree",
            "commondir",
            "objects/info/alternates",
            "hooks/post-commit",
            "config",
            "shallow",
            "refs/replace/1234",
        ]
    ),
)
def test_state_that_runs_or_reads_elsewhere_does_not_land(user: User, path: str) -> None:
    there = user.project / ".git" / path
    before = there.read_bytes() if there.exists() else None
    user.fork(f"echo two >> a; git commit -qam two; mkdir -p $(dirname .git/{path}); echo evil >> .git/{path}")
    done = user.mudroom("apply", "f", "--yes", "--git")
    assert done.returncode in (0, 125), done.stderr
    assert (there.read_bytes() if there.exists() else None) == before
    user.require_sound()


def test_the_reproductions_on_a_repository_with_a_history(place: Place) -> None:
    make_repository(place.project, place.home, random.Random("history"))
    user = User(place)
    user.fork("echo x >> README.md; git commit -qam fix; git rebase -q HEAD~3; git merge -q side")
    user.apply("--git")
    user.sh("git status")
    user.undo()
    user.require_sound()
    assert user.sh("git status --porcelain") == ""


def test_a_secret_that_the_user_has_moved_away_since_is_no_empty_file(user: User) -> None:
    """What was masked when the fork committed counts, not what is masked at the apply."""
    (user.project / ".env").write_text("KEY=1\n")
    user.fork("echo fork >> a; git add -f .env; git commit -qam two; git stash push -q --all || true")
    user.sh("mv .env ../kept.env")
    for words in (("--git",), ("--commits",)):
        assert ".env is masked" in user.apply(*words, code=125)
    assert user.sh("git log --format=%s; git branch --format='%(refname)'") == "one\nrefs/heads/main\n"


def test_an_emptied_secret_does_not_land_from_a_stash_of_the_fork(user: User) -> None:
    """The user has put the secret away meanwhile: it is not masked now."""
    (user.project / ".env").write_text("KEY=1\n")
    user.fork("echo fork >> a; git stash push -q -a")
    user.sh("git stash push -q -a")
    user.fork(":")
    user.fork("git stash apply -q")
    user.apply()
    assert not (user.project / ".env").exists()
    user.sh("git checkout -q a; git stash pop -q")
    assert (user.project / ".env").read_text() == "KEY=1\n"


def test_a_secret_that_was_masked_for_a_while_is_not_emptied(user: User) -> None:
    """The user takes a commit back and makes it again: between them, git did not have the file."""
    user.sh("echo KEY > server.key; git add server.key; git commit -qm key")
    user.fork("cat server.key; echo fork >> a; git add a; git commit -qm two")
    user.sh("git reset -q HEAD^")
    user.fork("git add -A; git commit -qm three")
    user.sh("git add server.key; git commit -qm key")
    user.fork("git reset -q --hard")
    user.mudroom("apply", "f", "--yes")
    assert (user.project / "server.key").read_text() == "KEY\n"
    assert "server.key is masked" in user.apply("--git", code=125)
    assert (user.project / "server.key").read_text() == "KEY\n"


@pytest.mark.parametrize("between", ["checkpoint", "none"])
def test_a_fork_that_took_its_commit_back_keeps_it_back(user: User, between: str) -> None:
    """The repository of a sealed layer does not show through when the layer above it has no change of its own."""
    user.fork("git switch -qc x; echo c > c; git add c; git commit -qm c")
    if between == "checkpoint":
        user.mudroom("checkpoint", "f")
    user.fork("git switch -q main; git branch -qD x")
    assert user.fork("cat .git/HEAD; git branch --format='%(refname)'; git status --porcelain") == (
        "ref: refs/heads/main\nrefs/heads/main\n"
    )
    user.sh("echo user >> a; git commit -qam mine; git branch -m trunk")
    assert user.fork("git log --format=%s; git diff --cached --stat") == "one\n"
    user.mudroom("apply", "f", "--yes", "--git")
    assert user.sh("git log --format=%s; git status --porcelain; git branch --format='%(refname)'") == (
        "mine\none\nrefs/heads/trunk\n"
    )


def test_a_file_that_a_fork_put_back_and_the_user_committed(user: User) -> None:
    """The fork has the file as it was, in its layer. HEAD of the project does not leave the user's commit for it."""
    user.sh("echo b > b; git add b; git commit -qm b")
    user.fork("git switch -qc x; echo fork >> a; git restore a; git rm -q b; git commit -qm finished")
    user.sh("echo user >> a; git commit -qam mine")
    said = user.apply("--git", code=3)
    assert "HEAD" in said and "git merge x, then mudroom apply f" in said
    assert user.sh("git status --porcelain; git log --format=%s") == "mine\nb\none\n"
    user.sh("git merge -q --no-edit x")
    user.apply("--git")
    assert user.sh("git status --porcelain; git branch --show-current; git ls-files") == "main\na\nserver.key\n"
    assert (user.project / "a").read_text() == "one\nuser\n"


@pytest.mark.parametrize(("branch", "more"), pairs(["main", "x"], ["", "; echo n > n; git add n; git commit -qm n"]))
def test_a_fork_takes_back_what_the_user_has_merged(user: User, branch: str, more: str) -> None:
    """The file is as when the fork began, which is no change of the fork: it would stay as the user has merged it."""
    user.fork(f"git switch -q {branch} || git switch -qc {branch}; echo two >> a; git commit -qam two")
    user.apply("--commits")
    user.sh("git merge -q mudroom/f")
    user.fork("git revert --no-edit HEAD" + more)
    said = user.apply("--git", code=3)
    beside = "mudroom/f" if branch == "main" else branch
    assert "a would not be as in the commit" in said and f"git merge {beside}, then mudroom apply f" in said
    assert user.sh("git status --porcelain; git log --format=%s; git branch --show-current") == "two\none\nmain\n"
    user.sh(f"git merge -q {beside}")
    user.mudroom("apply", "f", "--yes", "--git")
    assert user.sh("git status --porcelain; git branch --show-current; cat a") == "main\none\n"
    assert (user.project / "n").exists() == bool(more)


def test_a_fork_goes_on_after_the_user_has_merged(user: User) -> None:
    user.fork("echo two >> a; git commit -qam two")
    user.apply("--commits")
    user.sh("git merge -q mudroom/f")
    user.fork("git switch -qc x; echo three > b; ln -s a link; git add -A; git commit -qm three; rm link")
    user.apply("--git")
    assert user.sh("git status --porcelain; git branch --show-current; cat a b") == " D link\nx\none\ntwo\nthree\n"


@pytest.mark.parametrize("logs", [True, False])
def test_a_fork_that_only_switches_to_an_older_branch(user: User, logs: bool) -> None:
    """Its commit does not lead to that of HEAD: the log of HEAD tells that the user has not committed meanwhile.
    Without logs HEAD stays."""
    user.sh(f"git config core.logAllRefUpdates {str(logs).lower()}; git branch old; echo two >> a; git commit -qam two")
    if not logs:
        user.sh("rm -r .git/logs")
    user.fork("git switch -q old")
    said = user.apply("--git")
    assert ("HEAD is on old now" in said) == logs
    assert user.sh("git status --porcelain; git branch --show-current") == ("old\n" if logs else " M a\nmain\n")
    user.undo()
    assert user.sh("git status --porcelain; git branch --show-current") == "main\n"


def test_a_fork_packs_refs_whose_directory_it_has_removed(user: User) -> None:
    user.sh("git branch folder/one; git branch folder/two")
    user.fork("echo fork >> a; git commit -qam two; git branch -f folder/one; git pack-refs --all --prune")
    assert user.fork("git rev-parse folder/one main") == 2 * user.fork("git rev-parse HEAD")
    assert user.fork("git rev-parse folder/two") == user.sh("git rev-parse HEAD")
    user.mudroom("apply", "f", "--yes", "--git")
    assert user.sh("git log --format=%s folder/one; git log --format=%s folder/two") == "two\none\none\n"


def test_packed_refs_of_a_fork_may_be_anything(user: User) -> None:
    names = [
        b"refs/heads/" + name for name in (b"a\0b", 300 * b"n", b"x", b"x/y", b"../../up", b"main/below", b".lock")
    ]
    rows = b"".join(b"%s %s\n" % (b"1" * 40, name) for name in names)
    shown = rows.decode().replace("\0", "\\0")
    user.fork(f"git commit -q --allow-empty -m two; printf '{shown}' > .git/packed-refs")
    assert user.fork("git log --format=%s").split() == ["two", "one"]
    assert not (user.project / "up").exists()


def test_a_branch_that_the_fork_has_packed_stands_still(user: User) -> None:
    user.sh("git pack-refs --all")
    user.fork("echo fork >> a; git commit -qam two")
    user.sh("echo user >> a; git commit -qam mine")
    user.fork("git pack-refs --all")
    assert user.fork("git log --format=%s").split() == ["two", "one"]
    user.mudroom("apply", "f", "--yes", "--git")
    assert (user.project / "a").read_text() == "one\nuser\n"
    assert user.sh("git log --format=%s mudroom/f").split() == ["two", "one"]


def test_a_file_that_the_fork_added_and_removed_again_is_not_based_on_the_users(user: User) -> None:
    """The fork has hidden the user's file since it removed its own, so that no command has seen it."""
    user.fork("echo fork > n")
    (user.project / "n").write_text("user\n")
    user.fork("rm n")
    user.fork("test ! -e n; echo again > n")
    said = user.apply(code=3)
    assert "n: " in said
    assert (user.project / "n").read_text() == "user\n"
