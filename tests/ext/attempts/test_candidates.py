"""Candidates of a try: distinct results with what became of their forks, and what differs between them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from conftest import Place, tick
from mudroom.errors import MudroomError, UsageError
from mudroom.ext.attempts import candidate as module
from mudroom.ext.attempts.candidate import ComparisonCache, TryReview, all_tries, is_try, review_try
from mudroom.ext.attempts.candidate_text import standings
from mudroom.ext.attempts.record import save
from trying import project, tried

__all__ = ["project"]  # a fixture


def reviewed(place: Place, name: str = "t1") -> TryReview:
    with place.session() as session:
        return review_try(session, name)


def extents(review: TryReview) -> dict[bytes, tuple[str, list[tuple[int, ...]], tuple[int, ...]]]:
    return {
        path.path: (path.extent, [group.candidates for group in path.groups], path.unchanged) for path in review.paths
    }


def test_results_are_folded_ranked_and_compared(project: Place) -> None:
    same = "sed -i s/two/2/ a.py; echo x > new"
    other = "sed -i s/two/TWO/ a.py; echo x > new; rm b.py"
    tried(project, [other, same, same, "echo 1 >> a.py; echo x > new"], passed=[2, 3, 4])
    found = reviewed(project)
    assert [(one.numbers, one.best, one.standing, one.fork) for one in found.candidates] == [
        ((4,), True, "ready", "t1-4"),
        ((2, 3), False, "ready", "t1-2"),
        ((1,), False, "ready", "t1-1"),
    ]
    assert [(one.added, one.modified, one.deleted, one.lines) for one in found.candidates] == [
        (1, 1, 0, 2),
        (1, 1, 0, 3),
        (1, 1, 1, 4),
    ]
    assert extents(found) == {
        b"a.py": ("different", [(0,), (1,), (2,)], ()),
        b"b.py": ("some", [(2,)], (0, 1)),
        b"new": ("same", [(0, 1, 2)], ()),
    }
    (a, _b, _new) = found.paths
    assert [(group.verb, group.lines_added, group.lines_removed) for group in a.groups] == [
        ("modified", 1, 0),
        ("modified", 1, 1),
        ("modified", 1, 1),
    ]
    assert found.counts() == {"different": 1, "some": 1, "unknown": 0, "same": 1}
    assert (found.compared, found.paths_left, found.candidates_left, found.running) == ((0, 1, 2), 0, 0, False)


@pytest.mark.deep
def test_names_that_are_not_text(project: Place) -> None:
    tried(project, ["printf x > \"$(printf '\\377\\033[2J')\"", "printf y > \"$(printf '\\377\\033[2J')\""])
    assert extents(reviewed(project))[b"\xff\x1b[2J"][0] == "different"


def test_a_fork_that_changed_since_it_was_judged(project: Place) -> None:
    tried(project, ["echo 1 > new", "echo 2 > new"])
    before = reviewed(project)
    tick()
    with project.session() as session:
        assert session.run([b"sh", b"-c", b"echo more > more"], fork="t1-2").exit_code == 0
    after = reviewed(project)
    assert [one.standing for one in after.candidates] == ["ready", "changed"]
    assert (after.candidates[1].added, after.candidates[1].attempt.added) == (2, 1), "counts are of now"
    assert before.fingerprint != after.fingerprint == reviewed(project).fingerprint


def test_the_same_contents_in_other_files_are_not_a_change(project: Place) -> None:
    record = tried(project, ["echo 1 > new", "echo 2 > new"])
    first, second = record.attempts
    with project.session() as session:
        save(session.vault.path, record._replace(attempts=(first._replace(reviewed="0" * 40), second)))
        cache = ComparisonCache()
        assert [one.standing for one in review_try(session, "t1", cache).candidates] == ["ready", "ready"]
        assert cache.digest(("t1-1", first.reviewed)) == first.fingerprint


def test_a_fork_that_was_discarded_gives_way_to_another_with_its_result(project: Place) -> None:
    tried(project, ["echo 1 > new", "echo 1 > new", "echo 2 > new"])
    with project.session() as session:
        session.forks.discard("t1-1")
    found = reviewed(project)
    assert [(one.numbers, one.fork, one.standing) for one in found.candidates] == [
        ((1, 2), "t1-2", "ready"),
        ((3,), "t1-3", "ready"),
    ]
    assert found.candidates[0].lost == (("t1-1", "gone"),)
    assert standings(found) == ["t1-1: its fork is gone: applied or discarded; t1-2 has the same result"]
    with project.session() as session:
        session.forks.discard("t1-2")
    found = reviewed(project)
    assert [(one.fork, one.standing) for one in found.candidates] == [("", "gone"), ("t1-3", "ready")]
    assert (found.compared, extents(found)) == ((1,), {b"new": ("same", [(1,)], ())})


def test_a_damaged_fork_costs_its_candidate_alone(project: Place) -> None:
    tried(project, ["echo 1 > new", "echo 2 > new"])
    (vault,) = (project.state / "vaults").iterdir()
    (vault / "forks/t1-1/record").write_bytes(b"\xc1")
    found = reviewed(project)
    assert [one.standing for one in found.candidates] == ["damaged", "ready"]
    assert found.candidates[0].problem and found.candidates[0].fork == ""


def test_a_damaged_record_is_one_line_and_listed(project: Place) -> None:
    tried(project, ["echo 1 > new"])
    (vault,) = (project.state / "vaults").iterdir()
    (vault / "attempts/t1/record").write_bytes(b"\xc1")
    with project.session() as session:
        assert (all_tries(session).records, all_tries(session).damaged, is_try(session, "t1")) == ((), ("t1",), True)
        with pytest.raises(MudroomError, match="damaged"):
            review_try(session, "t1")
        with pytest.raises(UsageError, match="no try named t2"):
            review_try(session, "t2")
        assert not is_try(session, "t2") and not is_try(session, "../t1")


@pytest.mark.deep
def test_a_candidate_without_a_fork(project: Place) -> None:
    record = tried(project, ["echo 1 > new"])
    refused = record.attempts[0]._replace(number=2, fork="", state="refused", fingerprint="", note="no")
    with project.session() as session:
        save(session.vault.path, record._replace(attempts=(*record.attempts, refused)))
    assert [(one.numbers, one.standing) for one in reviewed(project).candidates] == [((1,), "ready"), ((2,), "none")]


def test_the_bounds(project: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is beyond them is counted, and said to be not compared."""
    tried(project, [f"for i in 1 2 3 4 5 6; do echo {number} > f$i; done" for number in (1, 2, 3)])
    monkeypatch.setattr(module, "MOST_FILES", 6)
    assert reviewed(project).counts() == {"different": 2, "some": 0, "unknown": 4, "same": 0}
    monkeypatch.setattr(module, "MOST_BYTES", 6)
    assert reviewed(project).counts() == {"different": 1, "some": 0, "unknown": 5, "same": 0}
    monkeypatch.setattr(module, "MOST_PATHS", 4)
    found = reviewed(project)
    assert (len(found.paths), found.paths_left) == (4, 2)
    monkeypatch.setattr(module, "MOST_COMPARED", 2)
    found = reviewed(project)
    assert (found.compared, found.candidates_left) == ((0, 1), 1)


@pytest.mark.deep
def test_no_descriptor_is_left(project: Place) -> None:
    tried(project, ["echo 1 > new", "echo 2 > new"])
    with project.session() as session:
        review_try(session, "t1")
        before = sorted(os.listdir("/proc/self/fd"))
        review_try(session, "t1")
        assert sorted(os.listdir("/proc/self/fd")) == before


@pytest.mark.deep
def test_nothing_is_written(project: Place) -> None:
    tried(project, ["echo 1 > new", "echo 2 > new"])
    reviewed(project)

    def snapshot() -> dict[Path, int]:
        return {path: path.lstat().st_mtime_ns for path in project.state.rglob("*") if path.name != "lock"}

    before = snapshot()
    reviewed(project)
    assert snapshot() == before
