"""Landings, tried on random trees in memory, and the cases that have a name of their own."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model import (
    FORK,
    GIT_PATHS,
    LATER,
    PATHS,
    PROJECT,
    Disk,
    Edit,
    Tree,
    World,
    below,
    derive,
    edits,
    grown,
    live,
    visible,
)
from mudroom.core.merge.merge_tree import LiveProject, judge, lifts
from mudroom.core.merge.operations import Landing, Op, expand, inverse, plan_landing
from mudroom.core.tree.change import Change
from mudroom.core.tree.entry import same_stamp
from mudroom.core.tree.flag import git_directory, is_protected
from mudroom.core.tree.path import ancestors, is_below, parent
from sample import directory, file
from tiers import each, examples


class Case:
    """A project, a fork of it, and the project as the user has changed it meanwhile."""

    def __init__(
        self,
        start: list[Edit],
        work: list[Edit],
        meanwhile: list[Edit] | None = None,
        *,
        renames: bool = True,
        unknown: Collection[bytes] = (),
        git_moved: Collection[bytes] = (),
    ) -> None:
        self.world = World()
        self.base = grown(self.world, start)
        self.staged = self.world.edit(self.base, work, FORK)
        self.ours = self.world.edit(self.base, meanwhile or [], LATER)
        self.changes, self.blocked = derive(self.base, self.staged, unknown)
        self._live = live(self.ours, self.staged, renames=renames, git_moved=git_moved)

    def land(self, named: Collection[bytes] = (), chosen: Collection[Change] | None = None) -> tuple[Landing, Disk]:
        """Plan it, perform it, and check what holds for every landing."""
        changes = [change for change in self.changes if chosen is None or change in chosen]
        left = {change.path for change in self.changes} - {change.path for change in changes}
        landing = plan_landing(changes, self._live, named, self.blocked | left)
        disk = Disk(self.ours, self.staged, self.world)
        disk.land(landing)
        self._check(landing, changes, disk)
        after = dict(disk.project)
        disk.undo()
        assert visible(disk.project) == visible(self.ours), "undo brings everything back"
        kept = {path: node for path, node in disk.project.items() if node.entry.kind != "directory"}
        assert all(self.ours[path].inode == node.inode for path, node in kept.items()), "and the very same files"
        disk.project = after
        return landing, disk

    def _check(self, landing: Landing, changes: list[Change], disk: Disk) -> None:
        refused = {conflict.path for conflict in landing.conflicts}
        stayed = refused | set(landing.withheld)
        after = disk.project
        assert not refused & set(landing.withheld)
        assert all(conflict.reason for conflict in landing.conflicts)
        assert stayed | set(landing.satisfied) <= {change.path for change in changes}

        for path in stayed:
            assert after.get(path) == self.ours.get(path), "what is refused stays as it was in the project"
            assert disk.fork.get(path) == self.staged.get(path), "and stays in the fork"
        changed = {change.path for change in changes}
        again = {above for path in changed & after.keys() for above in ancestors(path)} - self.ours.keys()
        for path in {*self.base, *self.ours} - again:
            if not _untouched(self.base, self.ours, path):
                assert after.get(path) == self.ours.get(path), "what the user has done meanwhile is never undone"
        for path in {*self.ours, *after} - changed - again:
            assert after.get(path) == self.ours.get(path), "nothing comes or goes but what was changed"
        for path in changed - stayed - disk.left_standing - self.directories_of_both():
            assert visible(after).get(path) == visible(self.staged).get(path) or path in self.blocked
        for path in disk.left_standing:
            assert below(after, path)

        inside = {node.inode for node in after.values() if node.entry.kind == "file"}
        outside = {node.inode for node in disk.fork.values() if node.entry.kind == "file" and node.entry.device == FORK}
        assert not inside & outside, "no file of the project is also one of the fork"
        assert not any(node.entry.kind == "socket" for node in after.values())

    def directories_of_both(self) -> set[bytes]:
        """Where both have made one, the project's permissions stay."""
        made = (self.staged.keys() & self.ours.keys()) - self.base.keys()
        kinds = {path: {self.staged[path].entry.kind, self.ours[path].entry.kind} for path in made}
        return {path for path in made if kinds[path] == {"directory"}}


def _untouched(base: Tree, ours: Tree, path: bytes) -> bool:
    old, new = base.get(path), ours.get(path)
    return same_stamp(old.entry if old else None, new.entry if new else None)


# --- on random trees ----------------------------------------------------------------------------------------------


@given(edits(), edits())
@settings(max_examples=examples(400))
def test_with_nobody_else_at_work_the_project_becomes_the_fork(start: list[Edit], work: list[Edit]) -> None:
    case = Case(start, work)
    landing, disk = case.land()
    assert (landing.conflicts, landing.withheld, landing.satisfied) == ((), (), ())
    assert visible(disk.project) == visible(case.staged)
    assert not disk.left_standing


@given(edits(), edits(verbs=["socket", "socket"]), edits(), st.sets(st.sampled_from(PATHS)))
@settings(max_examples=examples(400))
def test_whatever_the_user_does_meanwhile_is_kept(
    start: list[Edit], work: list[Edit], meanwhile: list[Edit], unknown: set[bytes]
) -> None:
    case = Case(start, work, meanwhile, unknown=unknown)
    landing, _disk = case.land()
    refused = {conflict.path for conflict in landing.conflicts}
    for change in case.changes:
        same = visible(case.ours).get(change.path) == visible(case.staged).get(change.path)
        same = same or change.path in case.directories_of_both()
        if not _untouched(case.base, case.ours, change.path) and not same and change.path not in case.blocked:
            assert change.path in refused
        if not change.original_known and not same:
            assert change.path in refused or change.path in case.blocked


@given(edits(), edits(), edits())
def test_where_directories_cannot_be_renamed(start: list[Edit], work: list[Edit], meanwhile: list[Edit]) -> None:
    case = Case(start, work, meanwhile, renames=False)
    landing, _disk = case.land()
    was_directory = {change.path for change in case.changes if change.base and change.base.kind == "directory"}
    assert not [op for op in landing.ops if op.whole and op.path in was_directory]


@given(edits(), edits(verbs=["socket"]), edits(most=3), st.data())
@settings(max_examples=examples(300))
def test_a_part_of_the_changes(start: list[Edit], work: list[Edit], meanwhile: list[Edit], data: st.DataObject) -> None:
    """Any part, even one that leaves out the directory of what is in it."""
    case = Case(start, work, meanwhile)
    chosen = [change for change in case.changes if data.draw(st.booleans())]
    case.land(chosen=chosen)


@given(edits(GIT_PATHS), edits(GIT_PATHS), edits(GIT_PATHS, most=3), st.sets(st.sampled_from(GIT_PATHS), max_size=2))
@settings(max_examples=examples(400))
def test_repositories_and_what_is_protected(
    start: list[Edit], work: list[Edit], meanwhile: list[Edit], named: set[bytes]
) -> None:
    case = Case(start, work, meanwhile)
    landing, disk = case.land(named=named)
    refused = {conflict.path for conflict in landing.conflicts}
    landed = {change.path for change in case.changes} - refused - set(landing.withheld) - set(landing.satisfied)
    for path in landed:
        if is_protected(path):
            gone = git_directory(path) in named and git_directory(path) not in case.staged
            assert gone or any(is_below(path, name) or is_below(name, path) for name in named if is_protected(name))
        elif git_directory(path) is not None:
            assert any(name == git_directory(path) or is_below(name, path) for name in named)
    verbs = {change.path: change.verb for change in case.changes}
    for path in landing.withheld:
        keeps = verbs[path] == "deleted" and any(is_below(other, path) for other in set(landing.withheld) - {path})
        assert git_directory(path) is not None or is_protected(path) or keeps
        assert keeps or is_protected(path) or git_directory(path) not in named
    broken = {git_directory(path) for path in refused} - {None}
    assert not broken & {git_directory(path) for path in landed}, "a repository lands whole or not at all"
    for path, node in disk.project.items():
        if is_protected(path) and not any(is_below(path, name) or is_below(name, path) for name in named):
            assert case.ours.get(path) == node


@given(edits(), edits(), edits(most=3))
def test_operations_are_numbered_and_in_order(start: list[Edit], work: list[Edit], meanwhile: list[Edit]) -> None:
    case = Case(start, work, meanwhile)
    landing, _disk = case.land()
    slots = [op.slot for op in landing.ops if op.kind in ("place", "swap", "remove")]
    assert sorted(slots) == list(range(1, len(slots) + 1))
    assert all(op.slot == 0 for op in landing.ops if op.kind in ("mkdir", "rmdir", "chmod"))
    for number, op in enumerate(landing.ops):
        assert not [later for later in landing.ops[number + 1 :] if op.whole and is_below(later.path, op.path)]
        assert inverse(inverse(op)) == op._replace(copy=False, after=b"")


# --- the cases with a name ----------------------------------------------------------------------------------------


def put(path: bytes, content: bytes = b"x", mode: int = 0o644) -> Edit:
    return Edit("write", path, mode=mode, content=content)


def folder(path: bytes, mode: int = 0o755) -> Edit:
    return Edit("mkdir", path, mode=mode)


def gone(path: bytes) -> Edit:
    return Edit("remove", path)


def told(landing: Landing) -> list[tuple[str, bytes, bool]]:
    return [(op.kind, op.path, op.whole) for op in landing.ops]


def refused(landing: Landing) -> dict[bytes, str]:
    return {conflict.path: conflict.reason for conflict in landing.conflicts}


ORPHAN = "its directory is not in the project any more"
STUCK = "replaces a directory, but not everything below it can be applied"


def test_a_new_directory_is_one_operation() -> None:
    landing, _disk = Case([], [folder(b"d"), folder(b"d/e"), put(b"d/e/f"), put(b"d/g")]).land()
    assert told(landing) == [("place", b"d", True)]


def test_its_neighbour_is_another() -> None:
    landing, _disk = Case([], [folder(b"a"), put(b"a/f"), put(b"a-b")]).land()
    assert told(landing) == [("place", b"a", True), ("place", b"a-b", False)]


def test_a_removed_directory_is_one_operation() -> None:
    landing, _disk = Case([put(b"d/e/f"), put(b"d/g")], [gone(b"d")]).land()
    assert told(landing) == [("remove", b"d", True)]


def test_a_directory_with_a_file_of_the_users_goes_piece_by_piece_and_stays() -> None:
    landing, disk = Case([put(b"d/e/f"), put(b"d/g")], [gone(b"d")], [put(b"d/e/mine")]).land()
    assert told(landing) == [
        ("remove", b"d/e/f", False),
        ("remove", b"d/g", False),
        ("rmdir", b"d/e", False),
        ("rmdir", b"d", False),
    ]
    assert set(disk.project) == {b"d", b"d/e", b"d/e/mine"}


def test_a_directory_with_a_socket_in_it_comes_without_it() -> None:
    landing, disk = Case([], [folder(b"d"), put(b"d/f"), Edit("socket", b"d/s")]).land()
    assert told(landing) == [("mkdir", b"d", False), ("place", b"d/f", False)]
    assert set(disk.project) == {b"d", b"d/f"}


def test_a_new_directory_that_nobody_may_write_to_is_closed_at_the_end() -> None:
    work = [folder(b"d"), put(b"d/f"), Edit("socket", b"d/s"), Edit("chmod", b"d", mode=0o500)]
    landing, disk = Case([], work).land()
    assert told(landing) == [("mkdir", b"d", False), ("place", b"d/f", False), ("chmod", b"d", False)]
    assert disk.project[b"d"].entry.mode == 0o500


def test_a_directory_is_opened_before_and_closed_after_what_happens_in_it() -> None:
    start = [put(b"a/f"), put(b"b/f"), Edit("chmod", b"a", mode=0o500)]
    work = [Edit("chmod", b"a", mode=0o755), put(b"a/f", b"y"), put(b"b/f", b"y"), Edit("chmod", b"b", mode=0o500)]
    landing, _disk = Case(start, work).land()
    assert told(landing) == [
        ("chmod", b"a", False),
        ("swap", b"a/f", False),
        ("swap", b"b/f", False),
        ("chmod", b"b", False),
    ]


def test_only_another_mode_leaves_the_file_where_it_is() -> None:
    landing, disk = Case([put(b"f")], [Edit("chmod", b"f", mode=0o755)]).land()
    (op,) = landing.ops
    assert (op.kind, op.slot, op.new and op.new.mode) == ("chmod", 0, 0o755)
    assert disk.project[b"f"].entry.device == PROJECT


def test_another_mode_of_one_name_of_a_file_is_not_for_its_other_names() -> None:
    case = Case([put(b"f"), Edit("link", b"f", b"g")], [put(b"f", mode=0o600)])
    landing, disk = case.land()
    assert told(landing) == [("swap", b"f", False)]
    assert (disk.project[b"f"].entry.mode, disk.project[b"g"].entry.mode) == (0o600, 0o644)


def test_nor_for_a_name_that_the_user_has_given_it_meanwhile() -> None:
    case = Case([put(b"f")], [Edit("chmod", b"f", mode=0o600)], [Edit("link", b"f", b"g")])
    landing, disk = case.land()
    assert told(landing) == [("swap", b"f", False)]
    assert disk.project[b"g"].entry.mode == 0o644


def test_a_file_that_became_a_link_is_a_plain_swap() -> None:
    landing, _disk = Case([put(b"f")], [Edit("symlink", b"f", content=b"to")]).land()
    assert told(landing) == [("swap", b"f", False)]


@pytest.mark.parametrize(
    ("start", "work"),
    [([put(b"d/f")], [put(b"d", b"now a file")]), ([put(b"d")], [gone(b"d"), folder(b"d"), put(b"d/f")])],
)
def test_a_directory_turns_into_a_file_and_a_file_into_a_directory_at_once(start: list[Edit], work: list[Edit]) -> None:
    landing, _disk = Case(start, work).land()
    assert told(landing) == [("swap", b"d", True)]


def test_what_cannot_turn_as_a_whole_does_not_turn_in_part() -> None:
    landing, disk = Case([put(b"d/f"), put(b"d/g")], [put(b"d", b"now a file")], [put(b"d/mine")]).land()
    assert refused(landing) == {b"d": STUCK, b"d/f": STUCK, b"d/g": STUCK}
    assert set(disk.project) == {b"d", b"d/f", b"d/g", b"d/mine"}


def test_a_file_does_not_become_a_directory_without_what_is_withheld_in_it() -> None:
    work = [gone(b"d"), folder(b"d"), folder(b"d/.git"), put(b"d/.git/config"), put(b"d/.git/HEAD"), put(b"d/f")]
    landing, _disk = Case([put(b"d")], work).land(named=[b"d/.git"])
    assert refused(landing) == dict.fromkeys([b"d", b"d/.git", b"d/.git/HEAD", b"d/f"], STUCK)
    assert landing.withheld == (b"d/.git/config",)


def test_what_lies_in_a_directory_that_cannot_come_is_refused_at_every_depth() -> None:
    landing, _disk = Case([], [folder(b"d"), folder(b"d/e"), put(b"d/e/f")], [put(b"d", b"mine")]).land()
    assert refused(landing) == {b"d": "also created in the project, but different", b"d/e": ORPHAN, b"d/e/f": ORPHAN}


def test_a_directory_that_the_user_removed_is_made_again_for_what_is_new_in_it() -> None:
    landing, disk = Case([put(b"d/f")], [put(b"d/g"), put(b"d/f", b"y")], [gone(b"d")]).land()
    assert refused(landing) == {b"d/f": "deleted in the project meanwhile"}
    assert sorted(disk.project) == [b"d", b"d/g"]


def test_but_not_for_what_is_refused() -> None:
    landing, disk = Case([put(b"d/e/f")], [put(b"d/e/f", b"y")], [gone(b"d")]).land()
    assert refused(landing) == {b"d/e/f": "deleted in the project meanwhile"}
    assert disk.project == {}


def test_nor_where_the_user_has_put_something_else() -> None:
    landing, disk = Case([put(b"d/f")], [put(b"d/g")], [gone(b"d"), put(b"d")]).land()
    assert refused(landing) == {b"d/g": ORPHAN}
    assert sorted(disk.project) == [b"d"]


def test_a_directory_that_the_user_made_as_well_is_filled() -> None:
    landing, disk = Case([], [folder(b"d"), put(b"d/f")], [folder(b"d"), put(b"d/mine")]).land()
    assert landing.satisfied == (b"d",)
    assert set(disk.project) == {b"d", b"d/f", b"d/mine"}


def test_the_same_done_twice_is_done() -> None:
    work = [put(b"f", b"y"), gone(b"g"), put(b"new")]
    landing, _disk = Case([put(b"f"), put(b"g")], work, work).land()
    assert landing.ops == ()
    assert landing.satisfied == (b"f", b"g", b"new")


@pytest.mark.parametrize(
    ("what", "work", "copies"),
    [
        ("both names land", [put(b"f"), Edit("link", b"f", b"g")], []),
        ("one name is as it was", [Edit("link", b"old", b"g")], [b"g"]),
        ("of one name only the mode lands", [Edit("link", b"old", b"g"), Edit("chmod", b"old", mode=0o600)], [b"g"]),
        ("the other is in the directory", [folder(b"d"), Edit("link", b"old", b"d/g")], [b"d/g"]),
        ("the directory was a file", [gone(b"a"), folder(b"a"), Edit("link", b"old", b"a/g")], [b"a"]),
    ],
)
def test_a_file_that_keeps_a_name_in_the_fork_is_copied(what: str, work: list[Edit], copies: list[bytes]) -> None:
    landing, _disk = Case([put(b"old"), put(b"a")], work).land()
    assert [op.path for op in landing.ops if op.copy] == copies


def test_a_hard_link_to_what_is_refused_is_copied() -> None:
    case = Case([put(b"f")], [put(b"f", b"y"), Edit("link", b"f", b"g")], [put(b"f", b"mine")])
    landing, _disk = case.land()
    assert [(op.kind, op.path, op.copy) for op in landing.ops] == [("place", b"g", True)]


def test_a_part_of_a_new_directory_leaves_the_rest_in_the_fork() -> None:
    case = Case([], [folder(b"d"), put(b"d/f"), put(b"d/g")])
    landing, disk = case.land(chosen=[change for change in case.changes if change.path != b"d/g"])
    assert told(landing) == [("mkdir", b"d", False), ("place", b"d/f", False)]
    assert b"d/g" in disk.fork


REPOSITORY = [folder(b".git"), folder(b".git/hooks"), put(b".git/config"), put(b".git/HEAD"), put(b".git/index")]


def test_a_repository_is_left_out_unless_it_is_named() -> None:
    work = [*REPOSITORY, folder(b"sub"), folder(b"sub/.git"), put(b"sub/.git/HEAD"), put(b"sub/f"), put(b"f")]
    landing, disk = Case([], work).land()
    assert set(landing.withheld) == {edit.path for edit in (*REPOSITORY, *work[5:8]) if b".git" in edit.path}
    assert set(disk.project) == {b"sub", b"sub/f", b"f"}
    assert landing.conflicts == ()


def test_removing_everything_leaves_the_repository() -> None:
    start = [*REPOSITORY, folder(b"sub"), folder(b"sub/.git"), put(b"sub/.git/HEAD"), put(b"sub/f"), put(b"f")]
    landing, disk = Case(start, [gone(b".git"), gone(b"sub"), gone(b"f")]).land()
    assert set(disk.project) == {*(edit.path for edit in REPOSITORY), b"sub", b"sub/.git", b"sub/.git/HEAD"}
    assert landing.conflicts == ()
    assert b"sub" in landing.withheld


def test_what_was_masked_is_left_out() -> None:
    case = Case([folder(b"d"), put(b"d/key"), put(b"d/f"), put(b".env")], [gone(b"d"), put(b".env", b"mine")])
    landing = plan_landing(case.changes, case._live, masked=[b"d/key", b".env"])
    assert set(landing.withheld) == {b"d", b"d/key", b".env"}
    assert told(landing) == [("remove", b"d/f", False)]


def test_a_new_repository_comes_without_its_hooks_and_settings() -> None:
    landing, disk = Case([], [*REPOSITORY, put(b".git/hooks/pre-commit")]).land(named=[b".git"])
    assert landing.withheld == (b".git/config", b".git/hooks", b".git/hooks/pre-commit")
    assert set(disk.project) == {b".git", b".git/HEAD", b".git/index"}


@pytest.mark.parametrize(
    ("named", "withheld"),
    [
        (b".git/hooks", (b".git/HEAD", b".git/config", b".git/index")),
        (b".git/hooks/pre-commit", (b".git/HEAD", b".git/config", b".git/hooks/pre-push", b".git/index")),
        (b".git", (b".git/config", b".git/hooks", b".git/hooks/pre-commit", b".git/hooks/pre-push")),
    ],
)
def test_what_is_named_comes_with_what_leads_to_it(named: bytes, withheld: tuple[bytes, ...]) -> None:
    case = Case([], [*REPOSITORY, put(b".git/hooks/pre-commit"), put(b".git/hooks/pre-push")])
    landing, _disk = case.land(named=[named])
    assert landing.withheld == withheld
    assert landing.conflicts == ()


def test_naming_a_hook_does_not_change_the_mode_of_the_directory_it_is_in() -> None:
    case = Case(REPOSITORY, [put(b".git/hooks/a"), Edit("chmod", b".git/hooks", mode=0o700)])
    landing, _disk = case.land(named=[b".git/hooks/a"])
    assert landing.withheld == (b".git/hooks",)
    assert told(landing) == [("place", b".git/hooks/a", False)]


MOVED_ON = "the repository has changed in the project meanwhile"


def test_one_conflict_in_a_repository_is_a_conflict_of_all_of_it() -> None:
    work = [put(b".git/HEAD", b"y"), put(b".git/index", b"y"), put(b"f", b"y")]
    landing, _disk = Case([*REPOSITORY, put(b"f")], work, [put(b".git/HEAD", b"mine")]).land(named=[b".git"])
    assert refused(landing) == {
        b".git/HEAD": "also changed in the project, and files of a repository are never merged",
        b".git/index": MOVED_ON,
    }
    assert told(landing) == [("swap", b"f", False)]


def test_so_is_one_that_has_lost_its_directory() -> None:
    start = [*REPOSITORY, folder(b".git/refs")]
    work = [put(b".git/refs/main"), put(b".git/HEAD", b"y")]
    landing, _disk = Case(start, work, [gone(b".git/refs")]).land(named=[b".git"])
    assert refused(landing) == {b".git/refs/main": ORPHAN, b".git/HEAD": MOVED_ON}


def test_a_repository_that_was_to_become_a_file_stays_whole() -> None:
    landing, disk = Case(REPOSITORY, [put(b".git", b"gitdir: elsewhere")]).land(named=[b".git"])
    assert set(refused(landing)) == {b".git", b".git/HEAD", b".git/index"}
    assert landing.withheld == (b".git/config", b".git/hooks")
    assert disk.project.keys() == {edit.path for edit in REPOSITORY}


def test_a_repository_with_new_commits_takes_nothing_but_others_do() -> None:
    start = [put(b"one/.git/index"), put(b"two/.git/index")]
    work = [put(b"one/.git/index", b"y"), put(b"two/.git/index", b"y")]
    landing, _disk = Case(start, work, git_moved=[b"one/.git"]).land(named=[b"one/.git", b"two/.git"])
    assert refused(landing) == {b"one/.git/index": MOVED_ON}
    assert told(landing) == [("swap", b"two/.git/index", False)]


def test_a_directory_is_asked_for_once() -> None:
    asked = []
    case = Case([folder(b"d")], [put(b"d/%d" % number) for number in range(5)])
    answers = live(case.ours, case.staged)

    def look(path: bytes) -> object:
        asked.append(path)
        return answers.look(path)

    plan_landing(case.changes, answers._replace(look=look))  # type: ignore[arg-type]
    assert asked.count(b"d") == 1


# --- taking back --------------------------------------------------------------------------------------------------


@each(
    ("kind", "back"),
    [
        ("place", "remove"),
        ("remove", "place"),
        ("swap", "swap"),
        ("mkdir", "rmdir"),
        ("rmdir", "mkdir"),
        ("chmod", "chmod"),
    ],
)
def test_inverse(kind: str, back: str) -> None:
    op = Op(kind, b"f", 3, file(1), file(2), True, True)  # type: ignore[arg-type]
    assert inverse(op) == Op(back, b"f", 3, file(2), file(1), True, False)  # type: ignore[arg-type]


def test_expand_takes_away_what_was_put_there_and_nothing_else() -> None:
    tree = {b"e": directory(), b"e/f": file(1), b"a-b": file(2), b"a": directory(), b"a/x": file(3)}
    ops = expand(Op("remove", b"d", 7, directory(inode=70), None, True), tree, 10)
    assert ops == [
        Op("remove", b"d/a/x", 10, file(3), None),
        Op("remove", b"d/a-b", 11, file(2), None),
        Op("remove", b"d/e/f", 12, file(1), None),
        Op("rmdir", b"d/e", 0, directory(), None),
        Op("rmdir", b"d/a", 0, directory(), None),
        Op("rmdir", b"d", 0, directory(inode=70), None),
    ]


@given(st.sets(st.sampled_from(PATHS), max_size=8))
def test_expand_empties_a_directory_before_it_goes(files: set[bytes]) -> None:
    tree = {above: directory() for path in files for above in ancestors(path)}
    tree |= {path: file() for path in files if path not in tree}
    ops = expand(Op("remove", b"d", 1, directory(), None, True), tree, 2)
    left = {b"d"} | {b"d/" + path for path in tree}
    for op in ops:
        assert not [path for path in left if parent(path) == op.path]
        left.remove(op.path)
    assert not left


@each(
    ("name", "path", "lifted"),
    [
        (b".git/config", b".git/config", True),
        (b".git/hooks", b".git/hooks/pre-commit", True),
        (b"store/hooks", b"store/hooks/post-receive.d/10", True),
        (b".mudroom", b".mudroom/config", True),
        (b"sub/.mudroom", b"sub/.mudroom/config", True),
        (b"sub", b"sub/.mudroom/policy.yaml", False),
        (b"src/hooks", b"src/hooks/x/.mudroom/policy.yaml", False),
        (b".git", b".git/config", False),
        (b"store", b"store/config", False),
        (b"src/hooks", b"src/hooks/store/hooks/update", False),
        (b"src/hooks", b"src/hooks/store/config", False),
        (b".git/hooks", b".git/hooks/x/.git/config", False),
        (b".git/hook", b".git/hooks", False),
    ],
)
def test_what_lifts_the_protection(name: bytes, path: bytes, lifted: bool) -> None:
    assert lifts(name, path) is lifted


def test_the_old_path_of_a_rename_whose_new_path_is_left_out_stays() -> None:
    """No collection pairs such paths any more; records of earlier versions may hold them."""
    old = Change(b"notes", "deleted", file(), None, moved_to=b".git/x")
    new = Change(b".git/x", "renamed", None, file(), source=b"notes")
    project = LiveProject(lambda path: file() if path == b"notes" else None, lambda *_: False, lambda *_: False)
    assert {*judge([new, old], project, ()).withheld} == {b".git/x", b"notes"}
    assert {*judge([new, old], project, (b"notes",)).withheld} == {b".git/x"}
    assert {*judge([new, old], project, (b".git",)).withheld} == set()
