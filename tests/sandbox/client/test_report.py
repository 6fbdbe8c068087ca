"""Reports of a launcher are parsed as marshal would parse them, and nothing else is accepted."""

from __future__ import annotations

import marshal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudroom.sandbox.client.report import ReportError, read_record, read_report, read_value
from tiers import each

pytestmark = pytest.mark.both_users

WORDS = st.text(max_size=300)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | WORDS
    | st.binary(max_size=300),
    lambda inner: st.lists(inner, max_size=5).map(tuple),
    max_leaves=20,
)


@given(WORDS, st.lists(VALUES, max_size=6))
def test_what_marshal_writes_is_read_as_marshal_reads_it(word: str, values: list[Any]) -> None:
    record = (word, *values)
    data = marshal.dumps(record)
    try:
        found = read_report(data)
    except ReportError as error:
        assert str(error) == "too deep"
        return
    assert found == record == marshal.loads(data)
    assert [type(one) for one in found] == [type(one) for one in record]


@each(
    "record",
    [
        ("exited", 0, 0.25, 1.5, 20480, (b"chmod /x", b"call 12 3"), 1 << 60, True),
        ("failed", 7, "overlay", 22, "Invalid argument"),
        ("failed", -1, "clone", 1, ""),
        ("prepared",),
        ("done",),
        ("ready",),
        ("same", "same", b"x" * 70000, b"x" * 70000),
    ],
)
def test_the_records(record: tuple[Any, ...]) -> None:
    assert read_report(marshal.dumps(record)) == record


@pytest.mark.parametrize(
    "record",
    [("exited", 0), ("exited", "0", 0.0, 0.0, 0, (), 0, True), ("failed", 1, "op", "1", ""), ("gone",), ("ready", 1)],
)
def test_a_record_has_what_belongs_to_its_word(record: tuple[Any, ...]) -> None:
    with pytest.raises(ReportError, match="no record of a launcher"):
        read_record(marshal.dumps(record))


@given(st.binary(max_size=200))
def test_no_bytes_do_more_than_be_refused(data: bytes) -> None:
    try:
        found = read_report(data)
    except ReportError:
        return
    assert isinstance(found, tuple) and isinstance(found[0], str)


@given(st.lists(VALUES, max_size=4), st.integers(0, 400), st.integers(0, 255))
def test_no_byte_that_is_changed_does(values: list[Any], place: int, byte: int) -> None:
    data = bytearray(marshal.dumps(("exited", *values)))
    data[place % len(data)] = byte
    try:
        read_report(bytes(data))
    except ReportError:
        pass
    else:
        assert read_report(bytes(data))[0] is not None


@each(
    "data",
    [
        b"",
        marshal.dumps("exited"),
        marshal.dumps((1,)),
        marshal.dumps(("x",)) + b"N",
        marshal.dumps(("x", compile("1", "f", "eval"))),
        marshal.dumps(("x", {"a": 1})),
        bytes([0xA8]) + b"\x02\0\0\0>\x01\0\0\0r\0\0\0\0N",  # a tuple that holds itself: marshal crashes
        b"\xa9\x01r\x00\x00\x00\x00",
        b"(\xff\xff\xff\x7f",
        b"(\xff\xff\xff\xff",
        b")\x01l\xff\x00\x00\x00",
        b")\x01" * 100,
    ],
)
def test_what_is_no_report(data: bytes) -> None:
    with pytest.raises(ReportError):
        read_report(data)


def test_a_failure_and_the_end_of_its_process() -> None:
    """Both are in the pipe if the reader is late: the child could not execute the command, then init reports its end.
    It is the failure that is told ("command not found"). Two other records are not one."""
    failed = marshal.dumps(("failed", -1, "exec", 2, ""))
    exited = marshal.dumps(("exited", 127, 0.0, 0.0, 7400, (), 4, True))
    assert read_record(failed + exited) == ("failed", -1, "exec", 2, "")
    with pytest.raises(ReportError, match="more than one record"):
        read_record(exited + failed)


@given(st.lists(st.binary(max_size=20) | WORDS), st.dictionaries(st.binary(max_size=20), st.binary(max_size=20)))
def test_a_request_is_read_as_marshal_reads_it(argv: list[bytes | str], environ: dict[bytes, bytes]) -> None:
    for version in (2, 4):
        found, variables = read_value(marshal.dumps((argv, environ), version))
        assert (list(found), variables) == (argv, environ)


@each(
    "data",
    [
        b"[\xff\xff\xff\x7f",
        b"(\x02\x00\x00\x00[\xff\xff\xff\x7f0",
        b"(\xff\xff\xff\x0f",
        b"{s\x01\x00\x00\x00a",
        b"{[\x00\x00\x00\x00N0",
        b"NN",
        b"{" * 2000,
    ],
)
def test_no_count_of_a_request_is_believed(data: bytes) -> None:
    """For marshal the first takes 16 GB."""
    with pytest.raises(ReportError):
        read_value(data)
