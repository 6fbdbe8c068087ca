"""The order of attempts, ties, equal results, and scores that judges print."""

from __future__ import annotations

import random

from mudroom.ext.attempts.value import AttemptRecord, best_of, distinct, folded, numbered, ranked, read_score, tied
from tiers import each


def attempt(number: int, **fields: object) -> AttemptRecord:
    made = AttemptRecord(number, f"f{number}", (), "passed", judged=0, fingerprint=str(number), added=1, lines=5)
    return made._replace(**fields)  # type: ignore[arg-type]


ORDERED = [
    attempt(9, score=2.0, lines=50),
    attempt(8, score=1.5, lines=1),
    attempt(4, score=1.5),
    attempt(5, score=1.5),
    attempt(1, score=1.5, added=0, lines=0),
    attempt(3),
    attempt(2, state="failed", judged=1, score=9.0),
    attempt(6, state="failed", judged=1, score=3.0),
    attempt(7, state="timed out", judged=None),
    attempt(10, state="ended early", judged=None),
]


def test_the_order() -> None:
    """Success, score, any change, lines, number; what was not judged comes last."""
    shuffled = random.Random(1).sample(ORDERED, len(ORDERED))
    assert ranked(shuffled, "json") == ORDERED
    assert best_of(shuffled, "json") == ORDERED[0]
    assert best_of(ORDERED[6:], "json") is None
    assert best_of((), "exit") is None


def test_the_exit_code_orders_only_where_it_is_the_score() -> None:
    two, one = attempt(1, state="failed", judged=2), attempt(2, state="failed", judged=1)
    assert [row.number for row in ranked((two, one), "exit")] == [2, 1]
    assert [row.number for row in ranked((two, one), "-lines")] == [1, 2]


def test_ties_are_other_results_alone() -> None:
    rows = folded([attempt(1, fingerprint="a"), attempt(2, fingerprint="a"), attempt(3, fingerprint="b")])
    assert [row.same_as for row in rows] == [0, 1, 0]
    assert [row.number for row in tied(rows, "exit")] == [3]
    assert distinct(rows) == 2
    assert tied(folded([attempt(1), attempt(2, lines=9)]), "exit") == []
    assert tied([attempt(1, state="failed")], "exit") == []


def test_attempts_without_a_result_are_not_folded() -> None:
    rows = folded([attempt(1, fingerprint=""), attempt(2, fingerprint="")])
    assert [row.same_as for row in rows] == [0, 0]
    assert distinct(rows) == 0


@each(
    ("output", "score"),
    [
        (b"7", 7.0),
        (b"-1.5\n\n", -1.5),
        (b'noise\n{"score": 0.25, "more": [1]}\n', 0.25),
        (b"5\r\n", 5.0),
        (b"", None),
        (b"no", None),
        (b"{}", None),
        (b"[1]", None),
        (b"true", None),
        (b'"1"', None),
        (b'{"score": null}', None),
        (b"NaN", None),
        (b"-Infinity", None),
        (b"1e999", None),
        (b"9" * 5000, None),
        (b"[" * 100_000, None),
        (b"\xff", None),
        (b"3\nand a word", None),
    ],
)
def test_the_score_is_in_the_last_line(output: bytes, score: float | None) -> None:
    assert read_score(output) == score


def test_the_number_is_put_into_the_words() -> None:
    assert numbered((b"a{i}", b"{i}{i}", b"{}", b"{j}"), 12) == (b"a12", b"1212", b"{}", b"{j}")
