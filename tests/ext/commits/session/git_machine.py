"""A user and two forks at work in one repository, step by step, with the checks after each step.

A step is a value, so a run is a list that can be repeated, and shortened until each step is needed (``shorten``).
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from git_commands import COLLECTING, PRUNING, CommandSource, Names
from git_history import START, environment, make_package_repository, make_repository

from conftest import Listing, Place, full_listing, listing
from mudroom.core.git.outcome import RefOutcome
from mudroom.errors import UsageError
from mudroom.ext.commits.core.ref_plan import HEAD, STASH
from mudroom.ext.commits.session import bring_commits
from mudroom.sandbox.client.client import Client
from mudroom.stage.layers.layer import remove_tree

EMPTY_BLOB = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
FORKS = ("a", "b")
KINDS = ("generated", "packed", "package")
"""Repositories: with loose objects, with packs, and of the files of an installed package."""
_MARK = "@@@\n"
_TOKEN = re.compile(rb"u(?:work|line|text)\d+")
"""Words of which the user writes each once."""
_BEFORE = "grep -rhoE --exclude-dir=.git 'u(work|line|text)[0-9]+' . 2>/dev/null; echo @@@; "
_AFTER = """
export GIT_OPTIONAL_LOCKS=0
echo @@@; git for-each-ref --format='%(objectname) %(refname)'
echo @@@; git symbolic-ref -q HEAD; git rev-parse -q --verify HEAD
echo @@@; git rev-list -g refs/stash 2>/dev/null
echo @@@; git status --porcelain
echo @@@; find . -path ./.git -prune -o -type f -empty -print
echo @@@; git fsck --full --strict --no-dangling 2>&1 | grep -v '^notice: '
"""
_STATUS = "GIT_OPTIONAL_LOCKS=0 git status --porcelain --untracked-files=no"
_LOOK = """
git for-each-ref --format='%(objectname) %(refname)'
echo @@@; git symbolic-ref -q HEAD || git rev-parse -q --verify HEAD
echo @@@; git rev-list -g refs/stash 2>/dev/null
echo @@@; git ls-files -s
echo @@@; git ls-tree -r HEAD 2>/dev/null
echo @@@; git rev-list --all --reflog --ignore-missing HEAD -- 2>/dev/null || git rev-list --all --reflog
echo @@@; git cat-file --batch-check='%(objectname)' --batch-all-objects
echo @@@; git fsck --full --strict --no-dangling 2>&1 | grep -v '^notice: '
"""


class Step(NamedTuple):
    verb: str
    fork: str = ""
    word: str = ""
    """A script, a file, the name of a checkpoint or of an apply."""


class Look(NamedTuple):
    """The project as git and the user see it."""

    refs: dict[str, str]
    head: str
    stashes: tuple[str, ...]
    entries: dict[str, str]
    """The index: mode, id and stages by path."""
    tree: dict[str, str]
    """The same of the commit at HEAD."""
    files: Listing
    """The work tree."""
    commits: frozenset[str]
    """All that refs and their logs reach."""
    objects: frozenset[str]
    problems: str
    """Output of git fsck."""

    @property
    def visible(self) -> tuple[Any, ...]:
        """What an undo restores."""
        return (self.refs, self.head, self.stashes, self.entries, self.files)

    @property
    def staged(self) -> dict[str, str]:
        """Entries of the index that differ from the commit at HEAD; "" for a removed one."""
        paths = self.entries.keys() | self.tree.keys()
        return {path: self.entries.get(path, "") for path in paths if self.entries.get(path) != self.tree.get(path)}

    @property
    def tokens(self) -> set[bytes]:
        return {token for kind, _mode, data in self.files.values() if kind == "file" for token in _TOKEN.findall(data)}


class ForkLook(NamedTuple):
    """A fork as its last command saw it."""

    refs: dict[str, str]
    head: str
    commit: str
    stashes: tuple[str, ...]
    status: list[str]
    empty: list[str]
    problems: str


class Applied(NamedTuple):
    number: int
    """The step of the apply."""
    before: Look
    after: Look


class Finding(AssertionError):
    """A check that failed."""


class GitMachine:
    def __init__(self, client: Client, kind: str, seed: str) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="mudroom-git-"))
        self.place = Place(self.root, client)
        self._chance = random.Random(seed)
        self._environment = environment(self.place.home)
        self._number = 0
        self._merged_work_trees: set[str] = set()
        """Directories that ``git add`` of a fork had made links to commits, and that the user has merged."""
        if kind == "package":
            make_package_repository(self.place.project, self.place.home, "h11")
        else:
            make_repository(self.place.project, self.place.home, random.Random(seed))
        if kind == "packed":
            self._sh("git gc -q; git pack-refs --all")
        self.session = self.place.session()
        self.steps: list[Step] = []
        self.counts: Counter[str] = Counter()
        self.now = self._look()
        self._listing = full_listing(self.place.project)
        self._user = CommandSource(self._chance, "u")
        self._agent = {fork: CommandSource(self._chance, fork) for fork in FORKS}
        self._points: dict[str, list[str]] = {fork: [] for fork in FORKS}
        self.forks: dict[str, ForkLook] = {}
        self._seen: dict[str, set[bytes]] = {fork: set() for fork in FORKS}
        self._pruned: set[str] = set()
        """Forks in which objects may be missing: git has removed them at the user's command, or has removed directories
        of objects in the fork, and those hide what the user adds there later."""
        self._dropped: set[bytes] = set()
        self._put: dict[bytes, int] = {}
        self._applied: dict[str, Applied] = {}
        self._values: set[str] = set()
        self._user_commits: set[str] = set()
        self._learn(self.now)

    def close(self) -> None:
        self.place.close()
        remove_tree(os.fsencode(self.root))  # the launcher may remove work directories meanwhile

    # --- the choice of steps ---

    def choose(self) -> Step:
        """Return a random next step."""
        chance, fork = self._chance, self._chance.choice(FORKS)
        verbs, weights = zip(*_VERBS.items(), strict=True)
        verb = chance.choices(verbs, weights)[0]
        if verb == "user":
            return Step(verb, word=self._user.script(_names(self.now.refs)))
        if verb == "write":
            return Step(verb, word=f"user-{chance.randrange(4)}.txt")
        if verb == "exec":
            known = self.forks.get(fork)
            return Step(verb, fork, self._agent[fork].script(_names(known.refs if known else self.now.refs)))
        if verb == "checkpoint":
            return Step(verb, fork, f"p{self._number}")
        if verb == "rollback":
            return Step(verb, fork, chance.choice(self._points[fork] or [""]))
        if verb in ("undo", "redo"):
            return Step(verb, word=chance.choice(["", "", "", *self._applied]))
        if verb == "decide":
            return Step(verb, fork, chance.choice(("ours", "theirs")))
        return Step(verb, fork)

    # --- the steps ---

    def perform(self, step: Step) -> None:
        """Perform a step and check the project. Raise Finding if a check fails."""
        self.steps.append(step)
        self._number += 1
        before = self.now
        perform: Callable[[Step], None] = getattr(self, f"do_{step.verb}")
        try:
            perform(step)
        except UsageError as error:
            self.counts[f"{step.verb} refused: {re.sub(r'[0-9a-f]{6,}|[0-9]+', 'N', str(error))[:90]}"] += 1
            self.now = self._look()
            self._require(before == self.now, "a refusal changed something", _difference(before, self.now))
        self.counts[step.verb] += 1
        self._sound(self.now)

    def do_user(self, step: Step) -> None:
        self._sh(_dated(step.word, self._number))
        if PRUNING.search(step.word):
            self._pruned |= {*FORKS}
        self._after_user()

    def do_write(self, step: Step) -> None:
        (self.place.project / step.word).write_text(f"uwork{self._number}\n")
        self._after_user()

    def _after_user(self) -> None:
        before, self.now = self.now, self._look()
        for token in self.now.tokens - before.tokens:
            self._put[token] = self._number
        self._user_commits |= self.now.commits - before.commits
        self._merged_work_trees |= _work_trees_of_forks(self.now)
        self._learn(self.now)
        self._listing = full_listing(self.place.project)

    def do_exec(self, step: Step) -> None:
        if COLLECTING.search(step.word):
            self._pruned.add(step.fork)
        self._in_fork(step.fork, step.word)
        self._untouched("a command in a fork")

    def _in_fork(self, fork: str, script: str) -> ForkLook:
        """Run a script in a fork, and look at the fork."""
        whole = f"{_BEFORE}({_dated(script, self._number)}) >/dev/null 2>&1\n{_AFTER}"
        result = self.session.run([b"sh", b"-c", whole.encode()], fork=fork)
        parts = result.stdout.decode().split(_MARK)
        self._require(len(parts) == 8, "the fork cannot be looked at", result.stdout.decode() + result.stderr.decode())
        seen, _nothing, refs, head, stashes, status, empty, problems = parts
        self._seen[fork] |= {token.encode() for token in seen.split()}
        heads = head.split()
        look = ForkLook(
            _refs(refs), heads[0] if heads else "", heads[-1] if heads else "", tuple(stashes.split()),
            status.splitlines(), empty.splitlines(), problems,
        )  # fmt: skip
        self.forks[fork] = look
        self._values |= {*look.refs.values(), *look.stashes, look.commit}
        if problems:
            self.counts["looks at a fork that lacks objects"] += 1
            self._require(fork in self._pruned, f"the repository is damaged in the fork {fork}", problems)
        return look

    def do_apply(self, step: Step) -> None:
        self._apply(step, git=False)

    def do_apply_git(self, step: Step) -> None:
        self._apply(step, git=True)

    def _apply(self, step: Step, *, git: bool) -> None:
        if self.session.vault.find(step.fork) is None:
            return
        fork, before = self._in_fork(step.fork, ":"), self.now
        was_clean = not self._sh(_STATUS)
        self._untouched("a look at a fork")
        with self.session.alone("apply"):
            landed = self.session.changes.apply(step.fork, git=git)
        self.now = self._look()
        self._kept(before, self.now, lambda token: token in self._seen[step.fork] or token in self._dropped)
        if landed.applied.name:
            self._applied[landed.applied.name] = Applied(self._number, before, self.now)
        self.counts[f"applies with {'conflicts' if landed.conflicts else 'no conflict'}"] += 1
        if not git:
            same = before._replace(files={}, objects=frozenset()) == self.now._replace(files={}, objects=frozenset())
            self._require(same, "an apply of files changed the repository", _difference(before, self.now))
        for result in landed.repositories:
            self._came_over(result.refs, fork)
        moved = {
            outcome.target for result in landed.repositories for outcome in result.refs if outcome.result == "moved"
        }
        whole = was_clean and not (landed.conflicts or landed.remaining or landed.merged) and fork.head == self.now.head
        if whole and self.now.head.encode() in moved and not [line for line in fork.status if line[:2] != "??"]:
            status = self._sh(_STATUS)
            self._require(not status, "the work tree is not that of the commit after an apply of all", status)
            self.counts["whole applies"] += 1
        self._forget_if_gone(step.fork)

    def _came_over(self, outcomes: Iterable[RefOutcome], fork: ForkLook) -> None:
        """Check that each ref has the value that the result tells."""
        for outcome in outcomes:
            self.counts[f"ref {outcome.result}"] += 1
            name, target = outcome.ref.decode(), (outcome.target or outcome.ref).decode()
            if outcome.ref == HEAD and outcome.result == "moved":
                self._require(
                    self.now.head == target, "HEAD is not where the result says", f"{outcome} {self.now.head}"
                )
            elif outcome.ref == STASH:
                # the newest is new; an older one may be of the project, which has dropped it since
                is_there = not fork.stashes or fork.stashes[0] in self.now.stashes
                self._require(is_there, "a stash is missing", str(outcome))
            elif outcome.result in ("moved", "beside", "there"):
                value = fork.commit if outcome.ref == HEAD else fork.refs.get(name, "")
                here = self.now.head if outcome.ref == HEAD == outcome.target else target
                is_right = self.now.refs.get(here) == value
                if outcome.result == "there" and not is_right:  # the project is ahead
                    is_right = bool(self._sh(f"git merge-base --is-ancestor {value} {here} && echo yes"))
                details = f"{outcome}: {value} in the fork, {here} is {self.now.refs.get(here)}"
                self._require(is_right, "a ref is not what the result says", details)

    def do_commits(self, step: Step) -> None:
        if self.session.vault.find(step.fork) is None:
            return
        fork, before = self._in_fork(step.fork, ":"), self.now
        with self.session.alone("commits"):
            commits = bring_commits(self.session, step.fork)
        self.now = self._look()
        same = (before.files, before.entries, before.head) == (self.now.files, self.now.entries, self.now.head)
        self._require(same, "files, index or HEAD changed with --commits", _difference(before, self.now))
        if commits.name:
            self._applied[commits.name] = Applied(self._number, before, self.now)
        self._came_over(commits.result.refs, fork)

    def do_undo(self, step: Step) -> None:
        self._turn(step, back=True)

    def do_redo(self, step: Step) -> None:
        self._turn(step, back=False)

    def _turn(self, step: Step, *, back: bool) -> None:
        changes, before = self.session.changes, self.now
        with self.session.alone("undo"):
            result = (changes.undo if back else changes.redo)(step.word or None)
        self.now = self._look()
        applied = self._applied.get(result.name)
        if applied is None:
            return
        origin, target = (applied.after, applied.before) if back else (applied.before, applied.after)
        same = {path: entry for path, entry in before.files.items() if origin.files.get(path) == entry}
        as_applied = before._replace(files=same).tokens  # a command of the user's may have made them so again
        self._kept(before, self.now, lambda token: token in as_applied or self._put.get(token, 0) <= applied.number)
        refs = [conflict for conflict in result.conflicts if conflict.path.startswith(b".git/")]
        if refs:
            still = (before.refs, before.head, before.stashes) == (self.now.refs, self.now.head, self.now.stashes)
            self._require(still, "some refs moved and others did not", f"{refs}\n{_difference(before, self.now)}")
        word = "undo" if back else "redo"
        self.counts[f"{word} with {'conflicts' if result.conflicts else 'no conflict'}"] += 1
        if before.visible == origin.visible:
            self._require(not result.conflicts, f"conflicts in an immediate {word}", str(result.conflicts))
            staged = bool(target.staged or origin.staged)
            expected, found = (look._replace(entries={}) if staged else look for look in (target, self.now))
            self._require(expected.visible == found.visible, f"a wrong {word}", _difference(expected, found))
            self.counts[f"immediate {word}"] += 1

    def do_checkpoint(self, step: Step) -> None:
        if self.session.vault.find(step.fork) is not None:
            self.session.forks.checkpoint(step.fork, step.word)
            self._points[step.fork].append(step.word)
        self._untouched("a checkpoint")

    def do_rollback(self, step: Step) -> None:
        if self.session.vault.find(step.fork) is not None:
            self.session.forks.rollback(step.fork, step.word or None)
        self._untouched("a rollback")

    def do_discard(self, step: Step) -> None:
        if self.session.vault.find(step.fork) is not None:
            self.session.forks.discard(step.fork)
        self._forget_if_gone(step.fork)
        self._untouched("a discard")

    def do_decide(self, step: Step) -> None:
        """Decide all conflicts of a fork."""
        if self.session.vault.find(step.fork) is None:
            return
        for conflict in self.session.changes.conflicts(step.fork):
            try:
                self.session.changes.decide(step.fork, conflict, step.word)  # type: ignore[arg-type]
                self._dropped |= self.now.tokens if step.word == "theirs" else set()
            except UsageError:
                self.counts["conflicts that cannot be decided so"] += 1
        self._untouched("a decision")

    def _forget_if_gone(self, fork: str) -> None:
        if self.session.vault.find(fork) is None:
            self._pruned.discard(fork)
            self._points[fork].clear()
            self._seen[fork].clear()
            self.forks.pop(fork, None)

    # --- the checks ---

    def _require(self, condition: bool, message: str, details: str = "") -> None:
        if not condition:
            raise Finding(f"{message}\n{details[:6000]}")

    def _untouched(self, what: str) -> None:
        found = full_listing(self.place.project)
        differing = sorted(path for path in {*found, *self._listing} if found.get(path) != self._listing.get(path))
        self._require(not differing, f"{what} changed the project", str(differing))

    def _sound(self, look: Look) -> None:
        self._require(not look.problems, "git fsck", look.problems)
        self._require(EMPTY_BLOB not in look.objects, "there is an empty blob")
        empty = [path for path, entry in look.files.items() if entry[0] == "file" and not entry[2]]
        self._require(not empty, "an emptied file in the work tree", str(empty))
        missing = {value for value in look.refs.values() if value not in look.objects}
        missing |= {entry.split()[1] for entry in look.entries.values() if entry.split()[1] not in look.objects}
        self._require(not missing, "a ref or the index names missing objects", str(missing))
        if self.steps[-1].verb in ("user", "write"):
            return
        strange = {name: value for name, value in look.refs.items() if value not in self._values}
        self._require(not strange, "refs with values that nobody gave them", str(strange))
        ours = _work_trees_of_forks(look) - self._merged_work_trees
        self._require(not ours, "a work tree of a fork has landed", str(ours))
        self._listing = full_listing(self.place.project)

    def _kept(self, before: Look, after: Look, may_go: Callable[[bytes], bool]) -> None:
        """Check what no apply, undo or redo may lose."""
        lost = {token for token in before.tokens - after.tokens if not may_go(token)}
        self._require(not lost, "work of the user is lost", f"{lost}\n{_difference(before, after)}")
        self._require(before.objects <= after.objects, "objects were removed")
        gone = (before.commits & self._user_commits) - after.commits
        self._require(not gone, "commits of the user are reached by nothing", f"{gone}\n{_difference(before, after)}")
        staged = {path: entry for path, entry in before.staged.items() if after.entries.get(path, "") != entry}
        self._require(not staged, "staged entries changed", f"{staged}\n{_difference(before, after)}")
        stashes = (
            set(before.stashes) - set(after.stashes) - {stash for look in self.forks.values() for stash in look.stashes}
        )
        self._require(not stashes & self._user_commits, "a stash of the user is gone", str(stashes))

    # --- reading ---

    def _learn(self, look: Look) -> None:
        self._values |= {*look.refs.values(), *look.stashes, *look.commits}

    def _sh(self, script: str) -> str:
        done = subprocess.run(
            ["sh", "-c", script], cwd=self.place.project, env=self._environment, capture_output=True, text=True,
            check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        return done.stdout

    def _look(self) -> Look:
        refs, head, stashes, index, tree, commits, objects, problems = self._sh(_LOOK).split(_MARK)
        files = {
            name: entry
            for name, entry in listing(self.place.project).items()
            if not re.match(r"(.*/)?\.git(/|$)", name)
        }
        return Look(
            _refs(refs), head.strip(), tuple(stashes.split()), _entries(index), _entries(tree), files,
            frozenset(commits.split()), frozenset(objects.split()), problems,
        )  # fmt: skip


def _work_trees_of_forks(look: Look) -> set[str]:
    return {name for name in look.files if re.fullmatch(r"[ab]wt\d+", name)}


def _refs(text: str) -> dict[str, str]:
    return {name: value for value, _space, name in (line.partition(" ") for line in text.splitlines())}


def _entries(text: str) -> dict[str, str]:
    """Return mode and id by path of ``ls-files -s`` and ``ls-tree``; the stages of a conflict follow each other."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        words, _tab, path = line.partition("\t")
        first, second, third = words.split()
        entry = (
            f"{first} {third}"
            if second in ("blob", "commit")
            else f"{first} {second}" + (f" {third}" if third != "0" else "")
        )
        found[path] = f"{found[path]}, {entry}" if path in found else entry
    return found


def _names(refs: dict[str, str]) -> Names:
    def short(prefix: str) -> list[str]:
        return sorted(name.removeprefix(prefix) for name in refs if name.startswith(prefix))

    return Names(short("refs/heads/"), short("refs/tags/"))


def _dated(script: str, number: int) -> str:
    when = f"{START + 100_000 + 60 * number} +0000"
    return (
        f"export GIT_AUTHOR_DATE='{when}' GIT_COMMITTER_DATE='{when}' GIT_EDITOR=true GIT_MERGE_AUTOEDIT=no; {script}"
    )


def _difference(before: Look, after: Look) -> str:
    lines = []
    for name in ("refs", "entries", "tree", "files"):
        one, other = getattr(before, name), getattr(after, name)
        lines += [
            f"{name} {key}: {one.get(key)} -> {other.get(key)}"
            for key in sorted({*one, *other})
            if one.get(key) != other.get(key)
        ]
    for name in ("head", "stashes"):
        if getattr(before, name) != getattr(after, name):
            lines.append(f"{name}: {getattr(before, name)} -> {getattr(after, name)}")
    return "\n".join(lines)


_VERBS = {
    "user": 26,
    "write": 8,
    "exec": 34,
    "apply": 4,
    "apply_git": 9,
    "commits": 4,
    "undo": 6,
    "redo": 3,
    "checkpoint": 3,
    "rollback": 3,
    "decide": 3,
    "discard": 2,
}


# --- runs ---


class Run(NamedTuple):
    steps: Sequence[Step]
    finding: str
    """Empty if all checks passed."""
    counts: Counter[str]


def run(client: Client, kind: str, seed: str, count: int) -> Run:
    """Perform ``count`` random steps, or as many as pass the checks."""
    machine = GitMachine(client, kind, seed)
    return _run(machine, (machine.choose() for _number in range(count)))


def repeat(client: Client, kind: str, seed: str, steps: Sequence[Step]) -> Run:
    """Perform these steps."""
    return _run(GitMachine(client, kind, seed), steps)


def _run(machine: GitMachine, steps: Iterable[Step]) -> Run:
    try:
        for step in steps:
            machine.perform(step)
        return Run(machine.steps, "", machine.counts)
    except Exception as error:  # noqa: BLE001 - told with the steps that led to it
        return Run(machine.steps, f"{type(error).__name__}: {error}", machine.counts)
    finally:
        machine.close()


def shorten(client: Client, kind: str, seed: str, failed: Run) -> Run:
    """Return a run of fewer steps with the same finding: Zeller's delta debugging."""
    wanted = failed.finding.partition("\n")[0]
    parts = 2
    while len(failed.steps) > 1:
        size = max(1, len(failed.steps) // parts)
        for start in range(0, len(failed.steps), size):
            tried = repeat(client, kind, seed, [*failed.steps[:start], *failed.steps[start + size :]])
            if tried.finding.partition("\n")[0] == wanted:
                failed, parts = tried, max(parts - 1, 2)
                break
        else:
            if size == 1:
                break
            parts = min(parts * 2, len(failed.steps))
    return failed
