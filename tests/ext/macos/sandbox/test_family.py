"""The command's processes, where the kernel keeps no account of them: who belongs to a command."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from mudroom.ext.macos import warden
from mudroom.ext.macos.warden import Family

Table = list[tuple[int, int, int, bool, int]]
COMMAND, WARDEN = 10, 9


@pytest.fixture
def family(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Table, dict[int, int]], set[int]]]:
    """Look at a table (pid, parent, group, stopped, start) and sessions (of whom they are not their group's)."""
    one = Family(COMMAND, WARDEN, b"M=1")
    one._spared = {WARDEN, 1}

    def look(table: Table, sessions: dict[int, int]) -> set[int]:
        groups = {row[0]: row[2] for row in table}
        monkeypatch.setattr(warden, "rows", lambda: iter(table))
        monkeypatch.setattr(os, "getsid", lambda pid: sessions.get(pid, groups[pid]))
        return {pid for pid, _stopped in one.members()}

    yield look


OTHER = (50, 1, 50, False, 1)


def test_descent_groups_and_sessions(family: Callable[[Table, dict[int, int]], set[int]]) -> None:
    first: Table = [(10, 9, 10, False, 1), (11, 10, 10, False, 2), (12, 11, 12, False, 3), OTHER]
    assert family(first, {12: 10}) == {10, 11, 12}
    later: Table = [(13, 1, 10, False, 4), (14, 1, 12, False, 4), (15, 1, 15, False, 4), OTHER]  # orphans
    assert family(later, {14: 12, 15: 12}) == {13, 14, 15}


def test_one_that_has_left_its_session_and_lost_its_parent(family: Callable[[Table, dict[int, int]], set[int]]) -> None:
    middle: Table = [(10, 9, 10, False, 1), (11, 10, 11, False, 2), (12, 11, 11, False, 2), OTHER]
    assert family(middle, {}) == {10, 11, 12}
    after: Table = [(10, 9, 10, False, 1), (12, 1, 11, False, 2), OTHER]
    assert family(after, {}) == {10, 12}


def test_the_mark_of_apples_own_programs_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS hides the variables of programs in /bin and /usr/bin. Such a process is found if it was seen while it still
    belonged to the command's descent, session or group, and not by its environment."""
    programs = {10: "/bin/sh", 11: "/bin/sh", 12: "/bin/sh", 13: "/opt/node"}
    monkeypatch.setattr(warden, "carries", lambda pid, _mark: not programs.get(pid, "/bin/").startswith("/bin/"))
    monkeypatch.setattr(os, "getsid", lambda pid: pid)
    before: Table = [
        (10, 9, 10, False, 1),
        (11, 10, 11, False, 2),
        (12, 11, 12, False, 2),
        (13, 11, 13, False, 2),
        OTHER,
    ]
    after: Table = [(10, 9, 10, False, 1), (12, 1, 12, False, 2), (13, 1, 13, False, 2), OTHER]
    for looks, found in (([after], {10, 13}), ([before, after], {10, 12, 13})):
        one = Family(COMMAND, WARDEN, b"M=1")
        one._spared = {WARDEN, 1}
        for table in looks:
            monkeypatch.setattr(warden, "rows", lambda table=table: iter(table))
            members = {pid for pid, _stopped in one.members(by_mark=True)}
        assert members == found


def test_a_number_that_is_given_again_is_somebody_else(family: Callable[[Table, dict[int, int]], set[int]]) -> None:
    assert family([(10, 9, 10, False, 1), (11, 10, 11, False, 2)], {}) == {10, 11}
    assert family([(10, 9, 10, False, 1), (11, 1, 50, False, 9), OTHER], {}) == {10}
    # and after a look without that group, the same number is unrelated
    assert family([(10, 9, 10, False, 1), (11, 1, 11, False, 12), OTHER], {}) == {10}
