"""Plan for a fork's refs: where each goes in the project's repository. Pure; decision 30 has the reasons.

    in the fork      in the project                        then
    ---------------  ------------------------------------  ---------------------------------------------
    unchanged        anything                              not listed
    deleted          anything                              kept: a fork never deletes a ref of the project
    moved or new     has the fork's value, or is ahead     there
    moved or new     as when the fork began                moved, unless a work tree is on it
    moved or new     behind the fork's value               moved, unless a work tree is on it
    moved or new     anything else                         beside: mudroom/FORK, or mudroom/FORK-NAME
    a stash          anything                              added to the stashes
    remote-tracking, replacement, bisect …                 left

The checked-out branch moves only if the fork's whole work tree has landed. HEAD switches to another branch under the
same condition, and only if the user has not gone on to a commit that this branch lacks: its files would become
modifications.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from mudroom.core.git.outcome import RefOutcome, RefResult
from mudroom.core.tree.path import show
from mudroom.typing import NamedTuple

HEADS, TAGS, NOTES, STASH, HEAD = b"refs/heads/", b"refs/tags/", b"refs/notes/", b"refs/stash", b"HEAD"
_LEFT = (
    (b"refs/remotes/", "is the state of a fetch: git fetch brings it"),
    (b"refs/replace/", "would change how history is read"),
    (b"refs/bisect/", "belongs to a work tree"),
    (b"refs/worktree/", "belongs to a work tree"),
    (b"refs/rewritten/", "belongs to a work tree"),
)
_MOVED = "has moved in the project meanwhile"
MOST_NAMES = 1000
"""Names tried for a ref beside (``mudroom/FORK-2``, …)."""


class RefSides(NamedTuple):
    """A ref on the three sides: object ids in hex, b"" if there is no such ref."""

    base: bytes | None
    """When the fork began. None: no longer known."""
    fork: bytes
    live: bytes


class HeadSides(NamedTuple):
    """HEAD on the three sides: a full branch name, or an object id."""

    base: bytes
    fork: bytes
    live: bytes
    fork_commit: bytes
    """The commit at the fork's HEAD; b"" before the first commit."""
    base_commit: bytes | None = None
    """The commit at HEAD when the fork began; b"" before the first commit. None: no longer known."""
    live_commit: bytes = b""


class RefMove(NamedTuple):
    """A ref to move by compare-and-swap. HEAD: ``before`` and ``after`` are branches (``refs/heads/x``)."""

    name: bytes
    before: bytes
    """b"": there is no such ref."""
    after: bytes
    entries: tuple[tuple[bytes, bytes], ...] = ()
    """New stashes, oldest first: commit and message."""


class RepositoryMoves(NamedTuple):
    """An apply's ref moves in one repository; kept for undo, redo and recovery."""

    label: bytes
    """The repository's path in the project, for display: ``.git``."""
    git: bytes
    common: bytes
    """Directories with HEAD and with the branches: absolute, without links."""
    moves: tuple[RefMove, ...]
    message: bytes
    """Message for the reflogs."""
    checkout: tuple[bytes, bytes] | None = None
    """The checked-out commit before and after, if it moves; b"" before the first commit."""
    work_tree: bytes = b""
    """Absolute path of the work tree whose index moves."""
    staged: tuple[bytes, ...] = ()
    """Paths that the user had already staged as in the new commit: undo leaves them staged."""


class RefPlan(NamedTuple):
    moves: tuple[RefMove, ...]
    outcomes: tuple[RefOutcome, ...]


class RefPlanOptions(NamedTuple):
    fork: bytes
    """The fork's name."""
    not_whole: str = ""
    """Why the checked-out branch cannot move, as the end of a sentence; empty if it can."""
    head_beside: bytes = b""
    """Full name of the branch at which the fork's HEAD arrives in any case, or empty."""


class RefLookup(NamedTuple):
    """Functions that read the project's repository and the fork's history."""

    live: Callable[[bytes], bytes]
    """Return the object id for a ref in the project, or b""."""
    checked_out: Mapping[bytes, bool]
    """Branches that a work tree is on. True: the project's own work tree, with no operation in progress."""
    is_ancestor: Callable[[bytes, bytes], bool]
    """Return whether the first commit is the second, or its ancestor."""
    is_reached: Callable[[bytes], bool]
    """Return whether a branch or tag in the project already reaches a commit."""
    conflicts: Callable[[bytes], bool]
    """Return whether a ref with this name cannot exist beside another: one name is a directory of the other."""


def plan_refs(refs: Mapping[bytes, RefSides], head: HeadSides, lookup: RefLookup, options: RefPlanOptions) -> RefPlan:
    """Return the moves and the outcome for each ref that differs in the fork. Stashes are planned separately."""
    planner = _Planner(lookup, options)
    if options.head_beside:
        planner.head_beside(head)  # before the fork's own branches: one may have this name
    for name in sorted(refs):
        planner.ref(name, refs[name], is_head=name == head.fork)
    if not options.head_beside:
        planner.head(head)
    return RefPlan(tuple(planner.moves), tuple(planner.outcomes))


class _Planner:
    def __init__(self, lookup: RefLookup, options: RefPlanOptions) -> None:
        self._lookup, self._options = lookup, options
        self.moves: list[RefMove] = []
        self.outcomes: list[RefOutcome] = []
        self._targets: set[bytes] = set()
        """Full names in the project at which the fork's refs arrive."""

    def ref(self, name: bytes, sides: RefSides, *, is_head: bool) -> None:
        if sides.base == sides.fork or name == STASH or (is_head and self._options.head_beside):
            return
        left = next((reason for prefix, reason in _LEFT if name.startswith(prefix)), "")
        if left or not name.startswith((HEADS, TAGS, NOTES)):
            self._tell(name, "left", reason=left or "is of a kind that is not brought")
        elif not sides.fork:
            if sides.live:
                self._tell(name, "kept", reason=_deletion_hint(name))
        elif sides.fork == sides.live or self._has_merged(name, sides):
            self._targets.add(name)
            self._tell(name, "there")
        else:
            self._move(name, sides, is_head=is_head)

    def _has_merged(self, name: bytes, sides: RefSides) -> bool:
        """Return whether the project's branch moved on from the fork's value: the user has merged it."""
        is_behind = sides.live and sides.base != sides.live and name.startswith(HEADS)
        return bool(is_behind) and self._lookup.is_ancestor(sides.fork, sides.live)

    def _move(self, name: bytes, sides: RefSides, *, is_head: bool) -> None:
        reason = self._obstacle(name, sides)
        if not reason:
            self._add(name, sides.live, sides.fork)
            self._tell(name, "moved", name, "" if sides.live else "is new")
        else:
            self._beside(name, sides.fork, reason, is_head=is_head)

    def _obstacle(self, name: bytes, sides: RefSides) -> str:
        """Return why the ref itself cannot move; empty if it can."""
        lookup = self._lookup
        is_here = lookup.checked_out.get(name)
        if is_here is False:
            return "is checked out in another work tree, or in an operation that is not finished"
        if is_here and self._options.not_whole:
            return f"is checked out, and {self._options.not_whole}"
        if not sides.live and lookup.conflicts(name):
            return "cannot exist beside another ref of the project"
        if self._is_taken(name):
            return "cannot exist beside another ref of the fork here"
        if sides.base == sides.live:
            return ""
        forward = bool(sides.live) and not name.startswith(TAGS) and lookup.is_ancestor(sides.live, sides.fork)
        return "" if forward else _MOVED

    def head(self, head: HeadSides) -> None:
        is_branch = head.fork.startswith(HEADS)
        if not is_branch:
            if head.fork_commit and not self._lookup.is_reached(head.fork_commit):
                self._beside(HEAD, head.fork_commit, "is on no branch in the fork", is_head=True)
            return
        if head.fork == head.base or head.fork == head.live:
            return
        if self._has_gone_on(head):
            self._tell(HEAD, "kept", self._lacking(head), _MOVED)
        elif self._options.not_whole:
            self._tell(HEAD, "kept", reason=f"stays where it is: {self._options.not_whole}")
        elif self._lookup.checked_out.get(head.fork) is False:
            self._tell(HEAD, "kept", reason="stays where it is: its branch is checked out in another work tree")
        elif not head.fork_commit:
            self._tell(HEAD, "kept", reason=f"stays where it is: {_short(head.fork)} has no commit in the fork")
        elif self._value_after(head.fork) == head.fork_commit:
            self._add(HEAD, head.live, head.fork)
            self._tell(HEAD, "moved", head.fork)
        else:
            self._tell(HEAD, "kept", reason=f"stays where it is: {_short(head.fork)} of the project is another commit")

    def _has_gone_on(self, head: HeadSides) -> bool:
        """Return whether the user has moved HEAD to a commit that the fork's HEAD does not include, or has merged the
        fork's."""
        if head.live != head.base:
            return True
        before, after = head.live_commit, head.fork_commit
        if not before or before == head.base_commit:
            return False
        is_behind = bool(after) and self._lookup.is_ancestor(before, after)
        return not is_behind or (before == after and head.base_commit is not None)

    def _lacking(self, head: HeadSides) -> bytes:
        """Return the branch at the fork's HEAD if it has arrived and the user has not merged it; otherwise b""."""
        value = head.fork_commit
        if not value or self._value_after(head.fork) != value:
            return b""
        is_merged = head.live_commit and self._lookup.is_ancestor(value, head.live_commit)
        return b"" if is_merged else head.fork

    def _value_after(self, name: bytes) -> bytes:
        """Return the value of a ref in the project after the moves."""
        moved = next((move.after for move in self.moves if move.name == name), b"")
        return moved or self._lookup.live(name)

    def head_beside(self, head: HeadSides) -> None:
        """Bring HEAD to the branch that the user named, or to the fork's."""
        name, value = self._options.head_beside, head.fork_commit
        before = self._lookup.live(name)
        if value and before == value:
            self._targets.add(name)
            self._tell(HEAD, "there", name)
        elif value and not self._lookup.is_reached(value):
            self._add(name, before, value)
            self._tell(HEAD, "beside", name)

    def _beside(self, name: bytes, value: bytes, reason: str, *, is_head: bool) -> None:
        for target in _names_beside(name, self._options.fork, is_head=is_head):
            before = self._lookup.live(target)
            if self._value_after(target) == value:
                self._targets.add(target)
                self._tell(name, "there", target)
                return
            is_free = not before or (target.startswith(HEADS) and self._lookup.is_ancestor(before, value))
            taken = target in self._lookup.checked_out or self._is_taken(target)
            if is_free and not taken and (before or not self._lookup.conflicts(target)):
                self._add(target, before, value)
                self._tell(name, "beside", target, reason)
                return
        self._tell(name, "left", reason=f"{reason}, and there is no free name beside it")

    def _is_taken(self, name: bytes) -> bool:
        """Return whether another ref from the fork arrives at this name, or at a name that excludes it."""
        return name in self._targets or name_conflicts(self._targets)(name)

    def _add(self, name: bytes, before: bytes, after: bytes) -> None:
        self.moves.append(RefMove(name, before, after))
        self._targets.add(name)

    def _tell(self, name: bytes, result: RefResult, target: bytes = b"", reason: str = "") -> None:
        self.outcomes.append(RefOutcome(name, result, target, reason))


def _names_beside(name: bytes, fork: bytes, *, is_head: bool) -> Iterator[bytes]:
    prefix = next((prefix for prefix in (TAGS, NOTES) if name.startswith(prefix)), HEADS)
    first = prefix + b"mudroom/" + fork
    if not is_head:
        first += b"-" + name.removeprefix(prefix)
    yield first
    yield from (b"%s-%d" % (first, number) for number in range(2, MOST_NAMES))


def name_conflicts(names: Iterable[bytes]) -> Callable[[bytes], bool]:
    """Return a predicate: whether a ref cannot exist beside ``names``, since ``a/b`` needs a directory ``a``."""
    present = frozenset(names)
    directories = {directory for name in present for directory in _directories(name)}
    return lambda name: name in directories or not present.isdisjoint(_directories(name))


def _directories(name: bytes) -> Iterator[bytes]:
    parts = name.split(b"/")
    return (b"/".join(parts[:end]) for end in range(1, len(parts)))


def _short(name: bytes) -> str:
    return show(name.removeprefix(HEADS).removeprefix(TAGS))


def _deletion_hint(name: bytes) -> str:
    short = _short(name)
    commands = {HEADS: f": git branch -D {short} removes it", TAGS: f": git tag -d {short} removes it"}
    command = next((text for prefix, text in commands.items() if name.startswith(prefix)), "")
    return f"was deleted in the fork, and stays here{command}"


# --- outcomes in words ---

_PREFIXES = (b"refs/heads/", b"refs/tags/", b"refs/")


def short_ref(ref: bytes) -> str:
    """Return a ref's name as git prints it, for display."""
    return show(next((ref[len(prefix) :] for prefix in _PREFIXES if ref.startswith(prefix)), ref))


def outcome_words(outcome: RefOutcome) -> tuple[str, str]:
    """Return a ref's name and outcome: the subject and the rest of a sentence."""
    name, target = short_ref(outcome.ref), short_ref(outcome.target)
    if outcome.ref == STASH:
        return "stash", outcome.reason
    if outcome.result == "there":
        return name, "is there already" + (f", as {target}" if target else "")
    if outcome.result == "moved":
        return name, f"is on {target} now" if outcome.ref == HEAD else outcome.reason or "moved"
    if outcome.result == "beside":
        return target, f"has the commits of {name}" + (f", which {outcome.reason}" if outcome.reason else "")
    return name, outcome.reason


def outcome_rows(
    label: bytes, outcomes: Iterable[RefOutcome], conflicts: Collection[bytes] = ()
) -> Iterator[tuple[str, str]]:
    """Yield the words for each ref in a repository (``label``: its ``.git``), except those among ``conflicts``, which
    are reported separately."""
    for outcome in outcomes:
        if label + b"/" + outcome.ref in conflicts:
            continue
        subject, text = outcome_words(outcome)
        yield (subject if label == b".git" else f"{show(label)}: {subject}"), text
