"""Random git commands, as lines for ``sh``. The same for the user and in a fork; each may fail."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from git_history import BINARY, LINK, PROGRAM, SECRETS, TEXTS, UNTRACKED_SECRET

FINISH = (
    "git add -A; git rebase --continue || git rebase --skip || git rebase --abort;"
    " git cherry-pick --continue || git cherry-pick --abort; git revert --abort; git merge --abort;"
    " git commit -qm finished"
)
"""Ends an operation that a conflict has stopped."""
COLLECTING = re.compile(r"git (gc|repack|prune)")
"""Commands that remove directories of objects."""
PRUNING = re.compile(r"prune=now|repack|git prune")
"""Commands that remove objects which no ref of the project reaches, though a fork may need them."""


class Names(NamedTuple):
    """Refs of one side, by short name."""

    branches: Sequence[str]
    tags: Sequence[str]


class CommandSource:
    """Random commands of one side. ``prefix`` begins the names of what it makes, so that both sides' are told apart."""

    def __init__(self, chance: random.Random, prefix: str) -> None:
        self._chance, self._prefix, self._count = chance, prefix, 0

    def script(self, names: Names) -> str:
        """Return one to three commands."""
        weights = [weight for weight, _make in _KINDS]
        makers = self._chance.choices(
            [make for _weight, make in _KINDS], weights, k=self._chance.choice((1, 1, 1, 2, 3))
        )
        return "; ".join(make(self, names) for make in makers)

    # --- words ---

    def new(self, stem: str) -> str:
        self._count += 1
        return f"{self._prefix}{stem}{self._count}"

    def text(self) -> str:
        return self._chance.choice(TEXTS)

    def any_file(self) -> str:
        return self._chance.choice((*TEXTS, BINARY, PROGRAM, LINK, SECRETS[0], "notes", "src/lib"))

    def branch(self, names: Names) -> str:
        return self._chance.choice(tuple(names.branches) or ("main",))

    def commit(self, names: Names) -> str:
        """Return an expression for a commit."""
        tags = tuple(names.tags) or ("HEAD",)
        return self._chance.choice(
            (self.branch(names), self.branch(names) + "~1", "HEAD~1", "HEAD~2", self._chance.choice(tags))
        )

    def pick(self, *choices: str) -> str:
        return self._chance.choice(choices)

    def number(self, end: int) -> int:
        return self._chance.randrange(end)

    # --- files ---

    def append(self, _names: Names) -> str:
        path = self.text()
        return f"mkdir -p $(dirname {path}); echo {self.new('line')} >> {path}"

    def replace_line(self, _names: Names) -> str:
        path = self.text()
        edit = f"sed '{1 + self.number(12)}s/.*/{self.new('line')}/' {path} > .sed.tmp"
        return f"test ! -s {path} || {{ {edit}; cat .sed.tmp > {path}; rm -f .sed.tmp; }}"

    def create(self, _names: Names) -> str:
        folder = self.pick(".", "src", "new/folder")
        return f"mkdir -p {folder}; echo {self.new('text')} > {folder}/{self.new('file')}.txt"

    def binary(self, _names: Names) -> str:
        return f"mkdir -p data; printf 'b\\000{self.new('binary')}' > {BINARY}"

    def chmod(self, _names: Names) -> str:
        return f"chmod {self.pick('+x', '-x')} {self.pick(PROGRAM, self.text())}"

    def link(self, _names: Names) -> str:
        return f"ln -sfn {self.text()} {LINK}"

    def remove(self, _names: Names) -> str:
        return f"rm -f {self.pick(self.text(), BINARY, LINK)}"

    def move(self, _names: Names) -> str:
        return f"mv {self.text()} {self.new('moved')}.txt"

    # --- commits ---

    def add(self, _names: Names) -> str:
        return self.pick(
            "git add -A", "git add -A", "git add -u", f"git add {self.text()}", f"git add -f {UNTRACKED_SECRET}"
        )

    def commit_all(self, names: Names) -> str:
        change = self.append(names)
        commit = self.pick("git add -A; git commit -qm", "git commit -qam", "git add -u; git commit -qm")
        return f"{change}; {commit} {self.new('c')}"

    def commit_staged(self, _names: Names) -> str:
        return f"git commit -qm {self.new('c')}"

    def amend(self, _names: Names) -> str:
        return f"git commit -q --amend {self.pick('-a ', '')}-m {self.new('amended')}"

    # --- branches ---

    def make_branch(self, names: Names) -> str:
        name = self.pick(self.new("b"), self.new("dir/b"), self.branch(names))
        return f"git branch {self.pick('', '-f ')}{name} {self.commit(names)}"

    def delete_branch(self, names: Names) -> str:
        return f"git branch -D {self.branch(names)}"

    def rename_branch(self, names: Names) -> str:
        return f"git branch -m {self.branch(names)} {self.new('renamed')}"

    def switch(self, names: Names) -> str:
        return self.pick(
            f"git switch -q {self.branch(names)}",
            f"git switch -q {self.branch(names)}",
            f"git switch -q -c {self.new('s')}",
            f"git switch -q -c {self.new('s')} {self.commit(names)}",
            f"git switch -q --detach {self.commit(names)}",
            f"git switch -q -f {self.branch(names)}",
        )

    def merge(self, names: Names) -> str:
        return f"git merge -q {self.pick('', '', '--no-ff ', '--squash ', '-X ours ')}{self.commit(names)}"

    def rebase(self, names: Names) -> str:
        return f"git rebase -q {self.pick(self.commit(names), 'HEAD~2 --exec true', '--onto old HEAD~2')}"

    def cherry_pick(self, names: Names) -> str:
        return f"git cherry-pick {self.commit(names)}"

    def revert(self, _names: Names) -> str:
        return "git revert --no-edit HEAD"

    def finish(self, _names: Names) -> str:
        return FINISH

    def stash(self, _names: Names) -> str:
        return self.pick(
            "git stash push -q", "git stash push -q -u", f"git stash push -q -m {self.new('m')}", "git stash push -q -a"
        )

    def unstash(self, _names: Names) -> str:
        return self.pick("git stash pop -q", "git stash apply -q", "git stash drop -q", "git stash pop -q --index")

    def reset(self, names: Names) -> str:
        how = self.pick("--soft", "--mixed", "--hard", "--hard", "--keep")
        return f"git reset -q {how} {self.pick('HEAD', 'HEAD~1', self.commit(names))}"

    def restore(self, _names: Names) -> str:
        return f"git restore {self.pick('--staged ', '', '-s HEAD~1 ')}{self.pick('.', self.any_file())}"

    def tag(self, names: Names) -> str:
        return self.pick(
            f"git tag {self.new('t')} {self.commit(names)}",
            f"git tag -a -m t {self.new('a')} {self.commit(names)}",
            f"git tag -f {self.pick(*names.tags, 'v1')} {self.commit(names)}",
            f"git tag -d {self.pick(*names.tags, 'v1')}",
        )

    def note(self, names: Names) -> str:
        return f"git notes add -f -m {self.new('note')} {self.commit(names)}"

    def git_remove(self, _names: Names) -> str:
        return f"git rm -rq {self.pick('', '--cached ', '-f ')}{self.any_file()}"

    def git_move(self, _names: Names) -> str:
        return f"git mv {self.any_file()} {self.new('moved')}"

    def worktree(self, names: Names) -> str:
        return self.pick(
            f"git worktree add -q {self.new('wt')} {self.pick('', '--detach ')}",
            f"git worktree add -q -b {self.new('w')} {self.new('wt')} {self.commit(names)}",
            "git worktree prune",
        )

    def store(self, _names: Names) -> str:
        return self.pick(
            "git gc -q",
            "git gc -q",
            "git gc -q --prune=now",
            "git repack -qad",
            "git pack-refs --all --prune",
            "git prune --expire=now",
            "git update-index -q --refresh",
            "git status -s > /dev/null",
        )


_KINDS: tuple[tuple[int, Callable[[CommandSource, Names], str]], ...] = (
    (6, CommandSource.append),
    (5, CommandSource.replace_line),
    (3, CommandSource.create),
    (2, CommandSource.binary),
    (2, CommandSource.chmod),
    (1, CommandSource.link),
    (2, CommandSource.remove),
    (2, CommandSource.move),
    (5, CommandSource.add),
    (9, CommandSource.commit_all),
    (4, CommandSource.commit_staged),
    (3, CommandSource.amend),
    (4, CommandSource.make_branch),
    (2, CommandSource.delete_branch),
    (1, CommandSource.rename_branch),
    (5, CommandSource.switch),
    (5, CommandSource.merge),
    (3, CommandSource.rebase),
    (3, CommandSource.cherry_pick),
    (2, CommandSource.revert),
    (7, CommandSource.finish),
    (4, CommandSource.stash),
    (4, CommandSource.unstash),
    (4, CommandSource.reset),
    (3, CommandSource.restore),
    (4, CommandSource.tag),
    (2, CommandSource.note),
    (2, CommandSource.git_remove),
    (2, CommandSource.git_move),
    (2, CommandSource.worktree),
    (5, CommandSource.store),
)
