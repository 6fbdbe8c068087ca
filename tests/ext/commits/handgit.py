"""Git objects made by hand, such as no git would write; and copies of a project that stand for the view of a fork."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import zlib
from pathlib import Path

from mudroom.errors import UsageError
from mudroom.ext.commits.core.emptied import Emptied
from mudroom.ext.commits.core.ref_plan import RefMove, RefPlanOptions, RepositoryMoves
from mudroom.ext.commits.git.commits import branch_name, directories_in_view, require_dulwich, require_free
from mudroom.ext.commits.git.fork_refs import ForkFiles
from mudroom.ext.commits.git.ref_transaction import RefFailure, perform_moves, reversed_moves
from mudroom.ext.commits.git.transfer import Commits, ForkSide, RepositorySides, open_transfer
from mudroom.stage.source import OpenSource, Source
from mudroom.vault.git.place import find_repository
from worktree import git as git
from worktree import with_settings as with_settings

WHO = b"T <t@example.org> 1700000000 +0000"


def fsck(directory: Path) -> str:
    """What git finds wrong, or left over."""
    done = subprocess.run(["git", "fsck", "--strict"], cwd=directory, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def bring_commits(
    project: bytes, repository: bytes, view: Source, *, branch: str | None = None, fork: str = "agent"
) -> Commits:
    """Bring the commits at HEAD of a view, as ``apply --commits`` does without an apply's directory."""
    require_dulwich()
    place = find_repository(project, repository)
    git, common = directories_in_view(project, repository, view, place)
    name = branch_name(branch, fork)
    sides = RepositorySides(repository, place, git, common, b"")
    with open_transfer(sides, ForkSide(fork, view, ForkFiles(view), ()), Emptied(())) as transfer:
        before = require_free(transfer.live, name)
        transfer.require_forward(before, name)
        moves, result = transfer.plan(RefPlanOptions(fork.encode(), "no files are applied", name))
        transfer.require_refs(result)
        transfer.add_objects()
        failures = perform_moves(moves)
        if failures:
            raise UsageError("; ".join(failure.reason for failure in failures))
        return Commits(os.fsdecode(name), transfer.head.decode(), before.decode(), result, "")


def moves_of(project: Path, *moves: RefMove, checkout: tuple[str, str] | None = None) -> RepositoryMoves:
    """Return moves in the repository of a project. ``checkout``: the checked-out commit before and after."""
    place = find_repository(os.fsencode(project), b".git")
    commits = (checkout[0].encode(), checkout[1].encode()) if checkout is not None else None
    work_tree = os.fsencode(os.path.realpath(project))
    return RepositoryMoves(b".git", place.git, place.common, moves, b"mudroom: apply of agent", commits, work_tree)


class Copy:
    """A project with a repository, and a copy of it that an agent has had its way with."""

    def __init__(self, root: Path) -> None:
        self.project, self.fork = root / "project", root / "fork"
        self.project.mkdir(exist_ok=True)
        (self.project / "file").write_text("one\n")
        git(self.project, "git init -q; git add -A; git commit -qm one")
        shutil.copytree(self.project, self.fork, symlinks=True)

    def agent(self, script: str) -> str:
        return git(self.fork, script)

    def bring(self, branch: str | None = None, repository: bytes = b".git", fork: str = "agent") -> Commits:
        with OpenSource(os.fsencode(self.fork)) as view:
            return bring_commits(os.fsencode(self.project), repository, view, branch=branch, fork=fork)

    def take_back(self, commits: Commits) -> list[RefFailure]:
        """Move the branch of ``bring`` back, as an undo does."""
        move = RefMove(commits.branch.encode(), commits.before.encode(), commits.head.encode())
        return perform_moves(reversed_moves(moves_of(self.project, move)), back=True)

    # --- by hand ---

    def path_of(self, name: str) -> Path:
        return self.fork / ".git/objects" / name[:2] / name[2:]

    def put(self, name: str, stored: bytes) -> None:
        path = self.path_of(name)
        path.parent.mkdir(exist_ok=True)
        if path.exists():
            path.chmod(0o644)
        path.write_bytes(stored)

    def object(self, kind: str, data: bytes) -> str:
        whole = f"{kind} {len(data)}\0".encode() + data
        name = hashlib.sha1(whole).hexdigest()
        self.put(name, zlib.compress(whole))
        return name

    def tree(self, *entries: tuple[str, bytes, str]) -> str:
        return self.object("tree", b"".join(tree_entry(*one) for one in entries))

    def commit(
        self, tree: str, *parents: str, author: bytes = WHO, committer: bytes = WHO, rest: bytes = b"\nevil\n"
    ) -> str:
        lines = [b"tree " + tree.encode(), *(b"parent " + one.encode() for one in parents)]
        return self.object(
            "commit", b"\n".join([*lines, b"author " + author, b"committer " + committer]) + b"\n" + rest
        )

    def set_head(self, name: str) -> None:
        (self.fork / ".git/HEAD").write_text(name + "\n")


def tree_entry(mode: str, name: bytes, target: str) -> bytes:
    return mode.encode() + b" " + name + b"\0" + bytes.fromhex(target)


def pack_header(kind: int, size: int) -> bytes:
    """Kind and size of an entry of a pack: gitformat-pack(5)."""
    found = [kind << 4 | size & 15]
    size >>= 4
    while size:
        found[-1] |= 0x80
        found.append(size & 0x7F)
        size >>= 7
    return bytes(found)
