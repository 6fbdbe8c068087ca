"""The rows of the table in docs/GIT.md: a test each, with real git."""

from __future__ import annotations

import ast
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from git_history import environment

from conftest import Place, full_listing
from mudroom.errors import MudroomError, UsageError
from mudroom.ext.commits.git.transfer import Commits
from mudroom.ext.commits.session import bring_commits
from mudroom.session import LandingResult, Session

ROOT = Path(__file__).parents[4]
SETTINGS = "git config user.name T; git config user.email t@example.org; git config gc.auto 0"
CLONE = "git -c protocol.file.allow=always clone -q"
MANY = 100_000
COMMIT = "echo two >> a; echo new > new; git add -A; git commit -qm two"


class Desk:
    """A user and a fork in one project, by the API of a session."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._session: Session | None = None

    @property
    def session(self) -> Session:
        if self._session is None:
            self._session = self.place.session()
        return self._session

    def sh(self, script: str, cwd: Path | None = None, *, fails: bool = False) -> str:
        done = subprocess.run(
            ["sh", "-ec", script], cwd=cwd or self.place.project, env=environment(self.place.home), text=True,
            capture_output=True, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert fails or done.returncode == 0, f"{script}: {done.stdout}{done.stderr}"
        return done.stdout + (done.stderr if fails else "")

    def begin(self, options: str = "") -> None:
        self.place.write("a", "one\n")
        self.place.write("src/b", "b\n")
        self.sh(f"git init -q -b main {options}; {SETTINGS}; git add -A; git commit -qm one")

    def fork(self, script: str, name: str = "f") -> str:
        result = self.session.run([b"sh", b"-ec", script.encode()], fork=name)
        assert result.exit_code == 0, result.stdout + result.stderr
        return result.stdout.decode()

    def apply(self, name: str = "f", *, git: bool = True) -> LandingResult:
        with self.session.alone("a test"):
            return self.session.changes.apply(name, git=git)

    def commits(self, name: str = "f") -> Commits:
        with self.session.alone("a test"):
            return bring_commits(self.session, name)

    def undo(self) -> None:
        with self.session.alone("a test"):
            assert self.session.changes.undo().conflicts == ()

    def subjects(self, ref: str = "HEAD") -> list[str]:
        return self.sh(f"git log --format=%s {ref}").split()

    def require_sound(self) -> None:
        assert self.sh("git fsck --full --strict --no-dangling") == ""


def outcomes(landed: LandingResult) -> dict[str, tuple[str, str, str]]:
    """Return result, target and reason by ref."""
    refs = (outcome for result in landed.repositories for outcome in result.refs)
    return {one.ref.decode(): (one.result, one.target.decode(), one.reason) for one in refs}


@pytest.fixture
def desk(place: Place) -> Iterator[Desk]:
    yield Desk(place)


# --- the rows ---


def test_an_ordinary_repository(desk: Desk) -> None:
    desk.begin()
    before = desk.sh("git show-ref; git ls-files -s; git status --porcelain")
    desk.fork(
        f"{COMMIT}; git branch topic; git tag t; git tag -a -m t u; git notes add -m n; echo s >> a; git stash -q"
    )
    landed = desk.apply()
    assert landed.conflicts == () and landed.remaining == 0
    assert {result for result, _target, _reason in outcomes(landed).values()} == {"moved"}
    assert desk.subjects() == desk.subjects("topic") == ["two", "one"]
    assert desk.sh("git status --porcelain") == ""
    assert desk.sh("git stash list").count("\n") == 1
    desk.require_sound()
    desk.undo()
    assert desk.sh("git show-ref; git ls-files -s; git status --porcelain; git stash list") == before
    desk.require_sound()


def test_a_repository_without_a_commit(desk: Desk) -> None:
    desk.place.write("a", "one\n")
    desk.sh(f"git init -q -b main; {SETTINGS}")
    desk.fork(COMMIT)
    landed = desk.apply()
    assert landed.conflicts == ()
    assert desk.subjects() == ["two"]
    assert desk.sh("git status --porcelain") == ""
    desk.undo()
    assert desk.sh("git status --porcelain") == "?? a\n"
    assert desk.sh("git show-ref || true") == ""
    desk.require_sound()


def test_a_detached_head(desk: Desk) -> None:
    desk.begin()
    desk.sh("git switch -q --detach")
    desk.fork(COMMIT)
    landed = desk.apply()
    assert outcomes(landed)["HEAD"] == ("beside", "refs/heads/mudroom/f", "is on no branch in the fork")
    assert desk.subjects() == ["one"] and desk.subjects("mudroom/f") == ["two", "one"]
    assert b".git/HEAD" in {conflict.path for conflict in landed.conflicts}
    assert desk.sh("git status --porcelain") == "", "files come with their commits, or not at all"
    desk.sh("git merge -q mudroom/f")
    desk.require_sound()


OPERATIONS = {
    "a rebase": "git rebase -q topic || true",
    "a merge": "git merge -q topic || true",
    "a cherry-pick": "git cherry-pick topic || true",
    "a revert": "git revert --no-edit HEAD~1 || true",
    "a bisect": "git bisect start -q; git bisect bad; git bisect good HEAD~1",
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_that_is_not_finished(desk: Desk, operation: str) -> None:
    desk.begin()
    desk.sh("git switch -qc topic; echo topic >> a; git commit -qam topic; git switch -q main")
    desk.sh("echo two >> a; git commit -qam two; echo three >> a; git commit -qam three; " + OPERATIONS[operation])
    desk.fork("echo c > c; git stash list; git branch -f made; git tag t")
    before = desk.sh("git show-ref --head; ls .git")
    landed = desk.apply()
    assert landed.conflicts == ()
    assert (desk.place.project / "c").read_text() == "c\n"
    assert set(before.splitlines()) <= set(desk.sh("git show-ref --head; ls .git").splitlines())
    desk.sh("rm c")
    desk.fork("git add -A; git commit -qm finished --allow-empty || git commit -qm finished", "g")
    landed = desk.apply("g")
    assert "main" not in {target for result, target, _reason in outcomes(landed).values() if result == "moved"}
    for conflict in landed.conflicts:  # git merge fails before
        assert f"no file was applied: finish {operation} (git status), then git merge " in conflict.reason
    desk.require_sound()


@pytest.mark.parametrize("lock", ["index.lock", "HEAD.lock", "refs/heads/main.lock", "packed-refs.lock"])
def test_a_lock(desk: Desk, lock: str) -> None:
    desk.begin()
    desk.fork(COMMIT)
    path = desk.place.write(f".git/{lock}")
    landed = desk.apply()
    (result, target, reason) = outcomes(landed)["refs/heads/main"]
    if lock == "packed-refs.lock":
        assert result == "moved"
    else:
        assert (result, target) in (("beside", "refs/heads/mudroom/f"), ("left", ""))
        assert desk.subjects() == ["one"]
        assert "another git command" in f"{reason} {landed.conflicts}"
    path.unlink()
    desk.require_sound()


def test_a_linked_work_tree(desk: Desk) -> None:
    desk.begin()
    desk.sh("git worktree add -q ../tree -b topic")
    main = desk.place.project
    desk.place.project = desk.place.root / "tree"
    assert desk.fork("git status --porcelain") == ""
    desk.fork(COMMIT)
    landed = desk.apply()
    assert outcomes(landed)["refs/heads/topic"][0] == "moved"
    assert desk.subjects() == ["two", "one"]
    assert desk.sh("git status --porcelain; git status --porcelain", main) == ""
    assert (desk.place.project / ".git").is_file()
    desk.undo()
    assert desk.subjects() == ["one"] and desk.sh("git status --porcelain") == ""
    desk.require_sound()


def test_a_submodule(desk: Desk) -> None:
    desk.begin()
    desk.sh("cp -r project lib; cd project; git -c protocol.file.allow=always submodule --quiet add ../lib lib; "
            "git commit -qm sub", desk.place.root)  # fmt: skip
    desk.place.project /= "lib"
    desk.sh(SETTINGS)
    desk.fork(COMMIT)
    landed = desk.apply()
    assert outcomes(landed)["refs/heads/main"][0] == "moved"
    assert desk.subjects() == ["two", "one"] and desk.sh("git status --porcelain") == ""
    assert desk.sh("git status --porcelain", desk.place.project.parent) == " M lib\n"
    desk.undo()
    assert desk.subjects() == ["one"]
    desk.require_sound()


def test_submodules_in_the_project(desk: Desk) -> None:
    desk.begin()
    desk.sh("cp -r project lib; cd project; git -c protocol.file.allow=always submodule --quiet add ../lib lib; "
            f"git commit -qm sub; cd lib; {SETTINGS}", desk.place.root)  # fmt: skip
    desk.fork(f"cd lib; {COMMIT}; cd ..; git commit -qam outer")
    landed = desk.apply()
    assert landed.conflicts == ()
    assert desk.subjects() == ["outer", "sub", "one"]
    assert desk.sh("git log --format=%s", desk.place.project / "lib").split() == ["two", "one"]
    assert desk.sh("git status --porcelain; cd lib; git status --porcelain; git fsck --full --strict") == ""
    desk.undo()
    assert desk.sh("git status --porcelain; cd lib; git status --porcelain") == ""
    desk.require_sound()


def test_a_nested_repository(desk: Desk) -> None:
    desk.begin()
    desk.sh(f"mkdir vendor; cd vendor; git init -q -b main; {SETTINGS}; echo a > a; git add a; git commit -qm one")
    desk.fork(f"cd vendor; {COMMIT}")
    landed = desk.apply()
    assert landed.conflicts == ()
    assert desk.sh("git log --format=%s", desk.place.project / "vendor").split() == ["two", "one"]
    assert desk.sh("cd vendor; git status --porcelain; git fsck --full --strict") == ""
    desk.undo()
    assert desk.sh("cd vendor; git log --format=%s; git status --porcelain") == "one\n"


def test_a_bare_repository_in_the_tree(desk: Desk) -> None:
    desk.begin()
    desk.sh(f"{CLONE} --bare . store.git")
    config = (desk.place.project / "store.git/config").read_text()
    desk.fork("echo two >> a; git commit -qam two; git push -q ./store.git main; echo evil >> store.git/config")
    landed = desk.apply()
    assert landed.conflicts == ()
    assert (desk.place.project / "store.git/config").read_text() == config
    assert desk.sh("git -C store.git log --format=%s main").split() == ["two", "one"]
    assert desk.sh("git -C store.git fsck --full --strict") == ""


@pytest.mark.parametrize("hooks", ["hooks", ".githooks", ".husky", "tools/hooks"])
def test_hooks_in_the_tree(desk: Desk, hooks: str) -> None:
    desk.begin()
    desk.sh(f"git config core.hooksPath {hooks}")
    desk.fork(f"mkdir -p {hooks}; echo 'touch evil' > {hooks}/pre-commit; chmod +x {hooks}/pre-commit; {COMMIT}")
    assert "executes-later" in {
        flag
        for change in desk.session.changes.of("f").changes
        if change.path.endswith(b"pre-commit")
        for flag in change.flags
    }


@pytest.mark.parametrize("how", ["set src", "set --no-cone src", "set --sparse-index src"])
def test_a_sparse_checkout(desk: Desk, how: str) -> None:
    desk.place.write("other/c", "c\n")
    desk.begin()
    desk.sh(f"git sparse-checkout {how}")
    before = desk.sh("git status --porcelain; git ls-files -t")
    assert not (desk.place.project / "other").exists()
    assert desk.fork("git status --porcelain") == ""
    desk.fork("echo two >> src/b; git commit -qam two")
    landed = desk.apply()
    if "index" in how:
        assert outcomes(landed)["refs/heads/main"][:2] == ("beside", "refs/heads/mudroom/f")
        assert "the index is split or sparse" in landed.conflicts[0].reason
    else:
        assert landed.conflicts == ()
        assert desk.subjects() == ["two", "one"]
        assert desk.sh("git status --porcelain; git ls-files -t") == before
    assert not (desk.place.project / "other").exists()
    desk.require_sound()


def test_pointers_of_lfs(desk: Desk) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 5\n"
    desk.place.write(".gitattributes", "*.bin filter=lfs -text\n")
    desk.place.write("big.bin", pointer)
    desk.begin()
    desk.sh("git config filter.lfs.smudge 'touch smudged; cat'; git config filter.lfs.clean 'touch cleaned; cat'")
    desk.fork("git config --unset filter.lfs.clean; sed -i s/5/6/ big.bin; git commit -qam two")
    desk.apply()
    assert desk.subjects() == ["two", "one"]
    assert desk.sh("git show HEAD:big.bin") == pointer.replace("5", "6")
    assert sorted(path.name for path in desk.place.project.iterdir() if path.name.endswith("ed")) == []


def test_a_reftable(desk: Desk) -> None:
    desk.begin()
    desk.fork(COMMIT)
    desk.sh("git config core.repositoryFormatVersion 1; git config extensions.refStorage reftable")
    with pytest.raises(UsageError, match="keeps its branches as reftable, which mudroom cannot write"):
        desk.commits()
    with pytest.raises(UsageError, match="keeps its branches as reftable"):
        desk.apply()
    assert (desk.place.project / "a").read_text() == "one\n"
    desk.apply(git=False)
    assert (desk.place.project / "a").read_text() == "one\ntwo\n"


def test_sha256(desk: Desk) -> None:
    desk.begin("--object-format=sha256")
    desk.fork(f"{COMMIT}; git tag -a -m t t; git stash list")
    desk.apply()
    assert desk.subjects() == ["two", "one"]
    assert desk.sh("git status --porcelain") == ""
    desk.require_sound()
    desk.undo()
    assert desk.subjects() == ["one"] and desk.sh("git status --porcelain") == ""
    desk.require_sound()


@pytest.mark.parametrize("inside", [True, False])
def test_alternates(desk: Desk, inside: bool) -> None:
    desk.begin()
    store = "store" if inside else "../store"
    desk.sh(
        f"{CLONE} --bare . {store}; git repack -qad; echo $PWD/{store}/objects > .git/objects/info/alternates;"
        "git repack -qadl"
    )
    if not inside:
        result = desk.session.run([b"git", b"log", b"--format=%s"], fork="f")
        assert result.exit_code != 0 or result.stdout == b"one\n"
        return
    desk.fork(COMMIT)
    desk.apply()
    assert desk.subjects() == ["two", "one"]
    desk.require_sound()


@pytest.mark.parametrize("kind", ["replace", "graft"])
def test_replaced_objects(desk: Desk, kind: str) -> None:
    desk.begin()
    desk.sh("echo 2 >> a; git commit -qam second; echo 3 >> a; git commit -qam third")
    desk.sh(
        "git replace --graft HEAD HEAD~2"
        if kind == "replace"
        else "echo $(git rev-parse HEAD HEAD~2) > .git/info/grafts"
    )
    desk.fork("echo two >> a; git commit -qam two; git replace -f HEAD HEAD~1")
    before = desk.sh("git for-each-ref refs/replace; cat .git/info/grafts || true", fails=True)
    landed = desk.apply()
    assert desk.sh("git for-each-ref refs/replace; cat .git/info/grafts || true", fails=True) == before
    assert [one for one in outcomes(landed) if one.startswith("refs/replace/") and outcomes(landed)[one][0] == "left"]
    assert desk.sh("GIT_NO_REPLACE_OBJECTS=1 git log -1 --format=%s") == "two\n"
    assert desk.sh("git status --porcelain") == ""


def test_a_shallow_clone(desk: Desk) -> None:
    desk.begin()
    desk.sh("echo 2 >> a; git commit -qam second")
    desk.sh(f"{CLONE} --depth 1 file://$PWD/project clone; cd clone; {SETTINGS}", desk.place.root)
    desk.place.project = desk.place.root / "clone"
    desk.fork(COMMIT)
    desk.apply()
    assert desk.subjects() == ["two", "second"]
    assert desk.sh("git status --porcelain") == ""
    desk.require_sound()
    desk.undo()
    assert desk.subjects() == ["second"]


def test_a_partial_clone(desk: Desk) -> None:
    desk.begin()
    desk.sh("git config uploadpack.allowFilter true; git config uploadpack.allowAnySHA1InWant true")
    desk.sh("echo 2 >> a; git commit -qam second")
    desk.sh(f"{CLONE} --filter=blob:none file://$PWD/project clone; cd clone; {SETTINGS}", desk.place.root)
    desk.place.project = desk.place.root / "clone"
    desk.fork(COMMIT)
    desk.apply()
    assert desk.subjects() == ["two", "second", "one"]
    assert desk.sh("git status --porcelain") == ""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["packed", pytest.param("loose", marks=pytest.mark.deep)])
def test_many_refs(desk: Desk, kind: str) -> None:
    desk.begin()
    head = desk.sh("git rev-parse HEAD").strip()
    if kind == "packed":
        lines = "".join(f"{head} refs/tags/t{number:06}\n" for number in range(MANY))
        desk.place.write(".git/packed-refs", "# pack-refs with: peeled fully-peeled sorted \n" + lines)
    else:
        for number in range(MANY):
            desk.place.write(f".git/refs/tags/{number // 1000}/{number}", head + "\n")
    desk.fork(f"{COMMIT}; git tag new")
    landed = desk.apply()
    assert {name: result for name, (result, _target, _reason) in outcomes(landed).items()} == {
        "refs/heads/main": "moved", "refs/tags/new": "moved",
    }  # fmt: skip
    assert desk.subjects() == ["two", "one"]
    desk.undo()
    assert desk.subjects() == ["one"]
    assert desk.sh("git tag | wc -l").strip() == str(MANY)


@pytest.mark.parametrize("damage", ["blob", "commit", "ref", "index", "HEAD", "config"])
def test_a_repository_that_is_broken(desk: Desk, damage: str) -> None:
    desk.begin()
    desk.sh("echo 2 >> a; git commit -qam second")
    desk.fork("echo new > new; git add new; git commit -qm two")
    git = desk.place.project / ".git"
    expression = {"blob": "HEAD~1:a", "commit": "HEAD~1"}.get(damage)
    if expression is not None:
        name = desk.sh(f"git rev-parse {expression}").strip()
        (git / "objects" / name[:2] / name[2:]).unlink()
    else:
        path = git / {"ref": "refs/heads/other", "index": "index", "HEAD": "HEAD", "config": "config"}[damage]
        path.write_bytes(b"\0broken\n")
    before = {name: stamp for name, stamp in full_listing(git).items() if not name.startswith("objects")}
    try:
        landed = desk.apply()
    except MudroomError as error:
        assert "\n" not in str(error)
        assert {name: stamp for name, stamp in full_listing(git).items() if not name.startswith("objects")} == before
    else:
        assert landed.conflicts or (desk.place.project / "new").read_text() == "new\n"
    if damage in ("blob", "commit"):
        assert "missing" in desk.sh("git fsck --full", fails=True)


def test_hostile_objects(desk: Desk) -> None:
    desk.begin()
    desk.fork(
        "blob=$(echo evil | git hash-object -w --stdin);"
        "inner=$(printf '100755 blob %s\\tpre-commit\\n' $blob | git mktree); "
        "tree=$(printf '040000 tree %s\\t.GIT\\n' $inner | git mktree); "
        "git update-ref refs/heads/evil $(git commit-tree -m evil $tree)"
    )
    before = full_listing(desk.place.project)
    for bring in (desk.commits, desk.apply):
        with pytest.raises(UsageError, match=r"(?i)\.git") as refused:
            bring()
        assert "\n" not in str(refused.value)
    assert full_listing(desk.place.project) == before


MEANWHILE = {
    "commits": "echo mine > mine; git add mine; git commit -qm mine",
    "switches": "git switch -qc elsewhere",
    "rebases": "git commit -q --amend -m amended",
    "collects": "echo x > x; git add x; git rm -qf x; git gc -q --prune=now",
}


@pytest.mark.parametrize("what", MEANWHILE)
def test_the_user_meanwhile(desk: Desk, what: str) -> None:
    desk.begin()
    desk.fork(COMMIT)
    desk.sh(MEANWHILE[what])
    before = desk.sh("git show-ref --heads")
    landed = desk.apply()
    result, target, _reason = outcomes(landed)["refs/heads/main"]
    assert desk.sh(f"git log -1 --format=%s {target}") == "two\n"
    if what in ("commits", "rebases"):
        assert (result, target) == ("beside", "refs/heads/mudroom/f")
        assert "has moved in the project meanwhile" in landed.conflicts[0].reason
        assert desk.sh("git status --porcelain") == ""
        assert set(before.splitlines()) < set(desk.sh("git show-ref --heads").splitlines())
    desk.require_sound()
    desk.undo()
    assert desk.sh("git show-ref --heads") == before
    desk.require_sound()


@pytest.mark.parametrize("what", MEANWHILE)
def test_the_user_meanwhile_and_a_branch_of_the_fork(desk: Desk, what: str) -> None:
    """HEAD goes to the branch with all files, or neither does: a merge by the user takes the commits then."""
    desk.begin()
    desk.fork(f"git switch -qc topic; {COMMIT}")
    desk.sh(MEANWHILE[what])
    refs, head = desk.sh("git show-ref --heads"), desk.sh("git symbolic-ref HEAD; git rev-parse HEAD")
    landed = desk.apply()
    assert outcomes(landed)["refs/heads/topic"][0] == "moved"
    assert desk.sh("git status --porcelain") == ""
    if what == "collects":
        assert outcomes(landed)["HEAD"] == ("moved", "refs/heads/topic", "")
    else:
        assert desk.sh("git symbolic-ref HEAD; git rev-parse HEAD") == head
        assert [conflict.path for conflict in landed.conflicts] == [b".git/HEAD"]
        assert landed.conflicts[0].reason == (
            "has moved in the project meanwhile; its commits are in topic, and no file was applied: "
            "git merge topic, then mudroom apply f"
        )
    desk.require_sound()
    desk.undo()
    assert desk.sh("git show-ref --heads") == refs
    if what in ("commits", "switches"):
        desk.apply()
        desk.sh("git merge -q --no-edit topic")
        merged = desk.sh("git rev-parse HEAD")
        assert desk.apply().conflicts == ()
        assert desk.sh("git rev-parse HEAD; git status --porcelain") == merged
    desk.require_sound()


@pytest.mark.parametrize(
    "how", ["git init -q -b main made; cd made; " + SETTINGS, f"{CLONE} --no-hardlinks . made; cd made; " + SETTINGS]
)
def test_a_repository_that_the_fork_made(desk: Desk, how: str) -> None:
    desk.begin()
    desk.fork(f"{how}; echo m > m; git add m; git commit -qm made")
    landed = desk.apply()
    assert landed.conflicts == ()
    assert desk.sh("git -C made log -1 --format=%s; git -C made status --porcelain; git -C made fsck") == "made\n"
    desk.undo()
    assert not (desk.place.project / "made").exists()


def test_a_work_tree_that_the_fork_made(desk: Desk) -> None:
    desk.begin()
    desk.fork(f"git worktree add -q -b topic wt; cd wt; {COMMIT}")
    landed = desk.apply()
    assert landed.conflicts == ()
    assert not (desk.place.project / "wt").exists() and not (desk.place.project / ".git/worktrees").exists()
    assert desk.subjects("topic") == ["two", "one"]
    desk.require_sound()


def test_masked_files(desk: Desk) -> None:
    desk.place.write("server.key", "tracked\n")
    desk.place.write("other.key", "tracked\n")
    desk.begin()
    desk.place.write("other.key", "rotated\n")
    desk.place.write(".env", "untracked\n")
    assert desk.fork("cat server.key other.key .env; git status --porcelain") == "tracked\n"
    desk.fork(COMMIT)
    desk.apply()
    assert desk.sh("git show --format= --name-only").split() == ["a", "new"]
    assert desk.sh("git status --porcelain").splitlines() == [" M other.key", "?? .env"]
    assert (desk.place.project / "other.key").read_text() == "rotated\n"


# --- the table ---


def test_each_row_names_a_test_and_each_test_has_a_row() -> None:
    names = [node.name for node in ast.parse(Path(__file__).read_bytes()).body if isinstance(node, ast.FunctionDef)]
    tests = [name for name in names if name.startswith("test_") and not name.startswith("test_each_row")]
    rows = re.findall(r"^\| .*\| `(test_\w+)` \|$", (ROOT / "docs/GIT.md").read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(set(tests))
    assert os.path.exists(ROOT / "docs/GIT.md")
