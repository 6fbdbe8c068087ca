"""Each row of the tables of signs has a line with the sign, and one without it."""

from __future__ import annotations

from pathlib import Path

from mudroom.core.text.table import read_table
from mudroom.ext.order.core import sign, weakened
from mudroom.ext.order.core.sign import LONG, UNSEEN, signs_of
from tiers import each

ROWS = [
    (reason, *rest.rsplit(" || ", 1))
    for reason, rest in (
        line.split(" | ", 1)
        for line in (Path(__file__).parent / "signs.txt").read_text().splitlines()
        if line and line[0] != "#"
    )
]


def has(reason: str, line: str) -> bool:
    patterns = [row.pattern for row in sign._rows() if row.sign.reason == reason]
    patterns += [row.pattern for row in weakened._rows() if row.reason == reason]
    (pattern,) = patterns
    return pattern.search(line) is not None


@each(("reason", "line", "other"), ROWS)
def test_a_sign(reason: str, line: str, other: str) -> None:
    assert has(reason, line)
    assert not has(reason, other)


def test_each_row_has_examples() -> None:
    rows = [row.split(" | ")[0] for table in ("review_signs", "weakened_checks") for row in read_table(table)]
    assert rows == [reason for reason, _line, _other in ROWS]


@each(
    ("line", "signs"),
    [
        (b"a = 1\n", ()),
        ("a = '\u202e'\n".encode(), (UNSEEN,)),
        ("a = 'caf\u00e9'\n".encode(), ()),
        (b"a" * 3_000, (LONG,)),
        (b"\xff\n", (UNSEEN,)),
    ],
)
def test_signs_of_any_text(line: bytes, signs: tuple[object, ...]) -> None:
    assert signs_of((), (line,)) == (signs if line != b"\xff\n" else ())


def test_a_line_that_only_moved_has_no_sign() -> None:
    assert not signs_of([b"eval(a)\n"], [b"    eval(a)\n"])
    assert [each.reason for each in signs_of([], [b"eval(requests.get(a))\n"])] == [
        "runs text as code",
        "talks to the network",
    ]
