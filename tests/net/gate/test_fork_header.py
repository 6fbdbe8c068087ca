"""Headers between forks: a client can set neither, in no spelling, and a circle ends."""

from __future__ import annotations

from mudroom.net.gate.http import MOST_HOPS, with_caller

SPELLINGS = (
    b"x-mudroom-fork", b"X-Mudroom-Fork", b"X_MUDROOM_FORK", b"x-mudroom_fork", b"x.mudroom.fork", b"X-MUDROOM--FORK",
    b"xmudroomfork", b"x-mudroom-fork_", b"x|mudroom|fork",
)  # fmt: skip


def test_a_client_cannot_say_who_it_is() -> None:
    for name in SPELLINGS:
        fields = with_caller([(b"accept", b"*/*"), (name, b"admin")], "planner")
        assert fields == [(b"accept", b"*/*"), (b"x-mudroom-fork", b"planner"), (b"x-mudroom-hops", b"1")], name
    assert with_caller([(b"x-mudroom-fork", b"admin")], "") == [(b"x-mudroom-hops", b"1")]
    assert with_caller([(b"x-mudroom-forks", b"2")], "a") is not None


def test_a_circle_ends() -> None:
    fields: list[tuple[bytes, bytes]] | None = []
    for _hop in range(MOST_HOPS):
        assert fields is not None
        fields = with_caller(fields, "a")
    assert fields is not None
    assert with_caller(fields, "a") is None


def test_what_is_no_number_of_hops() -> None:
    for value, hops in ((b"x", b"1"), (b"-5", b"1"), (b"", b"1"), (b"2, 3", b"4"), (b"\xb2", b"1"), (b"07", b"8")):
        assert with_caller([(b"X_Mudroom_Hops", value)], "a") == [(b"x-mudroom-fork", b"a"), (b"x-mudroom-hops", hops)]
    assert with_caller([(b"x-mudroom-hops", b"9" * 5000)], "a") is None
