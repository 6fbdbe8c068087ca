"""The candidates of a try as text: a table, what differs, and commands that work; nothing of it controls a terminal."""

from __future__ import annotations

import json

import pytest

from conftest import Place
from mudroom.ext.attempts.candidate import TryReview, review_try
from mudroom.ext.attempts.candidate_text import comparison, comparison_to_json, table
from mudroom.ext.attempts.record import save
from trying import project, tried

__all__ = ["project"]  # a fixture

SAME = "sed -i s/two/2/ a.py; echo x > new"
OTHER = "sed -i s/two/TWO/ a.py; echo x > new; rm b.py"
HOSTILE = "printf x > \"$(printf '\\377\\033[2J')\""


def reviewed(place: Place) -> TryReview:
    with place.session() as session:
        return review_try(session, "t1")


def test_the_whole(project: Place) -> None:
    tried(project, [OTHER, SAME, SAME, f"echo 1 >> a.py; echo x > new; {HOSTILE}", "true"], passed=[2, 3, 4])
    found = reviewed(project)
    assert table(found) == [
        "   attempts  fork  judge       score  files     lines  seconds",
        "*  2, 3      t1-2  passed             +1 ~1 -0      3      3.0",
        "   4         t1-4  passed             +2 ~1 -0      3      6.0",
        "   1         t1-1  failed (1)         +1 ~1 -1      4      1.5",
        "   5         t1-5  failed (1)         +0 ~0 -0      0      7.5",
    ]
    assert comparison(found) == [
        "",
        "1 path where the candidates differ:",
        "  a.py  ~2 (+1 -1) | ~4 (+1) | ~1 (+1 -1)",
        "",
        "2 paths that only some change:",
        "  b.py         -1 (-1) | not 2 4",
        "  \\xff\\x1b[2J  +4 (+1) | not 2 1",
        "",
        "1 path changed alike by all of them",
        "",
        "side by side: mudroom review t1",
        "from one to another: mudroom diff t1-2 t1-4",
    ]


def test_what_became_of_the_forks_is_said(project: Place) -> None:
    tried(project, [OTHER, SAME])
    with project.session() as session:
        session.forks.discard("t1-2")
        assert session.run([b"rm", b"new"], fork="t1-1").exit_code == 0
    lines = table(reviewed(project))
    assert lines[1].endswith("its fork is gone: applied or discarded") and "  -  " in lines[1]
    assert lines[2].endswith("changed since it was judged")
    assert "there is one candidate to read, and nothing to compare it with" in comparison(reviewed(project))
    assert comparison(reviewed(project))[:3] == [
        "",
        "t1-2: its fork is gone: applied or discarded",
        "t1-1: changed since it was judged",
    ]
    with project.session() as session:
        session.forks.discard("t1-1")
    found = comparison(reviewed(project))
    assert found[-1] == "no candidate can be read: their forks are gone or damaged"


def test_hostile_notes_and_scores(project: Place) -> None:
    record = tried(project, [SAME, OTHER])
    first = record.attempts[0]._replace(note="\x1b[2J\nx", score=1e300, state="ended early", judged=None)
    with project.session() as session:
        save(session.vault.path, record._replace(attempts=(first, record.attempts[1])))
    lines = [*table(reviewed(project)), *comparison(reviewed(project))]
    assert all(line.isprintable() for line in lines), lines
    assert any("\\x1b[2J\\nx" in line and "1e+300" in line for line in lines)


@pytest.mark.deep
def test_long_lists_are_cut(project: Place) -> None:
    record = tried(project, [f"for i in $(seq 60); do echo {number} > f$i; done" for number in (1, 2)])
    lines = comparison(reviewed(project))
    assert "  and 10 more" in lines and len(lines) < 70
    rows = (*record.attempts, *(record.attempts[0]._replace(number=n, same_as=1) for n in range(3, 21)))
    with project.session() as session:
        save(session.vault.path, record._replace(attempts=rows))
    assert "1, 3, 4, 5, 6, 7, 8, 9 and 11 more" in table(reviewed(project))[1]


@pytest.mark.deep
def test_no_change_at_all(project: Place) -> None:
    tried(project, ["true", "true"])
    assert comparison(reviewed(project))[-1] == "no candidate has changes"


def test_json(project: Place) -> None:
    tried(project, [OTHER, SAME, HOSTILE])
    found = json.loads(json.dumps(comparison_to_json(reviewed(project))))
    assert [one["attempts"] for one in found["candidates"]] == [[3], [2], [1]]
    assert found["counts"] == {"different": 1, "some": 3, "unknown": 0, "same": 0}
    (path,) = [one for one in found["paths"] if one["path"] == "b.py"]
    assert path == {
        "path": "b.py",
        "extent": "some",
        "groups": [{"candidates": [2], "change": "deleted", "added": 0, "removed": 1}],
        "unchanged": [0, 1],
        "compared": True,
    }
